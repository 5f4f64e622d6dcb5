"""A lake of Delta is read at the version of the plan, whatever is written and deleted later. Downloads Delta's package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamsrt.backfill import Archive, Backfill
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lake_of_delta_is_read_at_the_version_of_the_plan(scene: Scene) -> None:
    scene.load(departures(300))
    scene.write_json_departures(scene.folder / "lake")
    root = scene.archive_departures()
    usual = Backfill(scene.folder / "usual", bootstrap_servers=scene.servers)
    usual.plan(APPLICATION, application_id="flights", sources={"departures": Archive(root)})
    usual.run(InProcess())
    ended = subprocess.run(
        [sys.executable, "-m", "tests.streamsrt.backfill.delta_lake", scene.servers, str(scene.folder)],
        cwd=scene.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["path version 1", "table version 1"]
    expected = stores(usual)
    for name in ("path", "table"):
        assert stores(Backfill(scene.folder / name)) == expected


def stores(backfill: Backfill) -> list[tuple[str, int, list[tuple[str, int, str]]]]:
    return [
        (each.task, each.records, [(store.name, store.entries, store.changelog_digest) for store in each.stores])
        for each in backfill.verify()
    ]
