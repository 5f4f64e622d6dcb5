"""Results that come through Spark: the same, byte for byte, as those that workers write into the plan's directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamsrt.backfill.spark.engine import SparkEngine
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.spark.test_engine import results
from tests.streamsrt.backfill.test_engine_local import attempts_in, counts, kept_by, lines, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_levels_and_archives_reach_workers_that_have_nothing(spark: SparkSession, tmp_path: Path) -> None:
    parts = [lines(90, seed=2), lines(70, seed=3)]
    usual, fetched = planned(tmp_path / "usual", parts), planned(tmp_path / "spark", parts)
    usual.run(InProcess())
    fetched.run(SparkEngine(results="spark"))
    assert results(usual, tmp_path) == results(fetched, tmp_path)
    assert counts(fetched)
    assert attempts_in(fetched) == kept_by(fetched)
