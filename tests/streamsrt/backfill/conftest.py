"""A cluster of its own for each test that hands over: topics and groups have fixed names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamsrt.backfill.spark.session import QUICK_START, open_session
from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import KafkaServer
from tests.streamsrt.backfill.scene import Scene, open_scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """The flights application's topics on a bundled broker of this test."""
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        yield from open_scene(broker.bootstrap_servers, tmp_path)
    finally:
        broker.stop()


@pytest.fixture(params=["bundled", pytest.param("kafka", marks=pytest.mark.kafka)])
def any_scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """The same on the bundled broker, and on Apache Kafka."""
    if request.param == "bundled":
        yield request.getfixturevalue("scene")
        return
    server: KafkaServer = request.getfixturevalue("apache_kafka")
    yield from open_scene(server.bootstrap_servers, tmp_path)


@pytest.fixture(scope="session")
def die_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that makes a worker of Spark kill itself: their environment is that of the session's start."""
    return tmp_path_factory.mktemp("spark") / "die"


@pytest.fixture(scope="session")
def spark(die_on: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: it takes seconds to start. Who starts it is in New York, on which nothing may depend."""
    tables = str(tmp_path_factory.mktemp("warehouse"))
    settings = {**QUICK_START, "spark.sql.shuffle.partitions": "4", "spark.sql.warehouse.dir": f"file:{tables}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIE_ON", str(die_on))
        patch.setenv("TZ", "America/New_York")
        session = open_session("local[2]", settings)
    yield session.spark
    session.close()
