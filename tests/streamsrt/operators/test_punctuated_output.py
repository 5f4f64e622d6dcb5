"""Punctuations between records: what they forward and store is among what records do, where a plain loop has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamsrt.operators.engine.handlers import ExceptionHandlers, handler_of
from tests.streamsrt.operators.programs import Piped, Written, columns_of, commit, new_task
from topology import ProcessorContext, PunctuationType, Record, Store, StreamsBuilder, Topology, serdes

STREAM_MS, WALL_MS = 10, 7
HEADERS = (("h", b"1"),)
KINDS = ("plain", "nothing", "twice", "headers", "later", "fails")


class Tells:
    """Forwards what each record asks for, and a record for each punctuation; stores what it last did."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.last = context.get_state_store("last")
        context.schedule(STREAM_MS, PunctuationType.STREAM_TIME, lambda now_ms: self.tick("stream", now_ms))
        context.schedule(WALL_MS, PunctuationType.WALL_CLOCK_TIME, lambda now_ms: self.tick("wall", now_ms))

    def process(self, record: Record[str, str]) -> None:
        self.last.put(record.key, record.value)
        match record.value:
            case "nothing":
                return
            case "headers":
                record = record.with_headers(HEADERS)
            case "later":
                record = record.with_timestamp(record.timestamp + 100)
        self.context.forward(record)
        if record.value == "twice":
            self.context.forward(record.with_value(self.last.get(record.key)))
        if record.value == "fails":
            raise ValueError(record)

    def tick(self, kind: str, now_ms: int) -> None:
        self.last.put(kind, f"at {now_ms}")
        self.context.forward(Record(kind, f"at {now_ms}", now_ms))


def told() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Store("last", key=serdes.string, value=serdes.string, in_memory=True))
    builder.stream("in", key=serdes.string, value=serdes.string).process(Tells, stores=["last"]).to("out")
    return builder.build()


class Loop:
    """The same by hand: what comes out, and what changes."""

    def __init__(self, now_ms: int) -> None:
        self.stream_ms, self.wall_ms = -1, now_ms
        self.stream_due_ms, self.wall_due_ms = 0, now_ms + WALL_MS
        self.out: list[tuple[Any, ...]] = []
        self.log: list[tuple[Any, ...]] = []

    def record(self, row: Piped) -> None:
        assert row.key is not None
        assert row.value is not None
        self.stream_ms = max(self.stream_ms, row.timestamp)
        key, value, at_ms = row.key.encode(), row.value.encode(), row.timestamp
        self.log.append((key, value, at_ms, ()))
        headers = HEADERS if row.value == "headers" else ()
        times = {"nothing": 0, "twice": 2}.get(row.value, 1)
        self.out += [(key, value, at_ms + 100 * (row.value == "later"), headers)] * times
        if self.stream_due_ms <= self.stream_ms:
            self._tick(b"stream", self.stream_ms)
            while self.stream_due_ms <= self.stream_ms:
                self.stream_due_ms += STREAM_MS

    def clock(self, now_ms: int) -> None:
        if self.wall_due_ms <= now_ms:
            self._tick(b"wall", now_ms)
            while self.wall_due_ms <= now_ms:
                self.wall_due_ms += WALL_MS

    def _tick(self, kind: bytes, now_ms: int) -> None:
        for rows in (self.log, self.out):
            rows.append((kind, b"at %d" % now_ms, now_ms, ()))


records = st.builds(
    Piped, st.just("in"), st.sampled_from("ab"), st.sampled_from(KINDS), st.integers(0, 60), st.just(())
)
steps = st.lists(st.one_of(st.lists(records, min_size=1, max_size=6), st.integers(0, 20), st.none()), max_size=12)


@given(steps, st.booleans())
def test_outputs_are_in_the_order_of_records_and_punctuations(
    steps: Sequence[list[Piped] | int | None], gathers: bool
) -> None:
    """A step: a batch of records, so many milliseconds of the wall clock, or (None) a commit."""
    written, now_ms, offset = Written(), 1_000, 0
    handlers = ExceptionHandlers(processing=handler_of("continue"))
    task = new_task(told(), written, handlers=handlers, gathers_output=gathers)
    task.process(1, now_ms)
    loop = Loop(now_ms)
    for step in steps:
        if step is None:
            commit(task)
        elif isinstance(step, int):
            now_ms += step
            task.punctuate(now_ms)
            loop.clock(now_ms)
        else:
            task.add_batch("in", 0, columns_of(step, offset))
            offset += len(step)
            while task.process(1_000, now_ms):
                continue
            for row in step:
                loop.record(row)
    assert written.topics.get("out", []) == loop.out
    assert written.topics.get("app-last-changelog", []) == loop.log
