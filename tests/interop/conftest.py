from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_brokers import require_kafka
from tests.interop.counting import Scene
from tests.system.cluster import Server, connected


@pytest.fixture(params=["bundled", "kafka"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    require_kafka()
    server: Server = request.getfixturevalue("apache_kafka" if request.param == "kafka" else "bundled_broker")
    with connected(server) as cluster:
        made = Scene(cluster, tmp_path)
        yield made
        made.close()
