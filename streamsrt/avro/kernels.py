"""The readers and writers of values in C, where they were built: an optional extra.

1. As :mod:`streamsrt.wire.kernels`: by default everything is pure Python. ``STREAMSRT_NATIVE=1 pip install`` builds the
   module ``_streamsrt_avro`` out of ``kernels.c``; with STREAMSRT_PURE=1 in the environment it is not used.
2. They do the same steps as the generated code (:mod:`streamsrt.avro.steps`), for the same values. Everything else they
   leave to fastavro. So they have no behaviour of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from streamsrt.avro.steps import AvroStep

MODULE = "_streamsrt_avro"
HEAD_BYTES = 5
"""What stands before a value in a message: a zero byte, and the id of its schema."""

Read: TypeAlias = Callable[[bytes, int], object]
"""Reads a value in bytes from a position on."""
Write: TypeAlias = Callable[[object, bytes], bytes]
"""Returns the bytes of a value behind others."""


class Deserializer(Protocol):
    def deserialize(self, data: bytes, /) -> object: ...


class Serializer(Protocol):
    def serialize(self, value: object, /) -> bytes: ...


class NativeAvro(Protocol):
    """The module in C."""

    def Reader(self, step: AvroStep, otherwise: Read) -> Read: ...  # noqa: N802

    def Writer(self, step: AvroStep, otherwise: Write) -> Write: ...  # noqa: N802

    def Deserializer(  # noqa: N802
        self, find: Callable[[bytes], Read], otherwise: Callable[[bytes], object]
    ) -> Deserializer: ...

    def Serializer(self, find: Callable[[], tuple[Write, bytes]]) -> Serializer: ...  # noqa: N802


native: NativeAvro | None
"""The module in C; None where it was not built, or is not wanted."""

try:
    import _streamsrt_avro as native  # type: ignore[import-not-found, no-redef]
except ImportError:
    native = None
