"""Whether records belong to the partitions that they came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.dead_letters.placement import PlacesOfKeys, why_not_placed
from streamsrt.wire.murmur2 import partition_for_key

KEYS = [f"key-{number}".encode() for number in range(40)]


@given(st.lists(st.binary(max_size=8)), st.integers(1, 50))
def test_where_nothing_was_added_there_is_no_doubt(keys: list[bytes], partitions: int) -> None:
    found = PlacesOfKeys(partitions)
    for key in keys:
        found.add(key, partition_for_key(key, partitions))
    assert (found.elsewhere, found.former_partitions) == (0, None)


@given(st.lists(st.binary(max_size=8), min_size=1), st.integers(1, 20), st.integers(1, 20))
def test_added_partitions_are_noticed_if_a_key_has_moved(keys: list[bytes], before: int, added: int) -> None:
    found = PlacesOfKeys(before + added)
    for key in keys:
        found.add(key, partition_for_key(key, before))
    moved = sum(partition_for_key(key, before) != partition_for_key(key, before + added) for key in keys)
    assert found.elsewhere == moved
    assert (found.former_partitions is not None) == (moved > 0)


def test_letters_from_before_and_after_are_told_apart() -> None:
    found = PlacesOfKeys(6)
    for number, key in enumerate(KEYS):
        found.add(key, partition_for_key(key, 6 if number % 2 else 2))
    assert found.former_partitions == 2
    assert "orders has 6 partitions, and the keys are placed as if it had 2." in (
        why_not_placed({"orders": found}) or ""
    )


def test_another_partitioner_and_records_without_a_key_or_a_partition_leave_no_doubt() -> None:
    found = PlacesOfKeys(6)
    for key in KEYS:
        found.add(key, (partition_for_key(key, 6) + 1) % 6)
    assert (found.elsewhere, found.former_partitions) == (len(KEYS), None)
    found = PlacesOfKeys(2)
    for key, partition in [(None, 1), (b"a", -1), (b"a", 2)]:
        found.add(key, partition)
    assert why_not_placed({"orders": found}) is None
    assert found.gone == 1


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_topic_with_one_partition_or_none_has_no_other_place(partitions: int) -> None:
    found = PlacesOfKeys(partitions)
    found.add(b"a", 0)
    assert found.former_partitions is None
