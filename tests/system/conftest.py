"""The clusters that the system tests run on: the bundled broker, and Apache Kafka."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_brokers import BundledBroker
from tests.system.classic_suite import not_in_classic_groups
from tests.system.cluster import Cluster, Server, connected
from tests.system.processes import Joining


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    Joining.protocol = config.getoption("--group-protocol")
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.system)
            reason = not_in_classic_groups(item.path.stem, item.name) if Joining.protocol == "classic" else None
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def system_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BundledBroker]:
    """A bundled broker that system tests may kill."""
    broker = BundledBroker(tmp_path_factory.mktemp("system-broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["bundled", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each test runs over the bundled broker and over Apache Kafka."""
    name = "apache_kafka" if request.param == "kafka" else "system_broker"
    server: Server = request.getfixturevalue(name)
    with connected(server) as found:
        yield found


@pytest.fixture(
    params=[
        "bundled",
        pytest.param("3.9.1", marks=pytest.mark.kafka),
        pytest.param("2.8.2", marks=[pytest.mark.kafka, pytest.mark.full]),
        pytest.param("4.4.0", marks=[pytest.mark.kafka, pytest.mark.full]),
    ]
)
def any_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The bundled broker, and Apache Kafka without streams groups."""
    if request.param == "bundled":
        server: Server = request.getfixturevalue("system_broker")
    elif request.param == "4.4.0":
        server = request.getfixturevalue("apache_kafka")
    else:
        server = request.getfixturevalue("older_kafka")(request.param)
    with connected(server) as found:
        yield found


@pytest.fixture
def bundled(system_broker: BundledBroker) -> Iterator[Cluster]:
    """The bundled broker alone."""
    with connected(system_broker) as found:
        yield found


@pytest.fixture
def application_id() -> str:
    """A group that no other test uses."""
    return f"app-{uuid.uuid4().hex[:12]}"
