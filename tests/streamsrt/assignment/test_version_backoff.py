"""A new version whose members go again and again waits longer each time."""

from __future__ import annotations

from streamsrt.assignment.version_backoff import FORGOTTEN_AFTER_MS, Setbacks, after_setback


def after(*times_ms: int, epoch: int = 1) -> Setbacks:
    known = None
    for at_ms in times_ms:
        known = after_setback(known, epoch, at_ms)
    assert known is not None
    return known


def test_the_pause_grows_from_the_second_one_on() -> None:
    assert [after(*range(n)).pause_ms for n in range(1, 6)] == [0, 15_000, 30_000, 60_000, 120_000]
    assert after(*range(40)).pause_ms == 600_000


def test_it_lasts_from_the_last_one_on_for_that_version() -> None:
    twice = after(0, 1_000)
    assert twice.is_paused(1, 15_999)
    assert not twice.is_paused(1, 16_000)
    assert not twice.is_paused(2, 1_000)
    assert "epoch 1 left 2 times" in str(twice)
    assert "for 15 s" in str(twice)


def test_another_version_begins_anew_and_so_does_one_that_fared_well() -> None:
    twice = after(0, 1_000)
    assert after_setback(twice, 2, 2_000).count == 1
    assert after_setback(twice, 1, 16_000 + FORGOTTEN_AFTER_MS).count == 1
    assert after_setback(twice, 1, 15_999 + FORGOTTEN_AFTER_MS).count == 3
