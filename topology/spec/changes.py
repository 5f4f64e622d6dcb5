"""The change of a table's row, with its new and its old value, and its bytes in a repartition topic.

Bytes: ``new 01``, ``old 00``, or ``varint(length of new) new old 02`` if there are both.
Source: org.apache.kafka.streams.kstream.internals.Change, ChangedSerializer and ChangedDeserializer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from topology.spec.codecs import CallableSerde, ProgramSerde

_OLD, _NEW, _BOTH = b"\0", b"\1", b"\2"


class Change(NamedTuple):
    """The new value of a row and its old one; None for none."""

    new: Any
    old: Any


@dataclass(frozen=True, slots=True, repr=False)
class ChangeSerde(CallableSerde[Change]):
    """What :func:`change` returns."""

    inner: ProgramSerde


def change(inner: ProgramSerde) -> ChangeSerde:
    """The serde of changes of values of ``inner``."""
    to_bytes, from_bytes = inner.serialize, inner.deserialize

    def serialize(change: Change) -> bytes:
        new, old = change
        if old is None:
            if new is None:
                raise ValueError("a change needs an old or a new value")
            return to_bytes(new) + _NEW
        if new is None:
            return to_bytes(old) + _OLD
        raw = to_bytes(new)
        return _varint(len(raw)) + raw + to_bytes(old) + _BOTH

    def deserialize(data: bytes) -> Change:
        kind = data[-1:]
        if kind == _NEW:
            return Change(from_bytes(data[:-1]), None)
        if kind == _OLD:
            return Change(None, from_bytes(data[:-1]))
        if kind != _BOTH:
            raise ValueError(f"a change ends with a byte 00, 01 or 02, not {kind.hex() or 'nothing'}")
        length, start = _read_varint(data)
        return Change(from_bytes(data[start : start + length]), from_bytes(data[start + length : -1]))

    return ChangeSerde(f"change({inner.name})", serialize, deserialize, inner)


def _varint(number: int) -> bytes:
    """A number of 0 and above in Kafka's zigzag form, seven bits to a byte, lowest first."""
    rest = number << 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def _read_varint(data: bytes) -> tuple[int, int]:
    """The number, and where it ends."""
    number = shift = at = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return number >> 1, at
