"""Slices of a task in files and processes: finished one by one, merged, and computed again where something is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.manifest import TaskManifest, load_manifest, manifest_path
from streamsrt.backfill.plan import BackfillPlan, load_plan, save_plan
from streamsrt.backfill.recompute import _content
from streamsrt.backfill.run_task import run_task
from streamsrt.backfill.slices.share import Slice, WrittenKeys, all_slices, slices_of
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.test_engine_local import SECOND, attempts_in, kept_by, lines, planned
from topology import serdes

ROWS = [lines(220, seed=31), lines(90, seed=32)]


def divided(whole: Backfill, directory: Path, slices: int = 4) -> Backfill:
    """The same plan, with the tasks of the second subtopology in slices."""
    plan = load_plan(whole.directory).model_copy(update={"slices": {SECOND.id: slices}}).sealed()
    save_plan(plan, directory)
    return Backfill(directory)


def results(backfill: Backfill) -> list[object]:
    """What the results are compared by where they are recomputed, and the bytes of changelogs."""
    found: list[object] = []
    for manifest in backfill.verify():
        found += [manifest.task, manifest.records, manifest.carried, manifest.reached]
        found.append(_content(backfill.directory, manifest, last_only=False))
        found += [store.model_copy(update={"bundle": None, "changelog": None}) for store in manifest.stores]
        found += [store.changelog and store.changelog.file.digest for store in manifest.stores]
    return found


def test_a_key_has_one_slice_and_a_record_without_a_key_the_first() -> None:
    keys = [None, *(b"%d" % number for number in range(999))]
    has = [Slice("t", index, 3).has(keys).tolist() for index in range(3)]
    assert [sum(each) for each in zip(*has, strict=True)] == [1] * 1000
    assert has[0][0]
    assert all(280 < sum(each) < 390 for each in has)
    assert [Slice("t", index, 3).has(keys[1:]).tolist() for index in range(3)] == [each[1:] for each in has]


def test_a_key_has_one_slice_however_it_is_written() -> None:
    keys = [b'{"id": 1}', b'{"id":1}', None, b"no JSON"]
    assert WrittenKeys(serdes.json).of(keys) == [b'{"id":1}', b'{"id":1}', None, b"no JSON"]
    assert WrittenKeys(serdes.string).of(keys) is keys


def test_a_plan_without_slices_has_tasks_only(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [lines(5, seed=1)]).directory)
    assert not list(all_slices(plan))
    assert plan.model_copy(update={"slices": {SECOND.id: 2}}).sealed().fingerprint != plan.fingerprint


def test_slices_have_the_result_of_the_whole(tmp_path: Path) -> None:
    whole = planned(tmp_path, ROWS)
    whole.run(InProcess())
    sliced = divided(whole, tmp_path / "sliced")
    finished: list[str] = []
    sliced.run("local", workers=2, on_task=lambda manifest: finished.append(manifest.task))
    assert results(sliced) == results(whole)
    assert sorted(finished) == sorted(task.id for task in load_plan(sliced.directory).tasks)
    assert sum(manifest.counters["dropped_late"] for manifest in sliced.verify()) > 0
    assert {manifest.slices for manifest in sliced.verify()} == {1, 4}
    # Record by record, as a whole.
    assert len(sliced.verify(recompute=9)) == 4
    assert attempts_in(sliced) == kept_by(sliced)
    assert sliced.status().is_computed


class Stopped(InProcess):
    """Stops before the task of that number."""

    def __init__(self, after: int) -> None:
        self._after = after

    def run(self, directory, task_ids, bootstrap_servers=None):  # type: ignore[no-untyped-def]
        yield from super().run(directory, task_ids[: self._after], bootstrap_servers)
        if len(task_ids) > self._after:
            raise RuntimeError("the machine is gone")


def slices_done(backfill: Backfill, plan: BackfillPlan) -> list[str]:
    return [each.id for each in all_slices(plan) if manifest_path(backfill.directory, each.id).exists()]


def test_finished_slices_are_kept_if_a_run_is_killed(tmp_path: Path) -> None:
    whole = planned(tmp_path, ROWS)
    whole.run(InProcess())
    sliced = divided(whole, tmp_path / "sliced")
    plan = load_plan(sliced.directory)
    with pytest.raises(RuntimeError):
        sliced.run(Stopped(2))
    done = slices_done(sliced, plan)
    assert len(done) == 2
    states = {task.task: task.state for task in sliced.status().tasks}
    assert [name for name, state in states.items() if state == "finished" and name in done] == done
    assert len(states) == 2 + 2 * 4
    assert not sliced.status().is_computed
    kept = load_manifest(sliced.directory, plan, done[0])
    assert kept is not None
    damaged = load_manifest(sliced.directory, plan, done[1])
    assert damaged is not None
    path = sliced.directory / next(iter(damaged.files)).path
    path.write_bytes(b"x" + path.read_bytes()[1:])
    said: list[str] = []
    seen: list[str] = []

    class Watched(InProcess):
        def run(self, directory, task_ids, bootstrap_servers=None):  # type: ignore[no-untyped-def]
            seen.extend(task_ids)
            yield from super().run(directory, task_ids, bootstrap_servers)

    sliced.run(Watched(), on_damage=said.append)
    assert done[0] not in seen
    assert done[1] in seen
    assert [bool(re.search(f"task {re.escape(done[1])} is computed again", text)) for text in said] == [True]
    assert results(sliced) == results(whole)
    assert not slices_done(sliced, plan)
    assert attempts_in(sliced) == kept_by(sliced)


def test_slices_that_were_not_merged_when_the_run_was_killed_are_merged_by_the_next(tmp_path: Path) -> None:
    whole = planned(tmp_path, ROWS)
    whole.run(InProcess())
    sliced = divided(whole, tmp_path / "sliced")
    plan = load_plan(sliced.directory)
    with pytest.raises(RuntimeError):
        sliced.run(Stopped(2))
    for task in plan.tasks:
        for each in slices_of(plan, task):
            run_task(sliced.directory, each.id)
    finished: list[TaskManifest] = []
    sliced.run(Stopped(0), on_task=finished.append)
    assert len(finished) == 2
    assert results(sliced) == results(whole)


def test_a_key_in_two_slices_is_an_error(tmp_path: Path) -> None:
    """A serde that writes other bytes each time."""
    sliced = divided(planned(tmp_path, [lines(20, seed=33)]), tmp_path / "sliced", 2)
    plan = load_plan(sliced.directory)
    with pytest.raises(RuntimeError):
        sliced.run(Stopped(0))
    run_task(sliced.directory, plan.tasks[0].id)
    ids = [each.id for each in slices_of(plan, plan.tasks[1])]
    of_slices = [run_task(sliced.directory, name) for name in ids]
    full = next(manifest for manifest in of_slices if manifest.records)
    other = next(manifest for manifest in of_slices if manifest is not full)
    path = manifest_path(sliced.directory, other.task)
    path.write_text(full.model_copy(update={"task": other.task}).model_dump_json())
    with pytest.raises(PlanError, match=r"two slices have rows of one key in store counts.*without --slices"):
        sliced.run(InProcess())
