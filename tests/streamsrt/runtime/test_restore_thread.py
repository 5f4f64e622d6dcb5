"""Restoring on a thread of its own: what it does beside the processing thread, and how the two hand over stores."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamsrt.client.signal import Signal
from streamsrt.client.values import Fetched, FetchError, OffsetOutOfRangeError, TopicPartition
from streamsrt.errors import StateError, StoreCorruptedError, UserError
from streamsrt.membership.values import NOTHING, Tasks
from streamsrt.queries.values import RangeQuery
from streamsrt.runtime.restore_thread import PASSED_BYTES, HandoverLock, RestoreThread
from streamsrt.tasks.restore.changelog_work import Applied, Failed, Followed, Report
from streamsrt.tasks.restore.listeners import RestoreListener
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, MakeRig, Rig, number

PARTITION: TopicPartition = ("log", 0)
LONG_S = 60.0


class Patience(logging.Handler):
    """Calls a function when somebody has had to wait for the restore thread, as the log says."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self._then()

    def __enter__(self) -> Patience:
        logging.getLogger("streamsrt.runtime.restore_thread").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("streamsrt.runtime.restore_thread").removeHandler(self)


class Pause:
    """Where one thread stands until another one lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def stand(self) -> None:
        self.reached.set()
        assert self.let_go.wait(LONG_S)


class SlowStore:
    """A byte store whose disk is slow: each restore stands in its middle."""

    def __init__(self, store: Any, pause: Pause) -> None:
        self._store = store
        self._pause = pause

    def restore_stamped(self, columns: RecordColumns) -> None:
        half = len(columns) // 2
        self._store.restore_stamped(columns.cut(0, half))
        self._pause.stand()
        self._store.restore_stamped(columns.cut(half))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def network() -> InProcessNetwork:
    return InProcessNetwork({"log": 2, "global": 1})


@pytest.fixture
def thread(network: InProcessNetwork) -> Iterator[RestoreThread]:
    restorer = network.restorer
    made = RestoreThread(restorer, restorer.arrived, network.wake, patience_s=0.01)
    yield made
    made.close()
    assert "streamsrt-restore" not in {each.name for each in threading.enumerate()}, "closing waits for its end"


def reports(network: InProcessNetwork, thread: RestoreThread) -> list[Report]:
    """What the processing thread is woken for."""
    while True:
        assert network.woken.wait(LONG_S)
        network.woken.clear()
        if found := list(thread.reports()):
            return found


def rows(*names: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(name.encode(), (7).to_bytes(8, "big")) for name in names]


# ---------------------------------------------------------------------------------------------------------- the thread


def test_changelogs_are_applied_on_a_thread_of_its_own(network: InProcessNetwork, thread: RestoreThread) -> None:
    applied: list[tuple[str, list[bytes | None]]] = []
    network.write(PARTITION, rows("a", "b"))

    def apply(columns: RecordColumns) -> None:
        applied.append((threading.current_thread().name, list(columns.keys)))

    thread.follow([Followed(PARTITION, 0, 2, apply)])
    (told,) = reports(network, thread)
    assert isinstance(told, Applied)
    assert (told.position, told.records) == (2, 2)
    assert applied == [("streamsrt-restore", [b"a", b"b"])]
    assert network.restorer.positions == {}, "what is at its end is fetched no more"


def test_a_standby_is_followed_as_its_changelog_grows(network: InProcessNetwork, thread: RestoreThread) -> None:
    seen: list[bytes | None] = []
    three = threading.Event()

    def apply(columns: RecordColumns) -> None:
        seen.extend(columns.keys)
        if len(seen) == 3:
            three.set()

    thread.follow([Followed(PARTITION, 0, None, apply)])
    for name in "abc":
        network.write(PARTITION, rows(name))
    assert three.wait(LONG_S)
    assert seen == [b"a", b"b", b"c"]
    (left,) = thread.release([PARTITION])
    assert (left.position, left.records) == (3, 3)


def test_a_store_is_handed_over_when_the_step_is_over(network: InProcessNetwork, thread: RestoreThread) -> None:
    pause, order = Pause(), []
    network.write(PARTITION, rows("a"))
    network.write(PARTITION, rows("b"))

    def apply(columns: RecordColumns) -> None:
        pause.stand()
        order.append(f"applied {columns.keys}")

    thread.follow([Followed(PARTITION, 0, None, apply)])
    assert pause.reached.wait(LONG_S)
    with Patience(pause.let_go.set) as waiting:
        (left,) = thread.release([PARTITION])
        order.append("released")
    assert order == ["applied [b'a']", "released"]
    assert left.records == 1
    assert "it applies the changelog log-0" in waiting.texts[0], "a thread that is stuck is named"


def test_errors_come_back_as_values(network: InProcessNetwork, thread: RestoreThread) -> None:
    network.write(PARTITION, rows("a"))

    def apply(_columns: RecordColumns) -> None:
        raise StateError("disk full")

    thread.follow([Followed(PARTITION, 0, 1, apply)])
    failed = reports(network, thread)[-1]
    assert isinstance(failed, Failed)
    assert (failed.changelog, str(failed.error)) == (PARTITION, "disk full")
    assert network.restorer.positions == {}


def test_a_thread_that_died_is_noticed() -> None:
    class Broken:
        def poll(self, *_: object) -> list[Fetched]:
            raise MemoryError("no more")

    woken = threading.Event()
    thread = RestoreThread(Broken(), Signal(), woken.set)  # type: ignore[arg-type]
    thread.start()
    assert woken.wait(LONG_S)
    with pytest.raises(StateError, match="the restore thread ended with MemoryError: no more"):
        thread.reports()
    thread.close()


def test_what_nobody_follows_is_passed_on_and_held_back(network: InProcessNetwork, thread: RestoreThread) -> None:
    big = b"x" * (PASSED_BYTES // 3)
    for _ in range(6):
        network.write(("global", 0), [(b"k", big)])
    network.restorer.add_partitions({("global", 0): 0})
    thread.start()
    offset, held_back = 0, 0
    while offset < 6:
        held_back = max(held_back, network.restorer.paused == {("global", 0)})
        for passed in reports(network, thread):
            assert isinstance(passed, Fetched)
            assert passed.offset == offset
            offset = passed.next_offset
    assert network.restorer.paused == set()


def test_nobody_is_held_up_by_a_thread_that_never_began(network: InProcessNetwork) -> None:
    thread = RestoreThread(network.restorer, network.restorer.arrived, network.wake)
    with thread.standing_still:
        assert thread.position(PARTITION) is None
    assert thread.release([PARTITION]) == []
    thread.close()


def test_several_may_want_it_to_stand_still() -> None:
    turns, order = HandoverLock(lambda: ""), []
    with turns:
        working = threading.Thread(target=lambda: (turns.begin(), order.append("step"), turns.end()))
        working.start()
        with turns:
            order.append("inner")
        order.append("outer")
    working.join(LONG_S)
    assert order == ["inner", "outer", "step"]


# ------------------------------------------------------------------------------------------------------- with tasks


def restored(rig: Rig, phase: str, partition: int = 0) -> None:
    """Comes around until the task of that partition is in that phase."""
    while rig.phases()[partition] != phase:
        assert rig.network.woken.wait(LONG_S)
        rig.network.woken.clear()
        rig.restore()


def test_a_task_runs_when_its_changelog_is_applied(make_rig: MakeRig) -> None:
    rig = make_rig(restores_apart=True)
    rig.network.write((CHANGELOG, 0), rows("a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    restored(rig, "active running")
    rig.network.write(("in", 0), [(b"a", number(1))])
    assert rig.move() == 1
    rig.commit()
    assert rig.counts() == {"a": 8}
    assert rig.manager.restored_records == 2


def slow(rig: Rig, partition: int) -> Pause:
    """From now on the disk of that partition's store is slow."""
    (owned,) = [each for each in rig.manager if each.key[1] == partition]
    pause = Pause()
    cache: Any = owned.task.caches["counts"]
    cache.store = SlowStore(cache.store, pause)
    return pause


def test_tasks_that_are_restored_process_meanwhile(make_rig: MakeRig) -> None:
    rig = make_rig(restores_apart=True)
    rig.network.write((CHANGELOG, 0), rows("a", "b"))
    rig.network.is_away = True
    rig.start(Tasks(active=rig.tasks(0, 1)))
    pause = slow(rig, 0)
    rig.network.is_away = False
    rig.clock_ms += 1_000
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    assert pause.reached.wait(LONG_S)
    rig.network.write(("in", 1), [(b"z", number(1))] * 5)
    assert rig.move() == 5, "while the other task's disk stands still"
    rig.commit()
    assert rig.counts() == {"z": 5}
    assert rig.phases() == {0: "active restoring", 1: "active running"}
    pause.let_go.set()
    restored(rig, "active running")


def test_a_query_sees_a_store_between_two_steps(make_rig: MakeRig) -> None:
    rig = make_rig(restores_apart=True, patience_s=0.01)
    rig.network.is_away = True
    rig.start(Tasks(standby=rig.tasks(0)))
    pause = slow(rig, 0)
    rig.network.is_away = False
    rig.clock_ms += 1_000
    rig.network.write((CHANGELOG, 0), rows("a", "b", "c", "d"))
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    assert pause.reached.wait(LONG_S)
    with Patience(pause.let_go.set), rig.gate.idle:
        answer = rig.queries.query("counts", RangeQuery(), partitions=[0]).partition_results[0]
        assert [key for key, _ in answer.result or ()] == ["a", "b", "c", "d"], "not half of a batch"
        assert answer.position.offsets(CHANGELOG) == {0: 3}, "and says so, before the processing thread has been told"


def test_a_store_that_cannot_be_trusted_is_wiped_and_restored(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig(restores_apart=True)
    rig.network.write((CHANGELOG, 0), rows("a"))
    rig.network.is_away = True
    rig.start(Tasks(active=rig.tasks(0)))
    (owned,) = rig.manager
    cache: Any = owned.task.caches["counts"]

    class Corrupt(SlowStore):
        def restore_stamped(self, *_: Any) -> None:
            raise StoreCorruptedError("a block is broken")

    cache.store = Corrupt(cache.store, Pause())
    rig.network.is_away = False
    rig.clock_ms += 1_000
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    restored(rig, "active created")
    assert "store counts is wiped and restored from the start: a block is broken" in caplog.text
    rig.clock_ms += 1_000
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    restored(rig, "active running")
    assert rig.manager.restored_records == 1


def test_what_expired_is_restored_from_where_the_changelog_begins_now(make_rig: MakeRig) -> None:
    rig = make_rig(restores_apart=True)
    rig.network.write((CHANGELOG, 0), rows("a"))
    rig.network.write((CHANGELOG, 0), rows("b"))
    rig.network.restorer.errors[CHANGELOG, 0] = OffsetOutOfRangeError("offset 0 is not in the log", 1)
    rig.network.logs[CHANGELOG, 0].start = 1
    rig.start(Tasks(active=rig.tasks(0)))
    restored(rig, "active created")
    rig.clock_ms += 1_000
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    restored(rig, "active running")
    assert rig.manager.restored_records == 1


def test_a_changelog_that_may_not_be_read_ends_the_application(make_rig: MakeRig) -> None:
    rig = make_rig(restores_apart=True)
    rig.network.write((CHANGELOG, 0), rows("a"))
    rig.network.restorer.errors[CHANGELOG, 0] = FetchError("no rights", 29)
    rig.start(Tasks(active=rig.tasks(0)))
    with pytest.raises(FetchError, match="no rights"):
        restored(rig, "active running")


def test_listeners_are_told_on_the_processing_thread(make_rig: MakeRig) -> None:
    told: list[tuple[str, str]] = []

    class Notes(RestoreListener):
        def on_restore_start(self, *_: object) -> None:
            told.append(("start", threading.current_thread().name))

        def on_batch_restored(self, *_: object) -> None:
            told.append(("batch", threading.current_thread().name))

        def on_restore_end(self, *_: object) -> None:
            told.append(("end", threading.current_thread().name))
            raise KeyError("x")

    rig = make_rig(restores_apart=True, on_restore=Notes())
    rig.network.write((CHANGELOG, 0), rows("a"))
    rig.start(Tasks(active=rig.tasks(0)))
    with pytest.raises(UserError, match=r"Notes\.on_restore_end raised KeyError"):
        restored(rig, "active running")
    here = threading.current_thread().name
    assert told == [("start", here), ("batch", here), ("end", here)]


def test_tasks_are_closed_and_promoted_while_they_are_restored(make_rig: MakeRig) -> None:
    one = make_rig()
    beside = InProcessNetwork({})
    beside.logs, beside.admin = one.network.logs, one.network.admin
    two = make_rig(network=beside, restores_apart=True)
    one.start(Tasks(active=one.tasks(0)))
    wanted: list[Tasks] = [Tasks(standby=two.tasks(0)), NOTHING, Tasks(active=two.tasks(0)), NOTHING]
    for round_number in range(12):
        one.network.write(("in", 0), [(b"a", number(1))] * 10)
        assert one.move() == 10
        one.commit()
        two.clock_ms += 1_000
        two.start(wanted[round_number % len(wanted)])
        two.restore()
    one.start(NOTHING)
    two.clock_ms += 1_000
    two.start(Tasks(standby=two.tasks(0)))
    two.start(Tasks(active=two.tasks(0)))
    restored(two, "active running")
    beside.write(("in", 0), [(b"a", number(1))])
    assert two.move() == 1
    two.commit()
    assert two.counts() == {"a": 121}
