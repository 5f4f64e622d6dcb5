"""Networks and brokers for the client's tests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.scripted_broker import ScriptedBroker

_NUMBERS = itertools.count()

Connect = Callable[..., NetworkThread]
StandStill = Callable[[ApiKey], None]


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
def stand_still(broker: ScriptedBroker) -> Iterator[StandStill]:
    """Has the broker stand still, with all its connections open, from the next request of a kind until the test's end."""
    goes_on = threading.Event()

    def at(key: ApiKey) -> None:
        then = broker.hooks.get(key, lambda _: None)
        broker.hooks[key] = lambda request: goes_on.wait() and then(request)

    yield at
    goes_on.set()


@pytest.fixture
def name() -> str:
    """A name that no other test of this run uses."""
    return f"client-{next(_NUMBERS)}"
