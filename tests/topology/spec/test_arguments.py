"""Arguments of a wrong type: each argument of each public call, as the code has them, is refused with the user's line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topology
from topology import (
    CountWindows,
    EmitStrategy,
    JoinWindows,
    Processor,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyBuilder,
    TopologyError,
    UnlimitedWindows,
    Upcast,
    serdes,
)
from topology.graph.nodes import StoreSpec
from topology.spec.arguments import ALIASES, JUDGED, alternatives
from topology.spec.codecs import RowsOfValues
from topology.spec.row_versions import plain_serde, writing_serde


class Forward(Processor[Any, Any, Any, Any]):
    """Any processor."""


async def waits(value: object) -> object:
    return value


def _stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=serdes.string, value=serdes.string)


def _table(builder: StreamsBuilder) -> Any:
    return builder.table("table", key=serdes.string, value=serdes.string)


def _grouped(builder: StreamsBuilder) -> Any:
    return _stream(builder).group_by_key()


def _processors(_: StreamsBuilder) -> Any:
    return (
        TopologyBuilder().add_source("s", "in").add_processor("p", Forward, parents="s").add_state_store(Store("old"))
    )


RECEIVERS: dict[type, Callable[[StreamsBuilder], Any]] = {
    topology.BranchedKStream: lambda builder: _stream(builder).split(),
    topology.CogroupedKStream: lambda builder: _grouped(builder).cogroup(lambda key, value, total: total),
    topology.CountWindowedKStream: lambda builder: _grouped(builder).windowed_by(CountWindows(3)),
    topology.KGroupedStream: _grouped,
    topology.KGroupedTable: lambda builder: _table(builder).group_by(lambda key, value: (key, value)),
    topology.KStream: _stream,
    topology.KTable: _table,
    topology.SessionWindowedCogroupedKStream: lambda builder: (
        _grouped(builder).cogroup(lambda key, value, total: total).windowed_by(SessionWindows(5))
    ),
    topology.SessionWindowedKStream: lambda builder: _grouped(builder).windowed_by(SessionWindows(5)),
    topology.StreamsBuilder: lambda builder: builder,
    topology.Suppressed: lambda _: Suppressed,
    topology.TimeWindowedCogroupedKStream: lambda builder: (
        _grouped(builder).cogroup(lambda key, value, total: total).windowed_by(TimeWindows(5))
    ),
    topology.TimeWindowedKStream: lambda builder: _grouped(builder).windowed_by(TimeWindows(5)),
    topology.Topology: lambda builder: (_stream(builder).to("out"), builder.build())[1],
    topology.TopologyBuilder: _processors,
}
"""Something of each class that a program calls methods of."""

CONSTRUCTORS = [
    topology.Buffer,
    CountWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    TimeWindows,
    UnlimitedWindows,
    topology.Sum,
    topology.Upcast,
]

REQUIRED: dict[str, Any] = {
    "adder": lambda *_: None,
    "aggregator": lambda key, value, total: total,
    "before": 5,
    "config": {},
    "difference": 5,
    "fn": lambda *_: None,
    "function": lambda value: value,
    "gap": 5,
    "id": lambda key, value: key,
    "initializer": int,
    "joiner": lambda *_: None,
    "limit": 5,
    "lookup": lambda *_: None,
    "merger": lambda key, one, other: one,
    "on": lambda key, value: key,
    "parents": "p",
    "predicate": lambda key, value: True,
    "processor": "p",
    "processor_name": "q",
    "reducer": lambda one, other: one,
    "serde": serdes.string,
    "side": "left",
    "size": 5,
    "source": "q",
    "source_name": "r",
    "store": Store("new"),
    "stores": "old",
    "strategy": EmitStrategy.ON_WINDOW_UPDATE,
    "subtractor": lambda *_: None,
    "supplier": Forward,
    "suppressed": Suppressed.until_time_limit(5),
    "topic": "other",
    "topics": "other",
    "ttl": 5,
    "windows": TimeWindows(5),
    "within": 5,
}
"""Something that is right for each argument that has no default."""


def _calls() -> list[tuple[str, type, str | None, str]]:
    """Each argument of each public method and constructor: how the test is called, class, method, argument."""
    found = []
    for kind, methods in [
        *((kind, [name for name in dir(kind) if not name.startswith("_")]) for kind in RECEIVERS),
        *((kind, [None]) for kind in CONSTRUCTORS),
    ]:
        for method in methods:
            called = kind if method is None else getattr(kind, method)
            if not callable(called):
                continue
            found += [
                (f"{kind.__name__}.{method or 'init'}({parameter.name})", kind, method, parameter.name)
                for parameter in inspect.signature(called).parameters.values()
                if parameter.name not in ("self", "wait_ms")
            ]
    return found


CALLS = _calls()


def _other(kind: type, method: str | None, builder: StreamsBuilder) -> dict[str, Any]:
    """What depends on the method."""
    if kind is topology.KTable:
        return {"other": builder.table("second", key=serdes.string), "supplier": Forward}
    if method in ("join", "left_join", "outer_join"):
        return {"other": builder.stream("second", key=serdes.string), "windows": JoinWindows(5)}
    if method == "map_async":
        return {"fn": waits}
    if kind is topology.CogroupedKStream and method == "cogroup":
        return {"grouped": builder.stream("second").group_by_key()}
    if method == "add_processor":
        return {"name": "q"}
    return {"other": builder.stream("second", key=serdes.string), "name": "n", "grouped": None}


class Wrong:
    """What no argument may be."""


def _required(kind: type, method: str | None, called: Any, builder: StreamsBuilder) -> dict[str, Any]:
    """Something right for all arguments without defaults."""
    given = {**REQUIRED, **_other(kind, method, builder)}
    needed = [
        name
        for name, parameter in inspect.signature(called).parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    unknown = [name for name in needed if name not in given]
    assert not unknown, f"REQUIRED of this module says nothing right for {unknown} of {kind.__name__}.{method}: add it"
    return {name: given[name] for name in needed}


def _plan_of(builder: StreamsBuilder) -> tuple[int, list[str]]:
    """What names following steps get, and the steps so far."""
    return builder._plan._next_number, [step.name for step in builder._plan.steps]


def _refused(kind: type, method: str | None, argument: str, wrong: object) -> None:
    """The call with a wrong argument names this file's line."""
    builder = StreamsBuilder()
    called: Any = kind if method is None else getattr(RECEIVERS[kind](builder), method)
    parameters = inspect.signature(called).parameters
    several = parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL
    arguments = _required(kind, method, called, builder) | ({} if several else {argument: wrong})
    before = _plan_of(builder)
    with pytest.raises(TopologyError) as raised:
        called(*[wrong] * several, **arguments)
    assert _plan_of(builder) == before
    assert raised.value.site is not None, raised.value
    assert raised.value.site.file == __file__


@pytest.mark.parametrize(("kind", "method", "argument"), [call[1:] for call in CALLS], ids=[call[0] for call in CALLS])
def test_a_wrong_argument_is_refused_in_the_line_that_gives_it(kind: type, method: str | None, argument: str) -> None:
    _refused(kind, method, argument, Wrong())


def _parameter(kind: type, method: str | None, argument: str) -> inspect.Parameter:
    return inspect.signature(kind if method is None else getattr(kind, method)).parameters[argument]


def _annotation(kind: type, method: str | None, argument: str) -> str:
    return str(_parameter(kind, method, argument).annotation)


def _takes_none(kind: type, method: str | None, argument: str) -> bool:
    annotation = _annotation(kind, method, argument)
    by_default = _parameter(kind, method, argument).default is None
    return by_default or annotation in ("Any", "object") or "None" in alternatives(annotation)


NO_NONE = [call for call in CALLS if not _takes_none(*call[1:])]


@pytest.mark.parametrize(
    ("kind", "method", "argument"), [call[1:] for call in NO_NONE], ids=[call[0] for call in NO_NONE]
)
def test_none_is_refused_where_something_is_needed(kind: type, method: str | None, argument: str) -> None:
    _refused(kind, method, argument, None)


NO_FUNCTIONS = {
    "AnyWindows",
    "Awaitable",
    "Duration",
    "EmitStrategy",
    "JoinWindows",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Of",
    "OffsetReset",
    "Output",
    "TimeWindows",
}
FUNCTION_TYPES = JUDGED - NO_FUNCTIONS
NEEDS_OTHER_ARGUMENTS: dict[str, Callable[[StreamsBuilder], dict[str, Any]]] = {
    "KStream.join(on)": lambda builder: {"other": builder.global_table("global", key=serdes.string), "windows": None},
    "KStream.left_join(on)": lambda builder: {"other": builder.global_table("global"), "windows": None},
    "KTable.join(other_partitioner)": lambda _: {"foreign_key": lambda value: value},
    "KTable.left_join(other_partitioner)": lambda _: {"foreign_key": lambda value: value},
    "TopologyBuilder.add_global_store(supplier)": lambda _: {"processor": "second", "source": "first"},
}
"""Arguments that are valid only beside others."""

FUNCTIONS = [call for call in CALLS if FUNCTION_TYPES & set(alternatives(_annotation(*call[1:])))]


def of_seven(a: int, b: int, c: int, d: int, e: int, f: int, g: int) -> None:
    """A function that nothing calls."""


@pytest.mark.parametrize(("title", "kind", "method", "argument"), FUNCTIONS, ids=[call[0] for call in FUNCTIONS])
def test_a_function_that_nothing_can_call_is_refused_where_it_is_given(
    title: str, kind: type, method: str | None, argument: str
) -> None:
    builder = StreamsBuilder()
    called: Any = kind if method is None else getattr(RECEIVERS[kind](builder), method)
    several = inspect.signature(called).parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL
    arguments = _required(kind, method, called, builder)
    arguments |= NEEDS_OTHER_ARGUMENTS.get(title, lambda _: {})(builder)
    arguments |= {} if several else {argument: of_seven}
    before = _plan_of(builder)
    with pytest.raises(TopologyError, match=r"calls a function with \([^)]*\), but of_seven takes \(a: ") as raised:
        called(*[of_seven] * several, **arguments)
    assert _plan_of(builder) == before
    assert raised.value.site is not None
    assert raised.value.site.file == __file__


REFUSED: dict[str, Callable[[StreamsBuilder], object]] = {
    "name of a step": lambda builder: _grouped(builder).count(name="a/b"),
    "name of a topic": lambda builder: builder.global_table("a/b"),
    "serdes": lambda builder: _stream(builder).to_table(store=Store("s", key=serdes.long), key=serdes.string),
    "store of windows": lambda builder: _grouped(builder).windowed_by(TimeWindows(5)).count(store=Store(max_entries=3)),
    "store of a cogroup": lambda builder: (
        _grouped(builder)
        .cogroup(lambda key, value, total: total)
        .windowed_by(TimeWindows(5))
        .aggregate(int, store=Store(max_entries=3))
    ),
    "stores of a join": lambda builder: _stream(builder).outer_join(
        builder.stream("second"), lambda one, other: one, JoinWindows(5), store="a/b"
    ),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_refused_call_takes_no_names(refused: Callable[[StreamsBuilder], object]) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError):
        refused(builder)
    number, steps = _plan_of(builder)
    assert number == len(steps)


def _is_checked(member: object) -> bool:
    return getattr(getattr(member, "__code__", None), "co_filename", "").endswith("arguments.py")


def test_every_class_that_programs_call_is_looked_at() -> None:
    made_here = {*RECEIVERS, *CONSTRUCTORS}
    public = [getattr(topology, name) for name in topology.__all__]
    classes = {each for each in public if isinstance(each, type) and each.__module__.startswith("topology.")}
    checked = {kind for kind in classes if any(_is_checked(member) for member in vars(kind).values())}
    assert checked <= made_here, "calls of these are checked and not tested"


def test_every_type_in_an_annotation_is_known() -> None:
    known = {
        *JUDGED,
        *ALIASES,
        "Any",
        "Iterable",
        "Mapping",
        "None",
        "Serde",
        "bool",
        "int",
        "re.Pattern",
        "str",
        "tuple",
    }
    for _, kind, method, argument in CALLS:
        for each in alternatives(_annotation(kind, method, argument)):
            is_class = isinstance(getattr(topology, each, None), type)
            assert each in known or is_class or each.startswith("Literal["), (
                f"{kind.__name__}.{method}({argument}: {each})"
            )


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("string", ": write serdes.string, without quotes"),
        ("str", ": write serdes.string, without quotes"),
        (str, ": write serdes.string"),
        (int, ": write serdes.long"),
        (serdes.time_windowed, ": write serdes.time_windowed(...)"),
        (5, "not 5"),
    ],
)
def test_the_serde_that_is_meant_is_named(given: Any, hint: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(hint) + "$"):
        StreamsBuilder().stream("in", key=given)
    with pytest.raises(TopologyError, match=re.escape(hint) + "$"):
        serdes.session_windowed(given)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: StreamsBuilder().stream("a", valu=serdes.json),  # type: ignore[call-overload]
            "stream() got an unexpected keyword argument 'valu': did you mean 'value'?",
        ),
        (
            lambda: StreamsBuilder().stream("a", zzz=1),  # type: ignore[call-overload]
            "stream() got an unexpected keyword argument 'zzz'",
        ),
        (lambda: StreamsBuilder().stream(), "stream() missing a required argument: 'topics'"),  # type: ignore[call-overload]
        (
            lambda: StreamsBuilder().stream("a", "b", "c"),  # type: ignore[call-overload]
            "stream() too many positional arguments: give several topics as a list, ['a', 'b', 'c']",
        ),
        (
            lambda: StreamsBuilder().stream("a", serdes.json),  # type: ignore[call-overload]
            "stream() too many positional arguments: these are given by name: key=, value=, timestamp_extractor=, "
            "offset_reset=, name=",
        ),
    ],
)
def test_arguments_that_a_call_does_not_have(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TopologyError) as raised:
        call()
    line = call.__code__.co_firstlineno
    assert raised.value.site is not None
    assert raised.value.site.file == __file__
    assert line <= raised.value.site.line <= line + 1
    assert str(raised.value).endswith(said)


def test_an_error_of_the_operators_own_stays_what_it_is() -> None:
    class Topics(list[str]):
        def __iter__(self) -> Iterator[str]:
            raise TypeError("these topics can't be listed")

    with pytest.raises(TypeError, match="these topics can't be listed"):
        StreamsBuilder().stream(Topics())


@pytest.mark.parametrize(
    ("lookup", "said"),
    [
        (lambda stream: stream.to_tabel(), "'KStream' object has no attribute 'to_tabel': did you mean 'to_table'?"),
        (
            lambda stream: stream.group_by_key().cuont(),
            "'KGroupedStream' object has no attribute 'cuont': did you mean 'count'?",
        ),
        (lambda stream: stream.to_table().to_streem(), "'KTable' object has no attribute 'to_streem': did you mean "),
        (lambda stream: stream.zzz, "'KStream' object has no attribute 'zzz'"),
        (lambda stream: stream._maap, "'KStream' object has no attribute '_maap'"),
        (lambda stream: StreamsBuilder().straem("a"), "no attribute 'straem': did you mean 'stream'?"),
    ],
)
def test_the_method_that_is_meant_is_named(lookup: Callable[[Any], object], said: str) -> None:
    stream = StreamsBuilder().stream("in", key=serdes.string, value=serdes.string)
    with pytest.raises(AttributeError, match=re.escape(said) + ("$" if said[-1] in "?'" else "")):
        lookup(stream)
    assert not hasattr(stream, "to_tabel")


# -------------------------------------------------------------------------------------------------------------- stores

WITH_STORE = [call for call in CALLS if call[3] == "store" and call[1] is not TopologyBuilder]


def _stores_of(kind: type, method: str | None, store: Store) -> list[StoreSpec]:
    """The stores of a program that calls the method."""
    builder = StreamsBuilder()
    receiver = RECEIVERS[kind](builder)
    called = getattr(receiver, str(method))
    arguments = _required(kind, method, called, builder) | {"store": store}
    if kind is topology.KStream and method in ("join", "left_join", "outer_join"):
        arguments["windows"] = JoinWindows(5)
    made = called(**arguments)
    if isinstance(made, topology.KTable):
        made.to_stream()
    return [spec for part in builder.build().subtopologies for spec in part.stores]


@pytest.mark.parametrize(("kind", "method", "argument"), [c[1:] for c in WITH_STORE], ids=[c[0] for c in WITH_STORE])
def test_every_store_can_be_described_and_renamed(kind: type, method: str | None, argument: str) -> None:
    """A method that takes a name of a store takes a Store."""
    parameter = inspect.signature(getattr(kind, str(method))).parameters[argument]
    assert "Store" in alternatives(str(parameter.annotation))
    former = [spec.kept_as for spec in _stores_of(kind, method, Store("new", renamed_from="old"))]
    # Stores of the builder itself may belong to no task.
    assert any(name.startswith("old") for name in former) or (kind is StreamsBuilder and not former), former


@pytest.mark.parametrize(("kind", "method"), [c[1:3] for c in WITH_STORE], ids=[c[0] for c in WITH_STORE])
def test_an_upcast_gets_values_of_the_program_from_every_store(kind: type, method: str | None) -> None:
    """Where an operator's rows contain them, its serde says how to convert each one."""
    upcast = {1: Upcast(lambda value: value, serdes.json)}
    try:
        specs = _stores_of(kind, method, Store("new", version=2, upcast=upcast))
    except TopologyError as error:
        told = str(error)
        specs = []
    else:
        told = ""
    assert specs or kind is StreamsBuilder or "version" in told
    for spec in specs:
        if spec.version == 1 or spec.value_serde is None:
            continue
        serde = plain_serde(spec.value_serde)
        assert isinstance(serde, RowsOfValues) or serde.name in ("string", "long"), spec.name
        read = writing_serde(spec.upcasts[0][1], serde)
        assert "json" in read.name


@pytest.mark.parametrize(
    "call",
    [
        lambda builder: _stream(builder).process(Forward, stores="counts"),
        lambda builder: _table(builder).transform_values(Forward, stores="counts"),
        lambda builder: (
            TopologyBuilder().add_source("s", "in").add_processor("p", Forward, parents="s", stores="counts")
        ),
        lambda builder: _stream(builder).branch(lambda key, value: True, names="counts"),
    ],
)
def test_a_text_is_no_list_of_its_letters(call: Callable[[StreamsBuilder], object]) -> None:
    with pytest.raises(TopologyError, match=r"takes a list( or)? as (stores|names), not 'counts'"):
        call(StreamsBuilder())
