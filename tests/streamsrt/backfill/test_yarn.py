"""YARN: its executors get a bundle, and their results come through Spark. Lakes on HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.spark.engine import SparkEngine
from tests.streamsrt.backfill.hadoop_cluster import Yarn, hadoop
from tests.streamsrt.backfill.lake_programs import COLUMNS, of_the_archive, stores
from tests.streamsrt.backfill.scene import APPLICATION, Scene
from tests.streamsrt.backfill.test_application_bundle import (
    PARTS,
    bundle,
    digests,
    driver,
    ended,
    module,
    program,
    same_here,
    strike,
)
from tests.streamsrt.backfill.test_engine_local import attempts_in, kept_by, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bundle", "module", "program", "strike"]

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Yarn, str]]:
    with hadoop(tmp_path_factory.mktemp("hadoop")) as found:
        yield found


@pytest.fixture
def cluster(nodes: tuple[Yarn, str]) -> Yarn:
    return nodes[0]


@pytest.mark.parametrize("results", ["spark", "auto"])
def test_yarn_computes_what_this_machine_does(
    program: Path,
    module: ModuleType,
    bundle: Path,
    cluster: Yarn,
    strike: Path,
    tmp_path: Path,
    results: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.folder))
    backfill = planned(tmp_path / "yarn", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, "--results", results)
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 0, said
    assert f"connecting to yarn, whose workers get {bundle}" in said
    assert digests(backfill) == same_here(tmp_path, module)
    assert attempts_in(backfill) == kept_by(backfill)


def test_a_lake_on_hdfs_gives_what_its_archive_gives(
    scene: Scene, nodes: tuple[Yarn, str], spark: SparkSession
) -> None:
    usual = of_the_archive(scene)
    root = f"{nodes[1]}/departures"
    spark.read.option("recursiveFileLookup", "true").text(str(scene.folder / "lake")).write.text(root)
    backfill = Backfill(scene.folder / "hdfs", bootstrap_servers=scene.servers)
    lake = Lake(root, columns=COLUMNS, format="json")
    made = backfill.plan(APPLICATION, application_id="flights", sources={"departures": lake})
    assert made.lakes[0].files[0].path.startswith("hdfs://")
    backfill.run(SparkEngine())
    assert stores(backfill) == stores(usual)
