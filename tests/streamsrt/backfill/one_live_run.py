"""The claim that a backfill makes: history computed offline, handed over and gone on with live is one live run."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from examples import flights
from streamsrt.backfill import Archive, Backfill
from streamsrt.backfill.job import Engine
from tests.streamsrt.backfill.scene import APPLICATION, Scene


def assert_one_live_run(
    scene: Scene, engine: Engine, rows: Sequence[flights.Row], *, archived: int, logged: int, timeout_s: float = 60
) -> list[str]:
    """The first ``archived`` rows come from an archive, the next ``logged`` ones from the log, the rest live. Stores,
    changelogs (full ones) and outputs are then equal, byte for byte, to those of one run over all rows. The steps of the
    hand-over."""
    backfilled, live = f"backfilled-{uuid4().hex[:8]}", f"live-{uuid4().hex[:8]}"
    scene.load(rows[:archived])
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    root = scene.archive_departures(file_records=max(300, archived // 20))
    scene.load(rows[archived : archived + logged])
    sources = {flights.DEPARTURES: Archive(root)}
    plan = backfill.plan(APPLICATION, application_id=backfilled, sources=sources, changelogs="full")
    assert sum(source.archived_records for source in plan.sources()) == archived
    manifests = backfill.run(engine)
    airlines = sum(scene.ends(flights.AIRLINES).values())
    assert sum(manifest.records for manifest in manifests) == archived + logged + airlines
    steps: list[str] = []
    backfill.commit(state_dir=scene.state_dir(backfilled), on_step=lambda step, _: steps.append(step))
    scene.load(rows[archived + logged :])
    streams = scene.run_live(backfilled, timeout_s=timeout_s)
    assert streams.progress.processed_records == len(rows) - archived - logged
    assert streams.progress.restored_records == 0
    outputs_end = scene.ends(flights.DELAYS)
    outputs = scene.compacted(flights.DELAYS)
    assert outputs

    scene.refill_departures(rows)
    scene.run_live(live, timeout_s=timeout_s)
    assert scene.stores(backfilled) == scene.stores(live)
    assert scene.changelogs(backfilled) == scene.changelogs(live)
    assert outputs == scene.compacted(flights.DELAYS, outputs_end)
    return steps
