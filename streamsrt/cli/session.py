"""Connecting to a cluster: the one that is named, else the bundled broker of this directory.

Commands that need no existing data (``run``, ``topics``, ``produce``, ``consume``, ``backfill``, ``state``) start a
bundled broker. A command about a running application would find nothing on an empty broker: it says so instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from streamsrt.cli.output import note
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, FetchConfig
from streamsrt.errors import ConfigError
from streamsrt.runtime.bundled_broker import BundledBroker, find_broker, has_data

HOME = Path(".streamsrt")

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="STREAMSRT_BOOTSTRAP_SERVERS",
        help="host:port of the cluster; without it, the bundled broker of this directory",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object per line, instead of a table")]
Execute = Annotated[
    bool, typer.Option("--execute", help="do it; without this option, the command only prints what it would do")
]


@contextlib.contextmanager
def bootstrap(servers: str | None, *, begins: bool = False) -> Iterator[str]:
    """The cluster's address; the bundled broker of this directory is started where it does not run.

    ``begins``: also where it never had data. Otherwise raises ConfigError there.
    """
    if servers is not None:
        yield servers
        return
    _check_there_is_one(begins=begins)
    with BundledBroker(HOME) as broker:
        if broker.was_started_here:
            note(f"started the bundled broker at {broker.address}, data in {HOME}/broker; it stops with this command")
        yield broker.address


@contextlib.contextmanager
def cluster(servers: str | None, *, read_committed: bool = False, begins: bool = False) -> Iterator[NetworkThread]:
    """A connection for a command that looks or administers. ``begins``: as with :func:`bootstrap`."""
    fetch = FetchConfig(isolation_level="read_committed" if read_committed else "read_uncommitted")
    address = servers or find_broker(HOME)
    if address is None:
        _check_there_is_one(begins=begins)
        with BundledBroker(HOME) as broker, _connected(broker.address, fetch) as network:
            yield network
        return
    with _connected(address, fetch) as network:
        yield network


def _check_there_is_one(*, begins: bool) -> None:
    if not begins and find_broker(HOME) is None and not has_data(HOME):
        raise ConfigError(
            f"no cluster is named, and there is no bundled broker in {Path.cwd()}: give --bootstrap-servers (-b) HOST:PORT, "
            "or change to the directory in which the application runs"
        )


@contextlib.contextmanager
def _connected(address: str, fetch: FetchConfig) -> Iterator[NetworkThread]:
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="streamsrt-cli", fetch=fetch))
    network.start(timeout_s=10.0)
    try:
        yield network
    finally:
        network.stop()
