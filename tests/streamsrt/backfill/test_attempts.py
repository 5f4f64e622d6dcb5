"""Attempts that outlive their driver, and what a later run makes of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from streamsrt.backfill import manifest as manifests_on_disk
from streamsrt.backfill.attempts import DRIVER_FILE, leftovers, new_attempt, remove_leftovers
from streamsrt.backfill.errors import BackfillError, PlanError
from streamsrt.backfill.manifest import TaskManifest, load_manifest, manifest_path, publish
from streamsrt.backfill.order import Inputs
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.run_task import compute_task, run_task
from streamsrt.backfill.sources import read_repartition
from streamsrt.backfill.verify import VerificationError
from streamsrt.client.values import TopicPartition
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.test_engine_local import attempts_in, kept_by, lines, planned
from tests.warm_processes import run_python

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300
PAIRS = 25


@pytest.mark.timeout(900)
@pytest.mark.parametrize("finished", [0, 1])
def test_an_attempt_and_a_run_that_resumes_at_each_step_of_both(tmp_path: Path, finished: int) -> None:
    """Whoever comes first, results are whole, no run fails, and nothing but results is left."""
    backfill = planned(tmp_path / "planned", [lines(20, seed=1)])
    for task in load_plan(backfill.directory).tasks[:finished]:
        run_task(backfill.directory, task.id)
    (tmp_path / "cases").mkdir()
    arguments = [str(backfill.directory), str(tmp_path / "cases"), str(PAIRS)]
    ended = run_python(["-m", "tests.streamsrt.backfill.interleaving", *arguments], cwd=ROOT, timeout_s=800)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.split()[0]) > PAIRS + 10


@contextmanager
def killed_driver(command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BinaryIO]:
    """A run that is killed while its worker is held; what comes of the worker, which ends when it does."""
    for name in ("held", "go"):
        os.mkfifo(folder / name)
    with monkeypatch.context() as patch:
        patch.setenv("HOLD_AT", str(folder))
        driver = subprocess.Popen([sys.executable, *command], cwd=ROOT)
    with open(folder / "held", "rb") as held:
        worker = int(held.readline())
        assert worker != driver.pid
        driver.send_signal(signal.SIGKILL)
        assert driver.wait(TIMEOUT_S) == -signal.SIGKILL
        yield held


@pytest.mark.timeout(TIMEOUT_S)
def test_a_worker_ends_when_its_driver_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = planned(tmp_path, [[*lines(30, seed=2), ("hold", 400)]])
    code = f"from streamsrt.backfill import Backfill; Backfill({str(backfill.directory)!r}).run('local', workers=1)"
    with killed_driver(["-c", code], tmp_path, monkeypatch) as held:
        # It is in the middle of a record, and nobody lets it go.
        assert held.read() == b""
    assert len(attempts_in(backfill)) == 1
    backfill.run(InProcess())
    assert attempts_in(backfill) == kept_by(backfill)


@pytest.mark.timeout(TIMEOUT_S)
def test_a_worker_that_goes_on_after_the_resume_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill = planned(tmp_path, [[*lines(30, seed=3), ("hold", 400)]])
    command = ["-m", "tests.streamsrt.backfill.orphans", str(backfill.directory)]
    with killed_driver(command, tmp_path, monkeypatch) as held:
        manifests = backfill.run(InProcess())
        # What it writes is not deleted under its hands.
        assert len(attempts_in(backfill)) == len(manifests) + 1
        with open(tmp_path / "go", "wb"):
            pass
        assert held.read() == b""
    assert backfill.verify() == manifests
    assert backfill.run(InProcess()) == manifests
    assert attempts_in(backfill) == kept_by(backfill)


def test_an_attempt_that_somebody_works_at_is_no_leftover(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=4)])
    plan = load_plan(backfill.directory)
    task_id = plan.tasks[0].id
    with new_attempt(backfill.directory, task_id) as attempt:
        assert leftovers(backfill.directory, plan) == []
        remove_leftovers(backfill.directory, plan)
        manifest = compute_task(backfill.directory, plan, task_id, attempt)
        with new_attempt(backfill.directory, task_id) as other:
            assert other != attempt
        assert leftovers(backfill.directory, plan) == [other]
        assert publish(backfill.directory, manifest)
    remove_leftovers(backfill.directory, plan)
    assert attempts_in(backfill) == [attempt.name]


def test_a_link_that_is_made_twice_is_no_other_attempt(tmp_path: Path) -> None:
    """As by a file server that has lost its answer."""
    backfill = planned(tmp_path, [lines(20, seed=5)])
    plan = load_plan(backfill.directory)
    task_id = plan.tasks[0].id
    with new_attempt(backfill.directory, task_id) as attempt:
        manifest = compute_task(backfill.directory, plan, task_id, attempt)
        assert publish(backfill.directory, manifest)
        assert publish(backfill.directory, manifest)
        assert attempt.is_dir()
        with new_attempt(backfill.directory, task_id) as other:
            assert not publish(backfill.directory, compute_task(backfill.directory, plan, task_id, other))
            assert not other.exists()
    assert load_manifest(backfill.directory, plan, task_id) == manifest


def test_the_files_of_a_result_are_durable_before_their_manifest_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill = planned(tmp_path, [lines(20, seed=8)])
    plan = load_plan(backfill.directory)
    task_id = plan.tasks[0].id
    durable: list[Path] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        fsync(descriptor)
        durable.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    with new_attempt(backfill.directory, task_id) as attempt:
        manifest = compute_task(backfill.directory, plan, task_id, attempt)
        monkeypatch.setattr(os, "fsync", spy)
        link = os.link
        at_link: list[Path] = []
        monkeypatch.setattr(os, "link", lambda *names: (at_link.extend(durable), link(*names)))
        assert publish(backfill.directory, manifest)
    assert {backfill.directory / file.path for file in manifest.files} | {attempt} <= set(at_link)
    assert durable[-1] == backfill.directory


def test_an_attempt_whose_files_were_taken_away_is_not_published(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=6)])
    plan = load_plan(backfill.directory)
    task_id = plan.tasks[0].id
    with new_attempt(backfill.directory, task_id) as attempt:
        manifest = compute_task(backfill.directory, plan, task_id, attempt)
        (backfill.directory / next(manifest.files).path).unlink()
        with pytest.raises(BackfillError, match="was deleted or changed while task"):
            publish(backfill.directory, manifest)
    assert load_manifest(backfill.directory, plan, task_id) is None


def test_an_attempt_ends_when_another_driver_has_taken_over(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=7)])
    plan = load_plan(backfill.directory)
    run_task(backfill.directory, plan.tasks[0].id)
    task_id = plan.tasks[1].id

    def inputs(order: Sequence[TopicPartition]) -> Inputs:
        (tp,) = order
        return {tp: batches()}

    def batches() -> Iterator[RecordColumns]:
        yield from read_repartition(backfill.directory, plan, plan.tasks[1].repartition[0])
        backfill.run(InProcess())

    with pytest.raises(BackfillError, match=f"has taken over .* this attempt at task {task_id} ends"):
        run_task(backfill.directory, task_id, inputs=inputs)
    backfill.run(InProcess())
    assert attempts_in(backfill) == kept_by(backfill)


def test_a_manifest_names_files_of_its_own_attempt_only(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=8)])
    backfill.run(InProcess())
    plan = load_plan(backfill.directory)
    first, second = (load_manifest(backfill.directory, plan, task.id) for task in plan.tasks)
    assert first is not None
    assert second is not None
    with pytest.raises(ValueError, match="is not a file of"):
        TaskManifest.model_validate({**first.model_dump(), "attempt": second.attempt})


def test_results_that_are_missing_or_damaged_are_computed_again(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(30, seed=9), lines(20, seed=10)])
    manifests = backfill.run(InProcess())
    plan = load_plan(backfill.directory)
    whole, cut, gone, unreadable = manifests
    log = backfill.directory / next(cut.files).path
    log.write_bytes(log.read_bytes()[:-1] + b"!")
    shutil.rmtree(backfill.directory / gone.attempt)
    manifest_path(backfill.directory, unreadable.task).write_text("{")
    with pytest.raises(
        PlanError, match=f"is damaged .*streamsrt backfill resume computes task {unreadable.task} again"
    ):
        backfill.verify()
    said: list[str] = []
    again = backfill.run(InProcess(), on_damage=said.append)
    assert [text.partition(": ")[2] for text in said] == [
        f"task {manifest.task} is computed again" for manifest in (cut, gone, unreadable)
    ]
    assert again[0] == whole
    assert [(each.records, each.counters, [store.changelog_digest for store in each.stores]) for each in again] == [
        (each.records, each.counters, [store.changelog_digest for store in each.stores]) for each in manifests
    ]
    shutil.rmtree(backfill.directory / again[-1].attempt)
    with pytest.raises(VerificationError, match=f"streamsrt backfill resume computes task {plan.tasks[-1].id} again"):
        backfill.verify()
    assert (backfill.directory / DRIVER_FILE).exists()


def test_a_run_reads_finished_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = planned(tmp_path, [lines(30, seed=11), lines(20, seed=12)])
    first, *_, last = load_plan(backfill.directory).tasks
    run_task(backfill.directory, first.id)
    read: list[Path] = []
    digest = manifests_on_disk.file_digest
    monkeypatch.setattr(manifests_on_disk, "file_digest", lambda path: (read.append(path), digest(path))[1])
    found = backfill.run(InProcess())
    assert sorted(read) == sorted(backfill.directory / file.path for manifest in found for file in manifest.files)

    # What was whole before the run may be damaged while it goes on.
    manifest_path(backfill.directory, last.id).unlink()
    damaged = backfill.directory / next(found[0].files).path

    def damage(_task: TaskManifest) -> None:
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")

    with pytest.raises(VerificationError, match=f"{damaged} is missing or damaged"):
        backfill.run(InProcess(), on_task=damage)
