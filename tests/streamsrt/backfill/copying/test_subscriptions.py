"""Subscriptions of foreign-key joins, brought to the partitions that the left table has here."""

from __future__ import annotations

import pytest

from streamsrt.backfill.copying.subscriptions import MovedSubscriptions, left_sides
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.plan import CopiedStore
from streamsrt.backfill.repartition.partitioners import Placements
from streamsrt.operators.kinds.foreign_key_joins import ForeignKeySubscription, Instruction, combined_prefix
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.backfill.copying import library

TOPIC = "origin-shelf-subscription-store-changelog"
KEYS = [b"b%d" % number for number in range(20)]
BEFORE, HERE = 3, 2


def brought(key: bytes, value: bytes | None, *, here: int = HERE) -> bytes | None:
    ((spec, left),) = left_sides(library.many)
    assert spec.name == "shelf-subscription-store"
    origin = CopiedStore(topic=TOPIC, ends=(1,), left_partitions=BEFORE)
    found = MovedSubscriptions(spec.name, origin, left, Placements(library.many, "heir"), here)
    return found.of(RecordColumns([key], [value], [5], 0, 1)).values[0]


def row(key: bytes, partition: int | None) -> tuple[bytes, bytes]:
    found = ForeignKeySubscription(b"h" * 16, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, key, partition)
    raw = found.to_bytes()
    return combined_prefix(b"author") + key, raw if partition is not None else b"\0" + raw[1:-4]


def test_the_partition_of_the_left_row_is_that_of_its_key_here() -> None:
    for key in KEYS:
        store_key, value = row(key, partition_for_key(key, BEFORE))
        assert brought(store_key, value) == row(key, partition_for_key(key, HERE))[1]
        assert brought(store_key, None) is None


def test_rows_of_an_old_version_have_no_partition_and_stay_as_they_are() -> None:
    store_key, value = row(b"b1", None)
    assert ForeignKeySubscription.from_bytes(value).partition is None
    assert brought(store_key, value) == value


def test_in_as_many_partitions_it_does_not_matter_what_placed_them() -> None:
    store_key, value = row(b"b1", 1 - partition_for_key(b"b1", BEFORE) % 2)
    assert brought(store_key, value, here=BEFORE) == value


@pytest.mark.parametrize("here", [BEFORE, HERE])
def test_what_is_no_subscription_is_refused(here: int) -> None:
    store_key, value = row(b"b1", partition_for_key(b"b1", BEFORE))
    for key, raw in ((store_key, b""), (b"item-1", value), (store_key + b"1", value), (store_key, value[:9])):
        with pytest.raises(
            BackfillError, match=r"is none of a foreign-key join's subscriptions, as 'shelf-subscr.*=TOPIC"
        ):
            brought(key, raw, here=here)
    with pytest.raises(BackfillError, match="has version 2, and this version of streamsrt knows versions up to 1"):
        brought(store_key, b"\2" + value[1:], here=here)


def test_rows_that_something_unknown_has_placed_stay_in_their_partitions() -> None:
    there = partition_for_key(b"b1", BEFORE)
    store_key, value = row(b"b1", (there + 1) % BEFORE)
    with pytest.raises(BackfillError, match=f"places it in {there}: .* Give the topics of the left table 3 partitions"):
        brought(store_key, value)
