"""Workers that have nothing of the project: what they need comes in one archive. A cluster of Spark, and its losses.

What a cluster computes without losses is in ``test_no_shared_directory.py``: one cluster serves both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from sysconfig import get_python_version
from types import ModuleType

import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.application_bundle import ABOUT, check_environment, write_environment
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.spark.session import Shipment, open_session
from streamsrt.errors import ConfigError
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.spark_cluster import Cluster, standalone
from tests.streamsrt.backfill.test_engine_local import Line, attempts_in, kept_by, lines, planned

ROOT = Path(__file__).resolve().parents[3]
NAME = "lakeside"
APPLICATION = f"{NAME}:topology"
PARTS: list[list[Line]] = [[*lines(60, seed=41), ("strike", 610)], lines(50, seed=42)]
_TIMEOUT_S = 900
SPECULATION = {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5"}
"""A task that takes longer than half of the others did is run a second time, on another machine."""
ALONE = {"spark.speculation.task.duration.threshold": "2s"}
"""Of jobs with one task, so many seconds."""
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.minExecutors": "0",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an application that is installed nowhere."""
    folder = tmp_path_factory.mktemp("program")
    shutil.copy(Path(__file__).with_name("lakeside.py"), folder / f"{NAME}.py")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop(NAME, None)


@pytest.fixture(scope="module")
def module(program: Path) -> ModuleType:
    return import_module(NAME)


@pytest.fixture(scope="module")
def bundle(program: Path) -> Path:
    path = program / "lakeside.zip"
    write_environment(path, APPLICATION)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def strike(tmp_path: Path) -> Path:
    return tmp_path / "strike"


def driver(program: Path, cluster: Cluster, strike: Path, *words: str | Path) -> subprocess.Popen[str]:
    """``streamsrt backfill`` in a process of its own, on the cluster."""
    command = [sys.executable, "-m", "streamsrt", "backfill", *map(str, words)]
    options = ["--engine", "spark", "--master", cluster.master, "-b", "127.0.0.1:1", *cluster.conf(STRIKE=str(strike))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYSPARK_PYTHON", None)
    return subprocess.Popen(
        [*command, *options], cwd=program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and what it said on stderr, in one line."""
    _, said = process.communicate(timeout=_TIMEOUT_S)
    return process.returncode, " ".join(said.split())


def options(conf: Mapping[str, str]) -> list[str]:
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def meeting_place(strike: Path) -> Path:
    return strike.with_name(f"{strike.name}.met")


def meeting(strike: Path) -> Path:
    """The first attempt that comes to the record waits for the second one."""
    os.mkfifo(meeting_place(strike))
    strike.write_text("meet", encoding="ascii")
    return strike


Computed = tuple[str, int, list[tuple[str, int, str]]]
"""A task, its records, and of its stores name, rows and digest."""


def digests(backfill: Backfill) -> list[Computed]:
    return [
        (each.task, each.records, [(store.name, store.entries, store.changelog_digest) for store in each.stores])
        for each in backfill.verify()
    ]


def same_here(tmp_path: Path, module: ModuleType) -> list[Computed]:
    backfill = planned(tmp_path / "here", PARTS, module)
    backfill.run(InProcess())
    found = digests(backfill)
    assert sum(entries for _, _, stores in found for _, entries, _ in stores) > 0
    return found


def twice_at_once(backfill: Backfill, run: subprocess.Popen[str], strike: Path) -> list[Computed]:
    """The digests of a run in which two attempts at a task have met."""
    code, said = ended(run)
    assert code == 0, said
    assert not meeting_place(strike).exists(), "there was no second attempt"
    assert attempts_in(backfill) == kept_by(backfill)
    return digests(backfill)


MODULES = {"rules": "7"}


def written(path: Path, **about: object) -> Path:
    """A bundle that has nothing but what it says of itself."""
    said = {"application": APPLICATION, "code_digest": "1", "python": get_python_version(), "platform": "any", **about}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(ABOUT, json.dumps(said))
    return path


@pytest.mark.parametrize(
    ("about", "says"),
    [
        (
            {"application": "another:topology"},
            "is a bundle of another:topology, and this is lakeside:topology: make it again",
        ),
        ({"code_digest": "2"}, "the source of lakeside:topology differs from that in"),
        ({"module_digests": {"rules": "8"}}, "rules, which lakeside:topology imports, differs from that in"),
        ({"python": "3.1"}, "is for Python 3.1, and this is Python 3"),
    ],
)
def test_a_bundle_of_something_else_is_refused(tmp_path: Path, about: dict[str, object], says: str) -> None:
    path = written(tmp_path / "x.zip", **about)
    with pytest.raises(BackfillError, match=says):
        check_environment(path, APPLICATION, "1", MODULES)
    check_environment(written(path), APPLICATION, "1", MODULES)
    check_environment(path, NAME, "1", MODULES)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with pytest.raises(
        BackfillError, match=r"there is no bundle .*x.zip: make it with streamsrt backfill bundle lakeside"
    ):
        check_environment(path, APPLICATION, "1", MODULES)
    path.write_bytes(b"no archive")
    with pytest.raises(BackfillError, match="is not a bundle of streamsrt"):
        check_environment(path, APPLICATION, "1", MODULES)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lakeside.py", "")
    with pytest.raises(BackfillError, match="is not a bundle of streamsrt"):
        check_environment(path, APPLICATION, "1", MODULES)


def test_a_bundle_that_can_t_be_written_says_why(program: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="is the path of a file, which other machines don't have: name the module, as in"
    ):
        write_environment(tmp_path / "x.zip", f"{program}/{NAME}.py:topology")
    with pytest.raises(BackfillError, match="--with nowhere-at-all: no distribution of that name is installed here"):
        write_environment(tmp_path / "x.zip", APPLICATION, ["nowhere-at-all"])
    with pytest.raises(BackfillError, match="there is no folder"):
        write_environment(tmp_path / "nowhere" / "x.zip", APPLICATION)
    assert list(tmp_path.iterdir()) == []


def test_only_a_cluster_is_shipped_to(tmp_path: Path) -> None:
    shipment = Shipment(py_files=("x.py",))
    with pytest.raises(BackfillError, match=r"those of local\[2\] are of this machine: give --master"):
        open_session("local[2]", shipment=shipment)
    with pytest.raises(BackfillError, match="are the server's"):
        open_session("sc://127.0.0.1", shipment=shipment)
    with pytest.raises(BackfillError, match=r"--py-files x\.py: there is no such file"):
        open_session("spark://127.0.0.1:1", shipment=shipment)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_an_executor_that_is_killed_is_replaced(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    backfill = planned(tmp_path / "spark", PARTS, module)
    strike.write_text("executor", encoding="ascii")
    code, said = ended(driver(program, cluster, strike, "run", "--dir", backfill.directory, "--bundle", bundle))
    assert code == 0, said
    assert not strike.exists()
    assert attempts_in(backfill) == kept_by(backfill), "what the executor had begun is gone"
    assert digests(backfill) == same_here(tmp_path, module)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_of_two_attempts_at_once_one_counts(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    backfill = planned(tmp_path / "spark", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, *options(SPECULATION))
    run = driver(program, cluster, meeting(strike), "run", *words)
    assert twice_at_once(backfill, run, strike) == same_here(tmp_path, module)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_executors_may_come_and_go(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    backfill = planned(tmp_path / "spark", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle, *options(DYNAMIC))
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 0, said
    assert digests(backfill) == same_here(tmp_path, module)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_driver_that_is_killed_is_resumed_on_the_cluster(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    expected = same_here(tmp_path, module)
    backfill = planned(tmp_path / "spark", PARTS, module)
    words = ("--dir", backfill.directory, "--bundle", bundle)
    process = driver(program, cluster, strike, "run", *words)
    strike.write_text(str(process.pid), encoding="ascii")
    code, said = ended(process)
    assert code == -9, said
    assert not backfill.status().is_computed
    code, said = ended(driver(program, cluster, strike, "resume", *words))
    assert code == 0, said
    assert digests(backfill) == expected


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_worker_that_does_not_see_the_plan_is_named(
    program: Path, module: ModuleType, bundle: Path, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    backfill = planned(tmp_path / "spark", PARTS, module)
    # This path is in the working folder of the process that looks, and only the driver's has it.
    (program / "plan").symlink_to(backfill.directory)
    hidden = Path("/proc/self/cwd/plan")
    words = ("--dir", hidden, "--bundle", bundle, "--results", "directory")
    code, said = ended(driver(program, cluster, strike, "run", *words))
    assert code == 2, said
    assert "does not see the plan's directory" in said
    assert "give a --dir that all nodes have under the same path, or --results spark" in said


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_workers_without_a_bundle_say_how_to_make_one(
    program: Path, module: ModuleType, cluster: Cluster, strike: Path, tmp_path: Path
) -> None:
    backfill = planned(tmp_path / "spark", PARTS, module)
    code, said = ended(driver(program, cluster, strike, "run", "--dir", backfill.directory))
    assert code == 2, said
    assert "can't import" in said
    assert "streamsrt backfill bundle" in said
    assert "Traceback" not in said
