"""A lake of Avro has the columns of all of its files. Downloads Spark's package for Avro."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.archive import scan_archive
from streamsrt.backfill.errors import ArchiveError
from tests.streamsrt.backfill.lake_programs import of_the_archive, said_by, stores
from tests.streamsrt.backfill.scene import Scene


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lake_of_avro_gives_what_its_archive_gives(scene: Scene) -> None:
    usual = of_the_archive(scene)
    other, damaged = said_by("avro_lake", scene)
    assert "z-other.avro, of the lake of departures: column delay is string, and bigint in file:" in other
    assert "/damaged.avro can't be read (" in damaged
    assert stores(Backfill(scene.folder / "plan")) == stores(usual)


def test_avro_files_are_no_archive(tmp_path: Path) -> None:
    (tmp_path / "part.avro").write_bytes(b"Obj\x01")
    with pytest.raises(ArchiveError, match=r"It has 1 file \.avro: .*--lake words=\.\.\. --lake-format words=avro"):
        scan_archive(tmp_path, topic="words")
