"""What tells two generated names apart: the functions on the way, by all that they hold, the same in every process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from operator import attrgetter, itemgetter, methodcaller
from typing import Any

import pytest

from topology import StreamsBuilder, serdes
from topology.graph.diff import Verdict, diff
from topology.graph.operations.basic import MapValues
from topology.graph.origins import code_of
from topology.graph.outline import TopologyOutline, outline


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Keep:
    values: frozenset[str]

    def keeps(self, value: Any) -> bool:
        return value in self.values

    def __call__(self, value: Any) -> bool:
        return self.keeps(value)


class One:
    @classmethod
    def is_it(cls, value: Any) -> bool:
        return bool(value == cls.__name__)


class Other(One):
    pass


def holds(held: Any) -> Callable[[Any], Any]:
    return lambda value: value == held


def is_in(value: Any, *, values: Any = ()) -> bool:
    return value in values


def by_keyword(values: str) -> Callable[[Any], Any]:
    def function(value: Any, *, wanted: str = values) -> bool:
        return value in wanted

    return function


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "constant set": (lambda value: value in {"x", "z"}, lambda value: value in {"x", "y"}),
    "captured set": (holds({"x"}), holds({"y"})),
    "captured mapping": (holds({"x": 1}), holds({"x": 2})),
    "set or list": (holds({"x"}), holds(["x"])),
    "keyword of a partial": (partial(is_in, values="x"), partial(is_in, values="y")),
    "set of a partial": (partial(is_in, values={"x"}), partial(is_in, values={"y"})),
    "keyword default": (by_keyword("x"), by_keyword("y")),
    "itemgetter": (itemgetter("a"), itemgetter("b")),
    "attrgetter": (attrgetter("a"), attrgetter("b")),
    "methodcaller": (methodcaller("a"), methodcaller("b")),
    "argument of a methodcaller": (methodcaller("a", 1), methodcaller("a", 2)),
    "keyword of a methodcaller": (methodcaller("a", x=1), methodcaller("a", x=2)),
    "method of a set": ({"x"}.__contains__, {"y"}.__contains__),
    "method of a tuple": (("x",).__contains__, ("y",).__contains__),
    "method of a mapping": ({"x": 1}.get, {"x": 2}.get),
    "class method": (One.is_it, Other.is_it),
    "method of a dataclass": (Keep(frozenset("x")).keeps, Keep(frozenset("y")).keeps),
    "callable dataclass": (Keep(frozenset("x")), Keep(frozenset("y"))),
    "cached function": (lru_cache(holds("x")), lru_cache(holds("y"))),
    "enum": (holds(Color.RED), holds(Color.BLUE)),
    "pattern": (holds(re.compile("x")), holds(re.compile("y"))),
    "long pattern": (holds(re.compile("x" * 300 + "y")), holds(re.compile("x" * 300 + "z"))),
    "slice": (holds(slice(1)), holds(slice(2))),
    "complex": (holds(1j), holds(2j)),
    "decimal": (holds(Decimal(1)), holds(Decimal(2))),
    "duration": (holds(timedelta(1)), holds(timedelta(2))),
    "time": (holds(datetime(2020, 1, 1, tzinfo=UTC)), holds(datetime(2021, 1, 1, tzinfo=UTC))),
}


def code(function: Callable[..., Any]) -> str:
    return code_of(MapValues(fn=function), frozenset())


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_function_holds_tells_it_from_another(name: str) -> None:
    one, other = PAIRS[name]
    assert code(one) == code(one)
    assert code(one) != code(other)


def test_the_order_of_a_set_is_not_part_of_it() -> None:
    # 0 and 8 fall into one place of the set's table: it is iterated in the order in which they came.
    assert list({0, 8}) != list({8, 0})
    assert code(holds({0, 8})) == code(holds({8, 0}))
    assert code(holds({"x": 1})) == code(holds({"x": 1}))


def test_an_address_is_not_part_of_it() -> None:
    one, other = (holds({"x": object(), "y": {One()}, "z": partial(is_in, values=object())}) for _ in range(2))
    assert code(one) == code(other)
    assert code(methodcaller("a", object())) == code(methodcaller("a", object()))


def of_an_error() -> Callable[[Any], Any]:
    try:
        raise ValueError
    except ValueError:
        return lambda value: (value, error)  # noqa: F821


def test_a_variable_without_a_value_is_no_fault() -> None:
    assert code(of_an_error()) == code(of_an_error())

    def early() -> tuple[str, Any]:
        made = code(lambda value: (value, later))
        later = 1
        return made, later

    assert early() == early()


def test_a_function_that_holds_itself_has_an_end() -> None:
    def again(value: Any) -> Any:
        return again(value) if value else value

    assert code(again) == code(again)


def filtered(*predicates: Callable[[Any, Any], bool]) -> TopologyOutline:
    builder = StreamsBuilder()
    stream = builder.stream("a", key=serdes.string, value=serdes.string)
    for predicate in predicates:
        stream.filter(predicate).group_by_key().count()
    return outline(builder.build())


def split(*predicates: Callable[[Any, Any], bool]) -> TopologyOutline:
    builder = StreamsBuilder()
    stream = builder.stream("a", key=serdes.string, value=serdes.string)
    for each in stream.branch(*predicates):
        each.group_by_key().count()
    return outline(builder.build())


@pytest.mark.parametrize("made", [filtered, split])
def test_functions_that_changed_places_are_told_by_the_sets_in_them(made: Callable[..., TopologyOutline]) -> None:
    one: Callable[[Any, Any], bool] = lambda _key, value: value in {"x", "z"}  # noqa: E731
    other: Callable[[Any, Any], bool] = lambda _key, value: value in {"x", "y"}  # noqa: E731
    assert diff(made(one, other), made(one, other)).verdict is Verdict.SAME
    found = diff(made(one, other), made(other, one))
    assert found.verdict is Verdict.INCOMPATIBLE
    assert {change.fate for change in found.state} == {"incompatible"}
