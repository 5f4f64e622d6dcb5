"""What tests of lakes share that run in a process of their own, as each needs packages that Spark loads when it starts."""

from __future__ import annotations

import os
from pathlib import Path

from streamsrt.backfill import Archive, Backfill
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.warm_processes import run_python

COLUMNS = {
    "key": "airline",
    "value": "to_json(struct(flight, origin, destination, delay), map('ignoreNullFields', 'false'))",
    "timestamp": "cast(at as timestamp)",
    "partition": "cast(shard as int)",
    "offset": "number",
}
"""Of the departures as lines of JSON."""
_ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 1500


def of_the_archive(scene: Scene) -> Backfill:
    """The backfill of some departures out of their archive. They lie in ``lake``, too, as lines of JSON."""
    scene.load(departures(300))
    scene.write_json_departures(scene.folder / "lake")
    root = scene.archive_departures()
    usual = Backfill(scene.folder / "usual", bootstrap_servers=scene.servers)
    usual.plan(APPLICATION, application_id="flights", sources={"departures": Archive(root)})
    usual.run(InProcess())
    return usual


def said_by(program: str, scene: Scene) -> list[str]:
    """Runs a module of this package to its end; the lines that it prints."""
    ended = run_python(
        ["-m", f"tests.streamsrt.backfill.{program}", scene.servers, str(scene.folder)],
        cwd=scene.folder,
        environment={**os.environ, "PYTHONPATH": str(_ROOT)},
        timeout_s=_PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def stores(backfill: Backfill) -> list[tuple[str, int, list[tuple[str, int, str]]]]:
    """What each task has made."""
    return [
        (each.task, each.records, [(store.name, store.entries, store.changelog_digest) for store in each.stores])
        for each in backfill.verify()
    ]
