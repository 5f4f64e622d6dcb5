from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.log.scan import CHUNK_BYTES, BrokenBatch, Expected, find_whole_batch, scan_batches
from streamsrt.wire.records import HEADER_SIZE_BYTES, encode_batch
from tests.coordinator.log.batches import batch

STRICT = Expected(0, 1 << 40, 0, 0, 0)


def stored(base_offset: int, value: bytes, epoch: int = 0) -> bytes:
    return encode_batch([None], [value], [1000], base_offset=base_offset, partition_leader_epoch=epoch)


def scan(path: Path, content: bytes, expected: Expected = STRICT) -> tuple[list[int], BrokenBatch | None]:
    """The base offsets that were visited, and the fault."""
    path.write_bytes(content)
    visited: list[int] = []
    fd = os.open(path, os.O_RDONLY)
    try:
        fault = scan_batches(
            fd,
            position=0,
            size_bytes=len(content),
            expected=expected,
            visit=lambda header, _: visited.append(header.base_offset),
        )
    finally:
        os.close(fd)
    return visited, fault


@pytest.mark.parametrize(
    "sizes", [[10] * 30, [CHUNK_BYTES - 61, 5, 5], [3 * CHUNK_BYTES, 7, CHUNK_BYTES], [400_000] * 9]
)
def test_batches_of_any_size_are_visited_in_order(tmp_path: Path, sizes: list[int]) -> None:
    content = b"".join(stored(i, b"v" * size) for i, size in enumerate(sizes))
    assert scan(tmp_path / "f", content) == (list(range(len(sizes))), None)


def test_gaps_are_for_compacted_segments_only(tmp_path: Path) -> None:
    content = stored(0, b"a") + stored(5, b"b") + stored(6, b"c")
    visited, fault = scan(tmp_path / "f", content)
    assert visited == [0]
    assert fault is not None
    assert fault.reason == "the batch starts at offset 5, but offset 1 is next"
    assert scan(tmp_path / "f", content, STRICT._replace(contiguous_from=6)) == ([0, 5, 6], None)


def test_a_batch_may_not_reach_into_the_next_segment(tmp_path: Path) -> None:
    visited, fault = scan(tmp_path / "f", stored(0, b"a") + stored(1, b"b"), STRICT._replace(offset_limit=1))
    assert visited == [0]
    assert fault is not None
    assert "ends before 1" in fault.reason


def test_a_leader_epoch_that_was_never_reached_is_a_fault(tmp_path: Path) -> None:
    _, fault = scan(tmp_path / "f", stored(0, b"a", epoch=8), STRICT._replace(leader_epoch_max=7))
    assert fault is not None
    assert "leader epoch 8" in fault.reason


def test_the_crc_is_checked_from_the_offset_given(tmp_path: Path) -> None:
    bad = bytearray(stored(0, b"aaaa"))
    bad[-3] ^= 1
    content = bytes(bad) + stored(1, b"b")
    assert scan(tmp_path / "f", content, STRICT._replace(check_crc_from=1)) == ([0, 1], None)
    assert scan(tmp_path / "f", content)[0] == []


@pytest.mark.parametrize("before", [0, 1, 11, 12, 13, 1000, *range(CHUNK_BYTES - 80, CHUNK_BYTES + 20, 7)])
def test_a_whole_batch_is_found_wherever_it_stands(tmp_path: Path, before: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\0" * before + stored(7, b"needle", epoch=3) + b"\0" * 50)
    fd = os.open(path, os.O_RDONLY)
    size_bytes = path.stat().st_size
    try:
        found = find_whole_batch(fd, position=0, size_bytes=size_bytes, offset_min=5, leader_epochs=[2, 3])
        assert found == 7
        assert find_whole_batch(fd, position=0, size_bytes=size_bytes, offset_min=8, leader_epochs=[3]) is None
        assert find_whole_batch(fd, position=0, size_bytes=size_bytes, offset_min=5, leader_epochs=[0]) is None
        assert find_whole_batch(fd, position=before + 1, size_bytes=size_bytes, offset_min=5, leader_epochs=[3]) is None
    finally:
        os.close(fd)


def test_what_only_looks_like_a_batch_is_not_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    whole = stored(7, b"value")
    near = [whole[:-1], whole[:HEADER_SIZE_BYTES], whole[:12] + b"\0\0\0\0\2" * 40, batch(b"epoch -1")]
    for content in near:
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        try:
            size_bytes = len(content)
            assert find_whole_batch(fd, position=0, size_bytes=size_bytes, offset_min=0, leader_epochs=[0]) is None
        finally:
            os.close(fd)
