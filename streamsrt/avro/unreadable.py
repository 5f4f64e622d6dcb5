"""Why a value can't be read, in one sentence: fastavro's errors name places in its code, or print whole schemas."""

from __future__ import annotations

import re
import struct
from ast import literal_eval

from fastavro.read import SchemaResolutionError

from streamsrt.avro.kernels import Read
from streamsrt.avro.schemas import Schema, part_of

_DAMAGED = (EOFError, IndexError, OverflowError, UnicodeDecodeError, struct.error)
_BETWEEN = (" is not ", " not found in ", " size is different than ")
_SHOWN_MAX = 300


class UnreadableAvroError(ValueError):
    """A value ends too early, is damaged, or does not fit the schema into which it is read."""


def explained(read: Read, writer: Schema, reader: Schema, origin: str) -> Read:
    """``read`` with errors that say what is wrong. ``writer``: the schema with which values were written, and where that
    comes from (``origin``); ``reader``: the one into which they are read."""
    name = in_short(writer)

    def read_or_say(data: bytes, at: int) -> object:
        try:
            return read(data, at)
        except SchemaResolutionError as error:
            said = _mismatch(str(error))
            raise UnreadableAvroError(
                f"what was written with {name} ({origin}) can't be read as {in_short(reader)}: {said}"
            ) from error
        except _DAMAGED as error:
            raise UnreadableAvroError(f"the value ends too early or is damaged: it is no {name} ({origin})") from error

    return read_or_say


def in_short(schema: Schema) -> str:
    """The name of a type; what it consists of, where it has none."""
    if isinstance(schema, list):
        return f"a union of {', '.join(map(in_short, schema))}"
    name, kind = part_of(schema, "name"), part_of(schema, "type")
    if name is not None or kind is None:
        return str(schema if name is None else name)
    inner = part_of(schema, "items") or part_of(schema, "values")
    return str(kind) if inner is None else f"{kind} of {in_short(inner)}"


def _mismatch(said: str) -> str:
    """What fastavro says, with the names of schemas instead of all that is in them."""
    _, is_about_two, schemas = said.partition("chema mismatch: ")
    if not is_about_two:
        return said[:_SHOWN_MAX]
    for between in _BETWEEN:
        # A schema may have the same words in its documentation.
        for place in re.finditer(between, schemas):
            try:
                first, second = _named(schemas[: place.start()]), _named(schemas[place.end() :].removesuffix(" size"))
            except (ValueError, SyntaxError):
                continue
            return f"{first}{between}{second}"
    return "types in them differ"


def _named(schema: str) -> str:
    """The name of a schema that is given as Python shows it. Raises ValueError or SyntaxError if it is none."""
    return in_short(literal_eval(schema if schema[:1] in ("[", "{") else repr(schema)))[:_SHOWN_MAX]
