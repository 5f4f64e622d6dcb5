"""The inputs of the end-to-end benchmark of operators, and what must come out of each."""

from __future__ import annotations

import itertools
import json
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache

from streamsrt.wire.murmur2 import partition_for_key
from tests.bench.peers.data import KEYS, PARTITIONS, T0, Columns, Expected, Message, rows

HOPPING_MS, ADVANCE_MS = 60_000, 15_000
SLIDING_MS = 2_000
GAP_MS = 2_000
CLOSING_MS = 5_000
WITHIN_MS = 200
GRACE_MS = 1_000
RETENTION_MS = 30_000
AS_OF_MS = 10_000
TTL_MS = 5_000
HEAD_BYTES = 20
"""Of each value, so much goes into the result of a join: what tells it from all others."""
WORDS = 5_000
LINE_WORDS = 12

_MASK = (1 << 64) - 1
_SIDES = {
    "stream-table": "table",
    "stream-stream": "stream",
    "table-table": "table",
    "foreign-key": "table",
    "global": "table",
}
_OF_VERSIONS = {"versioned", "grace", "as-of"}
"""What joins with :func:`versions`."""
_EVERY_OUTPUT = {*_OF_VERSIONS, "global", "processor"}
"""What writes a result for each record, which does not depend on commits."""


def foreign_key(value: bytes) -> bytes:
    """The row of the table that a value names."""
    return b"user-%07d" % (int(value[51:56]) % KEYS)


def inputs(workload: str, records: int) -> dict[str, tuple[Columns, ...]]:
    """What is in each input topic, in the order in which the programs take them. The same name means the same content."""
    if workload == "words":
        return {f"lines-{records}": lines(records)}
    if workload in _OF_VERSIONS:
        return {f"spread-{records}": spread(records), f"versions-{records}": versions(records)}
    found = {f"stream-{records}": rows(records)}
    kind = _SIDES.get(workload)
    if kind == "table":
        found["table"] = table_rows()
    elif kind == "stream":
        found[f"other-{records}"] = rows(records, seed=2)
    return found


@cache
def lines(records: int) -> tuple[Columns, ...]:
    """Lines of words of one to seven characters, of which few are frequent; a millisecond apart in each partition."""
    known = [f"{rank * 7919:x}" for rank in range(WORDS)]
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(WORDS)))
    draw = random.Random(3)
    columns: tuple[Columns, ...] = tuple(([], [], []) for _ in range(PARTITIONS))
    for number in range(records):
        keys, values, timestamps = columns[number % PARTITIONS]
        timestamps.append(T0 + len(keys))
        keys.append(b"%d" % number)
        values.append(" ".join(draw.choices(known, cum_weights=weights, k=LINE_WORDS)).encode())
    return columns


@cache
def table_rows() -> tuple[Columns, ...]:
    """One row for each key, from before the stream."""
    columns: tuple[Columns, ...] = tuple(([], [], []) for _ in range(PARTITIONS))
    for number in range(KEYS):
        key = b"user-%07d" % number
        for column, item in zip(
            columns[partition_for_key(key, PARTITIONS)], (key, b"row %012d of %b" % (number, key), T0 - 1), strict=True
        ):
            column.append(item)  # type: ignore[arg-type]
    return columns


@cache
def spread(records: int) -> tuple[Columns, ...]:
    """The stream with its records at even milliseconds."""
    return tuple((keys, values, [2 * time - T0 for time in times]) for keys, values, times in rows(records))


@cache
def versions(records: int) -> tuple[Columns, ...]:
    """Rows for the same keys that change all the time, at odd milliseconds: at no time does the order of topics matter."""
    return tuple((keys, values, [2 * time - T0 + 1 for time in times]) for keys, values, times in rows(records, seed=2))


def _hashed(outputs: Iterable[Message]) -> Expected:
    """How many, and a hash that does not depend on their order."""
    count = total = 0
    for message in outputs:
        count += 1
        total += hash(message)
    return {"outputs": count, "hash": total & _MASK}


def _last(outputs: Iterable[Message]) -> Expected:
    return {key: hash(value) & _MASK for key, value in outputs}


def joined(one: bytes, other: bytes) -> bytes:
    """What the programs make of two values."""
    return one[:HEAD_BYTES] + b"|" + other[:HEAD_BYTES]


# --------------------------------------------------------------------------------------------------- what must come out


@cache
def expected(workload: str, records: int) -> Expected:
    """Counts by word, or by key and window; how many and a hash for joins of streams; last values for joins of tables."""
    if workload == "words":
        texts = itertools.chain.from_iterable(values for _, values, _ in lines(records))
        return Counter(itertools.chain.from_iterable(map(bytes.split, texts)))
    stream = [list(zip(*columns, strict=True)) for columns in rows(records)]
    every = itertools.chain.from_iterable(stream)
    if workload == "hopping":
        first = HOPPING_MS - ADVANCE_MS
        return Counter(
            (key, start)
            for key, _, time in every
            for start in range((time - first) // ADVANCE_MS * ADVANCE_MS, time + 1, ADVANCE_MS)
        )
    if workload == "sliding":
        return _sliding(every)
    if workload == "session":
        return _sessions(every)
    if workload == "suppress":
        found: Counter[object] = Counter()
        for part in stream:
            until = part[-1][2] // CLOSING_MS * CLOSING_MS
            found.update((key, time // CLOSING_MS * CLOSING_MS) for key, _, time in part if time < until)
        return found
    if workload == "stream-stream":
        return _hashed(_pairs(records))
    if workload in _OF_VERSIONS:
        return _hashed(_as_of(workload, records))
    if workload == "processor":
        return _hashed(_numbered(every))
    if workload == "ttl":
        return _unexpired(stream)
    table = {key: value for columns in table_rows() for key, value, _ in zip(*columns, strict=True)}
    if workload == "stream-table":
        return _hashed((key, joined(value, table[key])) for key, value, _ in every)
    if workload == "global":
        return _hashed((key, joined(value, table[foreign_key(value)])) for key, value, _ in every)
    if workload == "table-table":
        return _last((key, joined(value, table[key])) for key, value, _ in every)
    return _last((key, joined(value, table[foreign_key(value)])) for key, value, _ in every)


def _sliding(every: Iterable[tuple[bytes, bytes, int]]) -> Expected:
    """A window that ends at each record, and one that starts right behind it, where that holds others."""
    times: dict[bytes, list[int]] = defaultdict(list)
    for key, _, time in every:
        times[key].append(time)
    found: Expected = {}
    for key, of_key in times.items():
        for time in of_key:
            for start in (time - SLIDING_MS, time + 1):
                held = bisect_right(of_key, start + SLIDING_MS) - bisect_left(of_key, start)
                if held:
                    found[key, start] = held
    return found


def _sessions(every: Iterable[tuple[bytes, bytes, int]]) -> Expected:
    open_ones: dict[bytes, list[int]] = {}
    found: Expected = {}
    for key, _, time in every:
        session = open_ones.get(key)
        if session is not None and time <= session[1] + GAP_MS:
            session[1] = time
            session[2] += 1
            continue
        if session is not None:
            found[key, session[0], session[1]] = session[2]
        open_ones[key] = [time, time, 1]
    for key, (start, end, count) in open_ones.items():
        found[key, start, end] = count
    return found


def _pairs(records: int) -> Iterable[Message]:
    for one, other in zip(rows(records), rows(records, seed=2), strict=True):
        of_key: dict[bytes, tuple[list[int], list[bytes]]] = {}
        for key, value, time in zip(*other, strict=True):
            times, values = of_key.setdefault(key, ([], []))
            times.append(time)
            values.append(value)
        for key, value, time in zip(*one, strict=True):
            times, values = of_key.get(key, ([], []))
            for at in range(bisect_left(times, time - WITHIN_MS), bisect_right(times, time + WITHIN_MS)):
                yield key, joined(value, values[at])


def _as_of(workload: str, records: int) -> Iterable[Message]:
    """Each record with the version that was valid at its time. At the end some wait for the grace period to pass."""
    for stream, table in zip(spread(records), versions(records), strict=True):
        of_key: dict[bytes, tuple[list[int], list[bytes]]] = {}
        for key, value, time in zip(*table, strict=True):
            times, values = of_key.setdefault(key, ([], []))
            times.append(time)
            values.append(value)
        until = max(stream[2]) - (GRACE_MS if workload == "grace" else 0)
        for key, value, time in zip(*stream, strict=True):
            times, values = of_key.get(key, ([], []))
            at = bisect_right(times, time) - 1
            is_near = at >= 0 and (workload != "as-of" or times[at] >= time - AS_OF_MS)
            if is_near and time <= until:
                yield key, joined(value, values[at])


def _numbered(every: Iterable[tuple[bytes, bytes, int]]) -> Iterable[Message]:
    counts: Counter[bytes] = Counter()
    for key, _, _ in every:
        counts[key] += 1
        yield key, counts[key].to_bytes(8, "big")


def _unexpired(stream: list[list[tuple[bytes, bytes, int]]]) -> Expected:
    """Counts since the last time when there was no record of a key for a while."""
    found: Expected = {}
    for part in stream:
        rows_of: dict[bytes, tuple[int, int]] = {}
        for key, _, time in part:
            count, last = rows_of.get(key, (0, time))
            rows_of[key] = (count + 1 if time - last < TTL_MS else 1, time)
        until = part[-1][2] - TTL_MS
        found |= {key: count for key, (count, time) in rows_of.items() if time > until}
    return found


# ------------------------------------------------------------------------------------------------------- what came out


def summarised(peer: str, workload: str, messages: Iterable[list[Message]]) -> tuple[int, Expected]:
    """How many outputs a run wrote, and what :func:`expected` says of them. ``messages``: in the order of each partition."""
    every = list(itertools.chain.from_iterable(messages))
    if workload.startswith("stream-") or workload in _EVERY_OUTPUT:
        return len(every), _hashed(every)
    if workload in ("table-table", "foreign-key"):
        return len(every), _last(every)
    found: Expected = {}
    for key, value in every:
        if peer == "quix":
            _from_quix(found, workload, key, value)
        elif workload in ("words", "ttl"):
            _keep(found, key, value)
        elif workload == "session":
            place = (key[:-16], int.from_bytes(key[-8:], "big"), int.from_bytes(key[-16:-8], "big"))
            _keep(found, place, value)
        else:
            _keep(found, (key[:-8], int.from_bytes(key[-8:], "big")), value)
    if workload == "session" and peer == "quix":
        return len(every), {(*place, end): count for place, (end, count) in found.items()}  # type: ignore
    return len(every), found


def _keep(found: Expected, place: object, value: bytes | None) -> None:
    if value is None:
        found.pop(place, None)
    else:
        found[place] = int.from_bytes(value, "big")


def _from_quix(found: Expected, workload: str, key: bytes, value: bytes) -> None:
    content = json.loads(value)
    place = (key, content["start"])
    # A session's end is behind its last record there.
    found[place] = (content["end"] - 1, content["value"]) if workload == "session" else content["value"]
