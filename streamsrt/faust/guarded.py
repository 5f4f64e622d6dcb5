"""Tables whose unsupported names end the application, wherever the program uses them.

While an application runs, each of its tables has a subclass of its class. Faust's own code gets what it always gets; its
reads and writes of rows take a shorter way, so that they pay nothing for the look at who asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import getattr_static
from types import FunctionType
from typing import TYPE_CHECKING

from faust.tables.base import Collection
from faust.tables.table import Table
from mode import Service
from mode.utils.collections import FastUserDict, ManagedUserDict

from streamsrt.faust.locations import is_of_program
from streamsrt.faust.names import REFUSED

if TYPE_CHECKING:
    import faust

GUARDED = tuple(name for name in REFUSED[Collection] if not hasattr(Service, name))
"""What only Faust's own code may use."""
_REFUSE = "_refuse_name"
Refuse = Callable[[str], None]


class _GuardedName:
    """An attribute of a table of that class: as it was, but for the program."""

    def __init__(self, kind: type, name: str) -> None:
        self._kind = kind
        self._name = name
        self._plain = getattr_static(kind, name)

    def __get__(self, table: faust.Table | None, kind: type) -> object:
        if table is None:
            return getattr(self._kind, self._name)
        if is_of_program(sys._getframe(1)):
            vars(table)[_REFUSE](self._name)
        own = vars(table)
        return own[self._name] if self._name in own else self._plain.__get__(table, kind)

    def __set__(self, table: faust.Table, value: object) -> None:
        vars(table)[self._name] = value

    def __delete__(self, table: faust.Table) -> None:
        del vars(table)[self._name]


def guard(table: faust.Table, refuse: Refuse) -> None:
    """Calls ``refuse`` with the name when the program uses one of :data:`GUARDED` of the table."""
    vars(table)[_REFUSE] = refuse
    kind: type = type(table)
    table.__class__ = _guarded(kind)


def unguard(table: faust.Table) -> None:
    """Gives the table its class back."""
    table.__class__ = type(table).__mro__[1]
    del vars(table)[_REFUSE]


@lru_cache(maxsize=100)
def _guarded(kind: type) -> type:
    names: dict[str, object] = {name: _GuardedName(kind, name) for name in GUARDED if hasattr(kind, name)}
    ways = {name: way for name, way in _SHORT_WAYS.items() if getattr(kind, name) in _LONG_WAYS}
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "clone": _clone, **names, **ways})


def _clone(self: faust.Table, **options: object) -> faust.Table:
    """A table like this one, which does not run."""
    return type(self).__mro__[1](**{**self.info(), **options})


def _get(self: faust.Table, key: object) -> object:
    own = self.__dict__
    own["on_key_get"](key)
    row = own["_data"].row(key)
    return self.__missing__(key) if row is None else row


def _set(self: faust.Table, key: object, value: object) -> None:
    own = self.__dict__
    own["on_key_set"](key, value)
    own["_data"][key] = value


def _delete(self: faust.Table, key: object) -> None:
    own = self.__dict__
    own["on_key_del"](key)
    del own["_data"][key]


def _contains(self: faust.Table, key: object) -> bool:
    return key in self.__dict__["_data"]


def _iterate(self: faust.Table) -> Iterator[object]:
    return iter(self.__dict__["_data"])


def _count(self: faust.Table) -> int:
    return len(self.__dict__["_data"])


_SHORT_WAYS = {
    "__getitem__": _get,
    "__setitem__": _set,
    "__delitem__": _delete,
    "__contains__": _contains,
    "__iter__": _iterate,
    "__len__": _count,
}
_LONG_WAYS: frozenset[FunctionType] = frozenset(
    each
    for kind in (ManagedUserDict, FastUserDict)
    for name, each in vars(kind).items()
    if name in _SHORT_WAYS and getattr(Table, name) is each
)
"""What Faust's tables do there: what an own class of the program does instead stays."""
