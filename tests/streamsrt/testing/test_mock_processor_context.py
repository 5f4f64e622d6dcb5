"""A processor tested by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streamsrt.errors import UserError
from streamsrt.testing.mock_processor_context import CapturedForward, MockProcessorContext
from topology import (
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordMetadata,
    Store,
    TopologyError,
    UnknownStoreError,
    ValueAndTimestamp,
    VersionedRecord,
    serdes,
)


class Count(Processor[str, str, str, int]):
    """Counts records by key; forwards the count, and to the child ``late`` what is older than stream time."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context
        self.counts = context.get_state_store("counts")
        self.timer = context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, self.flush)

    def process(self, record: Record[str, str]) -> None:
        before = self.counts.get(record.key)
        count = 1 if before is None else before.value + 1
        self.counts.put(record.key, ValueAndTimestamp(count, record.timestamp))
        late = record.timestamp < self.context.current_stream_time_ms()
        self.context.forward(record.with_value(count), "late" if late else None)
        if count == 2:
            self.context.commit()

    def flush(self, timestamp: int) -> None:
        self.context.forward(Record("flushed", 0, timestamp))
        self.timer.cancel()


def new_context() -> MockProcessorContext:
    context = MockProcessorContext()
    context.add_state_store(Store("counts", key=serdes.string, value=serdes.long, timestamped=True))
    return context


def test_what_a_processor_does_is_kept() -> None:
    context, processor = new_context(), Count()
    processor.init(context)
    context.set_current_stream_time(5)
    processor.process(Record("k", "v", 7))
    assert not context.is_committed
    processor.process(Record("k", "v", 3))
    assert context.forwarded() == [CapturedForward(Record("k", 1, 7)), CapturedForward(Record("k", 2, 3), "late")]
    assert context.forwarded("other") == [CapturedForward(Record("k", 1, 7))]
    assert context.get_state_store("counts").get("k") == ValueAndTimestamp(2, 3)
    assert context.is_committed
    context.reset_commit()
    context.reset_forwards()
    assert (context.is_committed, context.forwarded()) == (False, [])


def test_punctuations_are_run_by_the_test() -> None:
    context, processor = new_context(), Count()
    processor.init(context)
    (timer,) = context.scheduled_punctuators()
    assert (timer.interval_ms, timer.type, timer.cancelled) == (1_000, PunctuationType.WALL_CLOCK_TIME, False)
    timer.callback(9)
    assert context.forwarded() == [CapturedForward(Record("flushed", 0, 9))]
    assert timer.cancelled


def test_time_and_origin_are_what_the_test_says() -> None:
    context = MockProcessorContext(application_id="app", task_id="7_1")
    context.set_current_system_time(11)
    context.set_record_metadata("in", 2, 3)
    assert (context.application_id, context.task_id, context.current_system_time_ms()) == ("app", "7_1", 11)
    assert context.record_metadata == RecordMetadata("in", 2, 3)
    windows = context.add_state_store(
        Store("w", kind="window", key=serdes.string, value=serdes.long, retention=100, window_size=10)
    )
    windows.put("a", 1, 10)
    assert list(windows.fetch_range("a", 0, 20)) == [(10, 1)]


def test_mistakes() -> None:
    context = MockProcessorContext()
    with pytest.raises(UnknownStoreError, match="no store 'counts'"):
        Count().init(context)
    with pytest.raises(UserError, match="needs key= and value="):
        context.add_state_store(Store("s"))
    with pytest.raises(TopologyError, match="at least 1 ms"):
        context.schedule(0, PunctuationType.STREAM_TIME, print)


class Renames(FixedKeyProcessor[str, str, str]):
    """Forwards the record under its value as a key, and ``tick`` every hour on the hour."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        start = datetime(2024, 1, 1, 9, tzinfo=UTC)
        context.schedule(timedelta(hours=1), PunctuationType.WALL_CLOCK_TIME, self.tick, start_time=start)

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record._replace(key=record.value))

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", "tock", timestamp))


def test_a_context_of_process_values_refuses_another_key() -> None:
    context, processor = MockProcessorContext(fixed_key=True), Renames()
    processor.init(context)
    context.process(processor, Record("same", "same", 5))
    with pytest.raises(UserError, match="must not change the key"):
        context.process(processor, Record("one", "other", 6))
    with pytest.raises(UserError, match=r"context\.process"):
        processor.process(Record("same", "same", 7))
    (timer,) = context.scheduled_punctuators()
    timer.callback(8)
    assert context.forwarded() == [
        CapturedForward(Record("same", "same", 5)),
        CapturedForward(Record("tick", "tock", 8)),
    ]
    assert timer.start_time_ms == 1_704_099_600_000


def test_a_version_is_deleted_only_where_history_reaches() -> None:
    context = MockProcessorContext()
    versions = context.add_state_store(
        Store("versions", kind="versioned", key=serdes.string, value=serdes.string, retention=10)
    )
    versions.put("a", "old", 100)
    versions.put("b", "x", 1_000)
    assert versions.delete("a", 500) is None, "nothing was deleted"
    assert versions.get("a", 600) == versions.get("a") == VersionedRecord("old", 100)
    assert versions.delete("b", 1_000) == VersionedRecord("x", 1_000)
    assert (versions.get("b"), versions.put("b", "y", 1_005)) == (None, None)
