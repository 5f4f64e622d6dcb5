"""Rows of windows that expire, and what is read and remembered of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp, expiry  # noqa: E402
from streamsrt.faust.expiry import order_of  # noqa: E402


def counting(interval_s: float = 1.0, **table: Any) -> tuple[faust.App, faust.Table]:
    """Counts by key in windows of ten seconds."""
    app = an_app(table_cleanup_interval=interval_s)
    counts = app.Table("counts", default=int, **table)
    windows = counts.tumbling(10, expires=60)

    @app.agent(app.topic("visits", key_type=str, value_type=int))
    async def count(visits: Any) -> None:
        async for key, number in visits.items():
            windows[key] += number

    return app, counts


def keys(test: TestApp, partition: int = 0) -> list[Any]:
    return sorted((key, start) for key, (start, _) in test.table("counts", partition=partition))  # type: ignore[misc]


def test_a_start_reads_the_first_row_and_the_last_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    app, counts = counting()
    read: list[bytes] = []
    plain = counts._to_key

    def to_key(raw: Any) -> Any:
        read.append(raw)
        return plain(raw)

    monkeypatch.setattr(counts, "_to_key", to_key)
    with TestApp(app) as test:
        for number in range(300):
            test.send("visits", key=f"k{number}", value=1, timestamp=float(number))
        test.driver.restart(clean=False)
        test.send("visits", key="one more", value=1, timestamp=300.0)
        assert len(read) <= 4, "the same whatever there is"
        assert not counts._partition_timestamp_keys
        assert not counts._partition_timestamps
        assert len(keys(test)) == 301


def test_rows_expire_in_pieces_and_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "PIECE_ROWS", 4)
    closed: list[Any] = []

    async def on_close(key: Any, value: Any) -> None:
        closed.append((key[0], value))

    app, _ = counting(on_window_close=on_close)
    with TestApp(app) as test:
        for number in range(10):
            test.send("visits", key=f"k{number}", value=number, timestamp=float(number))
        test.send("visits", key="new", value=1, timestamp=75.0)
        test.driver.advance_wall_clock_time(100)
        test.driver.advance_wall_clock_time(74_900)
        assert [value for _, value in closed] == [0, 1, 2, 3], "the rest has not been looked at yet"
        test.send("visits", key="k0", value=100, timestamp=1.0)
        test.driver.restart(clean=False)
        for _ in range(4):
            test.driver.advance_wall_clock_time(1_000)
        assert sorted(closed[4:]) == [("k0", 100), *((f"k{number}", number) for number in range(4, 10))]
        assert keys(test) == [("new", 70.0)]


def test_a_late_row_expires_though_all_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = counting()
    with TestApp(app) as test:
        test.send("visits", key="a", value=1, timestamp=0.0)
        test.driver.advance_wall_clock_time(75_000)
        assert keys(test) == []
        test.send("visits", key="a", value=1, timestamp=5.0)
        assert keys(test) == [("a", 0.0)]
        test.driver.advance_wall_clock_time(1_000)
        assert keys(test) == []


def test_windows_expire_though_each_start_comes_before_the_interval_is_over() -> None:
    closed: list[Any] = []

    async def on_close(key: Any, value: Any) -> None:
        closed.append((key[0], value))

    app, _ = counting(interval_s=30.0, on_window_close=on_close)
    with TestApp(app) as test:
        test.send("visits", key="a", value=1, timestamp=0.0)
        for _ in range(3):
            test.driver.advance_wall_clock_time(100)
            test.driver.advance_wall_clock_time(24_900)
            assert closed == []
            test.driver.restart(clean=False)
        # No record has come since: the clock alone says that the window is over.
        test.driver.advance_wall_clock_time(100)
        assert closed == [("a", 1)]
        test.send("visits", key="b", value=1, timestamp=0.0)
        test.driver.advance_wall_clock_time(29_000)
        assert keys(test) == [("b", 0.0)], "from then on at the application's interval"
        test.driver.advance_wall_clock_time(1_000)
        assert keys(test) == []


def test_each_partition_has_its_own_first_row() -> None:
    app, _ = counting()
    with TestApp(app, partitions=2) as test:
        test.send("visits", key="a", value=1, timestamp=0.0, partition=0)
        test.send("visits", key="b", value=1, timestamp=30.0, partition=1)
        test.driver.advance_wall_clock_time(75_000)
        assert (keys(test), keys(test, 1)) == ([], [("b", 30.0)])
        test.driver.advance_wall_clock_time(30_000)
        assert keys(test, 1) == []


def test_keys_are_ordered_by_the_ends_of_their_windows() -> None:
    _, counts = counting()
    order = order_of(counts, faust.serializers.codecs.get_codec("json").loads)
    raw = [
        b'["a",[-20.0,-10.1]]',
        b'["z",[-5.0,4.9]]',
        b'["b",[0.0, 9.9]]',
        b'["k]],[1,2]]",[10,19]]',
        b'["a",[1e9,1.0e9]]',
    ]
    assert sorted(reversed(raw), key=order) == raw
    assert order(b'"no window"') == b"\xff" * 8
    assert order(raw[2]) == order(b'["other",[5.0,9.9]]')
