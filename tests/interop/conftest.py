from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.server.processes import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the clients of a module."""
    with BrokerProcess(tmp_path_factory.mktemp("interop") / "data") as process:
        yield process
        assert "Traceback" not in process.log, process.log
