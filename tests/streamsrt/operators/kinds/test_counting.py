"""Runs that are counted as a whole give what records give that are counted one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamsrt.operators.kinds import counting
from streamsrt.queries import readers
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.window_cache import WindowCache
from streamsrt.wire import kernels
from streamsrt.wire.kernels import UnreadItems
from streamsrt.wire.records import encode_batch, iter_columns
from tests.streamsrt.operators.programs import Piped, final_rows
from tests.streamsrt.operators.ways import Run
from topology import KStream, Store, StreamsBuilder, Suppressed, TimeWindows, Topology, serdes

NEVER = 1 << 30
pack = Struct(">q").pack

records = st.builds(
    Piped,
    st.just("in"),
    st.sampled_from(("a", "b", "c", "dd", None)),
    st.sampled_from(("x", "y", "", None)),
    st.integers(0, 60),
    st.just(()),
)
runs = st.lists(records, min_size=1, max_size=30)
in_order = runs.map(lambda rows: sorted(rows, key=lambda row: row.timestamp))
with_headers = st.lists(records, min_size=1, max_size=3).map(
    lambda rows: [Piped(row.topic, row.key, row.value, row.timestamp, (("h", b"1"),)) for row in rows]
)
STEPS = ("flush", "commit", "evict", "read", "fold", "restart")
ways = pytest.mark.parametrize("end", ["count", "tumbling", "hopping", "suppressed"])
WINDOWS = {
    "tumbling": TimeWindows(10, grace=5),
    "hopping": TimeWindows(17, 5, grace=3),
    "suppressed": TimeWindows(10, grace=5),
}


@pytest.fixture(autouse=True)
def _even_one_record_is_counted_as_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_WINDOW_RECORDS", 1)


def topology_of(
    end: str, before: Callable[[KStream[Any, Any]], Any] = lambda s: s, *, caching: bool = True
) -> Topology:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = before(builder.stream("in", key=serdes.string, value=serdes.string))
    grouped, store = stream.group_by_key(), Store("agg", key=serdes.string, value=serdes.long, caching=caching)
    if end == "count":
        grouped.count(store=store).to_stream().to("out", key=serdes.string, value=serdes.long)
    else:
        windows = WINDOWS[end]
        table = grouped.windowed_by(windows).count(store=store)
        if end == "suppressed":
            table = table.suppress(Suppressed.until_window_closes())
        table.to_stream().to("out", key=serdes.time_windowed(serdes.string, windows.size_ms), value=serdes.long)
    return builder.build()


def fan_out(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    stream.to("rest", key=serdes.string, value=serdes.string)
    return stream


def cache_of(run: Run) -> Any:
    return run.task.caches["agg"]


def read(run: Run) -> list[Any]:
    """Every row, as queries see it."""
    cache = cache_of(run)
    if isinstance(cache, KeyValueCache):
        rows = [readers.key_row(cache, key) for key in (b"a", b"b", b"c", b"dd")]
        return [rows, list(readers.key_rows(cache, None, None, reverse=False))]
    assert isinstance(cache, WindowCache)
    return [
        [list(readers.windows_of_key(cache, key, 0, 70, reverse=False)) for key in (b"a", b"dd")],
        list(readers.windows_of_key(cache, b"b", 0, 100, reverse=False)),
        list(readers.all_windows(cache, 0, 100, None, None, reverse=True)),
    ]


def outcome(end: str, script: Sequence[Any], short: int, size: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(counting, "SHORT_RUN_RECORDS", short)
    run = Run(topology_of(end))
    seen: list[Any] = []
    for step in script:
        match step:
            case "flush":
                run.task.prepare_commit()
            case "commit":
                run.commit()
            case "evict":
                cache_of(run).evict(0)
            case "read":
                seen.append((read(run), final_rows(run.task), run.task.counters()["processed"]))
            case "fold":
                cache_of(run).settle()
            case "restart":
                run.commit()
                seen.append(run.task.counters())
                run.restart()
            case rows:
                run.feed(rows, [size])
    run.commit()
    # No cache was left in the middle: everything is in the store.
    assert not run.task.commit_needed
    return {**run.outcome(), "seen": seen}


@ways
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(runs | in_order | with_headers | st.sampled_from(STEPS), max_size=12))
@example([[Piped("in", "a", "x", 10, ())], "commit", "evict", [Piped("in", "a", "x", 11, (("h", b"1"),))]])
@example([[Piped("in", "a", "x", 31, ())], [Piped("in", "a", "x", 9, ())], [Piped("in", "b", None, 15, ())]])
@example([[Piped("in", "a", "x", 42, ()), Piped("in", "a", "x", 30, ())], "fold"])
def test_runs_are_counted_as_single_records_are(end: str, script: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counted = outcome(end, script, 1, 30, patch)
        one_by_one = outcome(end, script, NEVER, 1, patch)
    assert counted == one_by_one


@ways
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(in_order | st.sampled_from(("commit", "read")), max_size=8))
def test_rows_are_flushed_in_the_order_of_their_last_changes(end: str, script: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counted = outcome(end, script, 1, 30, patch)
        one_by_one = outcome(end, script, NEVER, 1, patch)
    assert counted == one_by_one


@ways
def test_what_is_counted_as_a_run_makes_no_entries(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SHORT_RUN_RECORDS", 2)
    run = Run(topology_of(end))
    run.feed([Piped("in", "a", "x", 5, ()), Piped("in", "a", "x", 6, ())])
    cache = cache_of(run)
    assert cache.counts
    assert cache.dirty == []
    assert run.task.commit_needed
    run.feed([Piped("in", "a", "x", 7, (("h", b"1"),))])
    assert {entry.value for entry in cache.dirty} == {3}
    assert not cache.counts


@pytest.mark.parametrize("end", ["count", "tumbling"])
def test_what_the_loops_in_c_count_is_not_read(
    end: str, load_native: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "native", load_native(kernels.MODULE))
    run = Run(topology_of(end))
    batch = encode_batch([b"a", b"b"] * 50, [b"x"] * 100, [5] * 100)
    (columns,) = iter_columns(batch, lazily=True)
    run.task.add_batch("in", 0, columns)
    run.task.process(100, 0)
    assert cache_of(run).counts
    assert isinstance(columns.quick_keys, UnreadItems)


def test_a_short_run_is_counted_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SHORT_RUN_RECORDS", 3)
    run = Run(topology_of("count"))
    run.feed([Piped("in", "a", "x", 5, ()), Piped("in", "a", "x", 6, ())])
    assert [entry.value for entry in cache_of(run).dirty] == [2]


@pytest.mark.parametrize("before", [fan_out, lambda stream: stream.filter(lambda key, value: True)])
def test_only_a_source_that_feeds_nothing_but_the_count_is_counted_so(before: Any) -> None:
    run = Run(topology_of("count", before))
    run.feed([Piped("in", "a", "x", 5, ())] * 100, [100])
    assert cache_of(run).counts is None
    assert [entry.value for entry in cache_of(run).dirty] == [100]


def test_a_store_that_is_not_cached_is_not_counted_so() -> None:
    run = Run(topology_of("count", caching=False))
    run.feed([Piped("in", "a", "x", 5, ())] * 100, [100])
    assert cache_of(run).counts is None


def test_what_is_counted_between_the_halves_of_a_commit_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SHORT_RUN_RECORDS", 1)
    run = Run(topology_of("tumbling"))
    run.feed([Piped("in", "a", "x", 5, ())])
    run.task.prepare_commit()
    run.feed([Piped("in", "a", "x", 6, ()), Piped("in", "b", "x", 10_000_000, ())], [1])
    run.task.post_commit(None)
    run.commit()
    logged = [(row[1], row[2]) for row in run.written.topics["app-agg-changelog"]]
    assert logged == [(pack(1), 5), (pack(2), 6), (pack(1), 10_000_000)]


def test_counted_rows_are_among_what_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SHORT_RUN_RECORDS", 1)
    sizes = []
    for end in ("count", "tumbling"):
        run = Run(topology_of(end))
        run.feed([Piped("in", key, "x", 5, ()) for key in "abcd"], [4])
        sizes.append(cache_of(run).size_bytes())
        run.commit()
        cache_of(run).evict(0)
        cache_of(run).evict(0)
        assert cache_of(run).size_bytes() == 0
    assert min(sizes) > 4 * 200
