from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire import kernels
from streamsrt.wire.murmur2 import PartitionMemo, murmur2, murmur2_many, partition_for_key

GOLDEN = Path(__file__).parents[2] / "golden" / "partitioning" / "murmur2.json"
ROWS: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
KEYS = [bytes.fromhex(row["key"]) for row in ROWS]


def test_the_hash_is_javas() -> None:
    assert [murmur2(key) for key in KEYS] == [row["murmur2"] for row in ROWS]


def test_the_partition_is_the_java_producers() -> None:
    for key, row in zip(KEYS, ROWS, strict=True):
        assert {count: partition_for_key(key, int(count)) for count in row["partition"]} == row["partition"]


def test_many_keys_at_once_hash_like_one() -> None:
    # Each length often enough to go through numpy, and every remainder of a length by four.
    keys = [
        bytes((index * 7 + size * 3 + byte) % 256 for byte in range(size)) for size in range(40) for index in range(64)
    ]
    assert murmur2_many(keys + KEYS) == {key: murmur2(key) for key in keys + KEYS}


def test_no_keys_hash_to_nothing() -> None:
    assert murmur2_many([]) == {}


@given(st.lists(st.binary(max_size=12), max_size=200))
def test_grouping_by_length_loses_no_key(keys: list[bytes]) -> None:
    assert murmur2_many(keys) == {key: murmur2(key) for key in keys}


@given(
    st.lists(
        st.tuples(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=40), st.integers(1, 3)), max_size=8
    ),
    st.integers(1, 3_000),
)
def test_the_memo_changes_no_answer(batches: list[tuple[list[bytes | None], int]], limit_bytes: int) -> None:
    memo = PartitionMemo(limit_bytes)
    for keys, partition_count in batches:
        expected = [99 if key is None else partition_for_key(key, partition_count) for key in keys]
        assert memo.partitions(keys, partition_count, null_partition=99) == expected
        assert memo.used_bytes <= limit_bytes


@pytest.mark.skipif(kernels.partitions([b"a"], 2, -1) is not None, reason="the loop in C remembers nothing")
@pytest.mark.parametrize(("size", "count"), [(8, 500), (4_000, 60)])
def test_the_memo_takes_no_more_memory_than_it_may(size: int, count: int) -> None:
    """However long keys are, and however many topics there are. ``count`` batches are many times what it may take."""
    limit_bytes = 1 << 20
    memo = PartitionMemo(limit_bytes)

    def feed(batches: range) -> None:
        for batch in batches:
            keys: list[bytes | None] = [b"%08d" % (batch * 200 + index) for index in range(200)]
            memo.partitions([(key or b"").ljust(size, b".") for key in keys], batch % 5 + 2)

    feed(range(10))
    tracemalloc.start()
    try:
        feed(range(10, count))
        held_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1.2 * limit_bytes
    assert peak_bytes < 2 * limit_bytes + 10 * 200 * size


def test_the_memo_follows_a_topic_that_grows() -> None:
    memo = PartitionMemo()
    assert memo.partitions(KEYS, 6) == [row["partition"]["6"] for row in ROWS]
    assert memo.partitions(KEYS, 12) == [row["partition"]["12"] for row in ROWS]


def test_null_keys_get_the_partition_of_this_call() -> None:
    memo = PartitionMemo()
    assert memo.partitions([None, b"a"], 2, null_partition=1) == [1, partition_for_key(b"a", 2)]
    assert memo.partitions([None, b"a"], 2, null_partition=0) == [0, partition_for_key(b"a", 2)]


@pytest.mark.parametrize("count", [0, -3])
def test_a_topic_has_partitions(count: int) -> None:
    with pytest.raises(ValueError, match="at least 1 partition"):
        PartitionMemo().partitions([b"a"], count)


def test_a_memo_holds_something() -> None:
    with pytest.raises(ValueError, match="limit_bytes"):
        PartitionMemo(0)
