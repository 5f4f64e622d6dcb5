"""A standalone cluster of Spark: a master and two workers as processes, each with its own working folder and address.

Nothing of the project is there: the Python of the workers is the one that the virtual environment was made of, without its
packages. A folder of this machine can be hidden from the workers: each then runs in a mount namespace of its own, with an
empty file system there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from streamsrt.backfill.java import find_java
from tests.system.processes import wait_until

SPARK = Path(pyspark.__file__).parent
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker ")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TIMEOUT_S = 180


@dataclass(frozen=True)
class Cluster:
    """What a driver needs of it."""

    master: str
    folder: Path

    def conf(self, **environment: str) -> list[str]:
        """Settings of a driver on this machine, as options; ``environment``: of the executors."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": _QUICK,
            "spark.executor.extraJavaOptions": _QUICK,
            "spark.executor.memory": "600m",
            "spark.pyspark.python": str(PYTHON),
            "spark.network.timeout": "600s",
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
        }
        return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


def without(folder: Path) -> list[str]:
    """A command that runs the command behind it where that folder is empty. Skips the test where this is not allowed."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *own, "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a mount namespace is not allowed here: {error}")
    return command


@contextmanager
def standalone(folder: Path, hidden: Path | None = None) -> Iterator[Cluster]:
    """A cluster that runs. ``hidden``: a folder that is empty for its workers."""
    prefix = [] if hidden is None else without(hidden)
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(_process(folder, "master.Master", log, "--port", "0"))
        wait_until(
            lambda: _MASTER.search(log.read_text()) is not None,
            f"the master says where it is: {log}",
            timeout_s=_TIMEOUT_S,
        )
        found = _MASTER.search(log.read_text())
        assert found is not None
        for number in (1, 2):
            inside = folder / f"worker-{number}"
            inside.mkdir()
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(inside), found[1])
            log_of_worker, host = inside / "worker.log", f"127.0.0.{number}"
            stack.enter_context(_process(inside, "worker.Worker", log_of_worker, *options, prefix=prefix, host=host))
        wait_until(
            lambda: len(_REGISTERED.findall(log.read_text())) == 2,
            f"both workers are known: {log}",
            timeout_s=_TIMEOUT_S,
        )
        yield Cluster(found[1], folder)


@contextmanager
def _process(
    inside: Path, kind: str, log: Path, *arguments: str, prefix: Sequence[str] = (), host: str = "127.0.0.1"
) -> Iterator[None]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    environment = {
        **kept,
        "JAVA_HOME": str(find_java(inside / "java").home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", host]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*prefix, *command, "--webui-port", "0", *arguments],
            cwd=inside,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(_TIMEOUT_S)
