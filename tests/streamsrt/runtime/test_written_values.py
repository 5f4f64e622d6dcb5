"""What the ends of changelogs tell of the version that has written last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamsrt.client.network import ClientConfig, NetworkThread
from streamsrt.client.values import FetchConfig, NewTopic, ProducerConfig
from streamsrt.runtime.written_values import LatestVersions, newer_values_written
from streamsrt.wire.records import encode_batch
from tests.fixtures_brokers import BundledBroker
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology
from topology.spec.row_versions import MAGIC

WAIT_S = 30.0
CHANGELOG = "written-rows-changelog"
TAGGED = MAGIC + (2).to_bytes(2, "big") + b"value"


@pytest.fixture
def network(bundled_broker: BundledBroker) -> Iterator[NetworkThread]:
    network = NetworkThread(
        ClientConfig(
            bootstrap_servers=bundled_broker.bootstrap_servers,
            producer=ProducerConfig(transactional_id="writer"),
            fetch=FetchConfig(isolation_level="read_committed"),
            restore=FetchConfig(isolation_level="read_committed"),
        ),
        restores_apart=True,
    )
    network.start()
    network.transactions.initialize(WAIT_S)
    yield network
    network.stop()


def kept() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).group_by_key().count(store="rows")
    return builder.build().with_default_serdes()


def write(network: NetworkThread, values: list[bytes | None], *, committed: bool) -> None:
    for value in values:
        network.producer.send(CHANGELOG, 0, encode_batch([b"k"], [value], [0], transactional=True), 1)
    network.producer.flush(WAIT_S)
    if committed:
        network.transactions.commit("written", {}, member_id="", member_epoch=-1, timeout_s=WAIT_S)
    else:
        network.transactions.abort(WAIT_S)


@pytest.mark.parametrize("at_start", [True, False])
def test_what_was_aborted_hides_no_later_values(network: NetworkThread, *, at_start: bool) -> None:
    def found() -> list[int]:
        newer = newer_values_written(network, "written", kept().subtopologies[0].stores, records=10, at_start=at_start)
        return [each.version for each in newer]

    seen = LatestVersions(network, records=10)

    def seen_so_far() -> dict[str, int]:
        return seen.of({CHANGELOG, "written-nowhere-changelog"}, WAIT_S)

    assert network.admin.create_topics([NewTopic(name=CHANGELOG, partitions=1)]) == {CHANGELOG: None}
    try:
        write(network, [b"value"] * 100, committed=True)
        write(network, [TAGGED], committed=False)
        assert found() == [], "nobody has committed it"
        assert seen_so_far() == {}
        write(network, [TAGGED] * 3, committed=True)
        write(network, [TAGGED, b"value"] * 40, committed=False)
        assert found() == [2]
        assert seen_so_far() == {CHANGELOG: 2}
        write(network, [b"value"] * 10, committed=True)
        assert found() == [], "only the end is read"
        assert seen_so_far() == {CHANGELOG: 2}, "who looks again keeps it"
    finally:
        network.admin.delete_topics([CHANGELOG])
