"""Archive, log, backfill, hand-over, live: equal to one live run, byte for byte."""

from __future__ import annotations

import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.engine_local import LocalEngine
from tests.streamsrt.backfill.one_live_run import assert_one_live_run
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures


def test_backfill_then_live_is_one_live_run(any_scene: Scene) -> None:
    steps = assert_one_live_run(any_scene, LocalEngine(2), departures(3_000), archived=1_500, logged=500)
    assert steps[-1] == "done"


@pytest.mark.spark
@pytest.mark.share(2)
def test_backfill_by_spark_then_live_is_one_live_run(spark: object, any_scene: Scene) -> None:
    """The hand-over does not know who has computed what it writes: a run has one broker here, and both with the other
    engine."""
    from streamsrt.backfill.spark.engine import SparkEngine

    assert_one_live_run(any_scene, SparkEngine(), departures(2_000), archived=1_200, logged=300)


def test_without_state_files_the_application_restores_from_the_changelogs(scene: Scene) -> None:
    rows = departures(600)
    scene.load(rows)
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id="restored")
    backfill.run(InProcess())
    backfill.commit()
    streams = scene.run_live("restored")
    assert streams.progress.processed_records == 0
    written = sum(len(rows) for store in scene.changelogs("restored").values() for rows in store.values())
    assert streams.progress.restored_records == written > 0
    scene.run_live("live")
    assert scene.stores("restored") == scene.stores("live")
    # Windows beyond retention, which are in the changelog of an application that ran, are left out.
    changelogs, full = scene.changelogs("restored"), scene.changelogs("live")
    assert changelogs["airlines"] == full["airlines"]
    for tp, rows_ in changelogs["delays-per-hour"].items():
        assert rows_.items() <= full["delays-per-hour"][tp].items()
    assert written < sum(len(rows) for store in full.values() for rows in store.values())
