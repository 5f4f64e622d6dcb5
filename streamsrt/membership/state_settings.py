"""What a member's stores are set to, beside their marks: how long they keep rows, and what reads earlier values.

1. A second client tag has them, by the marks of the names, for the same stores (:mod:`streamsrt.membership.state_marks`).
   Members of releases without it tell nothing of this: it is not known, and not compared.
2. Numbers are told as they are, in as few bytes as they need. Serdes are hashed, as in marks. Of the serdes that read
   earlier values, those of the latest versions are told.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from streamsrt.membership.state_marks import MarkReader, Marks, OriginMark, marks_of, marks_text, read_marks, told_names
from streamsrt.wire.client_tags import STORE_MARKS, STORE_SETTINGS
from topology.graph.misread import Kept, KeptSettings
from topology.graph.origins import Origin

MOST_UPCASTS = 8
"""Of how many earlier versions of a store's values a member tells the serde."""

_FORMAT = "1"
_HEAD = struct.Struct(">5sBB")
_UPCAST = struct.Struct(">H2s")
_TIMES = ("retention_ms", "segment_interval_ms", "ttl_ms", "advance_ms")
_PERSISTENT = 1 << len(_TIMES)
_MORE = 0x80


def settings_text(kept: Mapping[str, Kept[Origin]]) -> str:
    """The tag of a member that keeps this; empty if it has no stores."""
    marks = marks_of({name: kept[name] for name in told_names(kept)})
    data = b"".join(_packed(name, mark) for name, mark in marks.items())
    return _FORMAT + base64.urlsafe_b64encode(data).decode().rstrip("=") if data else ""


def told_state(client_tags: Mapping[str, str]) -> Marks:
    """All that a member with these tags tells of its stores and repartition topics."""
    marks = dict(read_marks(client_tags.get(STORE_MARKS, "")))
    for name, (settings, upcasts) in _read(client_tags.get(STORE_SETTINGS, "")).items():
        if name in marks:
            marks[name] = replace(marks[name], settings=settings, upcasts=upcasts)
    return marks


def state_tags(kept: Mapping[str, Kept[Origin]]) -> dict[str, str]:
    """The client tags of a member that keeps this; none if it keeps nothing."""
    tags = {STORE_MARKS: marks_text(kept), STORE_SETTINGS: settings_text(kept)}
    return {key: text for key, text in tags.items() if text}


def _packed(name: str, mark: Kept[OriginMark]) -> bytes:
    settings = mark.settings
    if settings is None:
        return b""
    times = [getattr(settings, each) for each in _TIMES]
    flags = sum(1 << bit for bit, time_ms in enumerate(times) if time_ms is not None)
    flags |= _PERSISTENT if settings.persistent else 0
    upcasts = sorted(mark.upcasts.items(), reverse=True)[:MOST_UPCASTS]
    return b"".join(
        (
            _HEAD.pack(bytes.fromhex(name), flags, len(upcasts)),
            *(_packed_time(time_ms) for time_ms in times if time_ms is not None),
            *(_UPCAST.pack(version, serde) for version, serde in upcasts),
        )
    )


def _packed_time(time_ms: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    found = bytearray()
    while time_ms >= _MORE:
        found.append(time_ms & _MORE - 1 | _MORE)
        time_ms >>= 7
    found.append(time_ms)
    return bytes(found)


def _read(text: str) -> dict[str, tuple[KeptSettings, dict[int, bytes]]]:
    """Parses what :func:`settings_text` wrote; empty for anything else."""
    if not text.startswith(_FORMAT):
        return {}
    encoded = text.removeprefix(_FORMAT)
    found = {}
    try:
        data = MarkReader(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        while data.is_left:
            name, flags, count = _HEAD.unpack(data.take(_HEAD.size))
            times = {each: _unpacked_time(data) for bit, each in enumerate(_TIMES) if flags & 1 << bit}
            settings = KeptSettings(persistent=bool(flags & _PERSISTENT), **times)
            upcasts = (_UPCAST.unpack(data.take(_UPCAST.size)) for _ in range(count))
            found[name.hex()] = settings, {int(version): cast("bytes", serde) for version, serde in upcasts}
    except (binascii.Error, ValueError, struct.error):
        return {}
    return found


def _unpacked_time(data: MarkReader) -> int:
    found = shift = 0
    while True:
        (byte,) = data.take(1)
        found |= (byte & _MORE - 1) << shift
        if byte < _MORE:
            return found
        shift += 7
