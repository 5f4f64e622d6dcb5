"""The table of errors: no class is forgotten, and a task that starts does what it says."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamsrt
from streamsrt.client.values import ProducerFencedError, RequestTimedOutError
from streamsrt.errors import (
    BrokerUnreachableError,
    MissingTopicError,
    RequestFailedError,
    StateDirectoryLockedError,
    StateError,
    StoreCorruptedError,
    StreamsError,
    UserError,
)
from streamsrt.membership.values import NOTHING, ReportOwned, Tasks
from streamsrt.runtime.values import State
from streamsrt.state.directory import StateDirectory
from streamsrt.state.kinds import LaidOut
from streamsrt.tasks.error_policy import ERROR_POLICY, ErrorAction, is_waited_out, policy_for
from tests.streamsrt.rig import MakeRig, Rig, number
from tests.streamsrt.runtime.test_damaged_stores import NAMES, damage, task_of, write
from topology.graph.nodes import StoreSpec

ELSEWHERE = tuple(
    f"streamsrt.{name}"
    for name in (
        "backfill",
        "cli.",
        "http",
        "queries",
        "runtime.failures",
        "runtime.supervisor",
        "schema_registry",
        "testing",
    )
)
"""What is raised there never comes to a task or its thread, or as the cause of a RecordError (serdes)."""


def classes(root: type[StreamsError]) -> Iterator[type[StreamsError]]:
    yield root
    for each in root.__subclasses__():
        yield from classes(each)


def test_every_class_has_its_row() -> None:
    for module in pkgutil.walk_packages(streamsrt.__path__, "streamsrt."):
        if not module.name.startswith(("streamsrt.testing", "streamsrt.backfill.")):
            importlib.import_module(module.name)
    ours = {each for each in classes(StreamsError) if each.__module__.startswith("streamsrt.")}
    of_faust = {each for each in ours if each.__module__.startswith("streamsrt.faust.")}
    # Tasks don't know the package; its errors are users' errors.
    assert all(issubclass(each, UserError) for each in of_faust)
    assert {each for each in ours - of_faust if not each.__module__.startswith(ELSEWHERE)} == set(ERROR_POLICY)


def test_a_class_without_a_row_is_treated_as_the_nearest_one() -> None:
    class OddError(StoreCorruptedError):
        pass

    assert policy_for(OddError("odd")) is ERROR_POLICY[StoreCorruptedError]


def test_every_treatment_is_used() -> None:
    assert {each for row in ERROR_POLICY.values() for each in row} == set(ErrorAction)


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (BrokerUnreachableError("away"), True),
        (RequestTimedOutError("late"), True),
        (RequestFailedError("refused", 29), True),
        (ProducerFencedError("fenced"), True),
        (MissingTopicError("gone"), False),
        (StateError("full"), False),
    ],
)
def test_a_task_that_can_not_start_waits_if_the_table_says_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: StreamsError, waits: bool
) -> None:
    failures = [error]
    committed = rig.network.admin.committed

    def fail_once(*given: object, **settings: object) -> object:
        if failures:
            raise failures.pop()
        return committed(*given, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.network.admin, "committed", fail_once)
    assert is_waited_out(error) is waits
    rig.manager.assign(Tasks(active=rig.tasks(0)), lambda _leaving: None)
    if not waits:
        with pytest.raises(type(error)):
            rig.manager.start_tasks(rig.clock_ms, "member", 1)
        return
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    assert rig.phases() == {0: "active created"}
    rig.clock_ms += 500
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    assert rig.phases() == {0: "active running"}


# ------------------------------------------------------------------------------------------------- a store that is held


@pytest.fixture
def held(rig: Rig, tmp_path: Path) -> Iterator[tuple[Rig, StateDirectory]]:
    """A member with a store that another process of the same instance has open: that of partition 0."""
    with StateDirectory(tmp_path / "state-0", "app", shared=True) as other:
        spec = next(iter(rig.subtopology.stores))
        other.open_store(spec, 0)
        yield rig, other


def turns(rig: Rig, count: int) -> None:
    for _ in range(count):
        rig.clock_ms += 200
        rig.iterate()


@pytest.mark.parametrize("cause", ["start over", "damage", "another role"])
def test_a_task_waits_if_another_process_opens_its_store_before_it_is_open_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """The process to which the group gives the task waits for the store, and is quicker."""
    for partition in (0, 1):
        rig.network.write(("in", partition), [(f"{partition}".encode(), number(1))])
    rig.give(Tasks(active=rig.tasks(0, 1)))
    turns(rig, 6)
    assert rig.phases() == {0: "active running", 1: "active running"}
    rig.commit()
    (owned,) = (each for each in rig.manager.running() if each.key[1] == 0)
    with StateDirectory(tmp_path / "state-0", "app", shared=True) as other, monkeypatch.context() as patched:
        opening = rig.directory.open_store

        def second(spec: StoreSpec, partition: int) -> LaidOut:
            if partition == 0 and not other.is_open(spec.kept_as, 0):
                other.open_store(spec, 0)
            return opening(spec, partition)

        patched.setattr(rig.directory, "open_store", second)
        match cause:
            case "start over":
                rig.manager.restart_all()
            case "damage":
                rig.manager.restart(owned, "active", wipe=["counts"])
            case _:
                rig.manager.assign(Tasks(active=rig.tasks(1), standby=rig.tasks(0)), lambda leaving: None)
        assert set(rig.phases()) == {1}
        assert len(rig.manager.waiting()) == 1
    turns(rig, 6)
    assert set(rig.phases()) == {0, 1}
    assert not rig.manager.waiting()


def test_only_the_task_waits_whose_store_another_process_holds(
    held: tuple[Rig, StateDirectory], caplog: pytest.LogCaptureFixture
) -> None:
    rig, other = held
    for partition in (0, 1):
        rig.network.write(("in", partition), [(f"{partition}".encode(), number(1))])
    rig.give(Tasks(active=rig.tasks(0, 1)))
    turns(rig, 6)
    assert rig.phases() == {1: "active running"}
    rig.commit()
    assert rig.counts() == {"1": 1}
    assert [each for each in rig.member.told if isinstance(each, ReportOwned)] == [
        ReportOwned(Tasks(active=rig.tasks(1)))
    ]
    assert rig.states[-1] is State.REBALANCING
    (why,) = rig.thread.progress.statuses
    assert why.startswith(f"task {rig.subtopology.id}_0 can't be opened yet: state store 'counts' in ")
    assert len([line for line in caplog.messages if "can't be opened yet, trying again" in line]) == 1
    other.close()
    turns(rig, 6)
    assert rig.phases() == {0: "active running", 1: "active running"}
    assert ReportOwned(Tasks(active=rig.tasks(0, 1))) in rig.member.told
    assert (rig.states[-1], rig.thread.progress.statuses) == (State.RUNNING, ())
    rig.commit()
    assert rig.counts() == {"0": 1, "1": 1}


def test_a_store_that_is_held_for_too_long_ends_it(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig(task_timeout_ms=1_000)
    with StateDirectory(tmp_path / "state-0", "app", shared=True) as other:
        other.open_store(next(iter(rig.subtopology.stores)), 0)
        rig.give(Tasks(active=rig.tasks(0)))
        with pytest.raises(StateDirectoryLockedError, match=r"store 'counts' in .* is already open"):
            turns(rig, 10)


def test_a_task_that_goes_elsewhere_is_not_waited_for(held: tuple[Rig, StateDirectory]) -> None:
    rig, _ = held
    rig.give(Tasks(active=rig.tasks(0)))
    turns(rig, 2)
    rig.give(NOTHING)
    turns(rig, 2)
    assert rig.thread.progress.statuses == ()
    assert rig.states[-1] is State.RUNNING


# --------------------------------------------------------------------------------------------- damage that shows late


def test_damage_that_shows_when_a_store_is_opened_is_restored(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig()
    write(rig)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(4)
    rig.thread._commit_all()
    store = task_of(rig, 0).stores["counts"]
    damage(rig, 0, all_of_it=True)
    path = Path(store.path)
    rig.give(NOTHING)
    rig.iterate(2)
    assert list(path.glob("*.sst"))
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(12)
    assert rig.phases() == {0: "active running"}
    rig.thread._commit_all()
    assert "it is wiped and restored from its changelog" in caplog.text
    assert rig.counts() == {f"0-{name}": 1 for name in NAMES}
