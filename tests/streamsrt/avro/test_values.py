"""Generated code for Avro, and the code in C, give what fastavro gives: values, bytes and errors."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any, NoReturn, cast

import fastavro
import fastavro.read
import fastavro.write
import pytest
from fastavro.utils import generate_one

from streamsrt.avro import kernels
from streamsrt.avro.item_counts import ITEMS_MAX, TooManyItemsError, count_check
from streamsrt.avro.kernels import NativeAvro, Read, Write
from streamsrt.avro.reading import generated_reader
from streamsrt.avro.schemas import Logical, Unsupported
from streamsrt.avro.steps import reading, writing
from streamsrt.avro.values import reader_of, writer_of
from streamsrt.avro.writing import generated_writer

HEAD = b"\0\0\0\0\x07"
ODD = [None, True, 0, -1, 1 << 40, 1 << 70, 1.5, float("inf"), "x", "\ud800", b"x", (), ("string", "x"), [], {}, object]
KINDS = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
    {"type": "string", "logicalType": "no such type"},
]


@pytest.fixture(params=["generated", "in C"])
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> NativeAvro | None:
    """The module in C, which the test runs with; None where it runs with generated code."""
    found = None
    if request.param == "in C":
        found = cast(NativeAvro, request.getfixturevalue("load_native")(kernels.MODULE))
    monkeypatch.setattr(kernels, "native", found)
    return found


def only_reader(native: NativeAvro | None, writer: Any, reader: Any, logical: Logical) -> Read | None:
    """A reader that has nobody to leave values to."""
    try:
        step = reading(writer, reader, logical)
    except Unsupported:
        return None
    return generated_reader(step, never) if native is None else native.Reader(step, never)


def only_writer(native: NativeAvro | None, schema: Any, logical: Logical) -> Write | None:
    """A writer that has nobody to leave values to."""
    try:
        step = writing(schema, logical)
    except Unsupported:
        return None
    return generated_writer(step, never) if native is None else native.Writer(step, never)


def random_schema(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.choice(
        [*KINDS, *KINDS, *(["record", "array", "map", "union", "enum", "fixed", "logical"] * (3 - depth))]
    )
    name = f"N{chance.randrange(10**9)}"
    match kind:
        case "record":
            fields = [{"name": f"f{n}", "type": random_schema(chance, depth + 1)} for n in range(chance.randrange(5))]
            return {"type": "record", "name": name, "fields": fields}
        case "array":
            # Of items without any bytes there may be any number, which takes fastavro as long.
            fields = [{"name": "a", "type": "long"}, {"name": "b", "type": random_schema(chance, depth + 1)}]
            return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}}
        case "map":
            return {"type": "map", "values": random_schema(chance, depth + 1)}
        case "union":
            other = random_schema(chance, 2)
            types = ["null", "int" if other == "null" or isinstance(other, list) else other]
            return types if chance.random() < 0.7 else types[::-1]
        case "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": name, "size": 3}
        case "logical":
            return chance.choice(LOGICAL)
        case _:
            return kind


def random_record(chance: random.Random) -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": random_schema(chance)} for n in range(1, 7)]
    return {"type": "record", "name": "Top", "fields": fields}


def later_version(schema: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Without some fields, with new ones, with larger numbers, with fields that are optional now."""
    fields = [copy.deepcopy(field) for field in schema["fields"] if chance.random() < 0.7]
    for field in fields:
        if field["type"] in ("int", "long", "float") and chance.random() < 0.5:
            field["type"] = chance.choice(["long", "float", "double"])
        elif isinstance(field["type"], str) and field["type"] != "null" and chance.random() < 0.5:
            field["type"] = ["null", field["type"]]
    if chance.random() < 0.5:
        fields.append({"name": "new", "type": {"type": "array", "items": "int"}, "default": []})
    if chance.random() < 0.1:
        fields.append({"name": "without", "type": "int"})
    chance.shuffle(fields)
    return {**schema, "fields": fields}


def by_fastavro(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    out.write(HEAD)
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read_by_fastavro(data: bytes, writer: Any, reader: Any) -> Any:
    source = BytesIO(data)
    source.seek(len(HEAD))
    return fastavro.schemaless_reader(source, writer, reader)


def outcome(call: Callable[..., object], *arguments: object) -> str:
    """What a call returns, or raises, with what was raised before."""
    try:
        return repr(call(*arguments))
    except Exception as error:  # noqa: BLE001  # whatever fastavro raises
        return f"{type(error)} {error} {error.__context__!r}".partition(" at 0x")[0]


def never(*_: object) -> NoReturn:
    raise AssertionError


def damaged(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(HEAD), len(data) + 1)
    if chance.random() < 0.3:
        return data[:at]
    return data[:at] + bytes((chance.choice([0, 1, 2, 127, 128, 255, chance.randrange(256)]),)) + data[at + 1 :]


def odd(value: Any, chance: random.Random) -> Any:
    """The value with something else in one place."""
    changed = copy.copy(value)
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.2:
            del changed[key]
        else:
            changed[key] = odd(value[key], chance)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        changed[at] = odd(value[at], chance)
        return changed
    return chance.choice(ODD)


@pytest.mark.parametrize("seed", range(25))
def test_it_has_the_results_and_the_errors_of_fastavro(seed: int, native: NativeAvro | None) -> None:
    chance = random.Random(seed)
    random.seed(seed)  # that of generate_one
    plain = random_record(chance)
    schema = fastavro.parse_schema(plain)
    later = fastavro.parse_schema(later_version(plain, chance))
    read, resolved, write = reader_of(schema, schema), reader_of(schema, later), writer_of(schema)
    for _ in range(6):
        value = generate_one(schema)
        data = by_fastavro(schema, value)
        assert write(value, HEAD) == data
        assert repr(read(data, len(HEAD))) == repr(read_by_fastavro(data, schema, None))
        assert outcome(resolved, data, len(HEAD)) == outcome(read_by_fastavro, data, schema, later)
        for _ in range(8):
            bad, other = damaged(data, chance), odd(value, chance)
            assert outcome(read, bad, len(HEAD)) == outcome(read_by_fastavro, bad, schema, None)
            assert outcome(resolved, bad, len(HEAD)) == outcome(read_by_fastavro, bad, schema, later)
            assert outcome(write, other, HEAD) == outcome(by_fastavro, schema, other)


NUMBERS = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 20, -(1 << 20), (1 << 31) - 1, -(1 << 31), 1 << 62, -(1 << 63)]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_every_length(number: int, native: NativeAvro | None) -> None:
    read, write = only_reader(native, "long", None, {}), only_writer(native, "long", {})
    assert read is not None
    assert write is not None
    data = by_fastavro("long", number)
    assert (write(number, HEAD), outcome(reader_of("long", "long"), data, len(HEAD))) == (data, repr(number))
    if abs(number) < 1 << 60:
        assert read(data, len(HEAD)) == number


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127, 128, 8191, 8192, 20_000])
def test_texts_of_every_length(size: int, native: NativeAvro | None) -> None:
    for schema, value in (("string", "ä" * (size // 2) + "a" * (size % 2)), ("bytes", b"\xff" * size)):
        read, write = only_reader(native, schema, None, {}), only_writer(native, schema, {})
        assert read is not None
        assert write is not None
        data = by_fastavro(schema, value)
        assert (write(value, HEAD), read(data, len(HEAD))) == (data, value)


def test_times_and_decimals(native: NativeAvro | None) -> None:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(LOGICAL[:3])]
    schema = fastavro.parse_schema({"type": "record", "name": "Top", "fields": fields})
    value = {"f0": date(2026, 1, 2), "f1": datetime(2026, 1, 2, 3, tzinfo=UTC), "f2": Decimal("-1.25")}
    read = only_reader(native, schema, None, fastavro.read.LOGICAL_READERS)
    write = only_writer(native, schema, fastavro.write.LOGICAL_WRITERS)
    assert read is not None
    assert write is not None
    data = by_fastavro(schema, value)
    assert (write(value, HEAD), read(data, len(HEAD))) == (data, value)


def of_itself() -> dict[str, Any]:
    fields = [{"name": "next", "type": ["null", "Top"]}]
    return {"type": "record", "name": "Top", "fields": fields}


def twice() -> dict[str, Any]:
    inner = {"type": "record", "name": "In", "fields": [{"name": "a", "type": "int"}]}
    fields = [{"name": "one", "type": inner}, {"name": "two", "type": ["null", "In"]}]
    return {"type": "record", "name": "Top", "fields": fields}


def deep(levels: int) -> Any:
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "value", "has_code"),
    [
        (twice(), {"one": {"a": 1}, "two": {"a": 2}}, True),
        (of_itself(), {"next": {"next": None}}, False),
        (["null", "int", "string"], "x", False),
        (deep(30), [], "in C"),
        (deep(70), [], False),
    ],
    ids=["a name twice", "recursive", "union of three", "deep", "deeper"],
)
def test_schemas_that_have_code_and_others(
    schema: Any, value: Any, has_code: bool | str, native: NativeAvro | None
) -> None:
    parsed = fastavro.parse_schema(schema)
    has_code = native is not None if has_code == "in C" else has_code
    assert (only_reader(native, parsed, None, {}) is not None) is has_code
    assert (only_writer(native, parsed, {}) is not None) is has_code
    data = writer_of(parsed)(value, HEAD)
    assert (data, reader_of(parsed, parsed)(data, len(HEAD))) == (by_fastavro(parsed, value), value)


def test_a_size_that_is_no_number_does_not_become_code(native: NativeAvro | None) -> None:
    schema = {"type": "fixed", "name": "F", "size": "__import__('os')._exit(1)"}
    assert only_reader(native, schema, None, {}) is None
    assert only_writer(native, schema, {}) is None


def test_fields_that_are_not_wanted_are_passed_over(native: NativeAvro | None) -> None:
    kinds = [*KINDS, {"type": "array", "items": "string"}, {"type": "map", "values": "long"}, ["null", "string"]]
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    inner = {"type": "record", "name": "In", "fields": fields}
    written = fastavro.parse_schema(
        {"type": "record", "name": "Top", "fields": [{"name": "in", "type": inner}, {"name": "last", "type": "int"}]}
    )
    wanted = fastavro.parse_schema({"type": "record", "name": "Top", "fields": [{"name": "last", "type": "double"}]})
    assert only_reader(native, written, wanted, {}) is not None
    values = [None, True, 1, 1 << 50, 1.0, 2.0, b"b", "s", ["a", "b"], {"k": -1}, "t"]
    value = {"in": {f"f{number}": each for number, each in enumerate(values)}, "last": 300}
    data = by_fastavro(written, value)
    assert reader_of(written, wanted)(data, len(HEAD)) == {"last": 300.0}
    assert repr(reader_of(written, wanted)(data, len(HEAD))) == repr(read_by_fastavro(data, written, wanted))


@pytest.mark.parametrize("extra", [0, 1, -1, 5, 1000, -1000])
@pytest.mark.parametrize("kind", [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}])
def test_a_block_that_is_not_wanted_is_as_long_as_it_says(kind: Any, extra: int, native: NativeAvro | None) -> None:
    last = {"name": "b", "type": "string"}
    written = fastavro.parse_schema({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}, last]})
    wanted = fastavro.parse_schema({"type": "record", "name": "R", "fields": [last]})
    item = b"\x02" if kind["type"] == "array" else b"\x02k\x02"
    size = BytesIO()
    fastavro.schemaless_writer(size, "long", 2 * len(item) + extra)
    # -2 items, their size, and no more of them.
    data = b"\x03" + size.getvalue() + 2 * item + b"\0" + b"\x04zz"

    def read_by(read: Callable[[], object]) -> object:
        try:
            return read()
        except Exception as error:  # noqa: BLE001  # whatever either of them raises
            return type(error), str(error)

    expected = read_by(lambda: fastavro.schemaless_reader(BytesIO(data), written, wanted))
    assert read_by(lambda: reader_of(written, wanted)(data, 0)) == expected


NOTHING_IN_IT = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize("item", ["null", NOTHING_IN_IT, {"type": "fixed", "name": "F", "size": 0}])
@pytest.mark.parametrize("around", ["alone", "behind others", "in a union", "skipped"])
def test_a_damaged_count_of_items_without_bytes_is_refused(native: NativeAvro | None, item: Any, around: str) -> None:
    """It would fill the memory."""
    array: Any = {"type": "array", "items": item}
    value: Any = [
        {"n": None} if isinstance(item, dict) and "fields" in item else b"" if isinstance(item, dict) else None
    ] * 3
    others = [{"name": kind, "type": kind} for kind in KINDS]
    others += [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["x"]}},
        {"name": "m", "type": [array, "int"]},
    ]
    others += [{"name": "map", "type": {"type": "map", "values": "long"}}]
    more = [None, True, 1, 1 << 40, 1.5, 2.5, b"bytes", "text", "x", 7, {"k": 1 << 20}]
    names = [each["name"] for each in others]
    writer: Any = array if around == "alone" else ["string", "int", array]
    if around == "behind others":
        fields = [*others, {"name": "a", "type": item_again(array)}]
        writer, value = (
            {"type": "record", "name": "R", "fields": fields},
            {**dict(zip(names, more, strict=True)), "a": value},
        )
    if around == "skipped":
        writer, value = {"type": "record", "name": "R", "fields": [{"name": "a", "type": array}]}, {"a": value}
    schema = fastavro.parse_schema(writer)
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    whole = out.getvalue()
    assert whole.endswith(b"\6\0")
    into: Any = schema
    if around == "skipped":
        into = fastavro.parse_schema({"type": "record", "name": "R", "fields": []})
    read = reader_of(schema, into)
    assert read(HEAD + whole, len(HEAD)) == ({} if around == "skipped" else value)
    # With its size in bytes, a block can be skipped whatever is in it.
    for count in (2 * ITEMS_MAX, 1 << 40, 1 << 41 if around == "skipped" else -(1 << 40)):
        damaged = BytesIO()
        fastavro.schemaless_writer(damaged, "long", count)
        size = b"\0" if count < 0 else b""
        with pytest.raises(TooManyItemsError, match="items that take no bytes, and may have 1,048,576"):
            read(HEAD + whole[:-2] + damaged.getvalue() + size + b"\0", len(HEAD))


def item_again(array: Any) -> Any:
    """The same array, whose item is named where it was defined before."""
    item = array["items"]
    return {"type": "array", "items": item["name"]} if isinstance(item, dict) else array


def test_schemas_without_such_arrays_are_not_looked_at() -> None:
    nested = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    for plain in ("string", {"type": "array", "items": "string"}, {"type": "array", "items": nested}):
        assert count_check(fastavro.parse_schema(plain)) is None


F8 = {"type": "fixed", "name": "F8", "size": 8}
DECIMAL = {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 2}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
LEAST = {
    "boolean": 1,
    "float": 4,
    "double": 8,
    "fixed": 8,
    "decimal": 8,
    "uuid": 16,
    "record": 17,
    "nested": 1,
    "map": 1,
    "string": 1,
    "long": 1,
    "optional": 1,
}


def item_of(kind: str) -> Any:
    fields = [{"name": "f", "type": F8}, {"name": "d", "type": "double"}, {"name": "b", "type": "boolean"}]
    others: dict[str, Any] = {
        "fixed": F8,
        "decimal": DECIMAL,
        "uuid": UUID,
        "record": {"type": "record", "name": "In", "fields": fields},
        "nested": {"type": "array", "items": F8},
        "map": {"type": "map", "values": F8},
        "optional": ["null", F8],
    }
    return others.get(kind, kind)


@pytest.mark.parametrize("around", ["array", "map"])
@pytest.mark.parametrize("is_skipped", [False, True], ids=["read", "skipped"])
@pytest.mark.parametrize("kind", LEAST)
def test_items_beyond_the_end_are_not_counted_one_by_one(
    native: NativeAvro | None, kind: str, is_skipped: bool, around: str
) -> None:
    """A damaged count would take years, and all memory."""
    array = {"type": around, "items" if around == "array" else "values": item_of(kind)}
    fields = [{"name": "a", "type": array}]
    written = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    wanted = fastavro.parse_schema({"type": "record", "name": "R", "fields": []}) if is_skipped else written
    read = reader_of(written, wanted)
    for items in (b"", b"\x02k" + b"\0" * 40):
        for count in (1 << 40, 1 << 62):
            with pytest.raises((EOFError, TooManyItemsError, IndexError)):
                read(HEAD + by_fastavro("long", count)[len(HEAD) :] + items, len(HEAD))
    # As few as this are missing to the last byte.
    value = generate_one(written)
    whole = by_fastavro(written, value)
    for data in (whole, whole[:-1], whole[:-2]):
        into = wanted if is_skipped else None
        assert outcome(read, data, len(HEAD)) == outcome(read_by_fastavro, data, written, into)


@pytest.mark.parametrize("kind", ["boolean", "float", "double", "fixed", "record"])
def test_items_of_a_known_size_are_passed_over_at_once(kind: str) -> None:
    array = {"type": "array", "items": item_of(kind)}
    fields = [{"name": "a", "type": array}, {"name": "b", "type": "string"}]
    written = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    wanted = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields[1:]})
    read = generated_reader(reading(written, wanted, {}), never)
    assert read is not None
    items = 100_000
    data = by_fastavro("long", items) + bytes(items * LEAST[kind]) + b"\x02" + bytes(LEAST[kind]) + b"\0\x02b"
    lines = 0

    def count_lines(*_: object) -> Any:
        nonlocal lines
        lines += 1
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        found = read(data, len(HEAD))
    finally:
        sys.settrace(before)
    assert found == {"b": "b"}
    assert lines < 100


def test_fastavro_is_not_given_items_beyond_the_end_to_pass_over() -> None:
    """Of a schema that only it can read."""
    fields = [{"name": "a", "type": {"type": "array", "items": "double"}}, {"name": "next", "type": ["null", "Top"]}]
    written = fastavro.parse_schema({"type": "record", "name": "Top", "fields": fields})
    wanted = fastavro.parse_schema({"type": "record", "name": "Top", "fields": fields[1:]})
    read = reader_of(written, wanted)
    data = by_fastavro(written, {"a": [1.5, 2.5], "next": None})
    assert read(data, len(HEAD)) == {"next": None}
    for count in (1 << 40, -(1 << 40)):
        damaged = HEAD + by_fastavro("long", count)[len(HEAD) :] + data[len(HEAD) + 1 :]
        with pytest.raises(TooManyItemsError, match="items of 8 bytes"):
            read(damaged, len(HEAD))


def test_a_function_of_a_logical_type_is_never_given_less_than_there_was(native: NativeAvro | None) -> None:
    def longer(value: Any, *_: object) -> Any:
        return 1 / (len(value) // 8)

    def text(value: Any, *_: object) -> Any:
        return {"whole": value}[value]

    odd_fixed = {**F8, "logicalType": "odd"}
    for schema, logical in (
        (odd_fixed, {"fixed-odd": longer}),
        ({"type": "string", "logicalType": "odd"}, {"string-odd": text}),
    ):
        parsed = fastavro.parse_schema(schema)
        step = reading(parsed, None, logical)
        read = (
            generated_reader(step, lambda *_: "otherwise")
            if native is None
            else native.Reader(step, lambda *_: "otherwise")
        )
        assert read is not None
        assert read(b"\x0awh", 0) == "otherwise"
