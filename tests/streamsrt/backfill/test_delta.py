"""A lake of Delta is read at the version of the plan, whatever is written and deleted later. Downloads Delta's package."""

from __future__ import annotations

import pytest

from streamsrt.backfill import Backfill
from tests.streamsrt.backfill.lake_programs import of_the_archive, said_by, stores
from tests.streamsrt.backfill.scene import Scene


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lake_of_delta_is_read_at_the_version_of_the_plan(scene: Scene) -> None:
    usual = of_the_archive(scene)
    said = said_by("delta_lake", scene)
    assert said == ["path version 1", "table version 1"]
    expected = stores(usual)
    for name in ("path", "table"):
        assert stores(Backfill(scene.folder / name)) == expected
