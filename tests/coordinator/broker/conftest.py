from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.coordinator.broker.in_process import InProcessBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], InProcessBroker]]:
    """Makes one with other settings."""
    made: list[InProcessBroker] = []

    def make(configs: Mapping[str, str]) -> InProcessBroker:
        made.append(InProcessBroker(tmp_path / f"data-{len(made)}", configs))
        return made[-1]

    yield make
    for broker in made:
        broker.close()
