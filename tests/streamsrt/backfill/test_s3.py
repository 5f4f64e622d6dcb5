"""A lake on an S3 server gives what its archive gives. Downloads Hadoop's package for S3, 700 MB."""

from __future__ import annotations

import pytest

from streamsrt.backfill import Backfill
from tests.streamsrt.backfill.lake_programs import of_the_archive, said_by, stores
from tests.streamsrt.backfill.scene import Scene


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lake_on_s3_gives_what_its_archive_gives(scene: Scene) -> None:
    usual = of_the_archive(scene)
    (said,) = said_by("s3_lake", scene)
    assert stores(Backfill(scene.folder / "s3a")) == stores(usual)
    assert "s3a://shop/departures/" in said
    assert "changed" in said
