"""The input of the end-to-end benchmarks, and what must come out: the same bytes in every run."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable
from functools import cache

from streamsrt.wire.murmur2 import partition_for_key

PARTITIONS = 4
KEYS = 10_000
WINDOW_MS = 60_000
T0 = 1_700_000_040_000
"""The start of a minute."""

_PAD = b"x" * 60
_MASK = (1 << 64) - 1

Columns = tuple[list[bytes], list[bytes], list[int]]
Expected = dict[object, int]
Message = tuple[bytes, bytes]


def _value(index: int, key: bytes) -> bytes:
    value = b'{"id":"%010d","user":"%b","amount":"%05d","pad":"' % (index, key, index * 7 % 99_991)
    return value + _PAD[: 98 - len(value)] + b'"}'


def frequent_keys(records: int, keys: int = KEYS, seed: int = 1) -> list[tuple[bytes, int]]:
    """Keys with their partitions: few are frequent, many are rare."""
    names = [b"user-%07d" % index for index in range(keys)]
    placed = [(name, partition_for_key(name, PARTITIONS)) for name in names]
    weights = list(itertools.accumulate(1 / (rank + 10) ** 0.7 for rank in range(keys)))
    return random.Random(seed).choices(placed, cum_weights=weights, k=records)


@cache
def rows(records: int, seed: int = 1) -> tuple[Columns, ...]:
    """By partition: :func:`frequent_keys`, values of 100 bytes, timestamps a millisecond apart."""
    columns: tuple[Columns, ...] = tuple(([], [], []) for _ in range(PARTITIONS))
    for index, (key, partition) in enumerate(frequent_keys(records, seed=seed)):
        keys, values, timestamps = columns[partition]
        timestamps.append(T0 + len(keys))
        keys.append(key)
        values.append(_value(index, key))
    return columns


@cache
def expected(workload: str, records: int) -> Expected:
    """W1: how many outputs, and a hash that does not depend on their order. W2, W3: the last value by key (and window)."""
    every = [zip(*columns, strict=True) for columns in rows(records)]
    found: Counter[object] = Counter()
    if workload == "W1":
        for key, value, _ in itertools.chain(*every):
            if not value[16] & 1:
                found["outputs"] += 1
                found["hash"] += hash((key, value.upper()))
        found["hash"] &= _MASK
    elif workload == "W2":
        found.update(key for key, _, _ in itertools.chain(*every))
    else:
        found.update((key, time // WINDOW_MS * WINDOW_MS) for key, _, time in itertools.chain(*every))
    return dict(found)


def summarised(peer: str, workload: str, messages: Iterable[list[Message]]) -> tuple[int, Expected]:
    """How many outputs a run wrote, and what :func:`expected` says of them. ``messages``: in the order of each partition."""
    count = 0
    found: Expected = {"outputs": 0, "hash": 0} if workload == "W1" else {}
    for some in messages:
        count += len(some)
        if workload == "W1":
            found["outputs"] += len(some)
            found["hash"] = (found["hash"] + sum(map(hash, some))) & _MASK
        elif workload == "W2":
            found.update((key, _number(value)) for key, value in some)
        else:
            found.update(_window(peer, key, value) for key, value in some)
    return count, found


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big") if len(value) == 8 else int(value)


def _window(peer: str, key: bytes, value: bytes) -> tuple[tuple[bytes, int], int]:
    if peer == "quix":
        content = json.loads(value)
        return (key, content["start"]), content["value"]
    if peer == "faust":
        name, _, start = key.partition(b"@")
        return (name, int(start)), int(value)
    return (key[:-8], int.from_bytes(key[-8:], "big")), _number(value)


def difference(want: Expected, got: Expected) -> str:
    """What is wrong, in words; nothing where nothing is."""
    if want == got:
        return ""
    if "hash" in want:
        return f"{got['outputs']} outputs, {want['outputs']} expected, hashes {'differ' if want != got else 'agree'}"
    low = sum(got.get(key, 0) < value for key, value in want.items())
    high = sum(got.get(key, 0) > value for key, value in want.items())
    return f"of {len(want)} rows {low} are too low, {high} too high, {len(set(got) - set(want))} unknown"
