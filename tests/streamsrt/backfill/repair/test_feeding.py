"""Which keys of two changelogs of a store count as different."""

from __future__ import annotations

import pytest

from streamsrt.backfill.plan import Compared
from streamsrt.backfill.repair.feeding import unlike

THERE = [(b"a", b"1"), (b"b", b"2"), (b"d", b"4")]
MADE = [(b"b", b"3"), (b"c", b"3"), (b"d", b"4"), (b"e", b"5")]


@pytest.mark.parametrize(
    ("compared", "keys"),
    [("rows", [b"a", b"b", b"c", b"e"]), ("common rows", [b"b"]), ("keys", [b"a", b"c", b"e"])],
)
def test_keys_differ_by_how_a_store_is_compared(compared: Compared, keys: list[bytes]) -> None:
    assert list(unlike(iter(THERE), iter(MADE), compared)) == keys
    assert list(unlike(iter(MADE), iter(THERE), compared)) == keys
    assert not list(unlike(iter(MADE), iter(MADE), compared))
    assert not list(unlike(iter(()), iter(()), compared))
