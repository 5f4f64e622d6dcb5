"""Slices of tasks on Spark: it runs them as it runs tasks, and the driver merges them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamsrt.backfill.job import ResultsWay
from streamsrt.backfill.spark.engine import SparkEngine
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.slices.test_sliced_tasks import ROWS, divided, results
from tests.streamsrt.backfill.test_engine_local import attempts_in, kept_by, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.spark
@pytest.mark.parametrize("results_by", ["auto", "spark"])
def test_slices_on_spark_have_the_result_of_the_whole(
    spark: SparkSession, tmp_path: Path, results_by: ResultsWay
) -> None:
    whole = planned(tmp_path, ROWS)
    whole.run(InProcess())
    sliced = divided(whole, tmp_path / "sliced")
    sliced.run(SparkEngine(results=results_by))
    assert results(sliced) == results(whole)
    assert attempts_in(sliced) == kept_by(sliced)
