"""Named aggregates: a row of totals instead of a hand-written aggregator.

::

    totals = agg(total=Sum("amount"), orders=Count(), largest=Max("amount"))
    stream.group_by_key().aggregate(totals, totals.add, store="totals", value=serdes.json)

1. The aggregate is a dictionary with one entry for each name. Every update makes a new dictionary, so forwarded
   aggregates never change.
2. ``of`` selects the aggregated value: None (the value itself), the name of a field (of a mapping, otherwise an
   attribute), or a function of the value. Values and fields that are None are ignored, except by Count without ``of``.
3. ``totals`` is the initializer, ``totals.add`` the aggregator, ``totals.merge`` the merger of session windows, and
   ``totals.subtract`` the subtractor of grouped tables. Only Count, Sum and Mean can be subtracted; others are refused
   when the topology is built.
4. All results fit into JSON as long as the values do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from topology.spec.errors import TopologyError, call_site

Value: TypeAlias = Any  # what is aggregated, and what an aggregate keeps: types that only the program knows
Of: TypeAlias = "str | Callable[[Value], Value] | None"
Row: TypeAlias = dict[str, Value]


def _reader(of: Of) -> Callable[[Value], Value]:
    if of is None:
        return lambda value: value
    if callable(of):
        return of
    field = of
    return lambda value: value.get(field) if isinstance(value, Mapping) else getattr(value, field)


class NamedAggregate:
    """One aggregate: ``start`` is its state before the first value.

    ``add(state, value)`` and ``merge(state, state)`` return the next state. You can write subclasses of your own.
    """

    start: Value = None
    can_subtract = False

    def __init__(self, of: Of = None) -> None:
        if of is not None and not callable(of) and not isinstance(of, str):
            raise TopologyError(f"an aggregate is of a field or of a function, not of {of!r}", call_site())
        self._read = _reader(of)

    def step(self, state: Value, value: Value) -> Value:
        """The next state after a record's value."""
        seen = None if value is None else self._read(value)
        return state if seen is None else self.add(state, seen)

    def back(self, state: Value, value: Value) -> Value:
        """The state after removing a value that was added before."""
        seen = None if value is None else self._read(value)
        return state if seen is None else self.subtract(state, seen)

    def add(self, state: Value, value: Value) -> Value:
        raise TypeError(f"{type(self).__name__} does not define how a value is added: define add(state, value)")

    def merge(self, one: Value, other: Value) -> Value:
        raise TypeError(f"{type(self).__name__} does not define how two states are merged: define merge(one, other)")

    def subtract(self, state: Value, value: Value) -> Value:
        raise TypeError(f"{type(self).__name__} can't take a value back")


class Count(NamedAggregate):
    """The number of records; with ``of``, of those whose field is not None."""

    start = 0
    can_subtract = True

    def __init__(self, of: Of = None) -> None:
        super().__init__(of)
        self._every = of is None

    def step(self, state: Value, value: Value) -> Value:
        return state + 1 if self._every else super().step(state, value)

    def back(self, state: Value, value: Value) -> Value:
        return state - 1 if self._every else super().back(state, value)

    def add(self, state: Value, value: Value) -> Value:
        return state + 1

    def merge(self, one: Value, other: Value) -> Value:
        return one + other

    def subtract(self, state: Value, value: Value) -> Value:
        return state - 1


class Sum(NamedAggregate):
    """The sum; 0 before the first value."""

    start = 0
    can_subtract = True

    def add(self, state: Value, value: Value) -> Value:
        return state + value

    def merge(self, one: Value, other: Value) -> Value:
        return one + other

    def subtract(self, state: Value, value: Value) -> Value:
        return state - value


class Min(NamedAggregate):
    """The smallest value; None before the first."""

    def add(self, state: Value, value: Value) -> Value:
        return value if state is None or value < state else state

    def merge(self, one: Value, other: Value) -> Value:
        return one if other is None else self.add(one, other)


class Max(NamedAggregate):
    """The largest value; None before the first."""

    def add(self, state: Value, value: Value) -> Value:
        return value if state is None or value > state else state

    def merge(self, one: Value, other: Value) -> Value:
        return one if other is None else self.add(one, other)


class First(NamedAggregate):
    """The first value in the order of arrival."""

    def add(self, state: Value, value: Value) -> Value:
        return value if state is None else state

    def merge(self, one: Value, other: Value) -> Value:
        return other if one is None else one


class Last(NamedAggregate):
    """The last value in the order of arrival."""

    def add(self, state: Value, value: Value) -> Value:
        return value

    def merge(self, one: Value, other: Value) -> Value:
        return one if other is None else other


class Mean(NamedAggregate):
    """The mean, as ``{"mean": ..., "count": ..., "sum": ...}``. ``mean`` is None before the first value."""

    start = {"mean": None, "count": 0, "sum": 0}  # noqa: RUF012  # never changed: every state is a new one
    can_subtract = True

    def add(self, state: Value, value: Value) -> Value:
        return _mean(state["count"] + 1, state["sum"] + value)

    def merge(self, one: Value, other: Value) -> Value:
        return _mean(one["count"] + other["count"], one["sum"] + other["sum"])

    def subtract(self, state: Value, value: Value) -> Value:
        return _mean(state["count"] - 1, state["sum"] - value)


def _mean(count: int, total: Value) -> dict[str, Value]:
    return {"mean": total / count if count else None, "count": count, "sum": total}


class Collect(NamedAggregate):
    """The values as a list, in the order of arrival; ``limit``: keeps only the latest ones, at most that many."""

    start: tuple[Value, ...] | list[Value] = ()

    def __init__(self, of: Of = None, *, limit: int | None = None) -> None:
        super().__init__(of)
        if limit is not None and limit < 1:
            raise TopologyError(f"Collect(limit={limit}): give at least 1", call_site())
        self._limit = limit

    def add(self, state: Value, value: Value) -> Value:
        return self._cut([*state, value])

    def merge(self, one: Value, other: Value) -> Value:
        return self._cut([*one, *other])

    def _cut(self, values: list[Value]) -> list[Value]:
        return values if self._limit is None else values[-self._limit :]


class NamedAggregates:
    """The result of :func:`agg`. Calling it is the initializer."""

    __slots__ = ("_of", "_start")

    def __init__(self, aggregates: Mapping[str, NamedAggregate]) -> None:
        self._of = tuple(aggregates.items())
        self._start = {name: each.start for name, each in self._of}

    def __call__(self) -> Row:
        """The row before the first record."""
        return dict(self._start)

    def add(self, key: Value, value: Value, row: Row) -> Row:
        """The row after adding a record: an aggregator."""
        return {name: each.step(row[name], value) for name, each in self._of}

    def merge(self, key: Value, one: Row, other: Row) -> Row:
        """Merges two rows of a key: a merger of session windows."""
        return {name: each.merge(one[name], other[name]) for name, each in self._of}

    @property
    def subtract(self) -> Callable[[Value, Value, Row], Row]:
        """The row after removing a record: a subtractor of grouped tables. Raises TopologyError if an aggregate can't be
        subtracted."""
        stuck = [f"{name}={type(each).__name__}(...)" for name, each in self._of if not each.can_subtract]
        if stuck:
            raise TopologyError(
                f"{', '.join(stuck)} can't take a value back, which a grouped table needs when a row changes: use Count, "
                "Sum or Mean there, or write the subtractor by hand",
                call_site(),
            )
        return lambda key, value, row: {name: each.back(row[name], value) for name, each in self._of}


def agg(**aggregates: NamedAggregate) -> NamedAggregates:
    """Named aggregates for ``aggregate()``, for example ``agg(orders=Count(), total=Sum("amount"))``. Raises
    TopologyError for an argument that is not a :class:`NamedAggregate`.
    """
    if not aggregates:
        raise TopologyError("agg() needs at least one aggregate: agg(n=Count())", call_site())
    for name, each in aggregates.items():
        if not isinstance(each, NamedAggregate):
            raise TopologyError(f"agg({name}={each!r}): give Count(), Sum(...), Min(...) and so on", call_site())
    return NamedAggregates(aggregates)
