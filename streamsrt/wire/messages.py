"""Messages and frames to bytes and back.

Rules: no input or output; encoders and decoders are compiled on first use (:func:`warm` does it before the first
request); ``records`` are neither copied when decoded nor by the ``_parts`` functions; bytes of a peer raise
:class:`DecodeError` only, a message that cannot be written raises :class:`EncodeError` only.

A frame is the bytes behind the four bytes of its size. Request headers are version 1, or 2 if the request is flexible;
response headers version 0, or 1 if flexible, except that ApiVersions is always answered with version 0 (KIP-511).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import cache
from struct import Struct as Layout
from struct import error as layout_error
from typing import Any, Final, NamedTuple, TypeVar

from streamsrt.wire.compiler import (
    READ_FAULTS,
    WRITE_FAULTS,
    Reader,
    Writer,
    compile_reader,
    compile_writer,
    step_reader,
    step_writer,
)
from streamsrt.wire.inspection import explain_bytes, explain_value
from streamsrt.wire.primitives import (
    Buffer,
    DecodeError,
    EncodeError,
    NewerRecordError,
    UnknownRecordTypeError,
    UnsupportedVersionError,
    read_uvarint,
)
from streamsrt.wire.schema import REQUESTS, ROWS, ApiKey, Message, message_class, named_class

M = TypeVar("M", bound=Message)

REQUEST_HEADER: Final = Layout(">hhih")
SIZED_REQUEST_HEADER: Final = Layout(">ihhih")
SIZED_RESPONSE_HEADER: Final = Layout(">ii")
SIZED_FLEXIBLE_RESPONSE_HEADER: Final = Layout(">iix")
INT16: Final = Layout(">h")
INT32: Final = Layout(">i")
NO_TAGS: Final = b"\0"

RequestKeys = dict[int, tuple[int, int, int]]
# By API key: lowest and highest version, and the first flexible one (one above the highest if there is none).
REQUEST_VERSIONS: Final[RequestKeys] = {
    row.key: (row.versions[0], row.versions[-1], row.flexible[0] if row.flexible else row.versions[-1] + 1)
    for row in REQUESTS.values()
    if row.key is not None
}


class RequestHeader(NamedTuple):
    """The header of a request. ``body_offset`` is where the body begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def writer_of(message: Message, version: int) -> Writer:
    cls = type(message)
    writer = cls.WRITERS.get(version)
    if writer is not None:
        return writer
    if version not in cls.SCHEMA.versions or cls.SCHEMA.name != cls.NAME:
        raise EncodeError(no_version(cls, version))
    return compile_writer(cls, version)


def no_version(cls: type[Message], version: int) -> str:
    if cls.SCHEMA.name != cls.NAME:
        return f"{cls.__qualname__} is a part of a message, not a message"
    return f"{cls.NAME} has versions {cls.SCHEMA.versions[0]} to {cls.SCHEMA.versions[-1]}, not {version}"


def refusal(message: Message, version: int, error: Exception) -> EncodeError:
    return EncodeError(explain_value(message, version) or f"{message.NAME} v{version} cannot be written: {error}")


def encode(message: Message, version: int) -> bytes:
    """The body of a message, without header and size."""
    parts: list[Any] = []
    try:
        writer_of(message, version)(message, parts, [])
        return b"".join(parts)
    except EncodeError:
        raise
    except WRITE_FAULTS as error:
        raise refusal(message, version, error) from error


def encode_parts(message: Message, version: int) -> list[bytes | memoryview]:
    """The body as buffers to be written one after the other; those of ``records`` fields are the caller's own."""
    parts: list[Any] = []
    marks: list[int] = []
    try:
        writer_of(message, version)(message, parts, marks)
        return joined(parts, marks)
    except EncodeError:
        raise
    except WRITE_FAULTS as error:
        raise refusal(message, version, error) from error


def joined(parts: list[Any], marks: list[int]) -> list[bytes | memoryview]:
    if not marks:
        return [b"".join(parts)]
    out: list[Any] = []
    start = 0
    for mark in marks:
        if mark > start:
            out.append(b"".join(parts[start:mark]))
        out.append(parts[mark])
        start = mark + 1
    if start < len(parts):
        out.append(b"".join(parts[start:]))
    return out


def reader_of(cls: type[Message], version: int) -> Reader:
    reader = cls.READERS.get(version)
    if reader is not None:
        return reader
    if cls.SCHEMA.name != cls.NAME or version not in cls.SCHEMA.versions:
        raise UnsupportedVersionError(-1 if cls.API_KEY is None else cls.API_KEY, version, -1)
    return compile_reader(cls, version)


def decode_from(cls: type[M], version: int, buffer: Buffer, offset: int) -> tuple[M, int]:
    """The message at ``offset`` and the offset behind it."""
    reader = cls.READERS.get(version) or reader_of(cls, version)
    if type(buffer) is not bytes:
        buffer = memoryview(buffer) if cls.SCHEMA.name in WITH_RECORDS else bytes(buffer)
    end = len(buffer)
    try:
        message, at = reader(buffer, offset, end)
        if at <= end:
            return message, at
    except READ_FAULTS:
        pass
    raise DecodeError(explain_bytes(cls, version, buffer, offset))


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0) -> M:
    """The message at ``offset``; bytes behind it are tolerated. ``records`` are views into ``buffer``."""
    return decode_from(cls, version, buffer, offset)[0]


WITH_RECORDS: Final = frozenset(name for name, row in ROWS.items() if ":records" in row.body)


def request_head(message: Message, version: int, correlation_id: int, client_id: str | None, size: int) -> bytes:
    """Size and header of a request whose body has ``size`` bytes."""
    key = message.API_KEY
    if key is None or not message.IS_REQUEST:
        raise EncodeError(f"{type(message).__qualname__} is not a request")
    tail = NO_TAGS if version >= REQUEST_VERSIONS[key][2] else b""
    try:
        name = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(name)
        head = SIZED_REQUEST_HEADER.pack(10 + len(name) + len(tail) + size, key, version, correlation_id, length)
    except WRITE_FAULTS as error:
        raise EncodeError(f"correlation id {correlation_id}, client id {client_id!r:.100}: {error}") from error
    return head + name + tail


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request: size, header, body."""
    body = encode(message, version)
    return request_head(message, version, correlation_id, client_id, len(body)) + body


def encode_request_parts(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[bytes | memoryview]:
    """A whole request as buffers; those of ``records`` fields are not copied."""
    parts = encode_parts(message, version)
    head = request_head(message, version, correlation_id, client_id, sum(map(len, parts)))
    return with_head(head, parts)


def with_head(head: bytes, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    if len(parts) == 1:
        return [head + parts[0]]
    return [head, *parts]


def decode_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame.

    Raises UnsupportedVersionError for an API or version that the schemas lack, with the correlation id to answer with.
    """
    try:
        api_key, version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
    except layout_error as error:
        raise DecodeError(f"a request of {len(frame)} bytes is shorter than its header") from error
    versions = REQUEST_VERSIONS.get(api_key)
    if versions is None or not versions[0] <= version <= versions[1]:
        raise UnsupportedVersionError(api_key, version, correlation_id)
    end = 10
    client_id = None
    if length >= 0:
        end += length
        try:
            client_id = str(frame[10:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"request header, client id at byte 10: not UTF-8: {error.reason}") from error
    elif length != -1:
        raise DecodeError(f"request header, client id at byte 8: negative length {length}")
    if version >= versions[2]:
        end = skip_tags(frame, end)
    if end > len(frame):
        raise DecodeError(f"request header: the client id of {length} bytes does not fit the frame")
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def skip_tags(frame: Buffer, offset: int) -> int:
    """The offset behind the tagged fields of a header; no tagged field of a header is defined so far."""
    try:
        count, offset = read_uvarint(frame, offset)
        if count > HEADER_TAGS_MAX:
            raise DecodeError(f"header: {count} tagged fields, at most {HEADER_TAGS_MAX} are read")
        for _ in range(count):
            _, offset = read_uvarint(frame, offset)
            size, offset = read_uvarint(frame, offset)
            offset += size
    except IndexError as error:
        raise DecodeError(f"header: the frame of {len(frame)} bytes ends inside the tagged fields") from error
    return offset


HEADER_TAGS_MAX: Final = 1000
JOINED_PARTS: Final = 4096


@cache
def api_class(api_key: int, request: bool) -> type[Message]:
    return message_class(api_key, request)


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """The header and the body of a request frame."""
    header = decode_request_header(frame)
    return header, decode(api_class(header.api_key, True), header.api_version, frame, header.body_offset)


class TooManyElementsError(DecodeError):
    """A request with more elements in its arrays than are allowed."""


def decode_request_in_steps(frame: Buffer, elements_max: int) -> Generator[None, None, tuple[RequestHeader, Message]]:
    """As :func:`decode_request`, a few elements at a time, for frames that may be anything.

    Raises TooManyElementsError before it makes more than ``elements_max`` elements of arrays, of all arrays together.
    Errors don't name the field: to look for it would take as long again.
    """
    header = decode_request_header(frame)
    cls = api_class(header.api_key, True)
    reader = step_reader(cls, header.api_version)
    if reader is None:
        return header, decode(cls, header.api_version, frame, header.body_offset)
    buffer = frame if type(frame) is bytes else memoryview(frame) if cls.SCHEMA.name in WITH_RECORDS else bytes(frame)
    end = len(buffer)
    elements = 0
    steps = reader(buffer, header.body_offset, end)
    while True:
        try:
            elements += next(steps)
        except StopIteration as stop:
            message, at = stop.value
            break
        except READ_FAULTS as error:
            raise DecodeError(f"a {cls.NAME} v{header.api_version} of {end} bytes that can't be decoded") from error
        if elements > elements_max:
            raise TooManyElementsError(f"a {cls.NAME} with more than {elements_max} elements in its arrays")
        yield
    if at > end:
        raise DecodeError(f"a {cls.NAME} v{header.api_version} of {end} bytes that ends too early")
    return header, message


def encode_response_in_steps(
    message: Message, api_key: int, version: int, correlation_id: int
) -> Generator[None, None, list[bytes | memoryview]]:
    """As :func:`encode_response_parts`, a few elements at a time."""
    parts: list[Any] = []
    marks: list[int] = []
    # To join all parts at the end would be a long step. Those of records are the caller's buffers.
    is_joined = type(message).SCHEMA.name not in WITH_RECORDS
    whole = 0
    try:
        for _ in step_writer(type(message), version)(message, parts, marks):
            if is_joined and len(parts) - whole > JOINED_PARTS:
                parts[whole:] = [b"".join(parts[whole:])]
                whole += 1
            yield
    except WRITE_FAULTS as error:
        raise refusal(message, version, error) from error
    body = joined(parts, marks)
    return with_head(response_head(api_key, version, correlation_id, sum(map(len, body))), body)


def response_head(api_key: int, version: int, correlation_id: int, size: int) -> bytes:
    try:
        if has_flexible_response_header(api_key, version):
            return SIZED_FLEXIBLE_RESPONSE_HEADER.pack(size + 5, correlation_id)
        return SIZED_RESPONSE_HEADER.pack(size + 4, correlation_id)
    except WRITE_FAULTS as error:
        raise EncodeError(f"API key {api_key}, correlation id {correlation_id!r}: {error}") from error


def has_flexible_response_header(api_key: int, version: int) -> bool:
    # A client that does not know the broker yet must be able to read the answer in any version.
    return version >= REQUEST_VERSIONS[api_key][2] and api_key != ApiKey.API_VERSIONS


def encode_response(message: Message, api_key: int, version: int, correlation_id: int) -> bytes:
    """A whole response: size, header, body."""
    body = encode(message, version)
    return response_head(api_key, version, correlation_id, len(body)) + body


def encode_response_parts(
    message: Message, api_key: int, version: int, correlation_id: int
) -> list[bytes | memoryview]:
    """A whole response as buffers; those of ``records`` fields are not copied."""
    parts = encode_parts(message, version)
    return with_head(response_head(api_key, version, correlation_id, sum(map(len, parts))), parts)


def decode_response(frame: Buffer, api_key: int, version: int) -> tuple[int, Message]:
    """The correlation id and the body of a response frame to a request of this API and version."""
    versions = REQUEST_VERSIONS.get(api_key)
    if versions is None or not versions[0] <= version <= versions[1]:
        raise UnsupportedVersionError(api_key, version, -1)
    if len(frame) < 4:
        raise DecodeError(f"a response of {len(frame)} bytes is shorter than its header")
    correlation_id: int = INT32.unpack_from(frame)[0]
    offset = 4
    if has_flexible_response_header(api_key, version):
        offset = skip_tags(frame, 4)
    return correlation_id, decode(api_class(api_key, False), version, frame, offset)


# -- records of the coordinators' logs, and the versioned data of consumer groups --------------------------------


# Kafka writes values in their highest version, except these (GroupCoordinatorRecordHelpers of Kafka 4.4).
WRITTEN_VERSIONS: Final = {"GroupMetadataValue": 3}


def encode_record_key(key: Message) -> bytes:
    """The key of a coordinator record: int16 record type, then the key's fields (always version 0)."""
    schema = key.SCHEMA
    if schema.kind != "key" or schema.record_type is None:
        raise EncodeError(f"{key.NAME} is not the key of a coordinator record")
    return INT16.pack(schema.record_type) + encode(key, 0)


@cache
def key_classes(transactions: bool) -> dict[int, type[Message]]:
    return {
        row.key: named_class(name)
        for name, row in ROWS.items()
        if row.kind == "key" and row.key is not None and name.startswith("TransactionLog") is transactions
    }


def decode_record_key(buffer: Buffer, *, transactions: bool = False) -> Message:
    """The key of a record of ``__consumer_offsets``, or of ``__transaction_state`` with ``transactions``.

    Raises UnknownRecordTypeError for a record type that is not in the schemas.
    """
    cls = key_classes(transactions).get(leading_int16(buffer, "record key"))
    if cls is None:
        raise UnknownRecordTypeError(leading_int16(buffer, "record key"))
    return decode(cls, 0, buffer, 2)


def leading_int16(buffer: Buffer, what: str) -> int:
    if len(buffer) < 2:
        raise DecodeError(f"a {what} of {len(buffer)} bytes is shorter than the int16 that it begins with")
    value: int = INT16.unpack_from(buffer)[0]
    return value


def encode_record_value(message: Message, version: int | None = None) -> bytes:
    """A record value or consumer protocol data: int16 version, then the fields. Default: the one that Kafka writes."""
    if version is None:
        version = WRITTEN_VERSIONS.get(message.NAME, message.SCHEMA.stable_versions[-1])
    body = encode(message, version)
    return INT16.pack(version) + body


def decode_record_value(cls: type[M], buffer: Buffer) -> M:
    """The value of a coordinator record. Raises NewerRecordError for a version that the schema lacks."""
    version = leading_int16(buffer, cls.NAME)
    if version not in cls.SCHEMA.versions:
        raise NewerRecordError(no_version(cls, version))
    return decode(cls, version, buffer, 2)


def decode_consumer_protocol(cls: type[M], buffer: Buffer) -> M:
    """ConsumerProtocolSubscription or ConsumerProtocolAssignment, or another versioned value that may only grow.

    Data of a version newer than the schema's is read as the highest known one and its additional bytes are ignored.
    Source: Kafka's ConsumerProtocol.
    """
    version = leading_int16(buffer, cls.NAME)
    return decode(cls, min(version, cls.SCHEMA.versions[-1]), buffer, 2)


def warm(api_keys: Iterable[int]) -> None:
    """Compiles readers and writers of all versions of these APIs, so that no request pays for it."""
    for key in api_keys:
        low, high, _ = REQUEST_VERSIONS[key]
        for cls in (api_class(key, True), api_class(key, False)):
            for version in range(low, high + 1):
                compile_reader(cls, version)
                compile_writer(cls, version)
