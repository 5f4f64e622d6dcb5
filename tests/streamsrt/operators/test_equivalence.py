"""One meaning whatever the way: generated or nodes, runs or single records, cached or not, interrupted or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from streamsrt.operators.table import EMITS
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import (
    APPLICATION,
    ENDS,
    GRACE_JOINS,
    STREAM_STEPS,
    TABLE_STEPS,
    Piped,
    Written,
    build,
    commit,
    feed,
    final_rows,
    inputs,
    new_store,
    new_task,
    programs,
)
from topology.graph.nodes import ProcessorNode

Program = tuple[list[str], str, list[str]]
sizes = st.lists(st.integers(1, 20), min_size=1, max_size=3)


def run(program: Program, rows: list[Piped], batches: list[int], *, caching: bool, **config: Any) -> dict[str, Any]:
    steps, end, table_steps = program
    written = Written()
    task = new_task(build(steps, end, table_steps, caching), written, **config)
    feed(task, rows, batches)
    commit(task)
    return {"written": written.topics, "stores": final_rows(task), "counters": task.counters()}


@settings(max_examples=100, deadline=None)
@given(programs, inputs, sizes)
def test_generated_code_equals_processor_nodes_and_record_by_record(
    program: Program, rows: list[Piped], batches: list[int]
) -> None:
    uncached = [
        run(program, rows, batches, caching=False, cache_max_bytes=0),
        run(program, rows, [1], caching=False, cache_max_bytes=0),
        run(program, rows, batches, caching=False, cache_max_bytes=0, generate=False),
    ]
    assert uncached[0] == uncached[1]
    assert uncached[0] == uncached[2]


CHANGE_KEYS = {"FlatMap", "KeyNotNull", "Map", "SelectKey", "GroupTable", "TableAggregate"}
"""Whatever groups behind them reads a repartition topic, and these programs are of one task."""


def test_all_generated_code_is_in_some_program() -> None:
    used = {
        type(node.operation).__name__
        for end in ENDS
        for step in STREAM_STEPS
        for table_step in TABLE_STEPS
        for part in build([step], end, [table_step], False).subtopologies
        for node in part.nodes
        if isinstance(node, ProcessorNode)
    }
    missing = sorted({each.__name__ for each in EMITS} - used - CHANGE_KEYS)
    assert not missing, (
        f"no program of tests/streamsrt/operators/programs.py has {', '.join(missing)}: add a step or an end"
    )


TWO_WINDOWS_OF_ONE_RECORD = [Piped("in", "a", None, 10, ()), Piped("in", "a", None, 4, ())]


def by_key(result: dict[str, Any]) -> dict[str, Any]:
    """The result with the records of each topic by key: a flush keeps the order of one key's records, not that of keys."""
    ordered = {topic: sorted(rows, key=lambda row: row[0] or b"") for topic, rows in result["written"].items()}
    return {**result, "written": ordered}


@settings(max_examples=100, deadline=None)
@given(programs, inputs, sizes)
@example(([], "hopping", []), TWO_WINDOWS_OF_ONE_RECORD, [1])
def test_cached_generated_code_equals_cached_processor_nodes(
    program: Program, rows: list[Piped], batches: list[int]
) -> None:
    generated = run(program, rows, [1], caching=True)
    assert by_key(generated) == by_key(run(program, rows, [1], caching=True, generate=False))
    by_run = run(program, rows, batches, caching=True)
    assert {t: sorted(r, key=repr) for t, r in by_run["written"].items()} == {
        t: sorted(r, key=repr) for t, r in generated["written"].items()
    }
    assert by_run["stores"] == generated["stores"]


@settings(max_examples=100, deadline=None)
@given(programs, inputs, sizes)
def test_caching_changes_how_often_but_not_what(program: Program, rows: list[Piped], batches: list[int]) -> None:
    assume(
        not program[1].startswith("suppress")
    )  # what it sees, and so what it holds back, is how often a table changes
    cached = run(program, rows, batches, caching=True)
    uncached = run(program, rows, batches, caching=False, cache_max_bytes=0)
    for ran in (cached, uncached):
        # What came and went between two flushes is not heard of: a join's row is not made anew for it, with a later time.
        ran["stores"]["joined"] = [row[:3] for row in ran["stores"].get("joined", ())]
    assert cached["stores"] == uncached["stores"]
    last = [{row[0]: row[1] for row in ran["written"].get("out", [])} for ran in (cached, uncached)]
    # A key that came and went between two flushes is not heard of at all.
    assert {k: v for k, v in last[0].items() if v is not None} == {k: v for k, v in last[1].items() if v is not None}


@settings(max_examples=100, deadline=None)
@given(programs, inputs, st.integers(0, 40), st.booleans())
def test_a_task_that_is_restored_from_its_changelogs_goes_on_as_if_nothing_happened(
    program: Program, rows: list[Piped], cut: int, caching: bool
) -> None:
    steps, end, table_steps = program
    topology = build(steps, end, table_steps, caching)
    written, whole = Written(), Written()
    first = new_task(topology, written)
    feed(first, rows[:cut], [7])
    offsets = first.prepare_commit().offsets
    first.post_commit(None)
    specs = topology.subtopologies[0].stores
    second = new_task(topology, written, {spec.name: new_store(spec) for spec in specs})
    for spec in specs:
        restore(second, spec.name, written)
    for (topic, partition), (_, metadata) in offsets.items():
        second.restore_partition_time(topic, partition, metadata)
    feed(second, rows[cut:], [7])
    commit(second)
    through = new_task(topology, whole)
    feed(through, rows[:cut], [7])
    commit(through)
    feed(through, rows[cut:], [7])
    commit(through)
    if end in ("stream_left_join", "stream_outer_join", *GRACE_JOINS):
        # Records that wait are numbered on from those that are still there: see test_join_restarts.
        return
    assert final_rows(second) == final_rows(through)
    assert written.topics == whole.topics


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(("stream_left_join", "stream_outer_join")), inputs, st.integers(0, 40))
def test_records_without_a_match_are_shown_once_whatever_happens_in_between(
    end: str, rows: list[Piped], cut: int
) -> None:
    """After a restart unmatched records may be shown earlier than without it, but they are the same."""
    time = max((row.timestamp for row in rows[:cut]), default=0)
    late = [replace(row, timestamp=time + row.timestamp) for row in rows[cut:]]
    last = max((row.timestamp for row in [*rows[:cut], *late]), default=0) + 1_000
    # The first one shows what was over for itself; what was seen and was still open then is shown by the second one.
    after = [*sorted(late, key=lambda row: row.timestamp), *(Piped("in", "z", "-", last * n, ()) for n in (1, 2))]
    topology = build([], end, [], False)
    written, whole = Written(), Written()
    first, through = new_task(topology, written), new_task(topology, whole)
    for task in (first, through):
        feed(task, rows[:cut], [7])
        commit(task)
    specs = topology.subtopologies[0].stores
    second = new_task(topology, written, {spec.name: new_store(spec) for spec in specs})
    for spec in specs:
        restore(second, spec.name, written)
    for task in (second, through):
        feed(task, after, [7])
        commit(task)
    assert sorted(written.topics.get("rest", []), key=repr) == sorted(whole.topics.get("rest", []), key=repr)
    assert final_rows(second) == final_rows(through)


def restore(task: Any, store: str, written: Written) -> None:
    target = task.restore_target(store)
    assert target == (f"{APPLICATION}-{store}-changelog", 0)
    records = written.topics.get(target[0], [])
    keys, values, timestamps, headers = ([record[i] for record in records] for i in range(4))
    task.restore(store, RecordColumns(keys, values, timestamps, 0, len(records), None, headers))
