"""Settings of an application, out of ``StreamsConfig``, and those of the bundled broker, out of its tables."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import cast

from pydantic.fields import FieldInfo

from coordinator.broker.config_definitions import (
    _IN_COARSER_UNITS,
    BROKER_CONFIGS,
    COARSER_KEYS,
    TOPIC_CONFIGS,
    ConfigType,
    Definition,
)
from coordinator.broker.kafka_settings import _ELSEWHERE, KAFKA_SETTINGS
from coordinator.group.config import BROKER_SETTINGS
from coordinator.group.settings import INT32_MAX, Setting
from coordinator.server.settings import _NODE_ID
from streamsrt import config
from streamsrt.config import StreamsConfig
from tests.tools.reference.source import GENERATED, defined, field_docstrings, modules, page, table, tree_of

_TYPES = {
    "Any": "object or text",
    "AsGiven": "text",
    "bool": "`true`, `false`",
    "int": "integer",
    "Milliseconds": "milliseconds",
    "Path": "path",
    "RecordingLevel": "`INFO`, `DEBUG`, `TRACE`",
    "str": "text",
}
_TABLES = ("coordinator.broker.config_definitions", "coordinator.broker.kafka_settings")
_MEBIBYTE, _LEAST_MEBIBYTES, _LONG_MAX = 1 << 20, 1, (1 << 63) - 1


def settings_page() -> str:
    """The page of all settings."""
    return page(
        "# Settings",
        GENERATED,
        "Settings have Kafka's names. Durations are in milliseconds (`.ms`), sizes in bytes (`.bytes`).",
        "## Of an application",
        "Give them in a mapping beside the topology, as `--config KEY=VALUE`, or in a properties file (`--config-file`). "
        "In Python, underscores may stand for dots: `application_id` is `application.id`. A duration may be a "
        "`timedelta`, and a text is converted to the type. A setting that is unknown, or out of its range, is refused "
        "before anything starts.",
        *_application(),
        "### Keys with a prefix",
        table(["prefix", "meaning"], _prefixes()),
        "### Settings that the group decides",
        "The group coordinator of a streams group decides these settings of Kafka Streams (KIP-1071). In an application "
        "they have no effect, and a warning names the group's setting. Those that have a line above count in a classic "
        "group.",
        table(["Kafka Streams", "the group's setting"], _of_the_group()),
        "## Of the bundled broker",
        "Give them as `--config KEY=VALUE`, or in a `server.properties` file (`--properties`). A properties file of Apache "
        "Kafka 4.4 starts this broker: its settings either act here or are accepted and named in a warning. Any other name "
        "is refused.",
        "### Broker",
        table(["setting", "type", "default", "range", "effect"], _broker()),
        "### Group coordinator",
        table(["setting", "default", "range", "meaning"], _groups()),
        "### Topics",
        "A topic's own settings, as `kafka-configs` and admin clients set them. Without one the broker's setting counts.",
        table(["setting of the topic", "setting of the broker", "type", "default", "range", "effect"], _topics()),
        "### Same setting, other name",
        table(["accepted", "here"], _other_names()),
        "### Accepted without effect",
        "Settings of Apache Kafka 4.4 that this broker does not act on. It checks their type, and a warning names those "
        "that are set. The same holds for `listener.name.NAME.KEY` of a known `KEY`, and for `config.providers.*`, "
        "`rsm.config.*` and `rlmm.config.*`.",
        [*(f"- `{key}`" for key in sorted(KAFKA_SETTINGS) if not _is_known(key)), ""],
    )


# -------------------------------------------------------------------------------------------------- of an application


def _application() -> Iterator[str | list[str]]:
    node = defined("streamsrt.config", "StreamsConfig")
    assert isinstance(node, ast.ClassDef)
    fields = cast(Mapping[str, FieldInfo], StreamsConfig.model_fields)
    meanings = field_docstrings(node)
    written = {name: each for each in node.body if isinstance(each, ast.AnnAssign) for name in _names(each)}
    for title, names in _sections(fields):
        yield f"### {title}"
        yield table(
            ["setting", "type", "default", "range", "meaning"],
            (
                [
                    f"`{config._dotted(name)}`",
                    type_text(written[name].annotation),
                    "" if fields[name].is_required() else _value(fields[name].get_default(call_default_factory=True)),
                    range_of(fields[name]),
                    meanings.get(name, ""),
                ]
                for name in names
            ),
        )


def _names(statement: ast.AnnAssign) -> list[str]:
    return [statement.target.id] if isinstance(statement.target, ast.Name) else []


def _sections(fields: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The fields below the comments that divide the class."""
    title = ""
    found: dict[str, list[str]] = {}
    known = set(fields) - set(config._BELOW_PREFIXES)
    for line in _class_lines():
        if line.startswith("    # "):
            title = line.removeprefix("    # ")
        name = line.strip().partition(":")[0]
        if line.startswith("    ") and line[4] != " " and name in known:
            found.setdefault(title, []).append(name)
    assert sum(map(len, found.values())) == len(known)
    yield from found.items()


def _class_lines() -> list[str]:
    return inspect.getsource(StreamsConfig).splitlines()


def type_text(annotation: ast.expr) -> str:
    """A type of a field as a user would say it."""
    if isinstance(annotation, ast.BinOp):
        return type_text(annotation.left)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        choices = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return ", ".join(f"`{ast.literal_eval(choice)}`" for choice in choices)
    return _TYPES[ast.unparse(annotation)]


def range_of(field: FieldInfo) -> str:
    """What values are allowed."""
    bounds: dict[str, object] = {}
    for constraint in field.metadata:
        for name in ("ge", "le", "min_length", "max_length", "pattern"):
            value = getattr(constraint, name, None)
            if value is not None:
                bounds[name] = value
    texts = []
    if "ge" in bounds:
        texts.append(
            f"{_number(bounds['ge'])} to {_number(bounds['le'])}" if "le" in bounds else f"≥ {_number(bounds['ge'])}"
        )
    if "pattern" in bounds:
        texts.append(f"`{bounds['pattern']}`")
    if "max_length" in bounds:
        texts.append(f"{bounds.get('min_length', 0)} to {bounds['max_length']} characters")
    elif "min_length" in bounds:
        texts.append("not empty")
    return ", ".join(texts)


def _value(value: object) -> str:
    if value is None or value == "" or value == {} or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    if isinstance(value, int | float):
        return _number(value)
    return f"`{value}`"


def _number(value: object) -> str:
    if not isinstance(value, int):
        return str(value)
    if value in (_LONG_MAX, INT32_MAX):
        return "no limit"
    if value % _MEBIBYTE == 0 and value >= _LEAST_MEBIBYTES * _MEBIBYTE:
        return f"{value} ({value // _MEBIBYTE} MiB)"
    return str(value)


def _prefixes() -> Iterator[list[str]]:
    node = defined("streamsrt.config", "StreamsConfig")
    assert isinstance(node, ast.ClassDef)
    meanings = field_docstrings(node)
    for name, prefix in config._BELOW_PREFIXES.items():
        yield [f"`{prefix}`", meanings[name]]


def _of_the_group() -> Iterator[list[str]]:
    for key, name in sorted(config._OF_THE_GROUP.items()):
        yield [f"`{key}`", f"`{name}`" if name else "none"]


# --------------------------------------------------------------------------------------------------------- of a broker


@cache
def _used_by_the_broker() -> frozenset[str]:
    """Every text in the broker's code, apart from its tables of settings."""
    return frozenset(
        node.value
        for module in modules("coordinator")
        if module not in _TABLES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _acts(definition: Definition, *others: str | None) -> bool:
    return bool({definition.key, *others} & _used_by_the_broker())


def _effect(definition: Definition, *others: str | None) -> str:
    meaning = definition.documentation
    if _acts(definition, *others):
        return meaning or "acts"
    return f"Accepted without effect. {meaning}".strip()


def _broker() -> Iterator[list[str]]:
    own = {row.broker_key: row for row in TOPIC_CONFIGS.values()}
    for key, row in sorted(BROKER_CONFIGS.items()):
        topic = own.get(key)
        text = _effect(row, topic and topic.key)
        if topic is not None:
            text = (
                f"Default of the topics' [`{topic.key}`](#topics)."
                if _acts(row, topic.key)
                else "Accepted without effect."
            )
        yield [f"`{key}`", _type(row), _value(row.default), _bounds(row.minimum, row.maximum), text]


def _topics() -> Iterator[list[str]]:
    for key, row in sorted(TOPIC_CONFIGS.items()):
        yield [
            f"`{key}`",
            f"`{row.broker_key}`",
            _type(row),
            _value(row.default),
            _bounds(row.minimum, row.maximum),
            _effect(row, row.broker_key),
        ]


def _type(row: Definition) -> str:
    if row.allowed:
        several = "any of " if row.type == ConfigType.LIST else ""
        return several + ", ".join(f"`{each}`" if each else "empty" for each in row.allowed)
    return row.type.name.lower()


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return ""
    if maximum is None or maximum in (INT32_MAX, _LONG_MAX):
        return f"≥ {_number(minimum)}"
    return f"{_number(minimum)} to {_number(maximum)}"


def _groups() -> Iterator[list[str]]:
    settings: Mapping[str, Setting] = BROKER_SETTINGS
    for key, setting in sorted(settings.items()):
        is_number = isinstance(setting.default, int)
        bounds = _bounds(setting.low, setting.high) if is_number else ""
        yield [f"`{key}`", _value(setting.default), bounds, setting.documentation]


def _other_names() -> Iterator[list[str]]:
    found = {name: f"`{key}`" for key, names in _IN_COARSER_UNITS.items() for name, _ in names}
    found |= {name: "`broker.id`" for name in _NODE_ID if name != "broker.id"}
    found |= {name: f"{where}; the setting itself has no effect" for name, where in _ELSEWHERE.items()}
    for name, here in sorted(found.items()):
        yield [f"`{name}`", here]


def _is_known(key: str) -> bool:
    return key in BROKER_CONFIGS or key in BROKER_SETTINGS or key in COARSER_KEYS or key in _NODE_ID
