"""Reads and writes Avro's values by generated code where there is some, else by fastavro; both have the same results.

Where the code fails, fastavro does the same value again: it may succeed, and if not, the error is its own.
"""

from __future__ import annotations

from io import BytesIO

import fastavro
import fastavro.read
import fastavro.write
from fastavro.types import Schema

from streamsrt.avro.reading import UNREADABLE, Read, generated_reader
from streamsrt.avro.writing import UNWRITABLE, Write, generated_writer


def reader_of(writer: Schema, reader: Schema) -> Read:
    """A function that reads a value in bytes from a position on. ``writer``: the schema with which it was written;
    ``reader``: the one into which it is read. Both as fastavro parses them."""
    # The same, which fastavro need not compare.
    into = None if writer == reader else reader
    generated = generated_reader(writer, into, fastavro.read.LOGICAL_READERS)

    def read_any(data: bytes, at: int) -> object:
        source = BytesIO(data)
        source.seek(at)
        return fastavro.schemaless_reader(source, writer, into)

    if generated is None:
        return read_any

    def read(data: bytes, at: int) -> object:
        try:
            return generated(data, at)
        except UNREADABLE:
            found = read_any
        return found(data, at)

    return read


def writer_of(schema: Schema) -> Write:
    """A function that returns the bytes of a value behind others. ``schema``: as fastavro parses it."""
    generated = generated_writer(schema, fastavro.write.LOGICAL_WRITERS)

    def write_any(value: object, head: bytes) -> bytes:
        out = BytesIO()
        out.write(head)
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    if generated is None:
        return write_any

    def write(value: object, head: bytes) -> bytes:
        try:
            return generated(value, head)
        except UNWRITABLE:
            # Outside of this block, so that its error has none before it.
            found = write_any
        return found(value, head)

    return write
