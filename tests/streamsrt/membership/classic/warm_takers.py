"""With warm-up tasks nobody takes a changed task from a member with an older version before it has the state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamsrt.membership.classic.layout import decode_subscription
from streamsrt.membership.classic.leader_assignments import LeaderOutcome, LeaderSettings
from streamsrt.membership.classic.values import ClassicSubscription, Joined
from streamsrt.membership.values import Task
from tests.streamsrt.membership.classic.group_model import END, VERSIONS

PARTS = {v.digest: {part.id: part for part in v.value.subtopologies} for pair in VERSIONS for v in pair}


def check(generation: int, joined: Sequence[Joined], outcome: LeaderOutcome, settings: LeaderSettings) -> None:
    said = {each.member_id: _read(each) for each in joined}
    for taker, task in _newly_targeted(generation, said, outcome):
        mine = said[taker]
        reports = [each.offsets.get(task, 0) for each in said.values() if each.process_id == mine.process_id]
        if max(reports) >= END - settings.acceptable_recovery_lag:
            continue
        for name, other in said.items():
            if other.topology_epoch >= mine.topology_epoch:
                continue
            # What it was to give up before is nobody's if the member that was to get it is gone.
            still_its_own = other.held.active if other.echo is None else other.held.active & other.echo.target.active
            for old in still_its_own - outcome.decoded[name].target.active:
                assert not _is_changed(mine, task, other, old), (
                    f"{taker} takes {task} cold from {name}, which has {old}"
                )


def _read(joined: Joined) -> ClassicSubscription:
    said = decode_subscription(joined.metadata)
    assert isinstance(said, ClassicSubscription)
    return said


def _newly_targeted(
    generation: int, said: dict[str, ClassicSubscription], outcome: LeaderOutcome
) -> Iterator[tuple[str, Task]]:
    """Members of the group's version, and active tasks with state that they are to get and were not to get before."""
    for name, told in outcome.decoded.items():
        mine = said[name]
        if told.group_digest != mine.topology_digest:
            continue
        echo = mine.echo if mine.echo is not None and mine.echo.generation < generation else None
        before = mine.held.active | (frozenset() if echo is None else echo.target.active)
        for task in told.target.active - before:
            if PARTS[mine.topology_digest][task[0]].is_stateful:
                yield name, task


def _is_changed(mine: ClassicSubscription, task: Task, other: ClassicSubscription, old: Task) -> bool:
    """Whether these are not the same task, and have a partition in common."""
    one, two = PARTS[mine.topology_digest][task[0]], PARTS[other.topology_digest][old[0]]
    if (one.id, one.resources) == (two.id, two.resources):
        return False
    return task[1] == old[1] and bool(frozenset().union(*one.resources) & frozenset().union(*two.resources))
