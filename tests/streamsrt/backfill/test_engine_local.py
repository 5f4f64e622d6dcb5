"""Tasks in processes: levels, deaths, failures, resumption. Archives only: no cluster is needed to compute."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from streamsrt.application import imported_digests, module_digest
from streamsrt.backfill import Backfill
from streamsrt.backfill.archive import scan_archive, write_archive
from streamsrt.backfill.engine_local import LocalEngine, TaskFailedError
from streamsrt.backfill.errors import BackfillError, PlanError, WorkerDiedError
from streamsrt.backfill.manifest import load_manifest, manifest_path
from streamsrt.backfill.order import merge
from streamsrt.backfill.plan import (
    BackfillPlan,
    InternalTopicPlan,
    RepartitionRange,
    SourceRange,
    StorePlan,
    TaskPlan,
    load_plan,
    save_plan,
)
from streamsrt.backfill.run_task import run_task
from streamsrt.backfill.sources import read_batches, read_source
from streamsrt.backfill.task_state import TaskStores
from streamsrt.backfill.verify import VerificationError, verify_results
from streamsrt.cli.entry import run_command_line
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.store import BytesStore
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import RecordColumns, encode_batch
from tests.streamsrt.backfill import chained
from tests.streamsrt.backfill.processes import InProcess
from topology import serdes

APPLICATION = "tests.streamsrt.backfill.chained:topology"
ID = "chained"
PARTITIONS = 2
FIRST, SECOND = sorted(chained.topology.subtopologies, key=lambda each: each.number)
REPARTITION = f"{ID}-{FIRST.repartition_sink_topics[0]}"

Line = tuple[str, int]


def lines(count: int, seed: int) -> list[Line]:
    chance = random.Random(seed)
    return [(chance.choice("abc") + "x", 10 * index + chance.randrange(300)) for index in range(count)]


def planned(folder: Path, parts: Sequence[Sequence[Line]], program: ModuleType = chained) -> Backfill:
    """A plan over archives of these partitions, made without a cluster. ``program``: one with the subtopologies, topics and
    stores of the first one."""
    first, second = sorted(program.topology.subtopologies, key=lambda each: each.number)
    application = f"{program.__name__}:topology"
    repartition = f"{ID}-{first.repartition_sink_topics[0]}"
    ranges = []
    for partition, rows in enumerate(parts):
        values: list[bytes | None] = [line.encode() for line, _ in rows]
        columns = RecordColumns([b"k"] * len(rows), values, [time for _, time in rows], 0, len(rows))
        write_archive(folder / "archive", partition, [columns], file_records=40)
    files = scan_archive(folder / "archive")
    for partition, rows in enumerate(parts):
        end = len(rows)
        ranges.append(
            SourceRange(
                topic="lines", partition=partition, start=0, end=end, log_start=end, archive=files.get(partition, ())
            )
        )
    upstream = tuple(f"{first.id}_{partition}" for partition in range(len(parts)))
    stores = (StorePlan(name="counts", changelog=f"{ID}-counts-changelog", own_changelog=True, persistent=True),)
    tasks = [
        TaskPlan(id=upstream[index], subtopology=first.id, partition=index, level=0, sources=(source,))
        for index, source in enumerate(ranges)
    ]
    tasks += [
        TaskPlan(
            id=f"{second.id}_{index}",
            subtopology=second.id,
            partition=index,
            level=1,
            repartition=(RepartitionRange(topic=repartition, partition=index, upstream=upstream),),
            stores=stores,
        )
        for index in range(len(parts))
    ]
    plan = BackfillPlan(
        application=application,
        application_id=ID,
        code_digest=module_digest(application),
        version="",
        topology_digest=program.topology.digest,
        topics={
            "lines": len(parts),
            "counts": len(parts),
            repartition: len(parts),
            f"{ID}-counts-changelog": len(parts),
        },
        internal_topics=(
            InternalTopicPlan(name=repartition, kind="repartition", partitions=len(parts)),
            InternalTopicPlan(name=f"{ID}-counts-changelog", kind="changelog", partitions=len(parts)),
        ),
        tasks=tuple(tasks),
        created_ms=1,
    ).sealed()
    save_plan(plan, folder / "plan")
    return Backfill(folder / "plan")


def counts(backfill: Backfill) -> dict[bytes, int]:
    """The last count of each key and window, out of the changelogs."""
    found: dict[bytes, int] = {}
    for manifest in backfill.verify():
        for store in manifest.stores:
            assert store.changelog is not None
            for columns in read_batches(backfill.directory / store.changelog.file.path):
                for key, value in zip(columns.keys, columns.values, strict=True):
                    assert key is not None
                    assert key not in found
                    found[key] = serdes.long.deserialize(value or b"")
    return found


def expected(rows: Sequence[Line]) -> dict[bytes, int]:
    """What the test driver makes of these lines, in this order."""
    with TopologyTestDriver(chained.topology, {"application.id": ID}) as driver:
        topic = driver.create_input_topic("lines", serdes.string, serdes.string)
        for line, time in rows:
            topic.pipe_input("k", line, time)
        out = driver.create_output_topic("counts", serdes.bytes, serdes.long)
        latest = out.read_key_values_to_map()
    return {key + b"\0\0\0\0": value for key, value in latest.items() if key is not None and value is not None}


def test_one_partition_through_a_repartition_topic_is_the_live_result(tmp_path: Path) -> None:
    rows = lines(150, seed=1)
    backfill = planned(tmp_path, [rows])
    backfill.run(InProcess())
    assert counts(backfill) == expected(rows)
    late = sum(manifest.counters["dropped_late"] for manifest in backfill.verify())
    assert late > 0


def test_state_is_on_disk_while_a_task_runs_and_gone_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    open_store = TaskStores.open

    def looking(state: TaskStores, name: str) -> BytesStore:
        store = open_store(state, name)
        seen.append(isinstance(store, RocksDBStore) and (store.path / "CURRENT").exists())
        return store

    monkeypatch.setattr(TaskStores, "open", looking)
    backfill = planned(tmp_path, [lines(30, seed=15)])
    manifests = backfill.run(InProcess())
    # The store, and the last values of its changelog.
    assert seen == [True, True]
    assert all(manifest.peak_memory_bytes > 1 << 20 for manifest in manifests)
    left = {path.name for path in (backfill.directory / "attempts").glob("*/*")}
    assert {"counts.sst", "counts.changelog"} <= left
    assert "state" not in left


def test_results_are_read_a_batch_at_a_time(tmp_path: Path) -> None:
    batches = [encode_batch([b"k"] * 3, [b"%d" % n] * 3, [n] * 3) for n in range(4)]
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(batches))
    assert [(columns.base_offset, columns.values) for columns in read_batches(path)] == [
        (3 * n, [b"%d" % n] * 3) for n in range(4)
    ]
    tracemalloc.start()
    try:
        path.write_bytes(encode_batch([b"k"], [b"x" * 1_000_000], [0]) * 8)
        tracemalloc.reset_peak()
        assert sum(1 for _ in read_batches(path)) == 8
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_several_partitions_give_the_result_of_the_merged_order(tmp_path: Path) -> None:
    parts = [lines(90, seed=2), lines(70, seed=3)]
    backfill = planned(tmp_path, parts)
    manifests = backfill.run("local", workers=2)
    assert [manifest.task for manifest in manifests] == [task.id for task in load_plan(backfill.directory).tasks]
    assert sum(manifest.records for manifest in manifests) == 2 * (90 + 70)
    again = planned(tmp_path / "again", parts)
    again.run(InProcess())
    assert counts(again) == counts(backfill)


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "die"
    marker.write_text("")
    monkeypatch.setenv("DIE_ON", str(marker))
    rows = [*lines(50, seed=4), ("die", 600)]
    backfill = planned(tmp_path, [rows])
    backfill.run(LocalEngine(1))
    assert not marker.exists()
    assert sum(counts(backfill).values()) > 0
    # What the killed worker has left is gone.
    assert attempts_in(backfill) == kept_by(backfill)
    # A run that is killed as a whole leaves how far it was, too.
    left = backfill.directory / f"progress-{FIRST.id}_0.json"
    left.write_text("{}")
    found = backfill.verify()
    assert backfill.run(LocalEngine(1)) == found
    assert not left.exists()


def attempts_in(backfill: Backfill) -> list[str]:
    return sorted(path.name for path in (backfill.directory / "attempts").iterdir())


def kept_by(backfill: Backfill) -> list[str]:
    return sorted(Path(manifest.attempt).name for manifest in backfill.verify())


def test_a_task_that_kills_every_worker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "die"
    marker.write_text("always")
    monkeypatch.setenv("DIE_ON", str(marker))
    backfill = planned(tmp_path, [[("die", 1)]])
    with pytest.raises(WorkerDiedError, match="died 3 times") as died:
        backfill.run(LocalEngine(1))
    assert died.value.exit_code == 1
    marker.unlink()
    assert len(backfill.run(LocalEngine(1))) == 2


def test_a_failing_record_ends_the_run_and_what_is_finished_stays(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=5), [("fail", 1)]])
    with pytest.raises(TaskFailedError, match="this record fails") as failed:
        backfill.run(LocalEngine(1))
    assert failed.value.exit_code == 5
    assert f"{FIRST.id}_1" in str(failed.value)
    states = {task.task: task.state for task in backfill.status().tasks}
    assert states[f"{FIRST.id}_0"] == "finished"
    assert states[f"{SECOND.id}_0"] == "waiting"
    with pytest.raises(PlanError, match="is not finished"):
        backfill.verify()


def test_the_first_result_counts_and_a_finished_task_is_not_run_again(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(30, seed=6)])
    plan = load_plan(backfill.directory)
    first = run_task(backfill.directory, plan.tasks[0].id)
    assert run_task(backfill.directory, plan.tasks[0].id) == first
    path = manifest_path(backfill.directory, first.task)
    kept = path.read_bytes()
    path.unlink()
    second = run_task(backfill.directory, plan.tasks[0].id)
    assert second.attempt != first.attempt
    assert [log.file.digest for log in second.repartition] == [log.file.digest for log in first.repartition]
    path.write_bytes(kept)
    assert load_manifest(backfill.directory, plan, first.task) == first


def test_records_that_an_engine_brings_in_order_give_the_same(tmp_path: Path) -> None:
    parts = [lines(60, seed=7)]
    usual, brought = planned(tmp_path / "a", parts), planned(tmp_path / "b", parts)
    usual.run(InProcess())
    plan = load_plan(brought.directory)
    source = plan.tasks[0].sources[0]
    run_task(brought.directory, plan.tasks[0].id, runs=merge({source.topic_partition: read_source(source, None)}))
    brought.run(InProcess())
    assert counts(usual) == counts(brought)


def test_a_plan_of_another_program_is_refused(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=8)])
    plan = load_plan(backfill.directory)
    for change, says in (({"topology_digest": "0"}, "another topology"), ({"code_digest": "0"}, "was changed since")):
        other = tmp_path / says.replace(" ", "-")
        save_plan(plan.model_copy(update=change).sealed(), other)
        with pytest.raises(PlanError, match=says) as refused:
            run_task(other, plan.tasks[0].id)
        assert refused.value.exit_code == 2


def test_another_program_under_the_name_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load_plan(planned(tmp_path / "planned", [lines(5, seed=8)]).directory)
    (tmp_path / "program_that_came_later.py").write_text("raise SystemExit('it was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    other = tmp_path / "other"
    save_plan(plan.model_copy(update={"application": "program_that_came_later:topology"}).sealed(), other)
    with pytest.raises(PlanError, match="was changed since"):
        run_task(other, plan.tasks[0].id)
    with pytest.raises(SystemExit) as ended:
        run_command_line(["backfill", "resume", "--dir", str(other), "--workers", "1"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "the source of program_that_came_later:topology was changed since" in said
    assert "it was run" not in said


def test_a_module_that_the_application_imports_is_part_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found before it runs, by whoever runs the tasks, and by who hands them over."""
    monkeypatch.syspath_prepend(str(tmp_path))
    rules = tmp_path / "rules_of_chained.py"
    rules.write_text("RATE = 1", encoding="ascii")
    (tmp_path / "ruled.py").write_text(
        f"import {rules.stem}\nfrom {chained.__name__} import topology", encoding="ascii"
    )
    backfill = planned(tmp_path, [lines(20, 1)])
    plan = load_plan(backfill.directory)
    assert plan.fingerprint == plan.computed_fingerprint()
    application = "ruled:topology"
    digests = {"code_digest": module_digest(application), "module_digests": imported_digests(application)}
    assert rules.stem in digests["module_digests"]
    ruled = plan.model_copy(update={"application": application, **digests}).sealed()
    assert ruled.fingerprint != ruled.model_copy(update={"module_digests": {}}).computed_fingerprint()
    save_plan(ruled, tmp_path / "ruled")
    rules.write_text("RATE = 2", encoding="ascii")
    with pytest.raises(TaskFailedError, match="rules_of_chained, which ruled:topology imports, differs from what plan"):
        Backfill(tmp_path / "ruled").run(LocalEngine(1))
    rules.write_text("RATE = 1", encoding="ascii")
    assert Backfill(tmp_path / "ruled").run(LocalEngine(1))


def test_a_plan_without_imported_modules_has_the_fingerprint_that_it_had(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [lines(20, 1)]).directory)
    names = {"created_ms", "clock_ms", "cluster_id", "bootstrap_servers", "warnings", "fingerprint"}
    names |= {"module_digests", "repair", "topic_ids", "copied", "slices", "global_tables", "outline"}
    content = json.dumps(plan.model_dump(mode="json", exclude=names), sort_keys=True, separators=(",", ":"))
    assert plan.fingerprint == sha256(content.encode()).hexdigest()


def test_another_plan_does_not_go_into_the_same_directory(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=9)])
    plan = load_plan(backfill.directory)
    save_plan(plan, backfill.directory)
    with pytest.raises(PlanError, match="holds another plan"):
        save_plan(plan.model_copy(update={"application_id": "other"}).sealed(), backfill.directory)


def test_a_plan_that_was_edited_is_refused(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=10)])
    path = backfill.directory / "plan.json"
    content = json.loads(path.read_text())
    content["tasks"][0]["sources"][0]["end"] = 3
    path.write_text(json.dumps(content))
    with pytest.raises(PlanError, match="was changed since it was made"):
        load_plan(backfill.directory)
    path.write_text("{")
    with pytest.raises(PlanError, match="not a plan"):
        load_plan(backfill.directory)
    path.unlink()
    with pytest.raises(PlanError, match="there is no plan"):
        load_plan(backfill.directory)


def test_a_manifest_of_another_plan_counts_for_nothing(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=11)])
    plan = load_plan(backfill.directory)
    manifest = run_task(backfill.directory, plan.tasks[0].id)
    path = manifest_path(backfill.directory, manifest.task)
    path.write_text(manifest.model_copy(update={"fingerprint": "0"}).model_dump_json())
    with pytest.raises(PlanError, match="belongs to another plan"):
        backfill.run(InProcess())


@pytest.mark.parametrize(
    ("before", "after"),
    [('"end": 5', '"end": 7'), ('"partition": 0', '"partition": 1'), ('"digest": "', '"digest": "0')],
)
def test_a_manifest_with_other_numbers_is_damaged(tmp_path: Path, before: str, after: str) -> None:
    backfill = planned(tmp_path, [lines(5, seed=11)])
    plan = load_plan(backfill.directory)
    first = run_task(backfill.directory, plan.tasks[0].id)
    path = manifest_path(backfill.directory, first.task)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(PlanError, match=r"is damaged .it does not have its digest.* computes task .* again"):
        load_manifest(backfill.directory, plan, first.task)
    said: list[str] = []
    backfill.run(InProcess(), on_damage=said.append)
    assert len(said) == 1
    assert load_manifest(backfill.directory, plan, first.task) is not None


def test_a_task_that_read_too_little_is_not_whole(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=12)])
    backfill.run(InProcess())
    plan = load_plan(backfill.directory)
    path = manifest_path(backfill.directory, plan.tasks[0].id)
    manifest = load_manifest(backfill.directory, plan, plan.tasks[0].id)
    assert manifest is not None
    reads = tuple(read.model_copy(update={"records": read.records - 1}) for read in manifest.reads)
    path.write_text(manifest.model_copy(update={"reads": reads}).model_dump_json())
    with pytest.raises(VerificationError, match="read 4 records"):
        verify_results(backfill.directory, plan)


def test_a_program_needs_no_guard_around_its_main_part(tmp_path: Path) -> None:
    """As it stands in the package's docstring."""
    backfill = planned(tmp_path, [lines(5, seed=14)])
    script = tmp_path / "script.py"
    script.write_text(
        f"from streamsrt.backfill import Backfill\n"
        f"print(len(Backfill({str(backfill.directory)!r}).run(engine='local', workers=2)), 'tasks')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, env=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 tasks\n", "")


def test_an_engine_that_does_not_exist_is_named(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=13)])
    with pytest.raises(BackfillError, match="no such engine"):
        backfill.run("flink")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        LocalEngine(0)


def test_ctrl_c_reaches_no_worker(tmp_path: Path) -> None:
    """It would print a traceback, in the middle of an import or of a task."""
    program = """
import os, signal, sys
from streamsrt.backfill.engine_local import _start, _stop
signal.signal(signal.SIGINT, lambda *_: None)
worker = _start()
os.killpg(0, signal.SIGINT)
worker.connection.send((sys.argv[1], "none", None))
print(type(worker.connection.recv()).__name__)
_stop([worker])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("TaskFailure\n", "")
