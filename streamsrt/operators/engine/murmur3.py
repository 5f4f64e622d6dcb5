"""Murmur3, 128 bits, x64: the hash by which a foreign-key join knows whether a row has changed since it asked.

Source: org.apache.kafka.streams.state.internals.Murmur3.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, iter_unpack

SEED = 104729
_MASK = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_REMEMBERED_BYTES = 1024
_pack = Struct(">QQ").pack


def hash_bytes(data: bytes) -> bytes:
    """The hash of ``data`` as 16 bytes: two longs, big-endian, as Kafka Streams writes them."""
    # Each value is hashed when it asks, and again when it is answered.
    return _remembered(data) if len(data) <= _REMEMBERED_BYTES else _hashed(data)


def _hashed(data: bytes) -> bytes:
    # The steps are written out: a function for each would take most of the time.
    first = second = SEED
    length = len(data)
    blocks = length & ~15
    for low, high in iter_unpack("<QQ", data[:blocks]):
        low = low * _C1 & _MASK
        low = (low << 31 | low >> 33) & _MASK
        first ^= low * _C2 & _MASK
        first = ((first << 27 | first >> 37) + second) * 5 + 0x52DCE729 & _MASK
        high = high * _C2 & _MASK
        high = (high << 33 | high >> 31) & _MASK
        second ^= high * _C1 & _MASK
        second = ((second << 31 | second >> 33) + first) * 5 + 0x38495AB5 & _MASK
    tail = data[blocks:]
    if len(tail) > 8:
        second ^= _mix(int.from_bytes(tail[8:], "little"), _C2, 33, _C1)
    if tail:
        first ^= _mix(int.from_bytes(tail[:8], "little"), _C1, 31, _C2)
    first ^= length
    second ^= length
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _final(first), _final(second)
    first = (first + second) & _MASK
    return _pack(first, (second + first) & _MASK)


_remembered = lru_cache(maxsize=10_000)(_hashed)


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _mix(value: int, before: int, by: int, after: int) -> int:
    return (_rotate(value * before & _MASK, by) * after) & _MASK


def _final(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
