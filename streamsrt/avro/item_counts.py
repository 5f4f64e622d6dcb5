"""A bound for arrays whose items fastavro reads, or passes over, without an error where the bytes end.

A damaged count would fill the memory, or take years. Of two kinds of items it is noticed by nobody else:

1. Items without bytes (nulls, records without fields): any number of them fits into a few bytes.
2. Items of a known size (numbers of floating point, ``fixed``, records of them) in a field that the reader leaves out:
   fastavro passes over those that are missing, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streamsrt.avro.schemas import PRIMITIVES, Schema, Unsupported, fields_of, kind_of, part_of, size_of

ITEMS_MAX = 1 << 20
"""So many items without bytes are read in one block."""
_MISSING_MAX = 1 << 16
"""So many missing items are left to fastavro, whose errors are those of a value that was cut off."""

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class TooManyItemsError(ValueError):
    """An array has more items without bytes than anybody writes, or far more items than bytes."""


def count_check(schema: Schema, *, has_skips: bool = False) -> Callable[[bytes, int], None] | None:
    """A function that raises TooManyItemsError for such a value, in bytes from a position on; None where the schema has no
    such arrays. ``has_skips``: some of its fields may be passed over. What can't be read otherwise is left to who reads it.
    """
    counts = _Counts(schema)
    try:
        sizes = [counts.item_size(each) for each in counts.types(schema, set())]
        return counts.check if any(size is not None and (has_skips or not size) for size in sizes) else None
    except Unsupported:
        return None


class _Counts:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        named = part_of(schema, "__named_schemas")
        self._named = named if isinstance(named, dict) else {}

    def _defined(self, schema: Schema) -> Schema:
        is_name = isinstance(schema, str) and schema not in PRIMITIVES
        return self._named.get(schema, schema) if is_name else schema

    def types(self, schema: Schema, seen: set[int]) -> Iterator[Schema]:
        """All types in a schema, once."""
        found = self._defined(schema)
        if id(found) in seen:
            return
        seen.add(id(found))
        yield found
        parts = found if isinstance(found, list) else [part_of(found, "items"), part_of(found, "values")]
        for part in (*parts, *(field.schema for field in fields_of(found))):
            if part is not None:
                yield from self.types(part, seen)

    def item_size(self, schema: Schema) -> int | None:
        """The bytes of each item of an array; None where it is none, or their sizes differ."""
        return self._size(part_of(schema, "items"), frozenset()) if kind_of(schema) == "array" else None

    def _size(self, schema: Schema, inside: frozenset[int]) -> int | None:
        found = self._defined(schema)
        kind = kind_of(found)
        if kind == "fixed":
            return size_of(found)
        if kind != "record":
            return _SIZES.get(kind)
        if id(found) in inside:
            return None
        total = 0
        for field in fields_of(found):
            size = self._size(field.schema, inside | {id(found)})
            if size is None:
                return None
            total += size
        return total

    def check(self, data: bytes, at: int) -> None:
        try:
            self._skip(self._schema, data, at)
        except IndexError:
            return

    def _skip(self, schema: Schema, data: bytes, at: int) -> int:
        """Where the value ends. Raises IndexError where the bytes do."""
        found = self._defined(schema)
        kind = kind_of(found)
        match kind:
            case "int" | "long" | "enum":
                return _number(data, at)[1]
            case "bytes" | "string":
                return _past(data, *_number(data, at))
            case "fixed":
                return at + size_of(found)
            case "union":
                place, at = _number(data, at)
                assert isinstance(found, list)
                return self._skip(found[place], data, at)
            case "record":
                for field in fields_of(found):
                    at = self._skip(field.schema, data, at)
                return at
            case "array" | "map":
                return self._skip_blocks(found, kind == "map", data, at)
            case _:
                return at + _SIZES[kind]

    def _skip_blocks(self, schema: Schema, is_map: bool, data: bytes, at: int) -> int:
        items = part_of(schema, "values" if is_map else "items")
        size = self.item_size(schema)
        while True:
            count, at = _number(data, at)
            if not count:
                return at
            if count < 0:
                count, at = -count, _number(data, at)[1]
            if size is not None:
                _check_items(count, size, len(data) - at)
                at += count * size
                continue
            for _ in range(count):
                at = self._skip(items, data, _past(data, *_number(data, at)) if is_map else at)


def _check_items(count: int, size: int, left: int) -> None:
    if not size and count > ITEMS_MAX:
        raise TooManyItemsError(f"an array has {count:,} items that take no bytes, and may have {ITEMS_MAX:,}")
    if count * size > left and count > _MISSING_MAX:
        raise TooManyItemsError(f"an array has {count:,} items of {size} bytes, and {max(left, 0)} bytes are left")


def _past(data: bytes, size: int, at: int) -> int:
    if not 0 <= size <= len(data) - at:
        raise IndexError
    return at + size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = bits = 0
    while True:
        each = data[at]
        at += 1
        number |= (each & 127) << bits
        if each < 128:
            return (number >> 1) ^ -(number & 1), at
        bits += 7
