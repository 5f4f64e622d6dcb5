"""The public classes and functions, sorted by where a program meets them."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import streamsrt
import topology
from streamsrt import backfill, faust
from streamsrt.testing import simulator
from tests.tools.reference.source import (
    GENERATED,
    Function,
    assigned,
    decorators,
    defined,
    docstring_of,
    field_docstrings,
    first_paragraph,
    markdown,
    modules,
    page,
    plain,
    signature,
    table,
    tree_of,
)
from topology import serdes

_PUBLIC_PACKAGES = ("topology", "streamsrt")
_OVERLOADS_MAX = 3


class Section(NamedTuple):
    """Names that a program imports from ``package``. ``is_made``: it does not construct them itself."""

    title: str
    package: str
    names: tuple[str, ...]
    is_made: bool = False


SECTIONS = (
    Section("Builders", "topology", ("StreamsBuilder", "TopologyBuilder")),
    Section("Streams and tables", "topology", ("KStream", "KTable", "GlobalKTable", "BranchedKStream"), is_made=True),
    Section(
        "Grouped and windowed streams",
        "topology",
        (
            "KGroupedStream",
            "KGroupedTable",
            "TimeWindowedKStream",
            "SessionWindowedKStream",
            "CountWindowedKStream",
            "CogroupedKStream",
            "TimeWindowedCogroupedKStream",
            "SessionWindowedCogroupedKStream",
        ),
        is_made=True,
    ),
    Section(
        "Windows",
        "topology",
        (
            "TimeWindows",
            "SlidingWindows",
            "SessionWindows",
            "UnlimitedWindows",
            "CountWindows",
            "JoinWindows",
            "Windowed",
            "EmitStrategy",
            "Suppressed",
            "Buffer",
            "OpenWindow",
            "OpenWindows",
        ),
    ),
    Section(
        "Aggregates",
        "topology",
        (
            "agg",
            "NamedAggregate",
            "NamedAggregates",
            "Count",
            "Sum",
            "Mean",
            "Min",
            "Max",
            "First",
            "Last",
            "Collect",
            "FailedValue",
        ),
    ),
    Section(
        "Stores",
        "topology",
        (
            "Store",
            "Upcast",
            "KeyValueStore",
            "ReadOnlyKeyValueStore",
            "WindowStore",
            "SessionStore",
            "VersionedKeyValueStore",
            "ValueAndTimestamp",
            "VersionedRecord",
        ),
    ),
    Section(
        "Processors",
        "topology",
        (
            "Processor",
            "FixedKeyProcessor",
            "ValueTransformer",
            "ProcessorContext",
            "Record",
            "RecordContext",
            "RecordMetadata",
            "Headers",
            "PunctuationType",
            "Cancellable",
            "ProcessorMetrics",
            "MetricCounter",
            "MetricLatency",
            "ProcessorWrapper",
            "OperatorProcessor",
            "TableRecord",
        ),
    ),
    Section("The topology", "topology", ("Topology", "Subtopology"), is_made=True),
    Section("Serdes", "topology", ("Serde",)),
    Section(
        "Running an application",
        "streamsrt",
        ("KafkaStreams", "State", "Progress", "RestoreListener", "StandbyListener"),
    ),
    Section(
        "Queries",
        "streamsrt.queries.values",
        (
            "KeyQuery",
            "TimestampedKeyQuery",
            "RangeQuery",
            "TimestampedRangeQuery",
            "PrefixQuery",
            "WindowKeyQuery",
            "WindowRangeQuery",
            "SessionKeyQuery",
            "SessionRangeQuery",
            "VersionedKeyQuery",
            "MultiVersionedKeyQuery",
            "Position",
            "PositionBound",
            "StateQueryResult",
            "QueryResult",
            "FailureReason",
            "HostInfo",
            "StreamsMetadata",
            "KeyQueryMetadata",
            "StoreSize",
        ),
    ),
    Section("Schema registry", "streamsrt.schema_registry", ("SchemaRegistry",)),
    Section("Backfill", "streamsrt.backfill", ("Backfill", "Archive", "KafkaLog", "Lake")),
    Section("Applications of faust-streaming", "streamsrt.faust", ("topology", "config", "TestApp", "App", "Worker")),
    Section("Test driver", "streamsrt", ("TopologyTestDriver",)),
    Section(
        "Test driver: topics and records",
        "streamsrt.testing.topology_test_driver",
        ("TestInputTopic", "TestOutputTopic", "TestRecord", "ProducedRecord", "partition_for"),
    ),
    Section(
        "Tests of one processor",
        "streamsrt.testing.mock_processor_context",
        ("MockProcessorContext", "CapturedForward", "CapturedPunctuator"),
    ),
    Section("Tests of the topology lock", "streamsrt.testing.topology_lock", ("assert_topology_locked",)),
    Section(
        "Simulator",
        "streamsrt.testing.simulator",
        (
            "simulate",
            "simulate_seeds",
            "uninterrupted",
            "Input",
            "Inputs",
            "Output",
            "Outputs",
            "Protocols",
            "Check",
            "Compare",
            "Faults",
            "NO_FAULTS",
            "SimulationResult",
        ),
    ),
)


def public() -> set[tuple[str, str]]:
    """Package and name of all that the page must have; errors and settings have pages of their own."""
    names = {("topology", name) for name in topology.__all__ if name != "serdes"}
    names |= {("streamsrt", name) for name in streamsrt.__all__ if name != "StreamsConfig"}
    names |= {("streamsrt.backfill", name) for name in backfill.__all__}
    names |= {("streamsrt.faust", name) for name in faust.__all__}
    names |= {("streamsrt.testing.simulator", name) for name in simulator.__all__}
    for module in ("streamsrt.queries.values", "streamsrt.schema_registry", *_test_modules()):
        exported = getattr(importlib.import_module(module), "__all__", None)
        names |= {(module, name) for name in exported or _classes_and_functions(module)}
    return {(package, name) for package, name in names if not _is_error(package, name)} - {
        ("streamsrt", "TopologyTestDriver"),
        ("streamsrt.testing.topology_test_driver", "TopologyTestDriver"),
    } | {("streamsrt", "TopologyTestDriver")}


def _test_modules() -> Iterator[str]:
    return (each for each in modules("streamsrt/testing") if each.count(".") == 2 and "simulator" not in each)


def _classes_and_functions(module: str) -> Iterator[str]:
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def _is_error(package: str, name: str) -> bool:
    found = _object(package, name)
    return isinstance(found, type) and issubclass(found, BaseException)


def _object(package: str, name: str) -> object:
    return getattr(importlib.import_module(package), name)


def api_page() -> str:
    """The page of all public names."""
    listed = {(section.package, name) for section in SECTIONS for name in section.names}
    if listed != public():
        raise LookupError(f"SECTIONS of {__name__} and the public names differ: {sorted(listed ^ public())}")
    return page(
        "# Classes and functions",
        GENERATED,
        "Everything that a program imports, in the order in which it meets it. Durations are milliseconds or `timedelta`. "
        "[Errors](errors.md) and [settings](settings.md) (`StreamsConfig`) have pages of their own. "
        "[Operators](../../examples/operators/README.md) shows each operator in a program.",
        [*(f"- [{each.title}](#{_anchor(each.title)})" for each in SECTIONS), ""],
        *(part for section in SECTIONS for part in _section(section)),
    )


def _anchor(title: str) -> str:
    return "".join(each for each in title.lower().replace(" ", "-") if each.isalnum() or each == "-")


def _section(section: Section) -> Iterator[str | list[str]]:
    yield f"## {section.title}"
    if section.title == "Serdes":
        yield from _serdes()
    else:
        yield f"`from {section.package} import ...`"
    for name in section.names:
        found = _object(section.package, name)
        yield f"### {name}"
        if isinstance(found, type):
            yield from _class(found, is_made=section.is_made)
        elif inspect.isfunction(found):
            node = defined(found.__module__, found.__name__)
            assert not isinstance(node, ast.ClassDef)
            yield f"`{signature(node, name, is_method=False)}`"
            yield markdown(docstring_of(node))
        else:
            yield from _value(section.package, name)


def _value(package: str, name: str) -> Iterator[str]:
    """An alias of a type, or a constant: as it stands where it is assigned."""
    for module in modules(*_PUBLIC_PACKAGES):
        if not module.startswith(package):
            continue
        for statement in tree_of(module).body:
            if name in assigned(statement) and isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
                yield f"`{name} = {ast.unparse(statement.value)}`"
                told = field_docstrings(tree_of(module)).get(name)
                if told:
                    yield told
                return
    raise LookupError(f"nothing assigns {package}.{name}")


def _serdes() -> Iterator[str | list[str]]:
    yield "`from topology import serdes`: what turns keys and values into bytes and back."
    rows = []
    for name in serdes.__all__:
        found = getattr(serdes, name)
        if name == "Serde":
            continue
        if inspect.isfunction(found):
            node = defined(found.__module__, found.__name__)
            assert not isinstance(node, ast.ClassDef)
            rows.append([f"`serdes.{signature(node, name, is_method=False)}`", markdown(docstring_of(node))])
        else:
            told = field_docstrings(tree_of("topology.spec.codecs"))
            own = f"{name}_" if f"{name}_" in told else name
            rows.append([f"`serdes.{name}`", told.get(own) or first_paragraph(inspect.getdoc(found) or "")])
    yield table(["serde", "what it does"], rows)


def _class(found: type, *, is_made: bool) -> Iterator[str | list[str]]:
    node = defined(found.__module__, found.__name__)
    assert isinstance(node, ast.ClassDef)
    yield markdown(docstring_of(node))
    bodies = [node, *_inherited(found)]
    fields = [row for body in bodies for row in _fields(body, is_enum="__members__" in dir(found))]
    if fields:
        yield table(["field", "type", "default", "meaning"], fields)
    lines = []
    if not is_made:
        lines += [f"- `{text}`" for text in _constructors(node, found.__name__)]
    seen: set[str] = set()
    for body in bodies:
        for name, functions in _methods(body).items():
            if name not in seen and not _is_told_above(found, name, functions):
                lines += _method(name, functions)
            seen.add(name)
    if lines:
        yield [*lines, ""]


def _inherited(found: type) -> Iterator[ast.ClassDef]:
    """What it has from classes of ours that have no entry of their own."""
    listed = {_object(section.package, name) for section in SECTIONS for name in section.names if name.isidentifier()}
    for base in found.__mro__[1:]:
        if base.__module__.partition(".")[0] in _PUBLIC_PACKAGES and base not in listed:
            node = defined(base.__module__, base.__name__)
            assert isinstance(node, ast.ClassDef)
            yield node


def _fields(node: ast.ClassDef, *, is_enum: bool) -> Iterator[list[str]]:
    meanings = field_docstrings(node)
    for statement in node.body:
        for name in assigned(statement):
            if name.startswith("_") or name == "model_config":
                continue
            if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation):
                default = f"`{ast.unparse(statement.value)}`" if statement.value else ""
                yield [f"`{name}`", f"`{ast.unparse(statement.annotation)}`", default, meanings.get(name, "")]
            elif isinstance(statement, ast.Assign) and is_enum:
                yield [f"`{name}`", "", f"`{ast.unparse(statement.value)}`", meanings.get(name, "")]


def _constructors(node: ast.ClassDef, name: str) -> list[str]:
    found = [each for each in _functions(node) if each.name == "__init__"]
    return [signature(each, name, is_method=True).removesuffix(" -> None") for each in _shown(found)]


def _functions(node: ast.ClassDef) -> list[Function]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def _methods(node: ast.ClassDef) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for each in _functions(node):
        if not each.name.startswith("_") and not decorators(each) & {"setter", "field_validator", "model_validator"}:
            found.setdefault(each.name, []).append(each)
    return found


def _shown(functions: Sequence[Function]) -> Sequence[Function]:
    """The overloads where they are few, else the function itself: its types are the loosest."""
    overloads = [each for each in functions if "overload" in decorators(each)]
    return overloads if 0 < len(overloads) <= _OVERLOADS_MAX else functions[-1:]


def _is_told_above(found: type, name: str, functions: Sequence[Function]) -> bool:
    """Whether it only does in its own way what a class above says of it."""
    is_silent = not any(map(docstring_of, functions))
    return is_silent and any(name in vars(base) for base in found.__mro__[1:] if base.__module__ == found.__module__)


def _method(name: str, functions: Sequence[Function]) -> Iterator[str]:
    told = next((text for each in reversed(functions) if (text := docstring_of(each))), "")
    if decorators(functions[-1]) & {"property", "cached_property"}:
        returns = functions[-1].returns
        shown = [f"{name}: {ast.unparse(returns)}" if returns is not None else name]
    else:
        shown = [signature(each, name, is_method=not decorators(each) & {"staticmethod"}) for each in _shown(functions)]
    yield f"- **{plain(name)}** " + "<br>".join(f"`{text}`" for text in shown)
    if told:
        yield f"  <br>{markdown(told)}"
