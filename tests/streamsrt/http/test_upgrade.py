"""What instances answer at ``/upgrade`` while two versions run, and that probes suit a rolling update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.http.test_server import get
from tests.system.processes import wait_until
from topology import StreamsBuilder


def instance(address: str, folder: Path, name: str, epoch: int, *topics: str) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.stream(list(topics)).group_by_key().count(store="counts")
    config: dict[str, Any] = {
        "application.id": "http-upgrade",
        "bootstrap.servers": address,
        "state.dir": folder / name,
        "topology.epoch": epoch,
        "http.listen": "127.0.0.1:0",
        "group.instance.id": name,
    }
    return KafkaStreams(builder.build(), config)


def told(address: str, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The first answer that fulfils the condition. On a busy machine the group may not answer in time, and what an instance
    and its group say changes at different moments."""
    found: list[dict[str, Any]] = []

    def is_told() -> bool:
        status, body = get(address, "/upgrade")
        if status != 200 or not holds(body):
            return False
        found.append(body)
        return True

    wait_until(is_told, what)
    return found[0]


def test_both_versions_tell_where_the_upgrade_is(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    address = bundled_broker.bootstrap_servers
    network = NetworkThread(ClientConfig(bootstrap_servers=address))
    network.start()
    network.admin.create_topics([NewTopic(name=f"http-{name}", partitions=1) for name in ("in", "more")])
    network.stop()
    with contextlib.closing(instance(address, tmp_path, "old", 0, "http-in")) as old:
        old.start()
        first = str(old.config.application_server)
        wait_until(lambda: get(first, "/readyz")[0] == 200, "the old version is ready")
        alone = told(first, lambda body: body["instance"]["ready"], "its group is described")
        assert (alone["phase"], alone["topology_epoch"]) == ("one version", 0)
        with contextlib.closing(instance(address, tmp_path, "new", 1, "http-in", "http-more")) as new:
            new.start()
            second = str(new.config.application_server)

            def has_task(body: dict[str, Any]) -> bool:
                return len(body["instance"]["tasks"]["active"]) == 1 and body["instance"]["ready"]

            body = told(second, has_task, "the new version runs the only task")
            assert [(row["topology_epoch"], row["members"]) for row in body["versions"]] == [(1, 1), (0, 1)]
            assert body["phase"] == "upgrading"
            assert "1 of 2 instances run topology epoch 1" in " ".join(body["advice"])

            def is_idle(body: dict[str, Any]) -> bool:
                # Its tasks are those of its last snapshot, a tenth of a second old.
                idle = body["instance"]["is_behind"] and not body["instance"]["tasks"]["active"]
                return idle and body["instance"]["ready"]

            idle = told(first, is_idle, "the old one knows, and is ready")["instance"]
            assert (idle["tasks"]["active"], idle["topology_epoch"]) == ([], 0)
            for address in (first, second):
                wait_until(lambda address=address: get(address, "/readyz")[0] == 200, "both are ready")
