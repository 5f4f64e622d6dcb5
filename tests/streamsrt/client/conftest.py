"""Networks and brokers for the client's tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from tests.streamsrt.client.scripted_broker import ScriptedBroker

_NUMBERS = itertools.count()

Connect = Callable[..., NetworkThread]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Starts networks, and stops them after the test."""
    started: list[NetworkThread] = []

    def start(bootstrap_servers: str, **settings: Any) -> NetworkThread:
        network = NetworkThread(ClientConfig(bootstrap_servers=bootstrap_servers, **settings))
        network.start(20.0)
        started.append(network)
        return network

    yield start
    for network in started:
        network.stop()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A scripted broker with the topic ``t`` of three partitions."""
    scripted = ScriptedBroker({"t": 3}).start()
    yield scripted
    scripted.stop()


@pytest.fixture
def name() -> str:
    """A name that no other test of this run uses."""
    return f"client-{next(_NUMBERS)}"
