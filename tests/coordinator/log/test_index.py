from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from coordinator.log.index import SegmentIndex

BASE = 1 << 40
Batches = list[tuple[int, int, int]]  # record count, size in bytes, largest timestamp
BATCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 9000), st.integers(-1, 40)), max_size=60)


def indexed(batches: Batches, interval_bytes: int = 4096) -> SegmentIndex:
    index = SegmentIndex(BASE, interval_bytes)
    offset = BASE
    for count, size_bytes, timestamp_ms in batches:
        index.add(offset, offset + count, size_bytes, timestamp_ms)
        offset += count
    return index


def layout(batches: Batches) -> list[tuple[int, int, int]]:
    """(position, base offset, largest timestamp) of each batch."""
    found, position, offset = [], 0, BASE
    for count, size_bytes, timestamp_ms in batches:
        found.append((position, offset, timestamp_ms))
        position, offset = position + size_bytes, offset + count
    return found


@given(BATCHES)
def test_a_lookup_lands_at_most_one_interval_before_the_batch(batches: Batches) -> None:
    index = indexed(batches)
    positions = layout(batches)
    for i, (position, offset, _) in enumerate(positions):
        found = index.position_before(offset)
        assert found <= position
        assert found in [p for p, _, _ in positions[: i + 1]]
        assert position - found < 4096 + 9000


@given(BATCHES, st.integers(0, 41))
def test_a_timestamp_lookup_never_passes_the_first_batch_that_has_it(batches: Batches, target_ms: int) -> None:
    index = indexed(batches)
    positions = layout(batches)
    first = next((position for position, _, timestamp_ms in positions if timestamp_ms >= target_ms), None)
    found = index.position_before_timestamp(target_ms)
    if first is not None:
        assert found <= first
    else:
        assert index.max_timestamp < target_ms
    assert index.max_timestamp == max((timestamp_ms for _, _, timestamp_ms in positions), default=-1)


@given(BATCHES, st.integers(0, 600_000))
def test_boundaries_are_starts_of_batches(batches: Batches, position: int) -> None:
    found, offset = indexed(batches).boundary_at_or_before(position)
    assert found <= position
    assert (found, offset) in [(p, o) for p, o, _ in layout(batches)] or (found, offset) == (0, BASE)


def test_a_file_describes_the_segment_or_nothing(tmp_path: Path) -> None:
    batches = [(1, 3000, i) for i in range(20)]
    index = indexed(batches)
    path = tmp_path / "i.index"
    index.save(path)
    loaded = SegmentIndex.load(path, BASE, 4096, 60_000)
    assert loaded is not None
    assert (loaded.covered_bytes, loaded.next_offset, len(loaded)) == (60_000, BASE + 20, len(index))
    assert [loaded.position_before(BASE + i) for i in range(20)] == [index.position_before(BASE + i) for i in range(20)]
    assert (loaded.max_timestamp, loaded.max_timestamp_offset) == (19, BASE + 19)
    assert SegmentIndex.load(path, BASE + 1, 4096, 60_000) is None, "of another segment"
    assert SegmentIndex.load(path, BASE, 4096, 59_999) is None, "of more than there is"
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        assert SegmentIndex.load(path, BASE, 4096, 60_000) is None
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 16]) + content[position + 1 :])
        assert SegmentIndex.load(path, BASE, 4096, 60_000) is None
    path.unlink()
    assert SegmentIndex.load(path, BASE, 4096, 60_000) is None


def test_a_loaded_index_goes_on_as_the_one_that_was_saved(tmp_path: Path) -> None:
    index = indexed([(1, 1000, 1)] * 7)
    index.save(tmp_path / "i.index")
    loaded = SegmentIndex.load(tmp_path / "i.index", BASE, 4096, 7000)
    assert loaded is not None
    for one in (index, loaded):
        for i in range(20):
            one.add(BASE + 7 + i, BASE + 8 + i, 1000, i)
    assert len(loaded) == len(index)
    assert loaded.boundary_at_or_before(20_000) == index.boundary_at_or_before(20_000)
