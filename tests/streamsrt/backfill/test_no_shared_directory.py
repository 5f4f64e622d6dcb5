"""A cluster of Spark whose workers see neither the plan's directory nor the archives: both are on the driver's machine only.

The workers run in mount namespaces in which the folder of all plans is empty. Plans elsewhere are seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.streamsrt.backfill.spark_cluster import Cluster, standalone
from tests.streamsrt.backfill.test_application_bundle import (
    ALONE,
    DYNAMIC,
    PARTS,
    SPECULATION,
    bundle,
    digests,
    driver,
    ended,
    meeting,
    module,
    options,
    program,
    same_here,
    strike,
    twice_at_once,
)
from tests.streamsrt.backfill.test_engine_local import attempts_in, kept_by, planned

__all__ = ["bundle", "module", "program", "strike"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, hidden: Path) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), hidden) as found:
        yield found


def test_results_come_through_spark(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path, hidden: Path
) -> None:
    backfill = planned(hidden / "plain", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, "--conf", "spark.cores.max=1")
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 0, said
    assert f"asking the workers of {cluster.master} whether they see {backfill.directory}" in said
    assert f"results come to {backfill.directory} through Spark" in said
    assert f"workers don't see {backfill.directory} (looked on " in said
    assert digests(backfill) == same_here(tmp_path, module)
    assert attempts_in(backfill) == kept_by(backfill)
    assert not [path for path in backfill.directory.iterdir() if path.name.startswith("seen-")]


def test_a_cluster_computes_what_one_process_does_with_nothing_but_the_bundle(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    backfill = planned(tmp_path / "spark", PARTS, module)
    # One executor is enough here, and quicker on a machine of two cores.
    words = ("--dir", backfill.directory, "--bundle", bundle, "--conf", "spark.cores.max=1")
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 0, said
    assert f"workers write their results into {backfill.directory}: they see it" in said
    assert digests(backfill) == same_here(tmp_path, module)


@pytest.mark.full
def test_an_executor_that_is_killed_is_replaced(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path, hidden: Path
) -> None:
    backfill = planned(hidden / "executor", PARTS, module)
    strike.write_text("executor", encoding="ascii")
    words = ("--dir", backfill.directory, "--bundle", bundle)
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 0, said
    assert not strike.exists()
    assert digests(backfill) == same_here(tmp_path, module)
    assert attempts_in(backfill) == kept_by(backfill)


@pytest.mark.full
def test_of_two_attempts_at_once_one_counts(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path, hidden: Path
) -> None:
    backfill = planned(hidden / "speculation", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, *options({**SPECULATION, **ALONE}))
    run = driver(program, cluster, meeting(strike), "run", *words)
    assert twice_at_once(backfill, run, strike) == same_here(tmp_path, module)


@pytest.mark.full
def test_executors_may_come_and_go(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path, hidden: Path
) -> None:
    backfill = planned(hidden / "dynamic", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, *options(DYNAMIC))
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 0, said
    assert digests(backfill) == same_here(tmp_path, module)


@pytest.mark.full
def test_a_driver_that_is_killed_is_resumed(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path, hidden: Path
) -> None:
    backfill = planned(hidden / "driver", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle)
    process = driver(program, cluster, strike, "run", *words)
    strike.write_text(str(process.pid), encoding="ascii")
    code, said = ended(process)
    assert code == -9, said
    assert not backfill.status().is_computed
    code, said = ended(driver(program, cluster, strike, "resume", *words))
    assert code == 0, said
    assert digests(backfill) == same_here(tmp_path, module)
    assert attempts_in(backfill) == kept_by(backfill)


@pytest.mark.full
def test_workers_that_are_to_write_there_are_named(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, hidden: Path
) -> None:
    """This is what proves that the workers of these tests do not see it."""
    backfill = planned(hidden / "refused", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, "--results", "directory")
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 2, said
    assert "does not see the plan's directory" in said
