from __future__ import annotations

from math import isnan

import pytest

from streamsrt.sensors import WINDOW_MS, WINDOW_NS, Rates, Spread, Work


def test_a_spread_is_of_the_last_two_windows() -> None:
    spread = Spread()
    assert all(isnan(each) for each in spread.read(1_000_000))
    spread.add(1_000_000, 2, 30, 10, 20)
    spread.one(1_000_000 + WINDOW_MS, 60)
    assert spread.read(1_000_000 + WINDOW_MS) == (30.0, 10, 60)
    spread.one(1_000_000 + WINDOW_MS + 1, 5)
    assert spread.read(1_000_000 + WINDOW_MS + 1) == (95 / 4, 5, 60)
    spread.one(1_000_000 + 2 * WINDOW_MS + 2, 7)
    assert spread.read(1_000_000 + 2 * WINDOW_MS + 2) == (6.0, 5, 7)
    assert (spread.count, spread.total) == (5, 102)


def test_a_spread_of_long_ago_is_nothing() -> None:
    spread = Spread()
    spread.one(0, 3)
    assert spread.read(WINDOW_MS).mean == 3
    assert spread.read(WINDOW_MS + 1).mean == 3
    assert isnan(spread.read(4 * WINDOW_MS).mean)
    spread.one(4 * WINDOW_MS, 8)
    assert spread.read(4 * WINDOW_MS) == (8.0, 8, 8)


def test_work_keeps_its_longest_and_greatest() -> None:
    work = Work()
    work.add(0, 5, 10)
    work.add(0, 3, 12)
    assert (work.longest_ns, work.most_items, work.count, work.items, work.time_ns) == (5, 12, 2, 22, 8)
    work.add(WINDOW_NS, WINDOW_NS + 1, 1)
    assert (work.longest_ns, work.most_items) == (5, 12)
    work.add(2 * WINDOW_NS + 9, 2 * WINDOW_NS + 11, 1)
    assert (work.longest_ns, work.most_items) == (2, 1)


def test_a_rate_is_of_the_time_since_somebody_asked() -> None:
    second = 1_000_000_000
    rates = Rates(0)
    assert rates.of("a", 10, 5 * second) == pytest.approx(2.0)
    assert rates.of("a", 60, 30 * second) == pytest.approx(2.0)
    assert rates.of("a", 90, 60 * second) == pytest.approx(1.0)
    # Over half a minute, though somebody asked a second ago.
    assert rates.of("a", 121, 61 * second) == pytest.approx(61 / 31)


def test_a_total_that_begins_anew_has_the_rate_of_what_it_counts_now() -> None:
    second = 1_000_000_000
    rates = Rates(0)
    rates.of("a", 1000, 40 * second)
    rates.of("a", 2000, 80 * second)
    assert rates.of("a", 30, 90 * second) == pytest.approx(3.0)
    rates.forget(unless={"b"})
    assert rates.of("a", 100, 100 * second) == pytest.approx(1.0)
