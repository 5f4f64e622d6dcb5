"""Marks of what a version keeps, short enough that each member of a group can tell them all.

1. A member has one client tag with the marks of its stores and repartition topics: those with generated names first, then
   by name, up to a maximum number. The tags of all members of a classic group go into one record, and to its leader in
   one answer.
2. A mark has hashes instead of names, serdes and code. Marks are compared as outlines are (:mod:`topology.graph.misread`).
   They are short, so two different things may have the same mark. Equal ones never have different marks.
3. A tag in another format, such as a tag of the user, says nothing.
4. Instances of earlier releases read this tag, so its parts stay where they are: what else is told of stores is in a tag
   of its own (:mod:`streamsrt.membership.state_settings`). The serdes of a repartition topic are where those of a store
   are, and who chooses partitions where its kind is: earlier releases compare them as such, and tell none.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntFlag
from hashlib import sha256
from typing import TypeAlias

from topology.graph.join_sides import sides_changed
from topology.graph.misread import (
    DEFAULT_PARTITIONER,
    FORMAT,
    KEY_SERDE,
    OWN_PARTITIONER,
    PARTITIONER,
    PLAIN_ROWS,
    VALUE_SERDE,
    Kept,
)
from topology.graph.origins import Origin, Side
from topology.graph.row_windows import FIXED, SESSION, SLIDING

MOST_STORES = 64
"""How many stores and repartition topics a member has marks of."""

_FORMAT = "1"
_NAME = 5
_BITS_OF_A_TOPIC = 3
_PARTITIONERS = {DEFAULT_PARTITIONER: b"\x01", OWN_PARTITIONER: b"\x02"}
"""Where the kind of a store is; it is zero where it is not known."""
_WINDOWS = ("", FIXED, SLIDING, SESSION)
_HASHED = {"kind": 1, KEY_SERDE: 2, VALUE_SERDE: 2}
_SHAPE = struct.Struct(f">{_NAME}sHB")
_ORIGIN = struct.Struct(">B3sQB3s")
_SIDE = struct.Struct(">Q2s")
_SIZE = struct.Struct(">Q")
_VERSION = struct.Struct(">H")

Marks: TypeAlias = Mapping[str, "Kept[OriginMark]"]
"""By the hash of the name that the topic has."""


class _Flag(IntFlag):
    GENERATED = 1
    STORE = 2
    ORIGIN = 4
    SIDES = 8
    SIZE = 16
    timestamped = 32
    retain_duplicates = 64
    plain_rows = 128
    PLAIN_KNOWN = 256
    TOPIC = 512


_BOOLEANS = tuple(name for name in FORMAT if name in _Flag.__members__)


@dataclass(frozen=True, slots=True)
class SideMark:
    """A side of a join. ``code``: its steps and functions."""

    topics: int
    code: bytes

    @classmethod
    def of(cls, side: Side) -> SideMark:
        return cls(_bits(side.topics), _hashed((side.keyed_by, side.functions), 2))

    def is_wider(self, other: SideMark) -> bool:
        """Whether both are the same side, with possibly one topic more or less."""
        return _overlap(self.topics, other.topics)


_LIKENESSES = (SideMark.__eq__, lambda one, other: one.topics == other.topics, SideMark.is_wider)


@dataclass(frozen=True, slots=True)
class OriginMark:
    """The origin of a store. ``topics`` is a set of 64 bits, of which each topic sets three."""

    filled_by: int
    steps: bytes
    topics: int
    python: int
    functions: bytes
    sides: tuple[SideMark, ...] = ()

    @classmethod
    def of(cls, origin: Origin) -> OriginMark:
        python, _, functions = origin.functions.partition(":")
        return cls(
            filled_by=_hashed(origin.filled_by, 1)[0],
            steps=_hashed(origin.structure[1:], 3),
            topics=_bits(origin.topics),
            python=_hashed(python, 1)[0],
            functions=_hashed(functions, 3),
            sides=tuple(map(SideMark.of, origin.sides)),
        )

    def has_equal_structure(self, other: OriginMark) -> bool:
        """Whether all but the code is equal."""
        return (self.steps, self.topics) == (other.steps, other.topics)

    def is_same_as(self, other: OriginMark) -> bool:
        """Whether both have the same inputs and steps, regardless of functions. One topic more or less makes no
        difference."""
        return self.steps == other.steps and _overlap(self.topics, other.topics)

    def has_other_functions(self, other: OriginMark) -> bool:
        """Whether the code differs, as far as it can be compared across Python versions."""
        return self.python == other.python and self.functions != other.functions

    def has_sides_changed(self, after: OriginMark) -> bool:
        """Whether stored records of one side would be read as records of the other one."""
        return sides_changed(self.sides, after.sides, _LIKENESSES)


def name_mark(name: str) -> str:
    """What stands for a name."""
    return _hashed(name, _NAME).hex()


def marks_of(kept: Mapping[str, Kept[Origin]]) -> Marks:
    """The marks of all that a version keeps."""
    return {name_mark(name): _mark(each) for name, each in kept.items()}


def _mark(kept: Kept[Origin]) -> Kept[OriginMark]:
    return Kept(
        is_generated=kept.is_generated,
        origin=None if kept.origin is None else OriginMark.of(kept.origin),
        format={
            name: _hashed(value, _HASHED[name]) if name in _HASHED else value for name, value in kept.format.items()
        },
        version=kept.version,
        upcasts={version: _hashed(serde, _HASHED[VALUE_SERDE]) for version, serde in kept.upcasts.items()},
        windows=kept.windows,
        settings=kept.settings,
    )


def told_names(kept: Mapping[str, Kept[Origin]]) -> list[str]:
    """The names of what a member tells, of all that it keeps."""
    return sorted(kept, key=lambda name: (not kept[name].is_generated, name))[:MOST_STORES]


def marks_text(kept: Mapping[str, Kept[Origin]]) -> str:
    """The tag of a member that keeps this; empty if it keeps nothing."""
    data = b"".join(_packed(name_mark(name), _mark(kept[name])) for name in told_names(kept))
    return _FORMAT + base64.urlsafe_b64encode(data).decode().rstrip("=") if data else ""


def read_marks(text: str) -> Marks:
    """Parses what :func:`marks_text` wrote; empty for anything else."""
    if not text.startswith(_FORMAT):
        return {}
    encoded = text.removeprefix(_FORMAT)
    try:
        data = MarkReader(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        found = {}
        while data.is_left:
            name, mark = _unpacked(data)
            found[name] = mark
    except (binascii.Error, ValueError, struct.error):
        return {}
    return found


def _packed(name: str, mark: Kept[OriginMark]) -> bytes:
    form, origin = mark.format, mark.origin
    window_size_ms = form.get("window_size_ms")
    flags = _Flag(0)
    for flag, is_set in (
        (_Flag.GENERATED, mark.is_generated),
        (_Flag.STORE, bool(form)),
        (_Flag.TOPIC, bool(form) and not mark.has_rows),
        (_Flag.ORIGIN, origin is not None),
        (_Flag.SIDES, origin is not None and len(origin.sides) == 2),
        (_Flag.SIZE, window_size_ms is not None),
        (_Flag.PLAIN_KNOWN, form.get(PLAIN_ROWS) is not None),
        *((_Flag[each], bool(form.get(each))) for each in _BOOLEANS),
    ):
        flags |= flag if is_set else _Flag(0)
    windows = _WINDOWS.index(mark.windows) if mark.windows in _WINDOWS else 0
    parts = [_SHAPE.pack(bytes.fromhex(name), flags, windows)]
    if form:
        told = form if mark.has_rows else {**form, "kind": _PARTITIONERS.get(str(form.get(PARTITIONER)), b"\0")}
        parts += [_bytes(told.get(each, bytes(size))) for each, size in _HASHED.items()]
        parts.append(_VERSION.pack(mark.version))
    if isinstance(window_size_ms, int):
        parts.append(_SIZE.pack(window_size_ms))
    if origin is not None:
        parts.append(_ORIGIN.pack(origin.filled_by, origin.steps, origin.topics, origin.python, origin.functions))
        parts += [_SIDE.pack(side.topics, side.code) for side in origin.sides]
    return b"".join(parts)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


class MarkReader:
    """Takes one value after the other. Raises ValueError or struct.error where there are no more."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def is_left(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("it ends early")
        self._at += size
        return found


def _unpacked(data: MarkReader) -> tuple[str, Kept[OriginMark]]:
    name, bits, windows = _SHAPE.unpack(data.take(_SHAPE.size))
    flags = _Flag(bits)
    form: dict[str, Hashable] = {}
    version = 1
    if flags & _Flag.STORE:
        form = {each: data.take(size) for each, size in _HASHED.items()}
        form.update((each, bool(flags & _Flag[each])) for each in _BOOLEANS)
        if not flags & _Flag.PLAIN_KNOWN:
            form[PLAIN_ROWS] = None
        (version,) = _VERSION.unpack(data.take(_VERSION.size))
        form["window_size_ms"] = _SIZE.unpack(data.take(_SIZE.size))[0] if flags & _Flag.SIZE else None
    if flags & _Flag.TOPIC:
        form = _unpacked_topic(form)
    return name.hex(), Kept(
        is_generated=bool(flags & _Flag.GENERATED),
        origin=_unpacked_origin(data, has_sides=bool(flags & _Flag.SIDES)) if flags & _Flag.ORIGIN else None,
        format=form,
        version=version,
        windows=_WINDOWS[windows] if windows < len(_WINDOWS) else "",
    )


def _unpacked_topic(form: Mapping[str, Hashable]) -> dict[str, Hashable]:
    found = {each: form[each] for each in (KEY_SERDE, VALUE_SERDE) if form[each] != bytes(_HASHED[each])}
    found.update((PARTITIONER, name) for name, code in _PARTITIONERS.items() if form["kind"] == code)
    return found


def _unpacked_origin(data: MarkReader, *, has_sides: bool) -> OriginMark:
    filled_by, steps, topics, python, functions = _ORIGIN.unpack(data.take(_ORIGIN.size))
    sides = [SideMark(*_SIDE.unpack(data.take(_SIDE.size))) for _ in range(2 if has_sides else 0)]
    return OriginMark(filled_by, steps, topics, python, functions, tuple(sides))


def _hashed(value: object, size: int) -> bytes:
    return sha256(repr(value).encode()).digest()[:size]


def _bits(topics: Iterable[str]) -> int:
    bits = 0
    for topic in topics:
        for byte in _hashed(topic, _BITS_OF_A_TOPIC):
            bits |= 1 << byte % 64
    return bits


def _overlap(one: int, other: int) -> bool:
    return one & other in (one, other)
