"""Whatever fails in whatever operation: the dead letter holds the record that failed, as it was read.

What can fail is found in the operations themselves: each function of a user's that one of them holds, in each program of
``test_every_operator``, is made to raise. A new operation, or a new function of one, is among them without being named.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import ProcessingError
from streamsrt.testing.topology_test_driver import ProducedRecord, TopologyTestDriver
from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.test_every_operator import PROGRAMS, Row, members, rows, topology_of
from topology import Topology
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, Subtopology

DLQ = "letters"
HEADERS = (("h", b"1"), ("none", None))
BAD = "x"


class Place(NamedTuple):
    """A function in a program."""

    program: str
    node: str
    operation: str
    field: str

    def __str__(self) -> str:
        return f"{self.program}: {self.operation}.{self.field} of {self.node}"


def function_fields(operation: type) -> Iterator[str]:
    """The fields of an operation that hold a function, or several, by what they are declared as."""
    for name, hint in typing.get_type_hints(operation).items():
        if _holds_functions(hint):
            yield name


def _holds_functions(hint: Any) -> bool:
    if typing.get_origin(hint) is not None and getattr(typing.get_origin(hint), "__name__", "") == "Callable":
        return True
    return any(_holds_functions(each) for each in typing.get_args(hint))


def processors(topology: Topology) -> Iterator[ProcessorNode]:
    for part in topology.subtopologies:
        yield from (node for node in part.nodes if isinstance(node, ProcessorNode))


def places() -> Iterator[Place]:
    for program in PROGRAMS:
        for node in processors(topology_of(program)):
            for name in function_fields(type(node.operation)):
                if getattr(node.operation, name) is not None:
                    yield Place(program, node.name, type(node.operation).__name__, name)


PLACES = sorted(set(places()), key=str)


def test_every_function_of_every_operation_is_made_to_fail() -> None:
    wanted = {(each.__name__, name) for each in members(operations.Operation) for name in function_fields(each)}
    assert wanted - {(place.operation, place.field) for place in PLACES} == set()


# ------------------------------------------------------------------------------------------------------ what is broken


class Broken(Exception):
    pass


def breaking(fn: Callable[..., Any], error: type[BaseException]) -> Callable[..., Any]:
    """Raises where an argument has the letter x in it, and where there are none."""

    def check(arguments: tuple[Any, ...]) -> None:
        if not arguments or any(BAD in _shown(each).lower() for each in arguments):
            raise error("broken")

    async def fail_later(*arguments: Any) -> Any:
        check(arguments)
        return await fn(*arguments)

    def fail(*arguments: Any) -> Any:
        check(arguments)
        return fn(*arguments)

    return fail_later if inspect.iscoroutinefunction(fn) else fail


def _shown(argument: Any) -> str:
    return repr(argument.to_pylist()) if hasattr(argument, "to_pylist") else repr(argument)


def breaking_supplier(supplier: Callable[[], Any], error: type[BaseException]) -> Callable[[], Any]:
    """Makes processors, or transformers, that raise."""

    def make() -> Any:
        made = supplier()
        method = "process" if hasattr(made, "process") else "transform"
        setattr(made, method, breaking(getattr(made, method), error))
        return made

    return make


def broken_node(node: ProcessorNode, field: str, error: type[BaseException]) -> ProcessorNode:
    fn = getattr(node.operation, field)
    made: Any
    if field == "supplier":
        made = breaking_supplier(fn, error)
    elif isinstance(fn, tuple):
        made = tuple(None if each is None else breaking(each, error) for each in fn)
    else:
        made = breaking(fn, error)
    operation = replace(node.operation, **{field: made})
    calls = getattr(operation, "calls", None)
    if field == "lookup" and calls is not None:
        operation = replace(typing.cast(Any, operation), calls=replace(calls, fn=made))
    return replace(node, operation=operation)


def broken(place: Place, error: type[BaseException] = Broken) -> Topology:
    """The program with that function broken."""
    topology = topology_of(place.program)

    def part_of(part: Subtopology) -> Subtopology:
        nodes = tuple(
            broken_node(node, place.field, error)
            if isinstance(node, ProcessorNode) and node.name == place.node
            else node
            for node in part.nodes
        )
        values = {each.name: getattr(part, each.name) for each in fields(part) if each.init}
        return Subtopology(**{**values, "nodes": nodes})

    return replace(topology, subtopologies=tuple(part_of(part) for part in topology.subtopologies))


# ------------------------------------------------------------------------------------------------------------- letters


class Letters:
    """What a driver piped, and whether the letters that came of it are right."""

    def __init__(self, place: Place, *, generate: bool, response: str, error: type[BaseException] = Broken) -> None:
        config = {
            "errors.dead.letter.queue.topic.name": DLQ,
            "processing.exception.handler": response,
            "statestore.cache.max.bytes": 0,
        }
        self.place = place
        self.topology = broken(place, error)
        self.driver = TopologyTestDriver(self.topology, config, generate=generate)
        self.piped: list[Piped] = []
        self.found = 0

    def pipe(self, row: Row) -> bool:
        """Whether the application goes on after it."""
        topic, key, value, timestamp = row
        if not any(topic in part.source_topics for part in self.topology.subtopologies):
            return True
        raw = None if value is None else value.encode()
        self.piped.append(Piped(topic, key, value, timestamp, HEADERS))
        try:
            self.driver.pipe_raw(topic, key.encode(), raw, timestamp, HEADERS)
        except ProcessingError:
            return False
        finally:
            self._check()
        return True

    def _check(self) -> None:
        letters = [record for record in self.driver.producer_history if record.topic == DLQ]
        for letter in letters[self.found :]:
            self._check_letter(letter)
        self.found = len(letters)

    def _check_letter(self, letter: ProducedRecord) -> None:
        prefixes = ("__streams.errors.", "__streamsrt.letter.")
        why = {name: value for name, value in letter.headers if name.startswith(prefixes)}
        topic, offset = why["__streams.errors.topic"], int(why["__streams.errors.offset"] or b"")
        is_held = "__streamsrt.letter.held" in why
        assert not is_held or topic is not None
        if topic is None or is_held:
            # Of what has waited since nobody knows when there is what was kept of it.
            assert letter.key is not None
            assert letter.value is not None
            return
        own = tuple(header for header in letter.headers if header[0] not in why)
        assert (letter.key, letter.value, letter.timestamp, own) == self._read(topic.decode(), offset)
        assert why["__streams.errors.partition"] == b"0"

    def _read(self, topic: str, offset: int) -> tuple[Any, ...]:
        """What that topic has there: one of the inputs, or one of the application's own."""
        piped = [each for each in self.piped if each.topic == topic]
        if piped:
            at = piped[offset]
            return (at.key or "").encode(), None if at.value is None else at.value.encode(), at.timestamp, at.headers
        sent = [each for each in self.driver.producer_history if each.topic == topic][offset]
        return sent.key, sent.value, sent.timestamp, tuple(sent.headers)


SURE: list[Row] = [("left", "q", "x", 0)]
SURE += [
    (topic, key, value, timestamp)
    for timestamp, (key, value) in enumerate([("a", "x"), ("a", "x"), ("x", "a"), ("x", "y"), ("a", None), ("b", "xy")])
    for topic in ("right", "left")
]
SURE += [
    ("left", "x", "x", 40),
    ("right", "a", "x", 44),
    ("left", "a", "x", 46),
    ("left", "b", "a", 200),
    ("left", "b", "a", 300),
]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
@pytest.mark.parametrize("response", ["continue", "fail"])
@pytest.mark.matrix
def test_the_letter_is_the_record_that_failed(place: Place, generate: bool, response: str) -> None:
    letters = Letters(place, generate=generate, response=response)
    for row in SURE:
        if not letters.pipe(row):
            break
    assert letters.found


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
@pytest.mark.matrix
def test_an_exit_fails_though_the_handler_says_continue(place: Place, generate: bool) -> None:
    letters = Letters(place, generate=generate, response="continue", error=SystemExit)
    assert not all(letters.pipe(row) for row in SURE)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PLACES), rows, st.booleans())
def test_whatever_comes_the_letter_is_the_record_that_failed(place: Place, piped: list[Row], generate: bool) -> None:
    letters = Letters(place, generate=generate, response="continue")
    for row in piped:
        letters.pipe(row)
