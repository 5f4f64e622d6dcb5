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
