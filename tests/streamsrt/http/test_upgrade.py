"""What instances answer at ``/upgrade`` while two versions run, and that probes suit a rolling update."""

from __future__ import annotations

import contextlib
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
        status, alone = get(first, "/upgrade")
        assert (status, alone["phase"], alone["topology_epoch"], alone["instance"]["ready"]) == (
            200,
            "one version",
            0,
            True,
        )
        with contextlib.closing(instance(address, tmp_path, "new", 1, "http-in", "http-more")) as new:
            new.start()
            second = str(new.config.application_server)

            def is_taken() -> bool:
                return len(get(second, "/upgrade")[1]["instance"]["tasks"]["active"]) == 1

            wait_until(is_taken, "the new version has the only task")
            status, body = get(second, "/upgrade")
            assert [(row["topology_epoch"], row["members"]) for row in body["versions"]] == [(1, 1), (0, 1)]
            assert body["phase"] == "upgrading"
            assert "1 of 2 instances run topology epoch 1" in " ".join(body["advice"])
            wait_until(lambda: get(first, "/upgrade")[1]["instance"]["is_behind"], "the old one knows")
            idle = get(first, "/upgrade")[1]["instance"]
            assert (idle["tasks"]["active"], idle["ready"], idle["topology_epoch"]) == ([], True, 0)
            assert get(first, "/readyz")[0] == get(second, "/readyz")[0] == 200
