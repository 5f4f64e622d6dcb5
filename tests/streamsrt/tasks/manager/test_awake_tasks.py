"""An iteration looks only at tasks that may have something to do, and at each of those."""

from __future__ import annotations

from datetime import timedelta

from streamsrt.membership.values import NOTHING, Tasks
from tests.streamsrt.rig import MakeRig, Rig, number
from topology import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, Topology, serdes


def rows(*names: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), number(1)) for name in names]


def awake(rig: Rig) -> list[int]:
    return sorted(owned.key[1] for owned in rig.manager.awake())


def processing_with(processor: type[Processor[str, int, str, int]]) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.integer)
    stream.process(processor).to("out", key=serdes.string, value=serdes.integer)
    return builder.build()


def test_a_task_rests_until_there_is_input(rig: Rig) -> None:
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(1)
    assert awake(rig) == [0, 1]
    rig.iterate(1)
    assert awake(rig) == []
    rig.network.write(("in", 1), rows("a"))
    for fetched in rig.network.fetcher.poll():
        rig.manager.add_input(fetched, rig.clock_ms)
    assert awake(rig) == [1]
    assert rig.move() == 1
    assert awake(rig) == [1]
    rig.commit()
    rig.iterate(1)
    assert awake(rig) == []
    assert rig.counts() == {"a": 1}


def test_a_task_that_is_closed_or_opened_again_is_replaced(rig: Rig) -> None:
    rig.network.write(("in", 0), rows("a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    for fetched in rig.network.fetcher.poll():
        rig.manager.add_input(fetched, rig.clock_ms)
    rig.start(NOTHING)
    assert awake(rig) == []
    rig.start(Tasks(active=rig.tasks(0)))
    assert awake(rig) == [0]
    assert rig.move() == 2


class Ticks(Processor[str, int, str, int]):
    """Sends a record each ten seconds, from its first record on."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, int]) -> None:
        def tick(now_ms: int) -> None:
            self.context.forward(Record("tick", 1, now_ms))

        self.context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, tick)


def test_a_task_with_a_timer_stays_awake(make_rig: MakeRig) -> None:
    rig = make_rig(topology=processing_with(Ticks))
    rig.network.write(("in", 1), rows("a"))
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(5)
    assert awake(rig) == [1]
    for _ in range(3):
        rig.clock_ms += 10_000
        rig.iterate()
    rig.commit()
    assert [key for key, _ in rig.network.read("out")] == [b"tick"] * 3


class Commits(Processor[str, int, str, int]):
    """Asks for a commit."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, int]) -> None:
        self.context.commit()


def test_a_task_with_something_to_commit_stays_awake_until_then(make_rig: MakeRig) -> None:
    rig = make_rig(topology=processing_with(Commits))
    rig.network.write(("in", 0), rows("a"))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.move()
    assert awake(rig) == [0]
    rig.commit()
    rig.move()
    assert awake(rig) == []


async def pass_on(value: int) -> int:
    return value


def test_a_task_with_asynchronous_calls_stays_awake(make_rig: MakeRig) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.integer)
    stream.map_async(pass_on).to("out", key=serdes.string, value=serdes.integer)
    rig = make_rig(topology=builder.build())
    rig.network.write(("in", 0), rows("a", "b"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    rig.move()
    assert 0 in awake(rig)
    rig.commit()
    assert [key for key, _ in rig.network.read("out")] == [b"a", b"b"]


def test_a_paused_partition_keeps_its_task_awake(make_rig: MakeRig) -> None:
    rig = make_rig(input_buffer_bytes=100)
    for _ in range(3):
        rig.network.write(("in", 0), rows(*"abcdef"))
    rig.start(Tasks(active=rig.tasks(0)))
    for fetched in rig.network.fetcher.poll():
        rig.manager.add_input(fetched, rig.clock_ms)
    rig.manager.process(1, rig.clock_ms)
    assert awake(rig) == [0]
    rig.move()
    assert rig.network.fetcher.paused == set()
    rig.commit()
    rig.move()
    assert awake(rig) == []
