from __future__ import annotations

import dataclasses
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from coordinator.log import (
    AppendRefusedError,
    CorruptRecordError,
    InvalidRecordError,
    LogConfig,
    RecordTooLargeError,
    UnsupportedMagicError,
)
from coordinator.log.validation import split_batches
from streamsrt.wire.records import ControlType, empty_batch, read_header
from tests.coordinator.log.batches import batch, marker, produced

CONFIG = LogConfig(max_message_bytes=10_000)


def patched(data: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with one field replaced and its CRC right again."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_every_batch_is_found() -> None:
    sent = [batch(b"a"), batch(b"b", b"c"), batch(b"d" * 300)]
    assert [bytes(view) for _, view in split_batches(b"".join(sent), CONFIG, from_coordinator=False)] == sent


REFUSED = {
    "nothing": (b"", InvalidRecordError),
    "half a header": (batch(b"a")[:40], InvalidRecordError),
    "half a batch": (batch(b"a")[:-1], InvalidRecordError),
    "a whole and half a batch": (batch(b"a") + batch(b"b")[:-1], CorruptRecordError),
    "bytes after": (batch(b"a") + b"\0", CorruptRecordError),
    "magic 1": (patched(batch(b"a"), 16, ">b", 1), UnsupportedMagicError),
    "magic 0": (patched(batch(b"a"), 16, ">b", 0), UnsupportedMagicError),
    "magic 3": (patched(batch(b"a"), 16, ">b", 3), CorruptRecordError),
    "length 0": (patched(batch(b"a"), 8, ">i", 0), CorruptRecordError),
    "length -1": (patched(batch(b"a"), 8, ">i", -1), CorruptRecordError),
    "length huge": (patched(batch(b"a"), 8, ">i", 0x7FFFFFFF), InvalidRecordError),
    "crc": (batch(b"a")[:17] + b"\0\0\0\0" + batch(b"a")[21:], CorruptRecordError),
    "no records": (empty_batch(read_header(batch(b"a"))), InvalidRecordError),
    "count and delta differ": (patched(batch(b"a"), 23, ">i", 5), InvalidRecordError),
    "negative delta": (patched(batch(b"a"), 23, ">i", -1), InvalidRecordError),
    "negative delta and crc": (batch(b"a")[:23] + b"\xff" * 4 + batch(b"a")[27:], CorruptRecordError),
    "base offset": (patched(batch(b"a"), 0, ">q", 7), InvalidRecordError),
    "control batch": (marker(1, ControlType.COMMIT), InvalidRecordError),
    "transaction without producer": (patched(batch(b"a"), 21, ">h", 16), InvalidRecordError),
    "two batches of a producer": (produced(1, 0) + produced(1, 1), InvalidRecordError),
    "too large": (batch(b"x" * 10_000), RecordTooLargeError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_producer_may_send_is_refused(name: str) -> None:
    data, error = REFUSED[name]
    with pytest.raises(error) as caught:
        split_batches(data, CONFIG, from_coordinator=False)
    assert type(caught.value) is error
    assert caught.value.error_code > 0


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes 500"):
        split_batches(batch(b"x" * 500), dataclasses.replace(CONFIG, segment_bytes=500), from_coordinator=False)


def test_the_coordinator_may_write_markers() -> None:
    ((header, _),) = split_batches(marker(1, ControlType.COMMIT), CONFIG, from_coordinator=True)
    assert header.is_control


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(AppendRefusedError):
        split_batches(data, CONFIG, from_coordinator=False)
