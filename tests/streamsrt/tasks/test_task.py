from __future__ import annotations

import linecache
import traceback
from typing import Any

import pytest

from streamsrt.errors import DeserializationError, ProcessingError, ProductionError, RecordError, UserError
from streamsrt.operators.engine.handlers import (
    ErrorContext,
    ExceptionHandlers,
    HandlerResponse,
    log_and_continue,
    strict,
)
from streamsrt.operators.engine.program_clock import ProgramClock
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns, decode_batch, encode_batch
from tests.streamsrt.operators.programs import Written, commit, new_store, new_task
from topology import (
    KStream,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    serdes,
)
from topology.spec.timestamps import wallclock


def columns(*rows: tuple[str | None, bytes | None, int], offset: int = 100) -> RecordColumns:
    keys = [None if key is None else key.encode() for key, _, _ in rows]
    return RecordColumns(keys, [v for _, v, _ in rows], [t for _, _, t in rows], offset, offset + len(rows))


def numbers(step: Any = None) -> Topology:
    """Longs from ``in``, through ``step``, to ``out``."""
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.long)
    (stream if step is None else step(stream)).to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def long(value: int) -> bytes:
    return serdes.long.serialize(value)


def inverse(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    return stream.map_values(lambda v: 100 // v, name="inverse")


GOOD, ZERO, BAD = ("a", long(5), 1), ("b", long(0), 2), ("c", b"no long", 3)


def outputs(written: Written) -> list[Any]:
    return [row[0] for row in written.topics.get("out", [])]


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [(BAD, DeserializationError, "can't be deserialized"), (ZERO, ProcessingError, "ZeroDivisionError")],
)
def test_a_failing_record_is_named_and_everything_before_it_is_done(
    bad: Any, error: type[RecordError], says: str, generate: bool
) -> None:
    written = Written()
    task = new_task(numbers(inverse), written, generate=generate)
    task.add_batch("in", 0, columns(GOOD, GOOD, bad, GOOD))
    with pytest.raises(error, match=says) as caught:
        task.process(100, 0)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("in", 0, 102)
    assert "inverse" in str(caught.value) or not generate
    assert outputs(written) == [b"a", b"a"]
    assert task.prepare_commit().offsets["in", 0][0] == 102
    assert task.buffered_records == 2


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("bad", [BAD, ZERO])
def test_a_failing_record_of_a_lake_is_named_by_what_it_has(bad: Any, generate: bool) -> None:
    """Records of a lake that lies before the log have negative offsets."""
    task = new_task(numbers(inverse), Written(), generate=generate)
    task.add_batch("in", 0, columns(GOOD, bad, offset=-7))
    says = f"at in-0, a record of a lake with key b'{bad[0]}' and timestamp 1970-01-01T00:00:00.00{bad[2]}Z"
    with pytest.raises(RecordError, match=says):
        task.process(100, 0)


def test_a_result_that_cannot_be_serialized_is_a_production_error() -> None:
    task = new_task(numbers(lambda s: s.map_values(lambda v: 2**70)), Written())
    task.add_batch("in", 0, columns(GOOD))
    with pytest.raises(ProductionError, match="offset 100"):
        task.process(1, 0)


@pytest.mark.parametrize("generate", [True, False])
def test_what_the_collector_refuses_does_not_count_as_done(generate: bool) -> None:
    class Refusing(Written):
        def add(self, topic: str, *columns: Any, **options: Any) -> None:
            raise ProductionError("refused", topic)

    task = new_task(numbers(), Refusing(), generate=generate)
    task.add_batch("in", 0, columns(GOOD, GOOD))
    with pytest.raises(ProductionError, match="refused"):
        task.process(10, 0)
    assert task.buffered_records == 2
    assert task.prepare_commit().offsets["in", 0][0] == 100


def test_tasks_of_one_program_share_their_code() -> None:
    topology = numbers()
    tasks = [new_task(topology, Written()) for _ in range(2)]
    for task in tasks:
        task.add_batch("in", 0, columns(ZERO))
        task.process(1, 0)
    before = [name for name in linecache.cache if name.startswith("<streamsrt")]
    other = new_task(topology, Written())
    other.add_batch("in", 0, columns(ZERO))
    other.process(1, 0)
    assert [name for name in linecache.cache if name.startswith("<streamsrt")] == before


def test_tracebacks_show_the_generated_line_and_the_users() -> None:
    task = new_task(numbers(inverse), Written())
    task.add_batch("in", 0, columns(ZERO))
    with pytest.raises(ProcessingError) as caught:
        task.process(1, 0)
    shown = "".join(traceback.format_exception(caught.value))
    assert "# inverse" in shown
    assert "100 // v" in shown


@pytest.mark.parametrize("generate", [True, False])
def test_handlers_skip_and_count(generate: bool) -> None:
    seen: list[ErrorContext] = []

    def note(context: ErrorContext, error: BaseException) -> HandlerResponse:
        seen.append(context)
        return HandlerResponse.CONTINUE

    written = Written()
    handlers = ExceptionHandlers(deserialization=note, processing=note, production=note)
    task = new_task(numbers(inverse), written, handlers=handlers, generate=generate)
    task.add_batch("in", 0, columns(BAD, GOOD, ZERO, GOOD))
    assert task.process(100, 0) == 4
    assert outputs(written) == [b"a", b"a"]
    assert [(c.topic, c.partition, c.offset) for c in seen] == [("in", 0, 100), ("in", 0, 102)]
    counters = task.counters()
    assert (counters["processed"], counters["dropped"]) == (4, 2)
    assert (counters["failed_deserialization"], counters["failed_processing"]) == (1, 1)


@pytest.mark.parametrize("settings", [{}, {"topology.optimization": "all"}])
def test_branches_that_are_merged_again_and_again(settings: dict[str, str]) -> None:
    """Each pair doubles the number of ways: whoever went all of them would not be done for years."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    for number in range(40):
        stream = stream.filter(lambda _, v, n=number: n % 2 == len(v) % 2).merge(stream.filter(lambda k, v: False))
    stream.map_values(mute).group_by(lambda k, v: k, key=serdes.string, value=serdes.long).count(store="counts")
    topology = builder.build(settings)
    assert topology.describe().count("Processor: ") > 120
    subtopology = topology.subtopologies[0]
    config = TaskConfig(handlers=ExceptionHandlers(processing=log_and_continue))
    task = Task(
        subtopology,
        0,
        application_id="app",
        stores={},
        collector=Written(),
        config=config,
        partitions_of_topic=lambda _: 1,
    )
    task.add_batch("in", 0, columns(GOOD))
    assert task.process(1, 0) == 1


class Counted(list[Any]):
    """Counts how many of its records were copied."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if not isinstance(at, slice):
            return found
        Counted.copied += len(found)
        return Counted(found)


def test_what_is_behind_skipped_records_is_copied_once() -> None:
    """A copy for each of them would take the longer the more there are."""
    count = 500
    task = new_task(numbers(inverse), Written(), handlers=ExceptionHandlers(processing=log_and_continue))
    keys, values = Counted([b"k"] * count), Counted([long(0)] * count)
    Counted.copied = 0
    task.add_batch("in", 0, RecordColumns(keys, values, [1] * count, 0, count))
    assert task.process(count, 0) == task.counters()["failed_processing"] == count
    assert Counted.copied <= 4 * count


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Mute:
    name = "mute"

    def serialize(self, value: object) -> bytes:
        raise MuteError

    def deserialize(self, data: bytes) -> str:
        raise MuteError


def mute(_: object) -> int:
    raise MuteError


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("at", ["deserialization", "processing", "production"])
def test_errors_that_refuse_to_be_text_are_handled(at: str, generate: bool) -> None:
    builder = StreamsBuilder()
    given = builder.stream("in", key=serdes.string, value=Mute() if at == "deserialization" else serdes.string)
    if at == "processing":
        given = given.map_values(mute)
    given.to("out", key=serdes.string, value=Mute() if at == "production" else serdes.string)
    topology, error = builder.build(), {"deserialization": DeserializationError, "processing": ProcessingError}
    failing = new_task(topology, Written(), generate=generate, handlers=ExceptionHandlers(deserialization=strict))
    failing.add_batch("in", 0, columns(GOOD))
    with pytest.raises(error.get(at, ProductionError), match=r"MuteError: <exception str\(\) failed>"):
        failing.process(1, 0)
    written = Written()
    handlers = ExceptionHandlers(**{at: log_and_continue}, dead_letter_topic="letters")
    task = new_task(topology, written, generate=generate, handlers=handlers)
    task.add_batch("in", 0, columns(GOOD, GOOD))
    assert task.process(10, 0) == 2
    assert task.counters()[f"failed_{at}"] == len(written.topics["letters"]) == 2
    assert "MuteError" in task.last_skipped[f"failed_{at}"]


def test_only_the_failing_child_is_skipped() -> None:
    def fork(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        stream.map_values(lambda v: v + 1).to("side", key=serdes.string, value=serdes.long)
        return inverse(stream)

    written = Written()
    task = new_task(numbers(fork), written, handlers=ExceptionHandlers(processing=log_and_continue))
    task.add_batch("in", 0, columns(ZERO, GOOD))
    task.process(100, 0)
    assert [row[0] for row in written.topics["side"]] == [b"b", b"a"]
    assert outputs(written) == [b"a"]


def counting(**store: Any) -> Topology:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.bytes)
    counts = stream.group_by_key(key=serdes.string, value=serdes.bytes).count(store=Store("counts", **store))
    counts.to_stream().to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def test_stores_are_written_after_what_was_sent_is_acknowledged() -> None:
    topology, written = counting(), Written()
    stores = {spec.name: new_store(spec) for spec in topology.subtopologies[0].stores}
    task = new_task(topology, written, stores)
    task.add_batch("in", 0, columns(("a", b"x", 5), ("a", b"x", 9)))
    task.process(10, 0)
    assert (written.topics, stores["counts"].get(b"a")) == ({}, None)
    state = task.prepare_commit()
    assert written.topics["app-counts-changelog"] == [(b"a", long(2), 9, ())]
    assert stores["counts"].get(b"a") is None
    assert state.offsets["in", 0][0] == 102
    task.post_commit({"counts": 17})
    assert (stores["counts"].get(b"a"), stores["counts"].changelog_offset()) == (long(9) + long(2), 17)
    assert not task.commit_needed
    assert task.prepare_commit().offsets == {}


def test_full_caches_ask_for_a_commit_and_stop_the_work_until_then() -> None:
    task = new_task(counting(), Written(), cache_max_bytes=3000, write_buffer_max_bytes=3000)
    for start in range(0, 40, 10):
        rows = [(f"key-{i}", b"x", i) for i in range(start, start + 10)]
        task.add_batch("in", 0, columns(*rows, offset=start))
    assert task.process(1000, 0) < 40
    assert task.commit_requested
    assert task.process(1000, 0) == 0
    while task.buffered_records:
        commit(task)
        assert task.process(1000, 0) > 0
    commit(task)
    assert sum(1 for _ in task.caches["counts"].rows(None, None)) == 40  # type: ignore[union-attr, arg-type]
    assert task.caches["counts"].size_bytes() <= 3000


def test_a_commit_tells_the_times_of_its_moment_whenever_it_is_asked() -> None:
    task = new_task(counting(), Written())
    task.add_batch("in", 0, columns(("a", b"x", 5)))
    task.process(10, 0)
    state = task.prepare_commit()
    expected = new_task(counting(), Written())
    expected.restore_partition_time("in", 0, state.offsets["in", 0][1])
    task.add_batch("in", 0, columns(("a", b"x", 77), offset=101))
    task.process(10, 0)
    later = new_task(counting(), Written())
    later.restore_partition_time("in", 0, state.offsets["in", 0][1])
    assert later.partition_times() == expected.partition_times() == {("in", 0): 5}


def test_partition_time_goes_through_the_offsets_metadata() -> None:
    task = new_task(counting(), Written())
    task.add_batch("in", 0, columns(("a", b"x", 5), ("a", b"x", 1234)))
    task.process(10, 0)
    _, metadata = task.prepare_commit().offsets["in", 0]
    other = new_task(counting(), Written())
    other.restore_partition_time("in", 0, "not such metadata")
    assert other.stream_time_ms == -1
    other.restore_partition_time("in", 0, metadata)
    assert other.stream_time_ms == 1234


def test_a_record_without_a_timestamp_is_refused() -> None:
    task = new_task(counting(), Written())
    with pytest.raises(ProcessingError, match="offset 101 has no timestamp"):
        task.add_batch("in", 0, columns(("a", b"x", 5), ("a", b"x", -1)))


def test_times_of_a_decoded_batch_are_seen_whole_and_in_parts() -> None:
    """Records of one size are decoded all at once, with the lowest and the highest time of the batch."""
    keys: list[bytes | None] = [b"a"] * 500
    times = [5] * 500
    times[123] = 40
    times[456] = 60
    task = new_task(counting(), Written())
    task.add_batch("in", 0, decode_batch(encode_batch(keys, keys, times)))
    task.process(200, 0)
    assert task.stream_time_ms == 40
    task.process(1000, 0)
    assert task.stream_time_ms == 60
    times[321] = -1
    with pytest.raises(ProcessingError, match="offset 1321 has no timestamp"):
        task.add_batch("in", 0, decode_batch(encode_batch(keys, keys, times, base_offset=1000)))


def test_an_extractor_gives_timestamps_and_may_drop_records() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream(
        "in",
        key=serdes.string,
        value=serdes.long,
        timestamp_extractor=lambda record, partition_time: record.value if record.value < 50 else -1,
    )
    stream.to("out", key=serdes.string, value=serdes.long)
    written = Written()
    task = new_task(builder.build(), written)
    task.add_batch("in", 0, columns(("a", long(7), 1), ("b", long(70), 2), ("c", long(8), 3)))
    task.process(10, 0)
    assert [(row[0], row[2]) for row in written.topics["out"]] == [(b"a", 7), (b"c", 8)]
    assert task.counters()["dropped_timestamp"] == 1
    assert task.prepare_commit().offsets["in", 0][0] == 103


def by_value() -> Topology:
    """Longs from ``in`` to ``out``, each of which is its record's timestamp."""
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream(
        "in", key=serdes.string, value=serdes.long, timestamp_extractor=lambda record, partition_time: record.value
    )
    stream.to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def test_a_commit_has_no_times_of_records_that_wait() -> None:
    """An extractor has seen them already."""
    task = new_task(by_value(), Written())
    task.add_batch("in", 0, columns(*(("a", long(time), 1) for time in (7, 8, 900))))
    assert task.process(1, 0) == 1
    offset, metadata = task.prepare_commit().offsets["in", 0]
    other = new_task(by_value(), Written())
    other.restore_partition_time("in", 0, metadata)
    assert (offset, other.partition_times(), other.stream_time_ms) == (101, {("in", 0): 7}, 7)


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_a_record_that_an_extractor_can_not_read_waits_for_its_turn(bad: int) -> None:
    """A dead letter that is sent before is sent again after a commit of the records before it and a restart."""
    handlers = ExceptionHandlers(deserialization=log_and_continue, dead_letter_topic="letters")
    written = Written()
    task = new_task(by_value(), written, handlers=handlers)
    task.add_batch("in", 0, columns(*[GOOD] * 2, *[BAD] * bad, GOOD))
    task.add_batch("in", 0, columns(BAD, offset=103 + bad))
    assert task.buffered_records == task.buffered_of("in", 0) == bad + 4
    assert task.process(1, 0) == 1
    assert task.prepare_commit().offsets["in", 0][0] == 101
    assert task.process(1, 0) == 1
    assert task.prepare_commit().offsets["in", 0][0] == 102
    assert list(written.topics) == ["out"]
    assert task.process(100, 0) == 1
    assert task.prepare_commit().offsets["in", 0][0] == 104 + bad
    assert task.buffered_records == 0
    assert (outputs(written), len(written.topics["letters"])) == ([b"a"] * 3, bad + 1)
    assert task.counters()["failed_deserialization"] == bad + 1


def test_everything_before_a_record_that_an_extractor_can_not_read_is_done() -> None:
    written = Written()
    task = new_task(by_value(), written)
    task.add_batch("in", 0, columns(GOOD, GOOD, BAD, GOOD))
    with pytest.raises(DeserializationError, match="offset 102"):
        task.process(100, 0)
    assert outputs(written) == [b"a", b"a"]
    assert task.prepare_commit().offsets["in", 0][0] == 102


@pytest.mark.parametrize("given", [1.5, None, "7", 2**63], ids=repr)
def test_a_timestamp_that_no_record_can_have_names_the_extractor(given: Any) -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream(
        "in", key=serdes.string, value=serdes.long, timestamp_extractor=lambda record, partition_time: given
    )
    stream.to("out", key=serdes.string, value=serdes.long)
    task = new_task(builder.build(), Written())
    with pytest.raises(
        ProcessingError, match=r"the timestamp extractor of .*test_task\.py.* returned .*in-0 offset 100"
    ):
        task.add_batch("in", 0, columns(("a", long(7), 1)))


class Beat(Processor[str, int, str, int]):
    """Forwards the time of each punctuation."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("beat", now, now)))

    def process(self, record: Record[str, int]) -> None:
        self.context.commit()

    def close(self) -> None:
        self.context.forward(Record("closed", 0, 0))


def test_processors_punctuate_ask_for_commits_and_are_closed() -> None:
    written = Written()
    task = new_task(numbers(lambda s: s.process(Beat)), written)
    assert task.punctuate(9) == 0
    assert task.punctuate(25) == 1
    assert task.punctuate(30) == 1
    task.add_batch("in", 0, columns(GOOD))
    task.process(1, 31)
    assert task.commit_requested
    commit(task)
    assert not task.commit_requested
    task.close()
    assert outputs(written) == [b"beat", b"beat", b"closed"]


class Hourly(Processor[str, int, str, int]):
    """Writes each time that it sees, and what for."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: self.seen("second", now))
        context.schedule(HOUR_MS, PunctuationType.WALL_CLOCK_TIME, lambda now: self.seen("hour", now), start_time=0)

    def process(self, record: Record[str, int]) -> None:
        self.seen("record", self.context.current_system_time_ms())
        assert record.timestamp == self.context.current_system_time_ms()

    def seen(self, what: str, now_ms: int) -> None:
        self.context.forward(Record(what, now_ms, now_ms))


HOUR_MS = 3_600_000


def test_what_a_program_sees_of_the_clock_follows_the_machine() -> None:
    written, clock = Written(), ProgramClock()
    topology = numbers(lambda s: s.process(Hourly))
    task = new_task(topology, written, clock=clock, default_timestamp_extractor=wallclock)
    began_ms = 20_000 * HOUR_MS + 1_800_000
    for ahead_ms, passed_ms in ((0, 0), (0, 1_000), (HOUR_MS, 1_500), (HOUR_MS, 2_000), (-9 * HOUR_MS, 3_000)):
        clock.ahead_ms = ahead_ms
        task.punctuate(began_ms + passed_ms)
        task.add_batch("in", 0, columns(GOOD))
        task.process(1, began_ms + passed_ms)
    commit(task)
    seen = [(row[0].decode(), int.from_bytes(row[1], "big") - began_ms) for row in written.topics["out"]]
    assert seen == [
        ("record", 0),
        ("second", 1_000),
        ("record", 1_000),
        ("hour", HOUR_MS + 1_500),
        ("record", HOUR_MS + 1_500),
        ("second", HOUR_MS + 2_000),
        ("record", HOUR_MS + 2_000),
        ("second", 3_000 - 9 * HOUR_MS),
        ("record", 3_000 - 9 * HOUR_MS),
    ]
    left_ms = HOUR_MS - 1_800_000 - 3_000
    assert task.punctuate(began_ms + 3_000 + left_ms - 1) == 1
    assert task.punctuate(began_ms + 3_000 + left_ms) == 2, "the new hour, and the next second"


class BeatLater(Processor[str, int, str, int]):
    """Schedules its first punctuation at a record."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, int]) -> None:
        self.context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.beat)

    def beat(self, now_ms: int) -> None:
        self.context.forward(Record("beat", now_ms, now_ms))


def test_the_first_punctuation_may_be_scheduled_at_any_time() -> None:
    written = Written()
    task = new_task(numbers(lambda s: s.process(BeatLater)), written)
    assert task.punctuate(10) == 0
    assert task.punctuate(20) == 0
    task.add_batch("in", 0, columns(GOOD))
    task.process(1, 30)
    assert task.punctuate(39) == 0
    assert task.punctuate(40) == 1
    commit(task)
    assert outputs(written) == [b"beat"]


def test_processors_of_a_task_that_only_follows_changelogs_never_begin() -> None:
    begun: list[object] = []

    class Begins(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            begun.append(context)

        def process(self, record: Record[str, int]) -> None:
            raise AssertionError("there is no record")

        def close(self) -> None:
            begun.append("closed")

    task = new_task(numbers(lambda s: s.process(Begins)), Written())
    task.close()
    assert begun == []


def test_a_missing_store_is_named() -> None:
    (subtopology,) = counting().subtopologies
    with pytest.raises(UserError, match="no store 'counts'"):
        Task(
            subtopology,
            0,
            application_id="app",
            stores={},
            collector=Written(),
            config=TaskConfig(),
            partitions_of_topic=lambda topic: 1,
        )
