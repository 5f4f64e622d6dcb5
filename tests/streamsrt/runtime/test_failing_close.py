"""``close`` of a user's processor raises: it is told with its step, all else is closed, and what was committed stays so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamsrt.client.values import DeliveryTimeoutError
from streamsrt.errors import DeserializationError, ProcessingError, UserError
from streamsrt.membership.values import LeftGroup, ReleaseTasks, Tasks
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import MakeRig, Rig, number
from topology import KeyValueStore, Processor, Record, Store, StreamsBuilder, serdes
from topology.graph.topology import Topology

SAID = r"close of a processor raised OSError: full \(in node KSTREAM-PROCESSOR-\d+ \(.*test_failing_close\.py:\d+\)\): "


class Remembering(Processor[str, int, str, int]):
    """Sums; ``close`` fails in the tasks of ``failing``, which says ``closed`` of all."""

    def __init__(self, failing: set[int], closed: list[int]) -> None:
        self._failing, self._closed = failing, closed

    def init(self, context: Any) -> None:
        self._partition = int(context.task_id.partition("_")[2])
        self._sums: KeyValueStore[str, int] = context.get_state_store("sums")

    def process(self, record: Record[str, int]) -> None:
        self._sums.put(record.key, (self._sums.get(record.key) or 0) + record.value)

    def close(self) -> None:
        self._closed.append(self._partition)
        if self._partition in self._failing:
            raise OSError("full")


def summing(failing: set[int], closed: list[int]) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Store("sums", key=serdes.string, value=serdes.integer))
    numbers = builder.stream("in", key=serdes.string, value=serdes.integer)
    numbers.process(lambda: Remembering(failing, closed), stores=["sums"])
    return builder.build()


class Drill:
    """A member with two tasks that have processed a record each."""

    def __init__(self, make_rig: MakeRig, failing: set[int]) -> None:
        self.closed: list[int] = []
        self.failing = failing
        network = InProcessNetwork({"in": 2, "app-sums-changelog": 2})
        self.rig: Rig = make_rig(topology=summing(failing, self.closed), network=network)
        for partition in (0, 1):
            self.rig.network.write(("in", partition), [(b"a", number(1))])
        self.rig.give(Tasks(active=self.rig.tasks(0, 1)))
        self.rig.iterate(6)

    def committed(self) -> dict[Any, int]:
        return {tp: at.offset for tp, at in self.rig.network.admin.offsets.items()}


EVERYTHING: dict[Any, int] = {("in", 0): 1, ("in", 1): 1}


@pytest.mark.parametrize("is_released", [True, False], ids=["released by the group", "never released"])
@pytest.mark.parametrize("failing", [{0}, {1}, {0, 1}], ids=str)
def test_at_the_end_all_is_closed_and_committed(make_rig: MakeRig, failing: set[int], is_released: bool) -> None:
    drill = Drill(make_rig, failing)
    stores = [owned.stores["sums"] for owned in drill.rig.manager]
    drill.rig.thread.stop()
    drill.rig.iterate()
    if is_released:
        drill.rig.member.waiting.extend([ReleaseTasks(), LeftGroup()])
    else:
        drill.rig.clock_ms += 16_000
    with pytest.raises(ProcessingError, match=SAID) as raised:
        drill.rig.thread.run()
    assert raised.value.exit_code == 5
    assert isinstance(raised.value.__cause__, OSError)
    assert sorted(drill.closed) == [0, 1]
    assert len(stores) == 2
    assert len(drill.rig.manager) == 0
    assert drill.committed() == EVERYTHING

    # What the stores hold is whole: the next instance goes on with them, and counts nothing twice.
    drill.rig.close()
    after = Rig(Path(drill.rig.directory.path).parent, summing(set(), []), drill.rig.network)
    after.network.write(("in", 0), [(b"a", number(5))])
    after.start(Tasks(active=after.tasks(0, 1)))
    after.move()
    after.commit()
    after.close()
    written = [int.from_bytes((value or b"")[-4:], "big") for _, value in after.network.read("app-sums-changelog")]
    assert sorted(written) == [1, 1, 6]


def test_of_a_task_that_goes_elsewhere_it_ends_the_instance(make_rig: MakeRig) -> None:
    drill = Drill(make_rig, {1})
    drill.rig.give(Tasks(active=drill.rig.tasks(0)))
    with pytest.raises(ProcessingError, match=SAID):
        drill.rig.thread.run()
    assert drill.committed()["in", 1] == 1
    assert sorted(drill.closed) == [0, 1]
    assert len(drill.rig.manager) == 0


def test_after_a_failure_it_is_only_told(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    drill = Drill(make_rig, {0, 1})
    drill.rig.network.write(("in", 0), [(b"a", b"no number")])
    with pytest.raises(DeserializationError):
        drill.rig.thread.run()
    assert "close of a processor raised OSError: full" in caplog.text
    assert sorted(drill.closed) == [0, 1]


def test_a_task_that_starts_over_does_so_nevertheless(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    drill = Drill(make_rig, {0, 1})
    drill.rig.thread._start_over(DeliveryTimeoutError("late"))
    assert sorted(drill.closed) == [0, 1]
    assert caplog.text.count("failed; it is opened again anyway: close of a processor raised OSError: full") == 2
    drill.failing.clear()
    drill.rig.iterate(6)
    drill.rig.commit()
    assert drill.committed() == EVERYTHING


def test_with_a_lost_membership_the_member_joins_again(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    drill = Drill(make_rig, {0})
    drill.rig.thread._close_lost_tasks("fenced")
    assert sorted(drill.closed) == [0, 1]
    assert "close of a processor raised OSError: full" in caplog.text
    assert len(drill.rig.manager) == 0


def test_the_test_driver_closes_everything() -> None:
    closed: list[int] = []
    builder = StreamsBuilder()
    builder.add_state_store(Store("sums", key=serdes.string, value=serdes.integer))
    numbers = builder.stream("in", key=serdes.string, value=serdes.integer)
    for _ in range(3):
        numbers.process(lambda: Remembering({0}, closed), stores=["sums"])
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("in", serdes.string, serdes.integer).pipe_input("a", 1)
    with pytest.raises(ProcessingError, match=SAID):
        driver.close()
    assert closed == [0, 0, 0]


class Transforming:
    """A transformer whose one method or the other fails."""

    def __init__(self, method: str) -> None:
        self._method = method

    def init(self, context: Any) -> None:
        if self._method == "init":
            raise OSError("full")

    def transform(self, key: str, value: int | None) -> int | None:
        return value

    def close(self) -> None:
        if self._method == "close":
            raise OSError("full")


@pytest.mark.parametrize("method", ["init", "close"])
def test_a_transformer_that_fails_is_told_with_its_step(method: str) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=serdes.string, value=serdes.integer)
    table.transform_values(lambda: Transforming(method)).to_stream().to("out")
    topology = builder.build()
    with pytest.raises(
        ProcessingError, match=rf"{method} of a transformer raised OSError: full \(in node .*\.py:\d+\)"
    ):
        TopologyTestDriver(topology).close()


def test_what_the_package_refuses_in_close_stays_its_own_error() -> None:
    class Refused(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            """Nothing."""

        def close(self) -> None:
            raise UserError("refused")

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).process(Refused)
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("in", serdes.string, serdes.integer).pipe_input("a", 1)
    with pytest.raises(UserError, match="refused"):
        driver.close()
