"""Plain values of JSON, read in C, beside what orjson reads of the same bytes."""

from __future__ import annotations

import gc
import json
import struct
import sys
from collections.abc import Callable
from typing import cast

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from topology import serdes
from topology.spec import model_reading
from topology.spec.model_reading import ModelsInC, plain_reader

ORDER = (
    b'{"id":1,"customer":"user-1","cents":1250,"address":{"city":"Bern","zip":3000},"items":[{"sku":"a"},{"sku":"b"}]}'
)


@pytest.fixture(scope="session")
def native(load_native: Callable[[str], object]) -> ModelsInC:
    """The module in C, whether or not the tests run with it."""
    return cast(ModelsInC, load_native(model_reading.MODULE))


class DeclinedError(Exception):
    """The bytes are left to orjson."""


def decline(data: bytes) -> object:
    raise DeclinedError


def shown(value: object) -> object:
    """All that can be told of it: types, order, each bit of a number."""
    match value:
        case dict():
            return [(name, shown(each)) for name, each in value.items()]
        case list():
            return [list, *map(shown, value)]
        case float():
            return struct.pack("d", value)
        case _:
            return type(value), value


def is_read_in_c(native: ModelsInC, data: bytes) -> bool:
    """Whether it is; then it is what orjson reads. A new reader, as one that has declined some does not try others."""
    try:
        found = native.Reader(("a",), decline).read(data)
    except DeclinedError:
        return False
    assert shown(found) == shown(orjson.loads(data))
    return True


# ------------------------------------------------------------------------------------------------------- documents


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "EUR", "sku-1", "x" * 15, "x" * 16, "x" * 40, '"', "\\", "\x7f", "😀é"]
)
NUMBERS = st.integers(-(1 << 65), 1 << 65) | st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(["id", "name", "currency", "x" * 37, "x" * 38, "x" * 39, "é", 'a"b', ""]) | TEXTS
VALUES = st.recursive(
    TEXTS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(NAMES, inner, max_size=9),
    max_leaves=25,
)


@given(value=VALUES, data=st.data())
@settings(max_examples=150)
def test_documents_are_read_as_orjson_reads_them(native: ModelsInC, value: object, data: st.DataObject) -> None:
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")]))
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), separators=separators).encode()
    is_read_in_c(native, text)
    some = data.draw(
        st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"]", b",", b"\\u", b"\\ud83d\\ude00", b"e9", b"."])
    )
    at = data.draw(st.integers(0, len(text)))
    is_read_in_c(native, text[:at] + some + text[at + data.draw(st.integers(0, 3)) :])
    is_read_in_c(native, text[:at])


@given(
    digits=st.integers(0, 10**20),
    places=st.integers(0, 25),
    exponent=st.none() | st.integers(-30, 30) | st.integers(-400, 400),
)
@settings(max_examples=200)
@example(digits=9007199254740993, places=1, exponent=None)
@example(digits=62290375530453644536, places=21, exponent=None)
def test_numbers_are_exact(native: ModelsInC, digits: int, places: int, exponent: int | None) -> None:
    text = str(digits).zfill(places + 1)
    text = f"{text[:-places]}.{text[-places:]}" if places else text
    is_read_in_c(native, f"{text}{'' if exponent is None else f'e{exponent}'}".encode())


# ------------------------------------------------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    "data",
    [
        ORDER,
        b" \n\t\r" + ORDER + b" \n",
        b"{}",
        b"[]",
        b'""',
        b"[" * 150 + b"]" * 150,
        b'{"a":1,"b":2,"a":3}',
        b"[" + b"1," * 16 + b"2]",
        b"[" + b"1," * 40 + b"2]",
        b"[0,-0,255,257,-1,9223372036854775807,-9223372036854775807,9999999999999999999]",
        b"[0.0,-0.0,0.1,4.35,1e22,1E-22,1.5e+3,0.30000000000000004,123456789012345.6789,0.0001018603692424555]",
        b'["a\\"\\\\\\/\\b\\f\\n\\r\\t","\\u0000\\u00e9\\u20AC\\ud83d\\ude00"]',
        '["é","€","😀","\x7f"]'.encode(),
        b'{"' + b"x" * 100 + b'":{"a":1},"\\n":[],"\xc3\xa9":null}',
        b"[true,false,null]",
    ],
)
def test_such_bytes_are_read_in_c(native: ModelsInC, data: bytes) -> None:
    assert is_read_in_c(native, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a":1 "b":2}',
        b"{1:2}",
        b"[1,]",
        b"[1 2]",
        b"[1",
        b'"',
        b'"\\',
        b'"\\"',
        b'"\\x"',
        b'"\\u12"',
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\u0041"',
        b'"\n"',
        b'"\x00"',
        b'"aaaaaaaaaaaaaaaaaaaaaaa\x1f"',
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b"01",
        b"-",
        b"1.",
        b".5",
        b"1e",
        b"+1",
        b"NaN",
        b"Infinity",
        b"tru",
        b"1\x00",
        b"1 1",
        b"\xef\xbb\xbf1",
        b"1e400",
        b"18446744073709551616",
        b"[" * 151 + b"]" * 151,
    ],
)
def test_such_bytes_are_left_to_orjson(native: ModelsInC, data: bytes) -> None:
    assert not is_read_in_c(native, data)


def test_other_names_than_in_the_last_record_are_read(native: ModelsInC) -> None:
    read = native.Reader(("a",), decline).read
    nested = [{f"user-{number}": {"id": number, "at": {"x": 1}}, "id": number} for number in range(3000)]
    for value in [
        {"a": 1, "b": 2},
        {"b": 1, "a": 2},
        {"a": 1},
        {"abc": 1, "b": {"a": 1}},
        {"ab": {"b": 1}},
        {},
        *nested,
    ]:
        for separators in ((",", ":"), (", ", ": ")):
            assert read(json.dumps(value, separators=separators).encode()) == value


OBJECTS = st.lists(NAMES, max_size=20).flatmap(lambda names: st.tuples(st.just(names), st.integers(1, 9)))


@given(
    shapes=st.lists(OBJECTS, min_size=1, max_size=4),
    values=st.lists(VALUES, min_size=1, max_size=8),
    again=st.booleans(),
)
@settings(max_examples=60)
def test_objects_alike_are_read_as_orjson_reads_them(
    native: ModelsInC, shapes: list[tuple[list[str], int]], values: list[object], again: bool
) -> None:
    """Runs of objects with the same names, some of them twice in an object, alone, in a list and in each other."""
    made = []
    for number, (names, times) in enumerate(shapes * (1 + again)):
        for time in range(times):
            each = [(name, values[(number + time + at) % len(values)]) for at, name in enumerate(names)]
            made.append("{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in each) + "}")
    for text in [*made, "[" + ",".join(made) + "]", *(f'{{"in":{text},"at":[{text}]}}' for text in made)]:
        is_read_in_c(native, text.encode())


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 10, 11, 16, 17, 40])
def test_objects_alike_share_nothing(native: ModelsInC, count: int) -> None:
    read = cast(Callable[[bytes], dict[str, object]], native.Reader(("a",), decline).read)
    for inner in ("text", 1.5, [1], {"a": 1}, None):
        text = orjson.dumps({f"alike-{at}": inner for at in range(count)})
        want = orjson.loads(text)
        for _ in range(8):
            found = read(text)
            assert shown(found) == shown(want)
            assert gc.is_tracked(found) == gc.is_tracked(want)
            assert found == json.loads(text)
            assert all(name in found for name in want)
            found |= {"alike-0": 7, "more": 8, **{f"other-{at}": at for at in range(9)}}
            del found["alike-0"]
            assert "alike-0" not in found
            found.clear()


def test_a_reader_pauses_where_it_declines(native: ModelsInC) -> None:
    declined = 0

    def otherwise(data: bytes) -> object:
        nonlocal declined
        declined += 1
        return orjson.loads(data)

    read = native.Reader(("a",), otherwise).read
    for _ in range(10):
        assert read(b"1e300") == 1e300
    for number in range(200):
        assert read(str(number).encode()) == number
    assert 10 < declined < 100


# ------------------------------------------------------------------------------------------------------- the rest


def test_the_serde_reads_with_it(native: ModelsInC) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model_reading, "native", native)
        read = plain_reader(orjson.loads)
        patched.setattr(model_reading, "native", None)
        assert plain_reader(orjson.loads) is orjson.loads
    assert read(ORDER) == orjson.loads(ORDER) == serdes.json.deserialize(ORDER)
    with pytest.raises(orjson.JSONDecodeError) as refused:
        read(b'{"a":1,}')
    with pytest.raises(orjson.JSONDecodeError) as by_orjson:
        orjson.loads(b'{"a":1,}')
    assert str(refused.value) == str(by_orjson.value)


def test_other_than_bytes_is_left_to_orjson(native: ModelsInC) -> None:
    read = cast(Callable[[object], object], native.Reader(("a",), orjson.loads).read)
    assert read("[1]") == read(bytearray(b"[1]")) == read(memoryview(b"[1]")) == [1]
    with pytest.raises(orjson.JSONDecodeError):
        read(7)


def test_nothing_is_left_behind(native: ModelsInC) -> None:
    data = [
        ORDER,
        ORDER[:-1],
        ORDER[:-9] + b"!",
        b'["\\u00e9","\\ud800"]',
        b"[" + b"[{}]," * 40 + b"1e400]",
        b"[" + b'"long text",' * 40,
        b"[" + ORDER + b"," + ORDER.replace(b"cents", b"francs") + b"]",
        b'{"a":1,"b":{},"a":[]}',
    ]

    def work() -> None:
        for _ in range(200):
            for each in data:
                native.Reader(("a",), lambda data: None).read(each)

    def told() -> tuple[int, int]:
        gc.collect()
        return sys.getallocatedblocks(), sys.getrefcount(None)

    work()
    before = told()
    work()
    grown = [after - earlier for earlier, after in zip(before, told(), strict=True)]
    assert max(grown) < 100
