"""Values of Protobuf that are read into messages that nobody has any more."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire import kernels
from streamsrt.wire.kernels import Native

HEAD = bytes(6)
NOT_KEPT_MIN = 64
"""So many messages in a row are given up before one is filled again."""
FILLED_BYTES_MAX = 4096


@pytest.fixture(scope="session")
def loops(load_native: Callable[[str], object]) -> Native:
    return cast(Native, load_native(kernels.MODULE))


def refuse(data: object) -> Any:
    raise ValueError(f"not {data!r}")


# ------------------------------------------------------------------------------------------------ when it is done


class Counted:
    """Reads StringValues; counts those that were read into a message that was there before."""

    def __init__(self, loops: Native) -> None:
        self.again = 0
        self.read = loops.MessageReader(wrappers_pb2.StringValue.FromString, refuse, self._again, b"\0")

    def _again(self, message: wrappers_pb2.StringValue, data: bytes) -> None:
        self.again += 1
        message.ParseFromString(data)

    def texts(self, texts: Iterable[str]) -> int:
        """How many of them were read into such a message, where none is kept."""
        before = self.again
        for text in texts:
            message = self.read(HEAD + wrappers_pb2.StringValue(value=text).SerializeToString())
            assert message.value == text
        return self.again - before


def test_messages_that_nobody_has_are_filled_again(loops: Native) -> None:
    counted = Counted(loops)
    assert counted.texts("ab" for _ in range(NOT_KEPT_MIN + 1)) == 0
    assert counted.texts(map(str, range(1000))) > 990


def test_a_message_that_is_kept_is_left_alone(loops: Native) -> None:
    counted = Counted(loops)
    counted.texts("ab" for _ in range(100))
    kept = counted.read(HEAD + b"\x0a\4kept")
    # Those after it have memory of their own, as another one may be kept.
    assert counted.texts(map(str, range(NOT_KEPT_MIN + 2))) <= 2
    assert counted.texts(map(str, range(100))) > 90
    assert kept.value == "kept"


def test_little_is_read_into_one_message(loops: Native) -> None:
    counted = Counted(loops)
    counted.texts("ab" for _ in range(100))
    assert counted.texts("x" * (FILLED_BYTES_MAX // 2) for _ in range(100)) <= 2
    assert counted.texts("x" * FILLED_BYTES_MAX for _ in range(100)) == 0
    counted.texts("ab" for _ in range(NOT_KEPT_MIN))
    found = counted.texts("x" * (FILLED_BYTES_MAX // 5) for _ in range(100))
    assert 60 <= found <= 80


def test_a_large_message_is_not_held(loops: Native) -> None:
    held: list[weakref.ref[Text]] = []

    class Text(str):
        __slots__ = ("__weakref__",)

    def parse(data: bytes) -> Text:
        text = Text(data.decode())
        held.append(weakref.ref(text))
        return text

    read = loops.MessageReader(parse, refuse, lambda message, data: None, b"\0")
    read(HEAD + b"x" * (FILLED_BYTES_MAX + 1))
    assert held[0]() is None
    read(HEAD + b"x" * FILLED_BYTES_MAX)
    assert held[1]() is not None


def test_what_fails_is_read_anew(loops: Native) -> None:
    counted = Counted(loops)
    counted.texts("ab" for _ in range(100))
    for _ in range(3):
        with pytest.raises(DecodeError) as error:
            counted.read(HEAD + b"\x0a\x7fab")
        assert error.value.__context__ is None
        assert counted.texts(["ab", "cd", "ef"]) <= 3


def test_a_reader_that_is_called_while_it_reads(loops: Native) -> None:
    found: list[Any] = []

    def again(message: wrappers_pb2.StringValue, data: bytes) -> None:
        if len(found) < 5:
            found.append(read(HEAD + b"\x0a\5inner"))
        message.ParseFromString(data)

    read = loops.MessageReader(wrappers_pb2.StringValue.FromString, refuse, again, b"\0")
    for number in range(200):
        message = read(HEAD + wrappers_pb2.StringValue(value=str(number)).SerializeToString())
        assert message.value == str(number)
        del message
    assert {each.value for each in found} == {"inner"}


def test_no_reference_is_left(loops: Native) -> None:
    kept: list[bytes] = []

    def parse(data: bytes) -> bytes:
        kept.append(data)
        return data

    data = HEAD + b"some text"
    before = sys.getrefcount(data)
    read = loops.MessageReader(parse, refuse, None, b"\0")
    assert read(data) == b"some text"
    left = sys.getrefcount(kept[0])
    assert left == 2
    with pytest.raises(ValueError, match="not"):
        read(b"\1" + data)
    with pytest.raises(ValueError, match="not"):
        loops.MessageReader(refuse, parse, None, b"\0")(data)
    assert sys.getrefcount(data) == before


@given(
    indexes=st.sampled_from([b"\0", b"\x02\x0e", b"\4\4\0", b"\x02\x80\1"]),
    head=st.binary(max_size=9) | st.tuples(st.just(bytes(5)), st.binary(max_size=4)).map(b"".join),
    is_whole=st.booleans(),
)
def test_values_with_another_head_are_left_to_the_other_function(
    loops: Native, indexes: bytes, head: bytes, is_whole: bool
) -> None:
    data = (bytes(5) + indexes if is_whole else b"") + head
    read = loops.MessageReader(lambda rest: b"its own: " + rest, lambda value: b"other: " + value, None, indexes)
    is_own = data[:1] == b"\0" and data[5 : 5 + len(indexes)] == indexes
    assert read(data) == (b"its own: " + data[5 + len(indexes) :] if is_own else b"other: " + data)


def test_it_takes_one_value(loops: Native) -> None:
    read: Any = loops.MessageReader(bytes, refuse, None, b"\0")
    for arguments, names in (((), {}), ((HEAD, HEAD), {}), ((HEAD,), {"data": HEAD}), ((), {"data": HEAD})):
        with pytest.raises(TypeError, match="it takes the bytes of one value"):
            read(*arguments, **names)
    for wrong in ((bytes,), (bytes, refuse, None, "text")):
        with pytest.raises(TypeError):
            loops.MessageReader(*wrong)


def test_a_reader_that_its_function_knows_is_freed(loops: Native) -> None:
    class Parse:
        def __call__(self, data: bytes) -> bytes:
            return data

    parse: Any = Parse()
    parse.read = loops.MessageReader(parse, refuse, None, b"\0")
    gone = weakref.ref(parse)
    del parse
    gc.collect()
    assert gone() is None


# ------------------------------------------------------------------------- what was read from messages filled again


@cache
def rich_class() -> Any:
    """Messages with all that messages may have in them: messages, lists, maps, one of several, extensions."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tests/rich.proto", package="tests.rich", syntax="proto2")
    rich = file.message_type.add(name="Rich")
    rich.extension_range.add(start=100, end=200)
    rich.oneof_decl.add(name="either")
    entry = rich.nested_type.add(name="ByNameEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    one, many, itself = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED, ".tests.rich.Rich"
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=itself, label=one)
    rich.field.add(name="inner", number=1, type=kinds.TYPE_MESSAGE, type_name=itself, label=one)
    rich.field.add(name="by_name", number=2, type=kinds.TYPE_MESSAGE, type_name=f"{itself}.ByNameEntry", label=many)
    rich.field.add(name="many", number=3, type=kinds.TYPE_MESSAGE, type_name=itself, label=many)
    rich.field.add(name="text", number=4, type=kinds.TYPE_STRING, label=one, oneof_index=0)
    rich.field.add(name="number", number=5, type=kinds.TYPE_INT64, label=one, oneof_index=0)
    rich.field.add(name="raw", number=6, type=kinds.TYPE_BYTES, label=one)
    rich.field.add(name="numbers", number=7, type=kinds.TYPE_INT32, label=many)
    file.extension.add(name="more", number=100, type=kinds.TYPE_MESSAGE, type_name=itself, label=one, extendee=itself)
    file.extension.add(name="codes", number=101, type=kinds.TYPE_INT32, label=many, extendee=itself)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.rich.Rich"))


def extension(name: str) -> Any:
    return rich_class().DESCRIPTOR.file.extensions_by_name[name]


@st.composite
def rich_messages(draw: st.DrawFn, depth: int = 2) -> Any:
    message = rich_class()()
    which = draw(st.integers(0, 255))
    if which & 1:
        message.text = draw(st.text(max_size=5))
    if which & 2:
        message.number = draw(st.integers(-(1 << 63), (1 << 63) - 1))
    if which & 4:
        message.raw = draw(st.binary(max_size=40))
    message.numbers.extend(draw(st.lists(st.integers(-9, 300), max_size=3)))
    if which & 8:
        message.Extensions[extension("codes")].extend([1, 2, 3])
    if depth:
        inside = rich_messages(depth - 1)
        if which & 16:
            message.inner.CopyFrom(draw(inside))
        if which & 32:
            message.many.extend(draw(st.lists(inside, max_size=2)))
        if which & 64:
            message.by_name["a"].CopyFrom(draw(inside))
        if which & 128:
            message.Extensions[extension("more")].CopyFrom(draw(inside))
    return message


PARTS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda m: m,
    "inner": lambda m: m.inner,
    "inner of inner": lambda m: m.inner.inner,
    "many": lambda m: m.many,
    "one of many": lambda m: m.many[0] if m.many else None,
    "iterator": lambda m: iter(m.many),
    "numbers": lambda m: m.numbers,
    "map": lambda m: m.by_name,
    "value of map": lambda m: m.by_name["a"],
    "iterator of map": lambda m: iter(m.by_name),
    "extensions": lambda m: m.Extensions,
    "more": lambda m: m.Extensions[extension("more")],
    "codes": lambda m: m.Extensions[extension("codes")],
    "fields": lambda m: [value for _, value in m.ListFields()],
    "unknown": UnknownFieldSet,
    "method": lambda m: m.HasField,
    "text": lambda m: m.text,
    "raw": lambda m: m.raw,
}
"""What a program may keep of a message."""


def change(message: Any) -> None:
    message.number = 7
    message.inner.text = "changed"
    message.many.add(text="added")
    message.by_name["b"].number = 3
    message.Extensions[extension("more")].numbers.append(5)


def told(part: Any) -> object:
    """All that can be known of what was kept."""
    if isinstance(part, rich_class()):
        return part.SerializeToString(deterministic=True), str(part)
    if isinstance(part, UnknownFieldSet):
        return [(each.field_number, each.wire_type, told(each.data)) for each in part]
    if callable(part):
        return [part(name) for name in ("inner", "text", "number", "raw")]
    if type(part).__name__ == "ExtensionDict":
        return [told(part[extension("more")]), list(part[extension("codes")])]
    if hasattr(part, "items"):
        return sorted((name, told(value)) for name, value in part.items())
    if isinstance(part, str | bytes) or not hasattr(part, "__iter__"):
        return part
    try:
        return [told(each) for each in part]
    except RuntimeError as error:  # the map was changed
        return str(error)


ODD = st.sampled_from(
    [b"\xf8\x3f\5", b"\xfa\x3f\2ab", b"\x0a\x7f", b"\x22\1\xff", b"\x0b\x0c", b"\x0b", b"\x28", b"\0"]
)
"""Fields that are unknown, cut off, not UTF-8, or no fields at all."""


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(
        st.tuples(
            rich_messages(), ODD | st.just(b""), st.lists(st.sampled_from(sorted(PARTS)), max_size=2), st.booleans()
        ),
        min_size=1,
        max_size=12,
    ),
    gives_up=st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_what_was_kept_stays_as_it_was(
    loops: Native, values: list[tuple[Any, bytes, list[str], bool]], gives_up: list[int]
) -> None:
    """The same is done with messages that are all made anew."""
    made = rich_class()
    read = loops.MessageReader(made.FromString, refuse, made.ParseFromString, b"\0")
    usual = HEAD + made(text="usual", inner=made(number=5), many=[made(raw=b"x" * 30)] * 2).SerializeToString()
    kept: list[tuple[Any, Any]] = []
    for (value, odd, parts, changes), more in zip(values, gives_up, strict=False):
        # With so many, messages are filled again even after one was kept.
        for _ in range((0, 1, 3, NOT_KEPT_MIN + 4)[more]):
            message = read(usual)
        data = value.SerializeToString() + odd
        outcomes: list[object] = []
        for parse in (read, lambda raw: made.FromString(raw[6:])):
            try:
                message = parse(HEAD + data)
            except DecodeError as error:
                outcomes.append((type(error), str(error)))
                continue
            outcomes.append((message.SerializeToString(deterministic=True), str(message), message.ByteSize()))
            found = [PARTS[part](message) for part in parts]
            if changes:
                change(message)
            kept.append((found, message.SerializeToString(deterministic=True)))
        assert outcomes[0] == outcomes[1]
    for (found, whole), (expected, expected_whole) in zip(kept[::2], kept[1::2], strict=True):
        assert whole == expected_whole
        assert list(map(told, found)) == list(map(told, expected))
