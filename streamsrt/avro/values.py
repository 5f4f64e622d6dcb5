"""Reads and writes Avro's values by generated code where there is some, else by fastavro; both have the same results.

Where the code fails, fastavro does the same value again: it may succeed, and if not, the error is its own.
"""

from __future__ import annotations

from io import BytesIO

import fastavro
import fastavro.read
import fastavro.write
from fastavro.types import Schema

from streamsrt.avro.reading import Read, generated_reader
from streamsrt.avro.writing import Write, generated_writer


def reader_of(writer: Schema, reader: Schema) -> Read:
    """A function that reads a value in bytes from a position on. ``writer``: the schema with which it was written;
    ``reader``: the one into which it is read. Both as fastavro parses them."""
    # The same, which fastavro need not compare.
    into = None if writer == reader else reader

    def read(data: bytes, at: int) -> object:
        source = BytesIO(data)
        source.seek(at)
        return fastavro.schemaless_reader(source, writer, into)

    return generated_reader(writer, into, fastavro.read.LOGICAL_READERS, read) or read


def writer_of(schema: Schema) -> Write:
    """A function that returns the bytes of a value behind others. ``schema``: as fastavro parses it."""

    def write(value: object, head: bytes) -> bytes:
        out = BytesIO()
        out.write(head)
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    return generated_writer(schema, fastavro.write.LOGICAL_WRITERS, write) or write
