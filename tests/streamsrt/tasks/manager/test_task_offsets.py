"""What is told about the state of tasks: running, restoring, following, and only on disk."""

from __future__ import annotations

import pytest

from streamsrt.membership.values import NOTHING, SetTaskOffsets, Tasks
from streamsrt.tasks.manager.task_offsets import TaskOffsets
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, MakeRig, Rig, number, two_sources


def keys(*names: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), number(1)) for name in names]


def told(rig: Rig) -> tuple[dict[int, int], dict[int, int]]:
    """Offsets and end offsets by partition."""
    found = rig.manager.task_offsets()
    return {key[1]: at for key, at in found.offsets.items()}, {key[1]: at for key, at in found.end_offsets.items()}


@pytest.mark.requirement("SG-203", "SG-207", "SG-209")
def test_a_running_task_is_at_the_end_of_what_it_committed(rig: Rig) -> None:
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert told(rig) == ({0: 0, 1: 0}, {0: 0, 1: 0})
    rig.network.write(("in", 0), keys("a", "b", "a"))
    rig.move()
    assert told(rig)[0] == {0: 0, 1: 0}
    rig.commit()
    assert told(rig) == ({0: 2, 1: 0}, {0: 2, 1: 0})


def test_a_task_that_rests_is_looked_up_again_after_it_has_woken(rig: Rig) -> None:
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(3)
    before = rig.manager.task_offsets()
    rig.iterate(2)
    assert rig.manager.task_offsets() is before
    rig.network.write(("in", 0), keys("a", "b"))
    rig.iterate(2)
    rig.commit()
    assert told(rig) == ({0: 2, 1: 0}, {0: 2, 1: 0})
    rig.iterate(2)
    assert told(rig) == ({0: 2, 1: 0}, {0: 2, 1: 0})
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(2)
    assert told(rig) == ({0: 2}, {0: 2})


@pytest.mark.requirement("SG-204", "SG-210", "SG-211")
@pytest.mark.parametrize("role", ["standby", "warmup"])
def test_a_task_that_follows_is_where_it_has_read_to(make_rig: MakeRig, role: str) -> None:
    one = make_rig()
    one.start(Tasks(active=one.tasks(0)))
    one.network.write(("in", 0), keys("a", "b", "a"))
    one.move()
    one.commit()
    two = make_rig(network=one.network)
    two.network.is_away = True
    two.start(Tasks(**{role: two.tasks(0)}))
    assert told(two) == ({0: 0}, {})
    two.network.is_away = False
    two.clock_ms += 1_000
    two.start(Tasks(**{role: two.tasks(0)}))
    assert told(two) == ({0: 0}, {0: 2})
    two.move()
    assert told(two) == ({0: 2}, {0: 2})


@pytest.mark.requirement("SG-205", "SG-206", "SG-212")
def test_state_on_disk_is_told_without_an_end(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.start(Tasks(active=rig.tasks(0, 1)))
    rig.network.write(("in", 0), keys("a", "b"))
    rig.move()
    rig.commit()
    rig.start(Tasks(active=rig.tasks(1)))
    assert told(rig) == ({0: 2, 1: 0}, {1: 0})
    rig.start(NOTHING)
    folder = rig.directory.path.parent
    rig.close()
    again = Rig(folder, network=rig.network)
    try:
        assert told(again)[0][0] == 2
        assert told(again)[1] == {}
        again.directory.wipe("counts", 0)
    finally:
        again.close()


@pytest.mark.requirement("SG-207")
def test_tasks_without_state_are_not_told(make_rig: MakeRig) -> None:

    rig = make_rig(topology=two_sources(), network=InProcessNetwork({"wide": 1, "narrow": 1, "out": 1}))
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.manager.task_offsets() == TaskOffsets({}, {})


def test_the_loop_tells_the_membership_what_changed(rig: Rig) -> None:
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(3)
    (key,) = rig.tasks(0)
    rig.clock_ms += 500
    rig.iterate()
    assert rig.member.told[-1] == SetTaskOffsets({key: 0}, {key: 0})
    rig.network.write((CHANGELOG, 1), keys("x"))
    before = len(rig.member.told)
    for _ in range(3):
        rig.clock_ms += 500
        rig.iterate()
    assert len(rig.member.told) == before
