from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.log.fsync import Syncer


@pytest.fixture
def syncer() -> Iterator[Syncer]:
    syncer = Syncer()
    yield syncer
    syncer.close()
