"""The code of joins with a grace period does what the processor nodes do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import ProcessingError
from streamsrt.operators.kinds import grace_joins
from streamsrt.tasks.task import Task
from tests.streamsrt.operators.programs import Piped, Written, columns_of, commit, final_rows, new_task
from tests.streamsrt.operators.test_equivalence import restore
from topology import Store, StreamsBuilder, Topology, serdes
from topology.spec.codecs import AnySerde

GRACE_MS = 10
Batches = Sequence[Sequence[Piped]]


def both(value: Any, row: Any) -> Any:
    return f"{value}+{row}".encode() if isinstance(value, bytes) else f"{value}+{row}"


def program(
    serde: AnySerde = serdes.string,
    *,
    left: bool = False,
    joiner: Callable[[Any, Any], Any] = both,
    again: bool = False,
) -> Topology:
    """``again``: what is joined waits once more."""
    builder = StreamsBuilder()
    store = Store("versions", kind="versioned", retention=60, segment_interval=20, in_memory=True)
    table: Any = builder.table("t", key=serde, value=serde, store=store)
    stream: Any = builder.stream("in", key=serde, value=serde)
    for _ in range(1 + again):
        stream = (stream.left_join if left else stream.join)(table, joiner, grace=GRACE_MS)
    stream.to("out", key=serde, value=serde)
    return builder.build()


def is_generated(task: Task) -> bool:
    """Whether records of the stream have a function."""
    return any(each is not None and each.takes_places for each in task._runner._compiled.values())


class Fed:
    """A task that takes batches of both inputs, all that came before a commit together."""

    def __init__(
        self, topology: Topology, written: Written, stores: dict[str, Any] | None = None, **config: Any
    ) -> None:
        self.task = new_task(topology, written, stores, **config)
        self.offsets = {"in": 0, "t": 0}

    def take(self, rows: Sequence[Piped]) -> None:
        for topic in self.offsets:
            of_topic = [row for row in rows if row.topic == topic]
            if of_topic:
                self.task.add_batch(topic, 0, columns_of(of_topic, self.offsets[topic]))
                self.offsets[topic] += len(of_topic)
        while self.task.process(1_000, 7):
            continue


def outcome(topology: Topology, batches: Batches, restart_at: int = -1, **config: Any) -> tuple[Any, ...]:
    """All that is written and kept, with a restart before the batch of that index."""
    written = Written()
    fed = Fed(topology, written, **config)
    for index, batch in enumerate(batches):
        if index == restart_at:
            values = fed.task.snapshot()
            before, fed = fed, Fed(topology, written, **config)
            for spec in topology.subtopologies[0].stores:
                restore(fed.task, spec.name, written)
            fed.task.resume_from(values)
            fed.offsets = before.offsets
        fed.take(batch)
        commit(fed.task)
    since = restart_at if 0 <= restart_at < len(batches) else 0
    if any(row.topic == "in" for batch in batches[since:] for row in batch):
        assert is_generated(fed.task) == config.get("generate", True)
    return written.topics, final_rows(fed.task), fed.task.counters(), fed.task.snapshot()


headers = st.sampled_from(((), (), (), (("h", b"1"),), (("h", None), ("\u00e9", b""))))
rows = st.builds(
    Piped,
    st.sampled_from(("in", "in", "t")),
    st.sampled_from(("a", "b", "c", "", None)),
    st.sampled_from(("x", "y", "", "z" * 300, None)),
    st.integers(0, 12).map(lambda at: 5 * at),
    headers,
)
many = st.lists(st.lists(rows, max_size=30), min_size=1, max_size=5)


@pytest.mark.parametrize("serde", [serdes.string, serdes.bytes], ids=["strings", "bytes"])
@pytest.mark.parametrize("left", [False, True])
@settings(max_examples=60, deadline=None)
@given(batches=many, restart_at=st.integers(-1, 4), is_ordered=st.booleans())
def test_code_and_nodes_write_and_keep_the_same(
    serde: AnySerde, left: bool, batches: list[list[Piped]], restart_at: int, is_ordered: bool
) -> None:
    if is_ordered:
        batches = [sorted(batch, key=lambda row: row.timestamp) for batch in batches]
    topology = program(serde, left=left)
    assert outcome(topology, batches, restart_at) == outcome(topology, batches, restart_at, generate=False)


@settings(max_examples=40, deadline=None)
@given(batches=many, restart_at=st.integers(-1, 4), records_max=st.integers(0, 8))
def test_few_records_that_wait_are_in_memory(batches: list[list[Piped]], restart_at: int, records_max: int) -> None:
    topology, unbounded = program(), []
    for generate in (True, False):
        unbounded.append(outcome(topology, batches, restart_at, generate=generate))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grace_joins, "_RECORDS_MAX", records_max)
            assert outcome(topology, batches, restart_at, generate=generate) == unbounded[-1]
    assert unbounded[0] == unbounded[1]


def test_many_records_come_and_go() -> None:
    """More than are forgotten at a time."""
    made = [
        Piped(("in", "in", "t")[at % 3], "abcd"[at % 4], str(at), at - at % 7 * (at % 5 == 0), ())
        for at in range(9_000)
    ]
    batches = [made[start : start + 3_000] for start in range(0, len(made), 3_000)]
    assert outcome(program(), batches) == outcome(program(), batches, generate=False)


def failing(value: str, row: str) -> str:
    if value == "bad":
        raise ValueError(row)
    return both(value, row)  # type: ignore[no-any-return]


@pytest.mark.parametrize("generate", [True, False])
def test_a_failure_is_that_of_the_record_that_waited(generate: bool) -> None:
    written = Written()
    fed = Fed(program(joiner=failing), written, generate=generate)
    fed.take([Piped("t", "a", "1", 0, ()), Piped("in", "a", "good", 5, ()), Piped("in", "a", "bad", 6, ())])
    later = [Piped("in", "b", "c", 7, ()), Piped("in", "b", "c", 30, ())]
    with pytest.raises(ProcessingError, match=r"ValueError: 1 .*at in-0 offset 1\b") as raised:
        fed.take(later)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 1)
    assert is_generated(fed.task) == generate
    # What was joined before it is done, and it is still the first one that waits.
    assert [row[1] for row in written.topics["out"]] == [b"good+1"]
    (buffer,) = (cache for name, cache in fed.task.caches.items() if name.endswith("-Buffer"))
    assert [row.key[9:-4] for row in buffer.rows(None, None)] == [b"a", b"b", b"b"]
    assert fed.task.buffered_records == 1


@pytest.mark.parametrize("generate", [True, False])
def test_a_failure_without_a_wait_is_that_of_the_record_itself(generate: bool) -> None:
    fed = Fed(program(joiner=failing), Written(), generate=generate)
    fed.take([Piped("t", "a", "1", 0, ()), Piped("in", "a", "good", 50, ())])
    with pytest.raises(ProcessingError, match=r"ValueError: 1 .*at in-0 offset 1\b"):
        fed.take([Piped("in", "a", "bad", 6, ())])


def test_what_is_joined_may_wait_again() -> None:
    """Where a record that waits twice was read is known to processor nodes only."""
    batches = [[Piped("in", "a", str(at), at, ()) for at in range(40)], [Piped("t", "a", "1", 0, ())]]
    written = Written()
    fed = Fed(program(left=True, again=True), written)
    for batch in batches:
        fed.take(batch)
    assert not is_generated(fed.task)
    assert [row[1] for row in written.topics["out"]] == [b"%d+None+None" % at for at in range(20)]


@pytest.mark.parametrize("generate", [True, False])
def test_the_log_of_what_waits_has_the_time_that_programs_see(generate: bool) -> None:
    written = Written()
    fed = Fed(program(), written, generate=generate)
    fed.task._plan.clock.ahead_ms = 500
    fed.take([Piped("t", "a", "1", 0, ()), Piped("in", "a", "x", 5, ()), Piped("in", "a", "y", 5 + 2 * GRACE_MS, ())])
    commit(fed.task)
    times = {topic: [row[2] for row in rows] for topic, rows in written.topics.items() if "buffer" in topic.lower()}
    assert list(times.values()) == [[507, 507, 507]], "two records, of which one is gone"
