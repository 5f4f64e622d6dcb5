from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_brokers import require_kafka
from tests.interop.counting import Scene
from tests.system.cluster import Server, connected

OTHERS_ONLY = {"test_classic_groups", "test_consumer_groups", "test_java_streams"}
"""Their members are all other people's. Over Apache Kafka nothing of ours takes part: that half tells whether the tests ask
for what Apache Kafka does, and runs with ``--full`` only."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    others = {str(Path(__file__).with_name(f"{name}.py")) for name in OTHERS_ONLY}
    for item in items:
        if str(item.path) in others:
            assert isinstance(item, pytest.Function)
            if "kafka" in {item.callspec.params.get(name) for name in ("bootstrap_servers", "scene")}:
                item.add_marker(pytest.mark.full)


@pytest.fixture(params=["bundled", "kafka"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    require_kafka()
    server: Server = request.getfixturevalue("apache_kafka" if request.param == "kafka" else "bundled_broker")
    with connected(server) as cluster:
        made = Scene(cluster, tmp_path)
        yield made
        made.close()
