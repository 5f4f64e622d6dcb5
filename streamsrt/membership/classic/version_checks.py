"""Decides which version of the program a group runs, which one may follow, and which members are refused.

1. The group runs the version that the newest echo names. If nobody echoes anything, it runs the highest epoch; of
   several digests, the smallest.
2. The next epoch is a candidate for the group. Of several digests of it, the smallest comes first; when one is
   accepted, the members with the others are refused.
3. A member whose epoch is further ahead is refused, and so is one with the group's epoch and another digest.
4. A member whose epoch is behind is fenced if it claims nothing and echoes nothing. Otherwise it is stale: it continues
   with tasks of its own version. As long as other members continue with it, the group's version has not taken over yet:
   then a member that lost its membership returns, and so does one that starts while nobody runs the group's version.
5. A group with Java's members keeps its version: members of any other version are refused, and so are Java's members
   with another topology.
6. Members that wait until records in flight have a reader have neither tasks nor an echo. They are not fenced by a later
   version that joins and starts: they are there already, and take over if it fails.
7. Nobody is refused because of a version that the group does not run yet: in a group without an echo, nothing is
   certain before it has tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from streamsrt.assignment.refused_update import (
    Refusal,
    beside_java,
    epoch_behind,
    epoch_too_far_ahead,
    same_epoch,
    unlike_java,
)
from streamsrt.membership.classic.view import Participant, Version, View
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST


@dataclass(frozen=True, slots=True)
class Verdicts:
    """``group``: the version that the group runs, None if there are no members. ``is_certain``: a member echoes it.
    ``candidates``: versions that may follow, in order."""

    group: Version | None
    is_certain: bool
    candidates: tuple[Version, ...]
    refused: Mapping[str, Refusal]


def verdicts_on(view: View, group_id: str) -> Verdicts:
    if view.is_mixed:
        return _beside_java(view, group_id)
    echoed = view.echoed
    if echoed is None:
        versions = {member.version for member in view.members}
        first = min(versions, key=lambda version: (-version.epoch, version.digest), default=None)
        return Verdicts(first, False, (), {})
    ahead = {member.version for member in view.members if member.version.epoch == echoed.epoch + 1}
    refused = refusals(view, echoed, group_id)
    return Verdicts(echoed, True, tuple(sorted(ahead)), refused)


def _beside_java(view: View, group_id: str) -> Verdicts:
    """Computes the result for a group with Java's members: the leader runs the group's version, as they do."""
    group = view.echoed or view.leaders
    refused = {name: unlike_java(group_id, text) for name, text in view.strangers.items()}
    for member in view.members:
        if group is not None and member.version != group:
            refused[member.member_id] = beside_java(group_id, member.version.epoch, group.epoch)
    return Verdicts(group, group is not None, (), refused)


def older_waiting(view: View, verdicts: Verdicts) -> frozenset[str]:
    """Returns the members that waited in the generation before, and run a version before that of the group, as long as no
    version runs."""
    group = None if verdicts.is_certain else verdicts.group
    return frozenset(
        member.member_id
        for member in view.members
        if group is not None and member.subscription.awaits and member.version.epoch < group.epoch
    )


def refusals(view: View, group: Version, group_id: str, taken_from: Version | None = None) -> dict[str, Refusal]:
    """Returns the members to refuse if the group runs ``group``. ``taken_from``: the version that the group had just before.

    Members of the next epoch are none of them.
    """
    found: dict[str, Refusal] = {}
    programs = {m.version: m.subscription.client_tags.get(TOPOLOGY_DIGEST) for m in view.members}
    running = {member.version for member in view.members if member.echo is not None}
    for member in view.members:
        refusal = _refusal(member, group, group_id, taken_from, programs.get(group))
        if refusal is not None and not _may_return(member, group, running):
            found[member.member_id] = refusal
    return found


def is_stale(member: Participant, group: Version) -> bool:
    return member.version.epoch < group.epoch


def _refusal(
    member: Participant, group: Version, group_id: str, taken_from: Version | None, program: str | None
) -> Refusal | None:
    """``program``: the digest of the group's topology without its epoch, which that of a version includes."""
    mine = member.version
    if mine == group or mine.epoch == group.epoch + 1:
        return None
    if mine.epoch == group.epoch:
        return same_epoch(group_id, group.epoch)
    if mine.epoch > group.epoch:
        return epoch_too_far_ahead(group_id, mine.epoch, group.epoch)
    if member.held or member.echo is not None or mine == taken_from:
        return None
    is_same = program is not None and member.subscription.client_tags.get(TOPOLOGY_DIGEST) == program
    return epoch_behind(group_id, mine.epoch, group.epoch, is_same=is_same)


def _may_return(member: Participant, group: Version, running: Set[Version]) -> bool:
    """Whether a member without tasks and echo is needed beside those that continue with its older version.

    ``running``: the versions of members that have had assignments.
    """
    if member.version.epoch >= group.epoch or member.version not in running:
        return False
    return member.subscription.returns or group not in running
