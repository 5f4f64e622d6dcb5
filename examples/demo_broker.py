"""The broker of the upgrade drill: the bundled one, or Apache Kafka from Maven Central's jars, with Java 17 and Maven.

On Apache Kafka the members run with ``group.protocol=classic``, which supports rolling upgrades of the topology.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from streamsrt.cli.classic_group import classic_members, classic_state, described_classic_group
from streamsrt.client.network import NetworkThread
from streamsrt.errors import ConfigError
from streamsrt.runtime.bundled_broker import BundledBroker

KINDS = ("bundled", "kafka")


class DrillBroker(NamedTuple):
    """``settings``: what members need beside its address."""

    address: str
    settings: Mapping[str, str]


@contextmanager
def open_broker(
    kind: str, directory: Path, configs: Sequence[str], session_ms: int
) -> Generator[DrillBroker, None, None]:
    """``configs``: of the bundled broker. Raises ConfigError where what Apache Kafka needs is not there."""
    if kind == "bundled":
        with BundledBroker(directory, configs=list(configs)) as bundled:
            yield DrillBroker(bundled.address, {})
        return
    try:
        from tests.kafka_server import KafkaServer, missing_tools
    except ImportError:
        raise ConfigError("--broker kafka runs in a clone of the repository: a wheel does not have tests/") from None
    if (missing := missing_tools()) is not None:
        raise ConfigError(f"{missing}. Install them, or leave --broker kafka out.")
    brisk = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    server = KafkaServer(directory / "kafka", brisk)
    try:
        server.start()
        settings = {
            "group.protocol": "classic",
            "session.timeout.ms": str(session_ms),
            "heartbeat.interval.ms": "300",
            "acceptable.recovery.lag": "1000",
        }
        yield DrillBroker(server.bootstrap_servers, settings)
    finally:
        server.kill()


def classic_line(network: NetworkThread, group: str) -> str:
    """A classic group in a line. Raises BrokerError."""
    described = described_classic_group(network, group)
    if not described.members:
        return "no group yet"
    (state,) = classic_state(described, verbose=True)[1]
    rows = classic_members(described, verbose=True)[1]
    epochs = Counter(str(row["topology_epoch"]) for row in rows)
    members = ", ".join(f"{count} at epoch {epoch}" for epoch, count in sorted(epochs.items()))
    return f"group {state['state']}, topology epoch {state['topology_epoch']}, members: {members}"
