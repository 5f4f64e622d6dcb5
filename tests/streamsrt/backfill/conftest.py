"""A cluster of its own for each test that hands over: topics and groups have fixed names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import KafkaServer
from tests.streamsrt.backfill.scene import Scene, open_scene


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
