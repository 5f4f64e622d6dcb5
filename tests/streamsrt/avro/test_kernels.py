"""The readers and writers in C: what they must not do whatever they are given."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import fastavro
import fastavro.read
import fastavro.write
import pytest
from fastavro.utils import generate_one

from streamsrt.avro import kernels
from streamsrt.avro.kernels import HEAD_BYTES, NativeAvro, Read, Write
from streamsrt.avro.steps import AvroStep, reading, writing
from streamsrt.avro.values import deserializer, reader_of, serializer, writer_of
from tests.streamsrt.avro.test_values import (
    HEAD,
    LOGICAL,
    by_fastavro,
    later_version,
    never,
    odd,
    outcome,
    random_record,
    read_by_fastavro,
)


@pytest.fixture
def native(load_native: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> NativeAvro:
    """The module in C, which the test runs with."""
    found = cast(NativeAvro, load_native(kernels.MODULE))
    monkeypatch.setattr(kernels, "native", found)
    return found


def record(*kinds: Any) -> Any:
    """The schema of a record with fields of these types: ``f0`` and so on."""
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return fastavro.parse_schema({"type": "record", "name": "Top", "fields": fields})


@pytest.mark.parametrize("seed", range(6))
def test_every_prefix_and_every_changed_byte_is_read_as_by_fastavro(native: NativeAvro, seed: int) -> None:
    chance = random.Random(seed)
    random.seed(seed)  # that of generate_one
    plain = random_record(chance)
    schema, later = fastavro.parse_schema(plain), fastavro.parse_schema(later_version(plain, chance))
    data = by_fastavro(schema, generate_one(schema))[:200]
    broken = [data[:at] for at in range(len(HEAD), len(data))]
    for at in range(len(HEAD), len(data)):
        broken += [data[:at] + bytes((each,)) + data[at + 1 :] for each in (0, 1, data[at] ^ 128, data[at] + 2 & 255)]
    for into in (schema, later):
        read = reader_of(schema, into)
        for each in broken:
            wanted = outcome(read_by_fastavro, each, schema, None if into is schema else into)
            assert outcome(read, each, len(HEAD)) == wanted


def test_positions_outside_of_the_bytes_are_left_to_fastavro(native: NativeAvro) -> None:
    read = native.Reader(AvroStep("null"), lambda data, at: (data, at))
    assert read(b"ab", 2) is None
    assert read(b"ab", 3) == (b"ab", 3)
    assert read(b"ab", -1) == (b"ab", -1)
    data: Any = bytearray(2)
    assert read(data, 0) == (data, 0)


@pytest.mark.parametrize("number", [1, 5, 1 << 40, -1, -(1 << 40), (1 << 62) - 1])
def test_items_without_bytes_never_fill_the_memory(native: NativeAvro, number: int) -> None:
    count = by_fastavro("long", number)[len(HEAD) :]
    size = b"\0" if number < 0 else b""
    for item in ("null", record(), {"type": "fixed", "name": "F", "size": 0}):
        schema = fastavro.parse_schema({"type": "array", "items": item})
        into = fastavro.parse_schema({"type": "record", "name": "R", "fields": []})
        around = fastavro.parse_schema({"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]})
        reads = native.Reader(reading(schema, None, {}), never)
        skips = native.Reader(reading(around, into, {}), never)
        with pytest.raises(AssertionError):
            reads(count + size + b"\0", 0)
        if number > 0:
            with pytest.raises(AssertionError):
                skips(count + size + b"\0", 0)


def test_few_items_without_bytes_are_read_as_by_fastavro(native: NativeAvro) -> None:
    schema = fastavro.parse_schema({"type": "array", "items": "null"})
    for value in ([], [None] * 3):
        data = by_fastavro(schema, value)
        assert reader_of(schema, schema)(data, len(HEAD)) == value
        assert writer_of(schema)(value, HEAD) == data


class Text(str):
    """Equal to nothing, and changes the dict that it is looked up in."""

    changes: Callable[[], object] = staticmethod(lambda: None)

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        Text.changes()
        return False


def test_keys_that_run_code_while_they_are_compared(native: NativeAvro) -> None:
    schema = record("string", {"type": "map", "values": "string"})
    write = writer_of(schema)
    for name in ("f0", "f1"):
        value: dict[str, Any] = {Text(name): "a", "f0": "b", "f1": {"k": "v"}}
        Text.changes = value.clear
        wrote = outcome(write, value, HEAD)
        value.update({"f0": "b", "f1": {"k": "v"}})
        Text.changes = staticmethod(lambda: None)
        assert wrote.startswith(("<class", "b'"))
        assert write({Text(name): "a", **value}, HEAD) == by_fastavro(schema, value)


@pytest.mark.parametrize("kind", ["array", "map"])
def test_what_changes_while_it_is_written(native: NativeAvro, kind: str) -> None:
    item = {"type": "int", "logicalType": "odd"}
    schema = fastavro.parse_schema({"type": kind, "items" if kind == "array" else "values": item})
    value: Any = list(range(100)) if kind == "array" else {f"{number}": number for number in range(100)}

    def prepare(one: Any, schema: object) -> Any:
        value.clear()
        return one

    write = native.Writer(writing(schema, {"int-odd": prepare}), lambda value, head: b"otherwise")
    assert write(value, HEAD) == b"otherwise"


@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError, KeyboardInterrupt])
def test_functions_of_logical_types_that_fail(native: NativeAvro, error: type[BaseException]) -> None:
    def fail(*_: object) -> object:
        raise error

    schema = fastavro.parse_schema({"type": "array", "items": {"type": "int", "logicalType": "odd"}})
    read = native.Reader(reading(schema, None, {"int-odd": fail}), lambda data, at: "otherwise")
    write = native.Writer(writing(schema, {"int-odd": fail}), lambda value, head: b"otherwise")
    if issubclass(error, Exception):
        assert (read(b"\x02\x02\x00", 0), write([1], HEAD)) == ("otherwise", b"otherwise")
        return
    with pytest.raises(error):
        read(b"\x02\x02\x00", 0)
    with pytest.raises(error):
        write([1], HEAD)


def test_values_of_any_size_are_written(native: NativeAvro) -> None:
    schema = record("string", {"type": "array", "items": "bytes"}, {"type": "map", "values": "double"})
    for size in (0, 1, 500, 506, 507, 508, 512, 513, 1024, 100_000):
        value = {"f0": "ä" * size, "f1": [b"x" * size] * 3, "f2": {"k" * size: 0.5, "b": -1.0}}
        data = writer_of(schema)(value, HEAD)
        assert data == by_fastavro(schema, value)
        assert reader_of(schema, schema)(data, len(HEAD)) == value
        assert writer_of("bytes")(b"x" * size, b"h" * size) == b"h" * size + by_fastavro("bytes", b"x" * size)[5:]


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """How many bytes Python has allocated since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_no_memory_is_left_behind(native: NativeAvro, traced: Callable[[], int]) -> None:
    chance = random.Random(3)
    random.seed(3)
    cases: list[tuple[Read, Read, Write, list[Any], list[bytes]]] = []
    long_one = {
        "type": "array",
        "items": {"type": "record", "name": "R", "fields": [{"name": "a", "type": LOGICAL[1]}]},
    }
    for kinds in ([*LOGICAL, long_one, "string"], *[None] * 4):
        plain = random_record(chance)
        if kinds is not None:
            plain["fields"] = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
        schema, later = fastavro.parse_schema(plain), fastavro.parse_schema(later_version(plain, chance))
        values = [generate_one(schema) for _ in range(3)]
        if kinds is not None:
            times = {"f0": date(2026, 1, 2), "f1": datetime(2026, 1, 2, 3, tzinfo=UTC), "f2": Decimal("-1.25")}
            values.append({**values[0], **times, f"f{len(kinds) - 1}": "ä" * 1000})
        whole = [by_fastavro(schema, each) for each in values]
        broken = [each[:-1] for each in whole] + [each[:9] + b"\xff" + each[9:] for each in whole]
        values += [odd(each, chance) for each in values] + [None, {}]
        cases.append((reader_of(schema, schema), reader_of(schema, later), writer_of(schema), values, whole + broken))

    def grown(rounds: int) -> int:
        before = traced()
        for _ in range(rounds):
            for read, resolved, write, values, messages in cases:
                for each in messages:
                    outcome(read, each, len(HEAD))
                    outcome(resolved, each, len(HEAD))
                for value in values:
                    outcome(write, value, HEAD)
        return traced() - before

    grown(2)
    # Whatever else the process does meanwhile, it does not do each time.
    assert min(grown(20) for _ in range(3)) < 20 * sys.getsizeof(1.5)


class Held:
    """What a weak reference refers to."""


def around_itself(native: NativeAvro) -> weakref.ref[Held]:
    """To an object that objects in C hold, which hold each other."""
    held = Held()
    around: list[Any] = [held]
    around.append(native.Reader(AvroStep("constant", known=(around,)), lambda data, at: around))
    around.append(native.Deserializer(lambda data: around[1], lambda data: around).deserialize)
    around.append(native.Serializer(lambda: (native.Writer(AvroStep("null"), lambda *_: around[0]), HEAD)).serialize)
    assert (around[1](HEAD, 5), around[2](HEAD), around[3](None)) == (around, around, HEAD)
    return weakref.ref(held)


def test_objects_that_refer_to_each_other_are_let_go(native: NativeAvro) -> None:
    held = around_itself(native)
    gc.collect()
    assert held() is None


NO_STEPS: list[Any] = [
    None,
    (),
    ("null",),
    ("no kind", (), 0, ()),
    (b"null", (), 0, ()),
    ("null", [], 0, ()),
    ("null", (), "0", ()),
    ("null", (), 1 << 80, ()),
    ("fixed", (), -1, ()),
    ("null", (("null", (), 0, ()),), 0, ()),
    ("union", (("null", (), 0, ()),), 2, ()),
    ("array", (), 0, ()),
    ("array", (None,), 0, ()),
    ("place", (), 0, ([],)),
    ("record", (("null", (), 0, ()),), 0, ()),
    ("record", (("null", (), 0, ()),), 0, (1,)),
    ("convert", (("null", (), 0, ()),), 0, (len,)),
    ("skip_record", (("skip", (), 0, ()),) * 20_000, 0, ()),
]


@pytest.mark.parametrize("step", NO_STEPS, ids=range(len(NO_STEPS)))
def test_what_is_no_step_is_refused(native: NativeAvro, step: Any) -> None:
    for make in (native.Reader, native.Writer):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            make(step, never)


def test_steps_that_are_too_deep_are_refused(native: NativeAvro) -> None:
    step = AvroStep("null")
    for _ in range(200):
        step = AvroStep("array", (step,))
    with pytest.raises(ValueError, match="no step is"):
        native.Reader(step, never)


@pytest.mark.parametrize("kind", ["skip", "int", "place", "prepare", "float_of", "enum", "record"])
def test_steps_in_the_wrong_place_do_nothing(native: NativeAvro, kind: str) -> None:
    known: tuple[object, ...] = {"place": ({},), "prepare": (len, 0), "record": (None,)}.get(kind, ())
    parts = (AvroStep("string"),) if kind in ("prepare", "float_of", "record") else ()
    for step in (AvroStep(kind, parts, 0, known), AvroStep("skip_blocks", (AvroStep(kind, parts, 0, known),))):
        read = native.Reader(step, lambda data, at: "otherwise")
        write = native.Writer(step, lambda value, head: b"otherwise")
        assert read(b"\x02a", 0) == "otherwise"
        assert write({"a": 1}, HEAD) == b"otherwise"


class TestMessages:
    def test_each_schema_is_asked_for_once(self, native: NativeAvro) -> None:
        asked = []

        def find(data: bytes) -> Read:
            asked.append(data[:HEAD_BYTES])
            return native.Reader(AvroStep("long" if data[4] == 1 else "string"), never)

        read = deserializer(find)
        first, second = b"\0\0\0\0\1", b"\0\0\0\0\2"
        for _ in range(3):
            assert (read(first + b"\x06"), read(second + b"\x02a"), read(second + b"\x02b")) == (3, "a", "b")
        assert asked == [first, second]

    def test_other_readers_and_writers_are_called(self, native: NativeAvro) -> None:
        assert deserializer(lambda data: lambda data, at: (data, at))(HEAD + b"a") == (HEAD + b"a", HEAD_BYTES)
        assert serializer(lambda: (lambda value, head: head + b"b", HEAD))(1) == HEAD + b"b"

    def test_what_is_no_message_in_bytes_is_left_to_others(self, native: NativeAvro) -> None:
        def find(data: bytes) -> Read:
            raise LookupError(bytes(data))

        read = deserializer(find)
        for data in (b"", b"\0\0\0\0", HEAD, memoryview(HEAD)):
            with pytest.raises(LookupError):
                read(cast(bytes, data))
        with pytest.raises(TypeError, match="unhashable"):
            read(cast(bytes, bytearray(HEAD)))
        with pytest.raises(TypeError):
            read(cast(bytes, None))

    def test_a_writer_that_was_not_found_is_asked_for_again(self, native: NativeAvro) -> None:
        found: list[Any] = [None, (1, 2, 3), (writer_of("string"), HEAD)]
        write = serializer(lambda: cast(tuple[Write, bytes], found.pop(0)))
        for _ in range(2):
            with pytest.raises(TypeError, match="are a tuple"):
                write("a")
        assert write("a") == write("a") == HEAD + b"\x02a"
        assert found == []

    def test_a_head_that_is_no_bytes(self, native: NativeAvro) -> None:
        write = native.Writer(AvroStep("null"), lambda value, head: b"otherwise")
        assert write(None, cast(bytes, bytearray(2))) == b"otherwise"
        with pytest.raises(TypeError):
            cast(Any, write)(None)
        with pytest.raises(TypeError):
            cast(Any, native.Reader(AvroStep("null"), never))(b"", at=0)
