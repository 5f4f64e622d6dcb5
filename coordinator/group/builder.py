"""A group that records are being applied to, for the group types with state in mappings by member.

1. A builder copies each mapping when it first changes it, so that a batch of a thousand records costs a thousand steps;
   the group itself is frozen and does not change.
2. The owners of a task or partition are kept in an order of their own, not in that of the records: a compacted log has
   the records in another order, and must give the same state.
3. ``setters`` of a group type says which method takes the value of which record. Records of one member, or of one
   regular expression, are passed with its name first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from coordinator.group.members import KnownMember
from coordinator.group.values import GroupRecord

G = TypeVar("G")
M = TypeVar("M", bound=KnownMember)
Thing = TypeVar("Thing")


class GroupBuilder(Generic[G]):
    """Applies records to ``group``; :meth:`build` returns the resulting group."""

    setters: ClassVar[Mapping[str, str]]

    def __init__(self, group: G) -> None:
        self._group = group
        self._fields: dict[str, Any] = {}  # of the group, of the types that they have there
        self._copies: dict[str, dict[Any, Any]] = {}  # keys and values are of the group's fields

    def apply(self, record: GroupRecord) -> None:
        """Applies one record of the group."""
        setter, key = getattr(self, self.setters[record.key.NAME]), record.key
        name = getattr(key, "member_id", None)
        if name is None:
            name = getattr(key, "regular_expression", None)
        if name is None:
            setter(record.value)
        else:
            setter(name, record.value)

    def build(self) -> G:
        changes = {**self._fields, **self._copies}
        return replace(self._group, **changes) if changes else self._group  # type: ignore[type-var]

    def _mapping(self, name: str) -> dict[Any, Any]:  # as the field of that name
        """Returns a mapping of the group, to be changed."""
        if name not in self._copies:
            self._copies[name] = dict(getattr(self._group, name))
        return self._copies[name]

    def _read(self, name: str) -> Mapping[Any, Any]:  # likewise
        """Returns a mapping of the group as it is now."""
        found = self._copies.get(name)
        return getattr(self._group, name) if found is None else found

    def _set(self, mapping: str, key: Hashable, value: object) -> None:
        """Sets an entry of a mapping; None removes it."""
        entries = self._mapping(mapping)
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value

    def _add(self, counter: str, by: int) -> None:
        if by:
            self._fields[counter] = self._fields.get(counter, getattr(self._group, counter)) + by

    def _replace_member(self, member_id: str, new: M | None) -> M | None:
        """Sets or removes a member, with its instance and its protocol; returns the previous member."""
        members = self._mapping("members")
        old: M | None = members.pop(member_id, None)
        instance = None if old is None else old.instance_id
        if instance is not None and self._read("static_members").get(instance) == member_id:
            del self._mapping("static_members")[instance]
        if new is not None:
            members[member_id] = new
            if new.instance_id is not None:
                self._mapping("static_members")[new.instance_id] = member_id
        self._add("classic_members", _is_classic(new) - _is_classic(old))
        return old

    def _move(self, mapping: str, member_id: str, old: AbstractSet[Thing], new: AbstractSet[Thing]) -> None:
        """Updates a mapping from things to their holders: the member holds ``new`` in place of ``old``."""
        if old == new:
            return
        holders = self._mapping(mapping)
        for thing in old - new:
            left = tuple(other for other in holders.get(thing, ()) if other != member_id)
            if left:
                holders[thing] = left
            else:
                holders.pop(thing, None)
        for thing in new - old:
            holders[thing] = tuple(sorted((*holders.get(thing, ()), member_id)))


def _is_classic(member: KnownMember | None) -> bool:
    return member is not None and member.classic is not None
