"""The loops that a Python runtime could be at best: what operators are measured against, in the same run.

One function per workload, written for it alone: batches in memory -> the Cython codec without any check but the CRC's -> one
loop -> a dictionary of entries over RocksDB, written at each commit -> changelog and outputs encoded. No headers, no user
functions but the program's own, no errors, no timestamps that go back, no restart.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from rocksdict import Rdict, WriteBatch, WriteOptions

from streamsrt.state.rocksdb import RocksDBOptions
from streamsrt.wire.murmur2 import murmur2_many

ENOUGH_RECORDS = 1000
_CRC = Struct(">I")
_LENGTH = Struct(">i")
_HEAD = Struct(">hhih")
_ANSWER = Struct(">ihqqqBBBBiB")
_pack_answer = _LENGTH.pack
_pack8 = Struct(">q").pack
_pack16 = Struct(">qq").pack
_unpack16 = Struct(">qq").unpack

Columns = tuple[list[Any], list[Any], list[int]]
Run = Callable[[], object]


def decode(batch: bytes) -> Columns:
    """Keys, values and timestamps of one batch."""
    if crc32c(memoryview(batch)[21:]) != _CRC.unpack_from(batch, 17)[0]:
        raise ValueError("CRC")
    keys: list[Any] = []
    values: list[Any] = []
    times: list[int] = []
    add_key, add_value, add_time = keys.append, values.append, times.append
    for record in DefaultRecordBatch(batch):
        add_key(record.key)
        add_value(record.value)
        add_time(record.timestamp)
    return keys, values, times


class Out:
    """What is written to one topic, by partition; ``written`` gets each batch."""

    def __init__(self, partitions: int, written: Callable[[bytes], object] = len) -> None:
        self._columns: list[Columns] = [([], [], []) for _ in range(partitions)]
        self._places: dict[bytes, int] = {}
        self._written = written

    def add(self, keys: Sequence[bytes], values: Sequence[bytes], times: Sequence[int]) -> None:
        """Takes records over."""
        columns, places = self._columns, self._places
        if len(columns) == 1:
            for held, more in zip(columns[0], (keys, values, times), strict=True):
                held += more
        else:
            for key, number in murmur2_many(set(keys).difference(places)).items():
                places[key] = (number & 0x7FFFFFFF) % len(columns)
            for key, value, time in zip(keys, values, times, strict=True):
                of_keys, of_values, of_times = columns[places[key]]
                of_keys.append(key)
                of_values.append(value)
                of_times.append(time)
        for each in columns:
            if len(each[0]) >= ENOUGH_RECORDS:
                self._send(each)

    def _send(self, columns: Columns) -> None:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
        append, none = builder.append, []  # type: ignore[var-annotated]
        for index, (key, value, time) in enumerate(zip(*columns, strict=True)):
            append(index, time, key, value, none)
        self._written(bytes(builder.build()))
        for column in columns:
            column.clear()  # type: ignore[attr-defined]

    def flush(self) -> None:
        """Encodes what is left."""
        for columns in self._columns:
            if columns[0]:
                self._send(columns)


class _Entry:
    __slots__ = ("count", "dirty", "key", "start", "time")

    def __init__(self, key: bytes, start: int) -> None:
        self.key = key
        self.start = start
        self.count = self.time = 0
        self.dirty = False


class _Rows(dict[bytes, _Entry]):
    """The entries of one window; those of no window are looked up in the store."""

    def __init__(self, start: int, get: Callable[[bytes], bytes | None] | None) -> None:
        super().__init__()
        self._start = start
        self._get = get

    def __missing__(self, key: bytes) -> _Entry:
        entry = self[key] = _Entry(key, self._start)
        row = None if self._get is None else self._get(key)
        if row is not None:
            entry.time, entry.count = _unpack16(row)
        return entry


class Store:
    """A RocksDB."""

    def __init__(self, path: str) -> None:
        self.db = Rdict(path, RocksDBOptions().for_one_store())
        self._options = WriteOptions()
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]

    def write(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """One batch."""
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in rows:
            put(key, value)
        self.db.write(batch, self._options)

    def close(self) -> None:
        self.db.close()


class Counting:
    """Counts per key, or per key and window."""

    def __init__(self, store: Store, partitions: int, window_ms: int = 0) -> None:
        self._store = store
        self._window_ms = window_ms
        self._rows: dict[int, _Rows] = {}
        self._dirty: list[_Entry] = []
        self._outs = Out(1), Out(partitions)

    def take(self, keys: Sequence[bytes], times: Sequence[int]) -> None:
        """Counts records."""
        window_ms, dirty = self._window_ms, self._dirty
        first, last = times[0], times[-1]
        if not window_ms or first // window_ms == last // window_ms:
            groups: Iterator[tuple[int, Sequence[bytes], Sequence[int]]] = iter(
                ((first - first % window_ms if window_ms else 0, keys, times),)
            )
        else:
            groups = ((time - time % window_ms, (key,), (time,)) for key, time in zip(keys, times, strict=True))
        for start, some, their_times in groups:
            rows = self._rows.get(start)
            if rows is None:
                rows = self._rows[start] = _Rows(start, None if window_ms else self._store.db.get)
            for entry, time in zip(map(rows.__getitem__, some), their_times, strict=True):
                entry.count += 1
                if time > entry.time:
                    entry.time = time
                if not entry.dirty:
                    entry.dirty = True
                    dirty.append(entry)

    def commit(self) -> None:
        """Writes what has changed to the store, the changelog and the output."""
        dirty, self._dirty = self._dirty, []
        dirty.sort(key=attrgetter("start", "key"))
        keys = [entry.key for entry in dirty]
        if self._window_ms:
            suffixes = {start: _pack8(start) for start in self._rows}
            keys = [entry.key + suffixes[entry.start] for entry in dirty]
        values = [_pack8(entry.count) for entry in dirty]
        times = [entry.time for entry in dirty]
        for entry in dirty:
            entry.dirty = False
        self._store.write([(k, _pack16(e.time, e.count)) for k, e in zip(keys, dirty, strict=True)])
        for out in self._outs:
            out.add(keys, values, times)
            out.flush()


def counts(batches: Sequence[bytes], store: Store, commit_records: int, partitions: int, window_ms: int = 0) -> Run:
    """Count per key (and window)."""

    def run() -> None:
        counting = Counting(store, partitions, window_ms)
        since = 0
        for batch in batches:
            keys, _, times = decode(batch)
            counting.take(keys, times)
            since += len(keys)
            if since >= commit_records:
                counting.commit()
                since = 0
        counting.commit()

    return run


def filter_map(batches: Sequence[bytes], partitions: int) -> Run:
    """What the generated code of a filter and a map would be without anything around it."""

    def run(keep: Callable[[Any, Any], bool] = lambda _, v: v[0] != 48, change: Any = lambda v: v.upper()) -> None:
        out = Out(partitions)
        for batch in batches:
            kept: Columns = ([], [], [])
            add_key, add_value, add_time = (column.append for column in kept)  # type: ignore[attr-defined]
            for key, value, time in zip(*decode(batch), strict=True):
                if keep(key, value):
                    add_key(key)
                    add_value(change(value))
                    add_time(time)
            out.add(*kept)
        out.flush()

    return run


def split_words(batches: Sequence[bytes], partitions: int, written: Callable[[bytes], object] = len) -> Run:
    """Lines into words, each its own key."""

    def run() -> None:
        out = Out(partitions, written)
        for batch in batches:
            words: list[bytes] = []
            times: list[int] = []
            _, lines, line_times = decode(batch)
            for line, time in zip(lines, line_times, strict=True):
                found = line.lower().split()
                words += found
                times += [time] * len(found)
            out.add(words, [b"1"] * len(words), times)
        out.flush()

    return run


def word_count(batches: Sequence[bytes], store: Store, commit_records: int) -> Run:
    """Both halves, with the words' topic between them."""

    def run() -> None:
        words: list[bytes] = []
        split_words(batches, 1, words.append)()
        counts(words, store, commit_records * 12, 1)()

    return run


def join(batches: Sequence[bytes], table: Sequence[bytes], store: Store, partitions: int) -> Run:
    """A stream with a table: its rows come first and are written to the store; then each is looked up there once.

    Without a table the store has it, and what was looked up stays known from one run to the next.
    """
    rows: dict[bytes, bytes | None] = {}

    def run() -> None:
        if table:
            rows.clear()
        for batch in table:
            keys, values, times = decode(batch)
            store.write([(k, _pack8(t) + v) for k, v, t in zip(keys, values, times, strict=True)])
        out, joiner = Out(partitions), lambda value, row: value + row
        for batch in batches:
            keys, values, times = decode(batch)
            missing = sorted(set(keys).difference(rows))
            if missing:
                rows.update(zip(missing, [None if row is None else row[8:] for row in store.db[missing]], strict=True))
            joined: Columns = ([], [], [])
            add_key, add_value, add_time = (column.append for column in joined)  # type: ignore[attr-defined]
            for key, value, time, row in zip(keys, values, times, map(rows.get, keys), strict=True):
                if row is not None:
                    add_key(key)
                    add_value(joiner(value, row))
                    add_time(time)
            out.add(*joined)
        out.flush()

    return run


def stream_join(batches: Sequence[tuple[int, bytes]], store: Store, commit_records: int, within_ms: int) -> Run:
    """Two streams within a time of each other, in the order of time: batches come with the number of their side."""

    def run() -> None:
        held: tuple[dict[bytes, deque[tuple[int, bytes]]], ...] = ({}, {})
        out, logs, rows, joiner = Out(1), (Out(1), Out(1)), [], lambda one, other: one + other
        since = 0
        for side, batch in batches:
            keys, values, times = decode(batch)
            own, others = held[side], held[1 - side]
            joined: Columns = ([], [], [])
            for key, value, time in zip(keys, values, times, strict=True):
                own.setdefault(key, deque()).append((time, value))
                near = others.get(key)
                while near and near[0][0] < time - within_ms:
                    near.popleft()
                for _, other in near or ():
                    joined[0].append(key)
                    joined[1].append(joiner(other, value) if side else joiner(value, other))
                    joined[2].append(time)
            stored = [key + _pack8(time) for key, time in zip(keys, times, strict=True)]
            rows += zip(stored, values, strict=True)
            logs[side].add(stored, values, times)
            out.add(*joined)
            since += len(keys)
            if since >= commit_records or batch is batches[-1][1]:
                store.write(sorted(rows))
                rows, since = [], 0
                for each in (*logs, out):
                    each.flush()

    return run


def restore(keys: Sequence[bytes], values: Sequence[bytes], store: Store, batch_records: int) -> Run:
    """A changelog's rows as they come, to the disk."""

    def run() -> None:
        for start in range(0, len(keys), batch_records):
            stop = start + batch_records
            store.write(list(zip(keys[start:stop], values[start:stop], strict=True)))
        store.db.flush()

    return run


def _size(frame: bytes, at: int) -> tuple[int, int]:
    """The length of what follows, which is written with one added, and where that begins."""
    size = shift = 0
    while True:
        byte = frame[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size - 1, at
        shift += 7


def append(
    frames: Sequence[bytes], topics: dict[bytes, int], next_offset: int, answer: Callable[[bytes], object] = len
) -> Run:
    """Produce requests of version 12 with one batch each: read, look whether it is whole, number it, write it, answer.

    ``topics``: their files. Each run writes to the same place, so that what is measured is not how quick the disk is.
    """

    def run() -> None:
        position, offset = 0, next_offset
        for frame in frames:
            api_key, version, correlation_id, client_size = _HEAD.unpack_from(frame)
            if api_key != 0 or version != 12:
                raise ValueError("API")
            _, at = _size(frame, 11 + client_size)  # behind the tags of the header: no transactional id
            _, at = _size(frame, at + 6)
            size, at = _size(frame, at)
            topic = frame[at : at + size]
            _, at = _size(frame, at + size)
            partition = _LENGTH.unpack_from(frame, at)[0]
            size, at = _size(frame, at + 4)
            batch = memoryview(frame)[at : at + size]
            if _LENGTH.unpack_from(batch, 8)[0] + 12 != size or batch[16] != 2:
                raise ValueError("batch")
            if crc32c(batch[21:]) != _CRC.unpack_from(batch, 17)[0]:
                raise ValueError("CRC")
            position += os.pwrite(topics[topic], _pack8(offset) + batch[8:], position)
            head = b"\x00\x02" + bytes((len(topic) + 1,)) + topic + b"\x02"
            body = _pack_answer(correlation_id) + head + _ANSWER.pack(partition, 0, offset, -1, 0, 1, 0, 0, 0, 0, 0)
            answer(_pack_answer(len(body)) + body)
            offset += _LENGTH.unpack_from(batch, 57)[0]

    return run
