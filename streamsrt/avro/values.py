"""Reads and writes Avro's values: in C where that was built, by generated code where there is some, else by fastavro.

All have the same results. What the former can't do, fastavro does from the start: it may succeed, and if not, the error is
its own, or one that says in one sentence what is wrong (:mod:`streamsrt.avro.unreadable`).
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import fastavro
import fastavro.read
import fastavro.write
from fastavro.types import Schema

from streamsrt.avro import kernels
from streamsrt.avro.item_counts import count_check
from streamsrt.avro.kernels import HEAD_BYTES, Read, Write
from streamsrt.avro.reading import generated_reader
from streamsrt.avro.schemas import Unsupported
from streamsrt.avro.steps import reading, writing
from streamsrt.avro.unreadable import explained
from streamsrt.avro.writing import generated_writer


def reader_of(writer: Schema, reader: Schema, origin: str | None = None) -> Read:
    """A function that reads a value in bytes from a position on. ``writer``: the schema with which it was written;
    ``reader``: the one into which it is read. Both as fastavro parses them. ``origin``: where the former comes from, for
    messages of :class:`UnreadableAvroError`; without it, errors are those of fastavro."""
    # The same, which fastavro need not compare.
    into = None if writer == reader else reader
    check = count_check(writer, has_skips=into is not None)

    def read(data: bytes, at: int) -> object:
        if check is not None:
            check(data, at)
        source = BytesIO(data)
        source.seek(at)
        return fastavro.schemaless_reader(source, writer, into)

    otherwise = read if origin is None else explained(read, writer, reader, origin)
    try:
        step = reading(writer, into, fastavro.read.LOGICAL_READERS)
    except Unsupported:
        return otherwise
    if kernels.native is not None:
        return kernels.native.Reader(step, otherwise)
    return generated_reader(step, otherwise) or otherwise


def writer_of(schema: Schema) -> Write:
    """A function that returns the bytes of a value behind others. ``schema``: as fastavro parses it."""

    def write(value: object, head: bytes) -> bytes:
        out = BytesIO()
        out.write(head)
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    try:
        step = writing(schema, fastavro.write.LOGICAL_WRITERS)
    except Unsupported:
        return write
    if kernels.native is not None:
        return kernels.native.Writer(step, write)
    return generated_writer(step, write) or write


def deserializer(find: Callable[[bytes], Read]) -> Callable[[bytes], object]:
    """A function that reads messages. ``find``: returns the reader of a message; called once for all with the same head."""
    readers: dict[bytes, Read] = {}

    def deserialize(data: bytes) -> object:
        head = data[:HEAD_BYTES]
        read = readers.get(head)
        if read is None:
            read = readers[head] = find(data)
        return read(data, HEAD_BYTES)

    if kernels.native is not None:
        return kernels.native.Deserializer(find, deserialize).deserialize
    return deserialize


def serializer(find: Callable[[], tuple[Write, bytes]]) -> Callable[[object], bytes]:
    """A function that writes messages. ``find``: returns the writer and the head of all messages, when the first one is
    written."""
    if kernels.native is not None:
        return kernels.native.Serializer(find).serialize
    write: Write | None = None
    head = b""

    def serialize(value: object) -> bytes:
        nonlocal head, write
        if write is None:
            write, head = find()
        return write(value, head)

    return serialize
