"""A store that turns out to be damaged while its task runs, and other trouble with state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamsrt.errors import StateError, StoreCorruptedError
from streamsrt.membership.values import Tasks
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.tasks.manager.damage import damaged_store
from streamsrt.tasks.manager.owned_task import OwnedTask
from tests.streamsrt.rig import MakeRig, Rig, number
from tests.streamsrt.runtime.test_exactly_once import ExactlyOnceRig
from topology import StreamsBuilder, serdes

NAMES = [f"key-{index:05d}" for index in range(3_000)]


def write(rig: Rig) -> None:
    for partition in (0, 1):
        rig.network.write(("in", partition), [(f"{partition}-{name}".encode(), number(1)) for name in NAMES])


def task_of(rig: Rig, partition: int) -> OwnedTask:
    return next(owned for owned in rig.manager if owned.key[1] == partition)


def damage(rig: Rig, partition: int, *, all_of_it: bool = False) -> None:
    """Flips bits in the middle of what the store has on disk, and lets its cache forget what it knows."""
    owned = task_of(rig, partition)
    store = owned.stores["counts"]
    store.flush()
    (file,) = Path(store.path).glob("*.sst")
    data = bytearray(file.read_bytes())
    for at in range(0 if all_of_it else len(data) // 4, len(data) // (1 if all_of_it else 2), 512):
        data[at] ^= 0xFF
    file.write_bytes(data)
    owned.task.caches["counts"].evict(0)


def test_its_task_alone_starts_over_and_the_state_is_restored(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig(handlers=ExceptionHandlers(processing=log_and_continue))
    write(rig)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(4)
    rig.thread._commit_all()
    damage(rig, 0)
    other, opened = task_of(rig, 1), rig.manager.opened
    write(rig)
    rig.iterate(12)
    rig.thread._commit_all()
    assert rig.counts() == {f"{partition}-{name}": 2 for partition in (0, 1) for name in NAMES}
    assert rig.manager.opened == opened + 1
    assert task_of(rig, 1) is other
    assert rig.manager.counters()["failed_processing"] == 0
    assert "0 restarts, its store counts is wiped and restored: state store 'counts'" in caplog.text


def test_exactly_once_all_tasks_of_the_transaction_start_over(make_rig: MakeRig) -> None:
    member = ExactlyOnceRig(make_rig())
    rig = member.rig
    write(rig)
    member.began(0, 1)
    member.commit()
    damage(rig, 0)
    opened = rig.manager.opened
    write(rig)
    rig.iterate(12)
    member.commit()
    rig.iterate(4)
    member.commit()
    assert rig.counts() == {f"{partition}-{name}": 2 for partition in (0, 1) for name in NAMES}
    assert rig.manager.opened == opened + 2


def test_a_store_of_no_task_is_nobodys(rig: Rig) -> None:
    rig.start(Tasks(active=rig.tasks(0)))
    error = StoreCorruptedError("damaged")
    for path in ("", "/state/app/stores/counts/1", "/state/app/stores/others/0"):
        error.path = path
        assert damaged_store(rig.manager, error) is None
    error.path = "/state/app/stores/counts/0"
    assert damaged_store(rig.manager, error) == (task_of(rig, 0), "counts")


@pytest.mark.parametrize("exactly_once", [False, True])
def test_with_other_trouble_nothing_more_is_committed(make_rig: Callable[..., Rig], exactly_once: bool) -> None:
    def full(value: int) -> int:
        if value == 3:
            raise StateError("the disk is full")
        return value

    builder = StreamsBuilder()
    numbers = builder.stream("in", key=serdes.string, value=serdes.integer)
    numbers.map_values(full).to("out", key=serdes.string, value=serdes.integer)
    rig = make_rig(topology=builder.build())
    if exactly_once:
        ExactlyOnceRig(rig)
    rig.network.write(("in", 0), [(b"k", number(value)) for value in (1, 2, 3, 4)])
    rig.give(Tasks(active=rig.tasks(0)))
    with pytest.raises(StateError, match="the disk is full"):
        rig.thread.run()
    # Nobody knows how much of it has got into the store: it is done again.
    assert rig.network.admin.offsets == {}
