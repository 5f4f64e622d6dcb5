"""What the members of all group types with server-side assignment have in common, and the sender of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from coordinator.group.refusal import Refused
from streamsrt.wire.error_codes import ErrorCode


class KnownMember(Protocol):
    """The common fields of members of all group types. ``classic``: None for the group's own protocol."""

    @property
    def instance_id(self) -> str | None: ...

    @property
    def classic(self) -> object: ...


class NamedGroup(Protocol):
    """The common fields of all groups, including classic ones."""

    @property
    def group_id(self) -> str: ...


M_co = TypeVar("M_co", bound=KnownMember, covariant=True)


class KnownGroup(NamedGroup, Protocol[M_co]):
    """A group with server-side assignment."""

    @property
    def members(self) -> Mapping[str, M_co]: ...

    @property
    def static_members(self) -> Mapping[str, str]: ...


class Owned(Protocol):
    """What a member owns of its group: tasks or partitions. ``<=``: it is a part of the other."""

    def __le__(self: Own, other: Own, /) -> bool: ...


Own = TypeVar("Own", bound=Owned)
Own_co = TypeVar("Own_co", bound=Owned, covariant=True)


class KnownEpochs(Protocol[Own_co]):
    """The common fields of what a group knows that a member has."""

    @property
    def epoch(self) -> int: ...

    @property
    def previous_epoch(self) -> int: ...

    @property
    def assigned(self) -> Own_co: ...


def check_member_epoch(kind: str, received: int, owned: Own | None, current: KnownEpochs[Own]) -> None:
    """Checks the epoch in a heartbeat of an established member of a ``kind`` group. Raises Refused: another epoch than the
    known one. The previous one is that of a member which did not get the last answer, if it owns no more than is known."""
    known = current.epoch
    if received == known:
        return
    lost_answer = received == current.previous_epoch < known
    if lost_answer and owned is not None and owned <= current.assigned:
        return
    how = "greater" if received > known else "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {how} member epoch ({received}) than the one known by the group coordinator "
        f"({known}). The member must abandon all its partitions and rejoin.",
    )


def find_member(group: KnownGroup[M_co], member_id: str, instance_id: str | None) -> M_co:
    """Returns the established member that sent a request. Raises Refused: unknown, or fenced by another of its instance."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner != member_id:
            raise Refused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}.",
            )
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member
