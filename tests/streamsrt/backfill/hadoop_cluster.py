"""YARN with two nodes and HDFS, in one process of Java: the small clusters that Hadoop's own tests have."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamsrt.backfill.java import find_java
from tests.kafka_server import compiled, resolved
from tests.streamsrt.backfill.spark_cluster import SPARK, Cluster
from tests.system.processes import wait_until

_HADOOP = "3.5.0"
"""That of the Hadoop in PySpark 4.2."""
ARTIFACTS = (
    ("org.apache.hadoop", "hadoop-client-minicluster", _HADOOP),
    ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
    ("org.apache.hadoop", "hadoop-client-api", _HADOOP),
    # What these need and don't name.
    ("org.junit.jupiter", "junit-jupiter-api", "5.11.0"),
    ("org.mockito", "mockito-core", "4.11.0"),
    ("org.bouncycastle", "bcprov-jdk18on", "1.78.1"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    ("ch.qos.reload4j", "reload4j", "1.2.25"),
)
_READY = "READY "
_TIMEOUT_S = 300


class Yarn(Cluster):
    """What a driver needs of it: ``HADOOP_CONF_DIR`` is its ``folder``."""

    def conf(self, **environment: str) -> list[str]:
        settings = {
            "spark.executor.instances": "1",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            # Where they are, since the nodes are here: to upload all of Spark takes a minute.
            "spark.yarn.jars": f"local:{SPARK}/jars/*",
        }
        return [
            *super().conf(**environment),
            *(word for each in settings.items() for word in ("--conf", "=".join(each))),
        ]


@contextmanager
def hadoop(folder: Path) -> Iterator[tuple[Yarn, str]]:
    """A cluster that runs, and the address of its HDFS."""
    inside = folder / "nodes"
    inside.mkdir()
    program = compiled(Path(__file__).with_name("HadoopCluster.java"), resolved(ARTIFACTS))
    log = folder / "hadoop.log"
    java = find_java(folder / "java").home / "bin" / "java"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [str(java), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *program, str(folder)],
            cwd=inside,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: _READY in log.read_text(), f"the cluster is ready: {log}", timeout_s=_TIMEOUT_S)
        line = next(line for line in log.read_text().splitlines() if line.startswith(_READY))
        yield Yarn("yarn", folder), line.removeprefix(_READY)
    finally:
        process.communicate(timeout=_TIMEOUT_S)
