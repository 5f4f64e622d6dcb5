"""A lake of Avro has the columns of all of its files. Downloads Spark's package for Avro."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamsrt.backfill import Archive, Backfill
from streamsrt.backfill.archive import scan_archive
from streamsrt.backfill.errors import ArchiveError
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.test_delta import stores

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lake_of_avro_gives_what_its_archive_gives(scene: Scene) -> None:
    scene.load(departures(300))
    scene.write_json_departures(scene.folder / "lake")
    root = scene.archive_departures()
    usual = Backfill(scene.folder / "usual", bootstrap_servers=scene.servers)
    usual.plan(APPLICATION, application_id="flights", sources={"departures": Archive(root)})
    usual.run(InProcess())
    ended = subprocess.run(
        [sys.executable, "-m", "tests.streamsrt.backfill.avro_lake", scene.servers, str(scene.folder)],
        cwd=scene.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ended.returncode == 0, ended.stderr
    other, damaged = ended.stdout.splitlines()
    assert "z-other.avro, of the lake of departures: column delay is string, and bigint in file:" in other
    assert "/damaged.avro can't be read (" in damaged
    assert stores(Backfill(scene.folder / "plan")) == stores(usual)


def test_avro_files_are_no_archive(tmp_path: Path) -> None:
    (tmp_path / "part.avro").write_bytes(b"Obj\x01")
    with pytest.raises(ArchiveError, match=r"It has 1 file \.avro: .*--lake words=\.\.\. --lake-format words=avro"):
        scan_archive(tmp_path, topic="words")
