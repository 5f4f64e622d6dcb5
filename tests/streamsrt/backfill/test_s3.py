"""A lake on an S3 server gives what its archive gives. Downloads Hadoop's package for S3, 700 MB."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streamsrt.backfill import Archive, Backfill
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.test_delta import ROOT, stores


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lake_on_s3_gives_what_its_archive_gives(scene: Scene) -> None:
    scene.load(departures(300))
    scene.write_json_departures(scene.folder / "lake")
    root = scene.archive_departures()
    usual = Backfill(scene.folder / "usual", bootstrap_servers=scene.servers)
    usual.plan(APPLICATION, application_id="flights", sources={"departures": Archive(root)})
    usual.run(InProcess())
    ended = subprocess.run(
        [sys.executable, "-m", "tests.streamsrt.backfill.s3_lake", scene.servers, str(scene.folder)],
        cwd=scene.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ended.returncode == 0, ended.stderr
    assert stores(Backfill(scene.folder / "s3a")) == stores(usual)
    (said,) = ended.stdout.splitlines()
    assert "s3a://shop/departures/" in said
    assert "changed" in said
