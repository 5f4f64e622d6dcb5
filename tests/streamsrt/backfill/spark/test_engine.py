"""Tasks on Spark: the same results as without it, byte for byte; deaths and failures."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamsrt.backfill import Archive, Backfill
from streamsrt.backfill.engine_local import TaskFailedError
from streamsrt.backfill.errors import WorkerDiedError
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import with_attempts
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.test_engine_local import FIRST, attempts_in, counts, kept_by, lines, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)
"""The first test that needs it starts the session, which takes its time where many do so at once."""

ROOT = Path(__file__).resolve().parents[4]


def results(backfill: Backfill, scratch: Path) -> list[dict[str, Any]]:
    """Everything that a backfill computed: manifests but for times and places, all logs, all rows of the bundles.

    The files of bundles themselves differ from one run to the next: RocksDB writes an id of its own into each.
    """
    found = []
    for manifest in backfill.verify():
        folder = backfill.directory / manifest.attempt
        content = manifest.model_dump(exclude={"attempt", "seconds", "fingerprint", "stores", "peak_memory_bytes"})
        for log in (*content["outputs"], *content["repartition"]):
            del log["file"]["path"]
        content["logs"] = {
            path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".log", ".changelog")
        }
        content["stores"] = {
            store.name: (store.entries, store.changelog_digest, store.bundle and store.bundle.records)
            for store in manifest.stores
        }
        content["rows"] = {path.name: bundled_rows(path, scratch) for path in sorted(folder.glob("*.sst"))}
        found.append(content)
    return found


def bundled_rows(path: Path, scratch: Path) -> list[tuple[bytes, bytes]]:
    copy = scratch / path.name
    shutil.copy(path, copy)
    store = RocksDBStore(scratch / f"{path.parent.name}-{path.stem}", path.stem, RocksDBOptions())
    try:
        store.ingest(copy, changelog_offset=0)
        return list(store.range())
    finally:
        store.close()


@pytest.mark.spark
def test_the_flights_come_out_the_same_with_and_without_spark(spark: SparkSession, scene: Scene) -> None:
    scene.load(departures(2_000))
    root = scene.archive_departures()
    scene.load(departures(500, start=100_000))
    made = []
    for name, engine in (("here", InProcess()), ("spark", SparkEngine())):
        backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
        backfill.plan(APPLICATION, application_id="flights", sources={"departures": Archive(root)})
        seen: list[str] = []
        backfill.run(engine, on_task=lambda task, seen=seen: seen.append(task.task))  # type: ignore[misc]
        assert sorted(seen) == sorted(task.id for task in load_plan(backfill.directory).tasks)
        made.append(results(backfill, scene.folder))
    assert all(task["rows"] and task["logs"] for task in made[0])
    assert made[0] == made[1]


@pytest.mark.spark
def test_levels_run_one_after_another(spark: SparkSession, tmp_path: Path) -> None:
    parts = [lines(90, seed=2), lines(70, seed=3)]
    usual, sparks = planned(tmp_path / "usual", parts), planned(tmp_path / "spark", parts)
    usual.run(InProcess())
    sparks.run(SparkEngine())
    assert results(usual, tmp_path) == results(sparks, tmp_path)
    assert counts(sparks)


@pytest.mark.spark
def test_a_killed_worker_is_replaced(spark: SparkSession, tmp_path: Path, die_on: Path) -> None:
    die_on.write_text("")
    backfill = planned(tmp_path, [[*lines(50, seed=4), ("die", 600)]])
    backfill.run(SparkEngine())
    assert not die_on.exists()
    assert sum(counts(backfill).values()) > 0
    assert attempts_in(backfill) == kept_by(backfill)


@pytest.mark.spark
def test_a_task_that_kills_every_worker_is_given_up(spark: SparkSession, tmp_path: Path, die_on: Path) -> None:
    die_on.write_text("always")
    backfill = planned(tmp_path, [[("die", 1)]])
    with pytest.raises(WorkerDiedError, match="Python worker exited unexpectedly") as died:
        backfill.run(SparkEngine())
    assert died.value.exit_code == 1
    assert "\n" not in str(died.value)
    die_on.unlink()
    assert len(backfill.run(SparkEngine())) == 2


@pytest.mark.spark
def test_a_failing_record_is_tried_once_and_other_tasks_go_on(spark: SparkSession, tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(20, seed=5), [("fail", 1)]])
    with pytest.raises(TaskFailedError, match="this record fails") as failed:
        backfill.run(SparkEngine())
    assert failed.value.exit_code == 5
    assert f"{FIRST.id}_1" in str(failed.value)
    states = {task.task: task.state for task in backfill.status().tasks}
    assert states[f"{FIRST.id}_0"] == "finished"
    attempts = [path for path in (backfill.directory / "attempts").iterdir() if path.name.startswith(f"{FIRST.id}_1")]
    assert len(attempts) == 1


@pytest.mark.spark
def test_a_session_that_is_there_is_used_and_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=6)])
    backfill.run("spark")
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_the_address_of_sparks_pages_is_known_while_they_are_served() -> None:
    """In a process of its own: the session of these tests serves no pages."""
    program = """
from streamsrt.backfill.spark.session import open_session
handle = open_session("local[1]", conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
print(handle.activity().ui)
handle.close()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"http://[\w.-]+:\d+", ended.stdout.strip())


def test_a_local_master_tries_again() -> None:
    """Spark's own default is one attempt."""
    assert with_attempts("local") == "local[1,3]"
    assert with_attempts("local[4]") == "local[4,3]"
    assert with_attempts("local[*]") == "local[*,3]"
    assert with_attempts("local[2,7]") == "local[2,7]"
    assert with_attempts("spark://host:7077") == "spark://host:7077"


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(5, seed=7)])
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("pyspark", "__editable__")) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(packages)!r}]; from streamsrt.cli import main; sys.exit(main())"
    arguments = ["backfill", "run", "--engine", "spark", "--dir", str(backfill.directory)]
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments, "--bootstrap-servers", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
        env={},
    )
    assert ended.returncode == 2
    assert "engine spark needs pyspark" in ended.stderr
    assert "pip install 'streamsrt[spark]'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
