"""Reads JSON as plain values, pydantic models, dataclasses and TypedDicts in C, where that was built: an optional extra.

1. By default everything is pure Python, and :func:`plain_reader` and :func:`reader_of` return what orjson and pydantic read
   with. ``STREAMSRT_NATIVE=1 pip install`` builds the module ``_streamsrt_models`` out of ``model_reading.c``. Where
   the environment variable STREAMSRT_PURE is 1, it is not used, even if it was built.
2. It has no behaviour of its own: values are those that orjson, or pydantic's core for types, makes of the same bytes. It is
   faster as records of a topic have the same names in the same order. It takes types of plain fields: strings, numbers,
   booleans, None, lists, and types of these; no validators, no options that change what is read, no constraints. All of that
   is told by pydantic's own schema of the type, of which every key must be known here.
3. Bytes that are not JSON, do not fit exactly, or are unusual (numbers of more than 19 digits, more than 150 brackets in
   each other) are read by orjson or pydantic from the beginning: pydantic converts what it converts (the text "1" to a
   number), and both raise their own errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

MODULE = "_streamsrt_models"
R = TypeVar("R", bound=Callable[[bytes], object])

Schema: TypeAlias = Mapping[str, object]
"""A part of pydantic's schema of a type."""
Plan: TypeAlias = tuple[object, ...]
"""(kind,), (kind, inner plan), or (kind, class, fields), as ``model_reading.c`` takes it; ("a",): any value. A field: its
name in JSON, its name, whether it may be absent, its default in a tuple of at most one, its plan."""


class Reader(Protocol):
    """Reads values of one type."""

    def read(self, data: bytes, /) -> object: ...


class ModelsInC(Protocol):
    """The module in C."""

    def Reader(  # noqa: N802
        self, plan: Plan, otherwise: Callable[[bytes], object], /
    ) -> Reader: ...


native: ModelsInC | None
"""The module in C; None where it was not built, or is not wanted."""

try:
    import _streamsrt_models as native  # type: ignore[import-not-found, no-redef]
except ImportError:
    native = None


def reader_of(schema: object, otherwise: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Reads values of the type that pydantic's core has that schema of; ``otherwise``: pydantic's own reader of it."""
    if native is None:
        return otherwise
    plan = plan_of(schema)
    try:
        return otherwise if plan is None else native.Reader(plan, otherwise).read
    except ValueError:
        return otherwise  # its models are not those that the module knows


def plain_reader(loads: R) -> R:
    """Reads plain values; ``loads``: orjson's reader of them."""
    return loads if native is None else cast(R, native.Reader(("a",), loads).read)


def plan_of(schema: object) -> Plan | None:
    """How values of that schema are made; None where only pydantic can."""
    try:
        return _Planner().plan(schema)
    except _UnusualError:
        return None


class _UnusualError(Exception):
    """There is something in the schema that is not known here."""


_ANYWHERE = {"type", "metadata", "ref", "serialization"}
_OF_FIELDS = {"schema", "type", "metadata", "frozen", "validation_alias"}
_OF_WRITING = {"serialization_alias", "serialization_exclude", "serialization_exclude_if"}
_CONFIG = {"title", "frozen", "from_attributes", "validate_assignment", "hide_input_in_errors", "extra_fields_behavior"}
_PLAIN = {"str": "s", "int": "i", "float": "f", "bool": "b", "none": "n"}
_CONSTANTS = (type(None), bool, int, float, str)
_DEPTH_MAX = 30


class _Planner:
    """Makes a plan of one schema. Raises _UnusualError for what is not known here."""

    def __init__(self) -> None:
        self._definitions: dict[object, object] = {}
        self._depth = 0

    def plan(self, schema: object) -> Plan:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _UnusualError  # it contains itself
        try:
            return self._plan(_mapping(schema))
        finally:
            self._depth -= 1

    def _plan(self, schema: Schema) -> Plan:
        match schema.get("type"):
            case "nullable":
                _check(schema, _ANYWHERE | {"schema"})
                return ("?", self.plan(schema["schema"]))
            case "list":
                _check(schema, _ANYWHERE | {"items_schema"})
                return ("l", self.plan(schema.get("items_schema")))
            case "definitions":
                _check(schema, _ANYWHERE | {"schema", "definitions"})
                for each in map(_mapping, _sequence(schema["definitions"])):
                    self._definitions[each.get("ref")] = each
                return self.plan(schema["schema"])
            case "definition-ref":
                _check(schema, _ANYWHERE | {"schema_ref"})
                return self.plan(self._definitions.get(schema["schema_ref"]))
            case "typed-dict":
                return self._typed_dict(schema)
            case "dataclass":
                return self._dataclass(schema)
            case "model":
                return self._model(schema)
            case str(kind) if kind in _PLAIN:
                _check(schema, _ANYWHERE)
                return (_PLAIN[kind],)
            case _:
                raise _UnusualError

    def _typed_dict(self, schema: Schema) -> Plan:
        _check(schema, _ANYWHERE | {"cls", "cls_name", "fields", "computed_fields", "config", "extra_behavior"})
        _check_options(schema)
        fields = [
            self._field(name, _mapping(field), _OF_FIELDS | _OF_WRITING | {"required"})
            for name, field in _mapping(schema["fields"]).items()
        ]
        return ("t", None, tuple(fields))

    def _dataclass(self, schema: Schema) -> Plan:
        known = {"cls", "cls_name", "config", "fields", "frozen", "post_init", "schema", "slots", "generic_origin"}
        _check(schema, _ANYWHERE | known)
        _check_options(schema)
        inner = _mapping(schema["schema"])
        _check(
            inner, _ANYWHERE | {"collect_init_only", "computed_fields", "dataclass_name", "fields", "extra_behavior"}
        )
        _check_options(inner)
        arguments = [_mapping(field) for field in _sequence(inner["fields"])]
        names = [field.get("name") for field in arguments]
        if schema.get("post_init") or inner.get("collect_init_only") or names != schema["fields"]:
            raise _UnusualError
        known = _OF_FIELDS | _OF_WRITING | {"name", "init", "kw_only"}
        if any(field.get("init", True) is not True for field in arguments):
            raise _UnusualError
        fields = [self._field(str(field["name"]), field, known) for field in arguments]
        return ("o" if schema.get("slots") else "d", _made_plainly(schema["cls"]), tuple(fields))

    def _model(self, schema: Schema) -> Plan:
        known = {"cls", "config", "custom_init", "root_model", "schema", "frozen", "generic_origin"}
        _check(schema, _ANYWHERE | known)
        _check_options(schema)
        inner = _mapping(schema["schema"])
        _check(inner, _ANYWHERE | {"computed_fields", "fields", "model_name", "extra_behavior"})
        _check_options(inner)
        if schema.get("custom_init") or schema.get("root_model"):
            raise _UnusualError
        fields = [
            self._field(name, _mapping(field), _OF_FIELDS | _OF_WRITING)
            for name, field in _mapping(inner["fields"]).items()
        ]
        return ("m", _made_plainly(schema["cls"]), tuple(fields))

    def _field(self, name: str, field: Schema, known: Collection[str]) -> Plan:
        _check(field, known)
        alias = field.get("validation_alias", name)
        if not isinstance(alias, str):
            raise _UnusualError  # one of several names, or a path
        inner = _mapping(field["schema"])
        default: tuple[object, ...] = ()
        if inner.get("type") == "default":
            _check(inner, _ANYWHERE | {"schema", "default", "default_factory", "default_factory_takes_data"})
            if type(inner.get("default", inner)) in _CONSTANTS:
                default = (inner["default"],)
            inner = _mapping(inner["schema"])
        return (alias, name, field.get("required", True) is False, default, self.plan(inner))


def _made_plainly(cls: object) -> type:
    """The class, whose objects are made without code of the program."""
    if not isinstance(cls, type) or getattr(cls, "__abstractmethods__", None):
        raise _UnusualError
    makes: object = cls.__new__
    if makes is not object.__new__:
        raise _UnusualError
    return cls


def _check(schema: Schema, known: Collection[str]) -> None:
    if not schema.keys() <= set(known):
        raise _UnusualError


def _check_options(schema: Schema) -> None:
    """Fields that are not known are ignored, and no option changes what is read."""
    config = _mapping(schema.get("config") or {})
    _check(config, _CONFIG)
    for behavior in (schema.get("extra_behavior"), config.get("extra_fields_behavior")):
        if behavior not in (None, "ignore"):
            raise _UnusualError


def _mapping(value: object) -> Schema:
    if not isinstance(value, dict):
        raise _UnusualError
    return value


def _sequence(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise _UnusualError
    return value
