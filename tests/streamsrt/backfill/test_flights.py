"""Archive, log, backfill, hand-over, live: equal to one live run, byte for byte."""

from __future__ import annotations

from streamsrt.backfill import Archive, Backfill
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures


def test_backfill_then_live_is_one_live_run(any_scene: Scene) -> None:
    scene = any_scene
    rows = departures(3_000)
    before = scene.ends("departures")
    assert not any(before.values())
    scene.load(rows[:1_500])
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    root = scene.archive_departures()
    scene.load(rows[1_500:2_000])
    plan = backfill.plan(APPLICATION, application_id="backfilled", sources={"departures": Archive(root)})
    assert sum(source.archived_records for source in plan.sources()) == 1_500
    manifests = backfill.run(InProcess())
    assert sum(manifest.records for manifest in manifests) == 2_000 + 16
    steps: list[str] = []
    backfill.commit(state_dir=scene.state_dir("backfilled"), on_step=lambda step, _: steps.append(step))
    assert steps[-1] == "done"
    scene.load(rows[2_000:])
    streams = scene.run_live("backfilled")
    assert streams.progress.processed_records == 1_000
    assert streams.progress.restored_records == 0
    outputs_end = scene.ends("delays")
    outputs = scene.compacted("delays")

    scene.refill_departures(rows)
    scene.run_live("live")
    assert scene.stores("backfilled") == scene.stores("live")
    assert scene.changelogs("backfilled") == scene.changelogs("live")
    assert outputs == scene.compacted("delays", outputs_end)


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
