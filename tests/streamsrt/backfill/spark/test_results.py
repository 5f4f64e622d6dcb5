"""Results that come through Spark: the same, byte for byte, as those that workers write into the plan's directory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamsrt.backfill.engine_local import TaskFailedError, TaskFailure
from streamsrt.backfill.errors import ArchiveError, BackfillError
from streamsrt.backfill.local_copies import copies_in, copy_path, found_at
from streamsrt.backfill.manifest import (
    FileResult,
    LogResult,
    TaskManifest,
    file_digest,
    finished_manifest,
    load_manifest,
)
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.spark import inputs
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.results import (
    CHUNK_BYTES,
    COMPUTED_MAX,
    PARTITIONS,
    ResultLayout,
    ResultRow,
    ResultsTaken,
    failure_row,
    result_rows,
)
from streamsrt.backfill.spark.runs import INPUTS_OF_LAKES_BYTES, check_inputs
from tests.streamsrt.backfill import test_earlier_backfill as earlier
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.spark.test_engine import results
from tests.streamsrt.backfill.spark.test_lake import lake_plan
from tests.streamsrt.backfill.test_engine_local import FIRST, attempts_in, counts, kept_by, lines, planned

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

TASK = "0_0"


@dataclass(frozen=True)
class Kept:
    """A row as Spark has it."""

    part: int
    task: str
    attempt: str
    path: str | None
    at: int
    content: bytes
    failure: str | None


def kept(batches: Iterator[pyarrow.RecordBatch]) -> list[Kept]:
    return [Kept(**row) for batch in batches for row in batch.to_pylist()]


def computed(folder: Path, fingerprint: str, attempt: str, sizes: dict[str, int]) -> list[Kept]:
    """The rows of a result whose files have these sizes, of an attempt on another machine."""
    inside = folder / attempt / "attempts" / attempt
    inside.mkdir(parents=True)
    logs = []
    for name, size in sizes.items():
        path = inside / name
        path.write_bytes(random.Random(f"{attempt}{name}").randbytes(size))
        file = FileResult(path=f"attempts/{attempt}/{name}", records=1, size_bytes=size, digest=file_digest(path))
        logs.append(LogResult(topic=name, partition=0, file=file))
    manifest = TaskManifest(task=TASK, fingerprint=fingerprint, attempt=f"attempts/{attempt}", outputs=tuple(logs))
    return kept(result_rows(ResultLayout(1), 0, folder / attempt, manifest))


SIZES = {"a": 2 * CHUNK_BYTES + 5, "b": 0, "c": CHUNK_BYTES, "d": 7}


def test_a_result_is_put_together_of_its_chunks(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [[("ax", 1)]]).directory)
    rows = computed(tmp_path, plan.fingerprint, "0_0-aa", SIZES)
    assert [len(row.content) for row in rows[1:]] == [CHUNK_BYTES, CHUNK_BYTES, 5, CHUNK_BYTES, 7]
    assert [row.part for row in rows] == [0, 1, 2, 3, 4, 5]
    directory = tmp_path / "plan"
    taken = ResultsTaken(directory, [TASK], lambda part: [row for row in rows if row.part == part])
    assert taken.take() == {}
    manifest = load_manifest(directory, plan, TASK)
    assert manifest is not None
    for file in manifest.files:
        assert (directory / file.path).read_bytes() == (tmp_path / "0_0-aa" / file.path).read_bytes()
    assert not list(directory.glob("progress-*"))


def test_chunks_of_two_attempts_are_not_mixed(tmp_path: Path) -> None:
    """Spark computes again what it has lost: the manifest is of one attempt, and the chunks behind it of another."""
    plan = load_plan(planned(tmp_path, [[("ax", 1)]]).directory)
    attempts = [computed(tmp_path, plan.fingerprint, f"0_0-{name}", SIZES) for name in ("aa", "bb")]
    directory, asked = tmp_path / "plan", list[int]()

    def partition(part: int) -> list[ResultRow]:
        asked.append(part)
        return [row for row in attempts[len(asked) > 3] if row.part == part]

    ResultsTaken(directory, [TASK], partition).take()
    assert asked == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    manifest = load_manifest(directory, plan, TASK)
    assert manifest is not None
    assert manifest.attempt == "attempts/0_0-bb"
    assert [path.name for path in (directory / "attempts").iterdir()] == ["0_0-bb"]


def test_a_result_that_is_lost_again_and_again_is_given_up(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [[("ax", 1)]]).directory)
    one, other = (computed(tmp_path, plan.fingerprint, f"0_0-{name}", SIZES) for name in ("aa", "bb"))
    asked = list[int]()

    def partition(part: int) -> list[ResultRow]:
        asked.append(part)
        return [row for row in (other if part else one) if row.part == part]

    with pytest.raises(BackfillError, match=rf"lost the result of task 0_0 {COMPUTED_MAX} times"):
        ResultsTaken(tmp_path / "plan", [TASK], partition).take()
    assert load_manifest(tmp_path / "plan", plan, TASK) is None


def test_what_is_computed_again_may_fail(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [[("ax", 1)]]).directory)
    lost, other = (computed(tmp_path, plan.fingerprint, f"0_0-{name}", SIZES) for name in ("aa", "bb"))
    failure = TaskFailure("OSError", "the archive is gone", 1, "")
    failed = kept(iter([failure_row(TASK, json.dumps(asdict(failure)))]))
    directory, asked = tmp_path / "plan", list[int]()

    def partition(part: int) -> list[ResultRow]:
        asked.append(part)
        now = lost if len(asked) == 1 else other if part else failed
        return [row for row in now if row.part == part]

    assert ResultsTaken(directory, [TASK], partition).take() == {TASK: failure}
    assert load_manifest(directory, plan, TASK) is None
    assert not list((directory / "attempts").glob("*"))


def test_what_arrives_damaged_is_not_published(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [[("ax", 1)]]).directory)
    header, chunk = computed(tmp_path, plan.fingerprint, "0_0-aa", {"a": 3})
    rows = [header, Kept(0, chunk.task, chunk.attempt, chunk.path, 0, b"xyz", None)]
    with pytest.raises(BackfillError, match="did not arrive as the worker of task 0_0 has written it"):
        ResultsTaken(tmp_path / "plan", [TASK], lambda _: rows).take()
    assert load_manifest(tmp_path / "plan", plan, TASK) is None


def test_a_failure_is_an_answer(tmp_path: Path) -> None:
    failure = '{"kind": "RecordError", "message": "no", "exit_code": 5, "trace": ""}'
    (row,) = kept(iter([failure_row(TASK, failure)]))
    found = ResultsTaken(tmp_path, [TASK, "0_1"], lambda _: [row]).take()
    assert found[TASK].exit_code == 5


@pytest.mark.parametrize("tasks", [1, 3, 200, 5_000])
def test_no_partition_has_much_of_a_result(tasks: int) -> None:
    layout = ResultLayout(tasks)
    assert layout.partitions <= max(20_001, 1 + 16 * tasks)
    for gigabytes in (1, 64):
        size = gigabytes << 30
        file = FileResult(path="a/x", records=1, size_bytes=size, digest="")
        log = LogResult(topic="x", partition=0, file=file)
        manifest = TaskManifest(task=TASK, fingerprint="", attempt="a", outputs=(log,))
        found: dict[int, int] = {}
        for chunk in layout.chunks(tasks - 1, manifest):
            found[chunk.part] = found.get(chunk.part, 0) + chunk.size
        assert sum(found.values()) == size
        assert 0 < min(found) <= max(found) < layout.partitions
        assert max(found.values()) <= size // layout.of_each + CHUNK_BYTES
        if tasks == 1:
            assert max(found.values()) <= max(CHUNK_BYTES, size // PARTITIONS)


def test_files_go_in_pieces_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "PIECE_BYTES", 10)
    files = {}
    for name, size in (("plan/a", 4), ("plan/empty", 0), ("copies/x/b", 26), ("copies/c", 10), ("plan/d", 1)):
        path = tmp_path / name.replace("/", "-")
        path.write_bytes(random.Random(name).randbytes(size))
        files[name] = path
    pieces = list(inputs.pieces_of(files))
    assert [sum(len(part) for _, part in piece) for piece in pieces] == [10, 10, 10, 10, 1]
    inputs.write_files(tmp_path / "there", pieces)
    for name, path in files.items():
        assert (tmp_path / "there" / name).read_bytes() == path.read_bytes()


def test_copies_are_read_in_place_of_what_a_plan_names(tmp_path: Path) -> None:
    named = Path("/lake/orders/0.parquet")
    assert found_at(named) == named
    with copies_in(tmp_path):
        assert found_at(named) == tmp_path / "lake/orders/0.parquet" == tmp_path / copy_path(named)
    assert found_at(named) == named


def test_an_archive_that_was_changed_is_named_before_anything_is_shipped(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(50, seed=1)])
    plan = load_plan(backfill.directory)
    task = plan.task(f"{FIRST.id}_0")
    path = Path(task.sources[0].archive[0].path)
    finished = partial(finished_manifest, backfill.directory, plan)
    assert f"copies/{copy_path(path)}" in inputs.files_read(backfill.directory, plan, task, finished)
    path.write_bytes(b"")
    with pytest.raises(ArchiveError, match=str(path)):
        inputs.files_read(backfill.directory, plan, task, finished)


def test_not_every_machine_gets_gigabytes(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    with open(large, "wb") as file:
        file.truncate(INPUTS_OF_LAKES_BYTES)
    check_inputs({"0_0": {"a": large}, "0_1": {}})
    with pytest.raises(BackfillError, match="also read 1024 MB of files that only the driver sees"):
        check_inputs({"0_0": {"a": large}, "0_1": {"b": small}})


# --------------------------------------------------------------------------------------------------------------- on Spark


@pytest.mark.spark
def test_levels_and_archives_reach_workers_that_have_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A part of the first level's results is more than one chunk."""
    large = [("ax" + "y" * 40_000, 10 * at) for at in range(220)]
    parts = [[*lines(90, seed=2), *large], lines(70, seed=3)]
    usual, fetched = planned(tmp_path / "usual", parts), planned(tmp_path / "spark", parts)
    usual.run(InProcess())
    fetched.run(SparkEngine(results="spark"))
    assert results(usual, tmp_path) == results(fetched, tmp_path)
    assert max(file.size_bytes for each in fetched.verify() for file in each.files) > 2 * CHUNK_BYTES
    assert counts(fetched)
    assert attempts_in(fetched) == kept_by(fetched)


@pytest.mark.spark
def test_an_earlier_backfill_reaches_them(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(11)
    days = [[earlier.lines(chance, 30, start=1_000 * day) for _ in range(2)] for day in range(2)]
    both = [one + other for one, other in zip(*days, strict=True)]
    first = earlier.whole(tmp_path / "first", days[0])
    first.run(SparkEngine(results="spark"))
    second = earlier.behind(tmp_path / "second", both, first)
    second.run(SparkEngine(results="spark"))
    at_once = earlier.whole(tmp_path / "at-once", both)
    at_once.run(InProcess())
    assert earlier.results(second) == earlier.results(at_once)
    assert earlier.overtaken(second) == 0


@pytest.mark.spark
def test_tasks_over_lakes_answer_the_same_way(spark: SparkSession, tmp_path: Path) -> None:
    parts = [lines(90, seed=8), lines(70, seed=9)]
    usual, fetched = planned(tmp_path / "usual", parts), lake_plan(tmp_path / "lake", parts)
    usual.run(InProcess())
    fetched.run(SparkEngine(results="spark"))
    assert counts(fetched) == counts(usual)
    assert attempts_in(fetched) == kept_by(fetched)


@pytest.mark.spark
def test_a_failing_record_is_tried_once_and_other_tasks_go_on(spark: SparkSession, tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=5), [("fail", 1)]])
    with pytest.raises(TaskFailedError, match="this record fails") as failed:
        backfill.run(SparkEngine(results="spark"))
    assert failed.value.exit_code == 5
    assert {task.task: task.state for task in backfill.status().tasks}[f"{FIRST.id}_0"] == "finished"
