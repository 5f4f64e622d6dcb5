"""Metadata of committed offsets: what a backfill or a repartition of state writes there, and what the
runtime does.

1. ``srt:backfill:<id>:running``: state is being written. An application that finds this does not start: it would
   process history into half of its state.
2. ``srt:backfill:<id>:done;st=<ms>;<name>=<ms>...``: the offset is where live processing starts; ``st`` is the
   partition time there, and the others are the stream times of windowed operators, which decide what is late.
3. ``srt:repartition:<counts>:running``: rows of state are being moved to other partitions. ``counts`` are the partition
   counts by which rows may lie, separated by commas, the oldest first. An application that finds this does not start.
4. Any other metadata is no mark: a live application writes it in the format of Kafka Streams'
   ``TopicPartitionMetadata``, Base64 of a version, the partition time, and pairs of a name and a time. Kafka Streams
   stores under the names of stores up to when results were emitted; here these are the stream times of windowed
   operators, so that late records stay late after a restart, under the names of
   :mod:`streamsrt.tasks.input.stream_time_keys`. Unknown names are ignored by either side.
5. If the names of very many operators do not fit, short hashes replace them, grouped by time: ``~`` and six characters
   for each, in marks, too. That is enough for 150 operators of a subtopology with different times, and for 480 with equal
   ones; of more, the latest times are kept.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from struct import Struct
from typing import Protocol
from urllib.parse import quote, unquote

from streamsrt.errors import UserError

_PREFIX = "srt:backfill:"
_MOVING_PREFIX = "srt:repartition:"
_VERSION = 2
_TIME = Struct(">bq")
_INT = Struct(">i")
_LONG = Struct(">q")
_MAX_BYTES = 3050
"""A broker takes 4096 characters of metadata by default (``offset.metadata.max.bytes``)."""
_SHORT = "~"
"""What no name of an operator begins with."""
_SHORT_LENGTH = 6
_RUNNING, _DONE = "running", "done"


class BackfillRunningError(UserError):
    """A backfill is writing the application's state. Let it finish (``streamsrt backfill status``), or abort it with
    ``streamsrt backfill abort``."""


class RepartitionRunningError(UserError):
    """Rows of the application's state are being moved to other partitions. Finish this with ``streamsrt state repartition
    --execute``."""


@dataclass(frozen=True, slots=True)
class BackfillMark:
    """The mark of a backfill; times in ms. ``is_done`` False: it is still running."""

    backfill_id: str
    is_done: bool
    partition_time_ms: int = -1
    operator_times_ms: Mapping[str, int] = field(default_factory=dict)


def partition_metadata(partition_time_ms: int, operator_times_ms: Mapping[str, int]) -> str:
    """Encodes the metadata of an offset: its partition time, and as many operators' stream times as fit."""
    head = _TIME.pack(_VERSION, partition_time_ms)
    if not operator_times_ms:
        return b64encode(head).decode()
    parts = _entries(operator_times_ms)
    if sum(map(len, parts)) > _MAX_BYTES:
        parts = _entries(_fitting(operator_times_ms))
    return b64encode(head + _INT.pack(len(parts)) + b"".join(parts)).decode()


def _entries(times_ms: Mapping[str, int]) -> list[bytes]:
    named = sorted((name.encode(), time) for name, time in times_ms.items())
    return [_INT.pack(len(name)) + name + _LONG.pack(time) for name, time in named]


def _fitting(times_ms: Mapping[str, int]) -> dict[str, int]:
    """Returns as many times as fit, the latest ones, with hashes in place of names."""
    together: dict[int, str] = {}
    left = _MAX_BYTES
    for time_ms, short in sorted(((time_ms, _short(name)) for name, time_ms in times_ms.items()), reverse=True):
        left -= len(short) if time_ms in together else len(short) + _INT.size + len(_SHORT) + _LONG.size
        if left < 0:
            break
        together[time_ms] = together.get(time_ms, _SHORT) + short
    return {shorts: time_ms for time_ms, shorts in together.items()}


def _short(name: str) -> str:
    return urlsafe_b64encode(sha256(name.encode()).digest())[:_SHORT_LENGTH].decode()


def full_names(times_ms: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Returns the times with full names. ``names``: of all possible operators."""
    if not any(name.startswith(_SHORT) for name in times_ms):
        return dict(times_ms)
    by_short = {_short(name): name for name in names}
    found: dict[str, int] = {}
    for name, time_ms in times_ms.items():
        if not name.startswith(_SHORT):
            found[name] = time_ms
            continue
        for start in range(len(_SHORT), len(name), _SHORT_LENGTH):
            full = by_short.get(name[start : start + _SHORT_LENGTH])
            if full is not None:
                found[full] = time_ms
    return found


def parse_partition_metadata(metadata: str) -> tuple[int, dict[str, int]] | None:
    """Parses the partition time and the named times; None if the metadata is something else."""
    try:
        raw = b64decode(metadata, validate=True)
        version, partition_time_ms = _TIME.unpack_from(raw)
        if version not in (1, _VERSION):
            return None
        times: dict[str, int] = {}
        at = _TIME.size
        if version == _VERSION and len(raw) > at:
            (count,) = _INT.unpack_from(raw, at)
            at += _INT.size
            for _ in range(count):
                (length,) = _INT.unpack_from(raw, at)
                name = raw[at + _INT.size : at + _INT.size + length].decode()
                (times[name],) = _LONG.unpack_from(raw, at + _INT.size + length)
                at += _INT.size + length + _LONG.size
    except (ValueError, struct.error):
        return None
    return int(partition_time_ms), times


class _Committed(Protocol):
    @property
    def metadata(self) -> str: ...


def running_metadata(backfill_id: str) -> str:
    """Returns the metadata of offsets whose state is being written."""
    return f"{_PREFIX}{backfill_id}:{_RUNNING}"


def done_metadata(backfill_id: str, partition_time_ms: int, operator_times_ms: Mapping[str, int]) -> str:
    """Returns the metadata of offsets up to which the state is written, with as many operators' stream times as fit."""
    times = _pairs(operator_times_ms)
    if len(times) > _MAX_BYTES:
        times = _pairs(_fitting(operator_times_ms))
    return f"{_PREFIX}{backfill_id}:{_DONE};st={partition_time_ms}{times}"


def _pairs(times_ms: Mapping[str, int]) -> str:
    return "".join(f";{quote(name, safe='')}={time}" for name, time in sorted(times_ms.items()))


def moving_metadata(counts: Iterable[int]) -> str:
    """Returns the metadata of offsets whose state is being moved between partitions. ``counts``: see the module."""
    return f"{_MOVING_PREFIX}{','.join(map(str, counts))}:{_RUNNING}"


def parse_moving(metadata: str) -> tuple[int, ...]:
    """Parses the counts of :func:`moving_metadata`; empty if the metadata is something else."""
    if not metadata.startswith(_MOVING_PREFIX):
        return ()
    counts, _, state = metadata.removeprefix(_MOVING_PREFIX).partition(":")
    try:
        return tuple(map(int, counts.split(","))) if state == _RUNNING else ()
    except ValueError:
        return ()


def parse_mark(metadata: str) -> BackfillMark | None:
    """Parses a backfill's mark; None if the metadata is something else."""
    if not metadata.startswith(_PREFIX):
        return None
    backfill_id, _, rest = metadata.removeprefix(_PREFIX).partition(":")
    state, *pairs = rest.split(";")
    if state == _RUNNING:
        return BackfillMark(backfill_id, is_done=False)
    try:
        times = {unquote(name): int(time) for name, time in (pair.split("=", 1) for pair in pairs)}
    except ValueError:
        return None
    if state != _DONE:
        return None
    return BackfillMark(backfill_id, True, times.pop("st", -1), times)


def refuse_half_written_state(application_id: str, committed: Mapping[tuple[str, int], _Committed]) -> None:
    """Raises BackfillRunningError if a backfill has not handed the application over yet, RepartitionRunningError if its
    state is being moved between partitions."""
    for (topic, partition), offset in sorted(committed.items()):
        mark = parse_mark(offset.metadata)
        if mark is not None and not mark.is_done:
            raise BackfillRunningError(
                f"application {application_id!r} can't start: backfill {mark.backfill_id} is writing its state (offset of "
                f"{topic}-{partition}). Finish it with streamsrt backfill commit --execute, or drop it with streamsrt "
                "backfill abort --execute, then start the application"
            )
        if parse_moving(offset.metadata):
            raise RepartitionRunningError(
                f"application {application_id!r} can't start: its state is being moved to other partitions (offset of "
                f"{topic}-{partition}), and that was interrupted or still runs. Finish it with streamsrt state repartition "
                f"MODULE:TOPOLOGY -a {application_id} --execute, then start the application"
            )
