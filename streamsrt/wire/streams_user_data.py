"""The user data of Java's Kafka Streams in a classic group: subscriptions and assignments.

1. Versions 7 to 11 are read and written: 7 since Kafka 2.6, 9 of Kafka 2.8, 10 since 3.0, 11 since 3.2. Of a later version
   only its number and the newest one that the member knows are read (:class:`FutureSubscription`).
2. A task is two numbers: of its subtopology, and of its partition. Tasks of a named topology can't be read.
3. Equal values give equal bytes: everything is sorted, but for the active tasks. Those stand in the order of the partitions
   that the assignment around the user data lists, one for each partition.
4. Java reads the fields of the version that it finds, and nothing behind them: what follows is ``rest``.
5. Whatever is cut off, too long or odd is a DecodeError.

Source: SubscriptionInfoData.json and AssignmentInfo of Apache Kafka.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streamsrt.wire.primitives import DecodeError

OLDEST_VERSION: Final = 7
NEWEST_VERSION: Final = 11
_UNIQUE_FIELD_VERSION: Final = 8
_ERROR_VERSION: Final = 9
_FLAT_SUMS_VERSION: Final = 10
_CLIENT_TAGS_VERSION: Final = 11

RUNNING: Final = -2
"""The offset sum of an active task that runs."""
NO_REBALANCE: Final = 2**63 - 1

NO_ERROR: Final = 0
INCOMPLETE_SOURCE_TOPIC_METADATA: Final = 1
ASSIGNMENT_ERROR: Final = 3
SHUTDOWN_REQUESTED: Final = 4

NumberedTask: TypeAlias = tuple[int, int]
TopicPartition: TypeAlias = tuple[str, int]
HostPort: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionInfo:
    """What a member says when it joins. ``endpoint`` is ``host:port`` or empty. ``unique`` is a signed byte; what a version
    does not have is left out of its bytes."""

    version: int
    newest_version: int
    process_id: str
    endpoint: str = ""
    offset_sums: Mapping[NumberedTask, int] = field(default_factory=dict)
    unique: int = 0
    error: int = NO_ERROR
    client_tags: Mapping[str, str] = field(default_factory=dict)
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class FutureSubscription:
    """A subscription of a version after the newest one that can be read."""

    version: int
    newest_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInfo:
    """What a member is told. ``common_version``: the newest one that all members know. ``active``: one task for each
    assigned partition. ``next_rebalance_ms``: when to join again, by the leader's clock; 0: at once."""

    version: int
    common_version: int
    active: tuple[NumberedTask, ...] = ()
    standby: Mapping[NumberedTask, frozenset[TopicPartition]] = field(default_factory=dict)
    active_by_host: Mapping[HostPort, frozenset[TopicPartition]] = field(default_factory=dict)
    standby_by_host: Mapping[HostPort, frozenset[TopicPartition]] = field(default_factory=dict)
    error: int = NO_ERROR
    next_rebalance_ms: int = NO_REBALANCE
    rest: bytes = b""


# ------------------------------------------------------------------------------------------------------- subscriptions


def encode_subscription_info(info: SubscriptionInfo) -> bytes:
    """Raises ValueError where the process id is not the text of a UUID."""
    version = _known(info.version)
    out = [struct.pack(">ii", version, info.newest_version), uuid.UUID(info.process_id).bytes, _data(info.endpoint)]
    out += _flat_sums(info) if version >= _FLAT_SUMS_VERSION else _nested_sums(info)
    if version >= _UNIQUE_FIELD_VERSION:
        out.append(struct.pack(">b", info.unique))
    if version >= _ERROR_VERSION:
        out.append(struct.pack(">i", info.error))
    if version >= _CLIENT_TAGS_VERSION:
        out.append(struct.pack(">i", len(info.client_tags)))
        out += [_data(key) + _data(value) for key, value in sorted(info.client_tags.items())]
    out.append(info.rest)
    return b"".join(out)


def decode_subscription_info(data: bytes) -> SubscriptionInfo | FutureSubscription:
    reader = _Reader(data)
    version, newest_version = reader.int32(), reader.int32()
    if version > NEWEST_VERSION:
        return FutureSubscription(version, newest_version)
    _known(version)
    process_id = str(uuid.UUID(bytes=reader.raw(16)))
    endpoint = reader.data()
    sums = _read_flat_sums(reader) if version >= _FLAT_SUMS_VERSION else _read_nested_sums(reader)
    unique = reader.number(">b") if version >= _UNIQUE_FIELD_VERSION else 0
    error = reader.int32() if version >= _ERROR_VERSION else NO_ERROR
    tags = {}
    if version >= _CLIENT_TAGS_VERSION:
        tags = {reader.data(): reader.data() for _ in range(reader.count())}
    return SubscriptionInfo(
        version=version,
        newest_version=newest_version,
        process_id=process_id,
        endpoint=endpoint,
        offset_sums=sums,
        unique=unique,
        error=error,
        client_tags=tags,
        rest=reader.rest(),
    )


def _flat_sums(info: SubscriptionInfo) -> Iterable[bytes]:
    yield struct.pack(">i", len(info.offset_sums))
    for task, offset in sorted(info.offset_sums.items()):
        yield struct.pack(">iiqh", *task, offset, -1)


def _nested_sums(info: SubscriptionInfo) -> Iterable[bytes]:
    by_subtopology: dict[int, list[bytes]] = {}
    for (subtopology, partition), offset in sorted(info.offset_sums.items()):
        by_subtopology.setdefault(subtopology, []).append(struct.pack(">iq", partition, offset))
    yield struct.pack(">i", len(by_subtopology))
    for subtopology, sums in by_subtopology.items():
        yield struct.pack(">ii", subtopology, len(sums))
        yield from sums


def _read_flat_sums(reader: _Reader) -> dict[NumberedTask, int]:
    found = {}
    for _ in range(reader.count()):
        task = (reader.int32(), reader.int32())
        found[task] = reader.number(">q")
        _not_named(reader.number(">h"))
    return found


def _read_nested_sums(reader: _Reader) -> dict[NumberedTask, int]:
    found = {}
    for _ in range(reader.count()):
        subtopology = reader.int32()
        for _ in range(reader.count()):
            partition = reader.int32()
            found[subtopology, partition] = reader.number(">q")
    return found


# --------------------------------------------------------------------------------------------------------- assignments


def encode_assignment_info(info: AssignmentInfo) -> bytes:
    version = _known(info.version)
    out = [struct.pack(">iii", version, info.common_version, len(info.active))]
    out += [_task(task, version) for task in info.active]
    out.append(struct.pack(">i", len(info.standby)))
    for task, partitions in sorted(info.standby.items()):
        out += [_task(task, version), struct.pack(">i", len(partitions))]
        out += [_short_text(name) + struct.pack(">i", number) for name, number in sorted(partitions)]
    roles = (info.active_by_host, info.standby_by_host)
    names = sorted({name for hosts in roles for partitions in hosts.values() for name, _ in partitions})
    numbers = {name: number for number, name in enumerate(names)}
    out.append(struct.pack(">i", len(names)))
    out += [struct.pack(">i", number) + _short_text(name) for name, number in numbers.items()]
    for hosts in roles:
        out.append(struct.pack(">i", len(hosts)))
        for (host, port), partitions in sorted(hosts.items()):
            out += [_short_text(host), struct.pack(">ii", port, len(partitions))]
            out += [struct.pack(">ii", numbers[name], number) for name, number in sorted(partitions)]
    out += [struct.pack(">iq", info.error, info.next_rebalance_ms), info.rest]
    return b"".join(out)


def decode_assignment_info(data: bytes) -> AssignmentInfo:
    reader = _Reader(data)
    version = _known(reader.int32())
    common_version = reader.int32()
    active = tuple(_read_task(reader, version) for _ in range(reader.count()))
    standby = {}
    for _ in range(reader.count()):
        task = _read_task(reader, version)
        standby[task] = frozenset((reader.short_text(), reader.int32()) for _ in range(reader.count()))
    topics = {reader.int32(): reader.short_text() for _ in range(reader.count())}
    return AssignmentInfo(
        version=version,
        common_version=common_version,
        active=active,
        standby=standby,
        active_by_host=_read_hosts(reader, topics),
        standby_by_host=_read_hosts(reader, topics),
        error=reader.int32(),
        next_rebalance_ms=reader.number(">q"),
        rest=reader.rest(),
    )


def _task(task: NumberedTask, version: int) -> bytes:
    named = struct.pack(">i", 0) if version >= _FLAT_SUMS_VERSION else b""
    return struct.pack(">ii", *task) + named


def _read_task(reader: _Reader, version: int) -> NumberedTask:
    task = (reader.int32(), reader.int32())
    if version >= _FLAT_SUMS_VERSION:
        _not_named(reader.int32())
    return task


def _read_hosts(reader: _Reader, topics: Mapping[int, str]) -> dict[HostPort, frozenset[TopicPartition]]:
    found = {}
    for _ in range(reader.count()):
        host = (reader.short_text(), reader.int32())
        found[host] = frozenset((_topic(topics, reader.int32()), reader.int32()) for _ in range(reader.count()))
    return found


def _topic(topics: Mapping[int, str], number: int) -> str:
    if number not in topics:
        raise DecodeError(f"topic {number} is not in the list of topics")
    return topics[number]


# -------------------------------------------------------------------------------------------------------------- fields


def _known(version: int) -> int:
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise DecodeError(
            f"version {version} of Kafka Streams' user data is not in {OLDEST_VERSION} to {NEWEST_VERSION}"
        )
    return version


def _not_named(size: int) -> None:
    if size > 0:
        raise DecodeError("a task belongs to a named topology")


def _data(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def _short_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


class _Reader:
    """Big-endian fields, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.raw(struct.calcsize(form)))
        return int(value)

    def int32(self) -> int:
        return self.number(">i")

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data):
            raise DecodeError(f"a list of {count} entries in {len(self._data)} bytes")
        return count

    def raw(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise DecodeError(f"a field of {size} bytes is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def data(self) -> str:
        return _decoded(self.raw(self.int32()))

    def short_text(self) -> str:
        return _decoded(self.raw(self.number(">H")))

    def rest(self) -> bytes:
        return self._data[self._at :]


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a text is not UTF-8: {error}") from None
