"""A version is refused that would leave records in flight, in a streams group of a broker that does not look after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.values import OffsetAndMetadata
from streamsrt.config import StreamsConfig
from streamsrt.errors import TopologyMismatchError
from streamsrt.runtime.left_records import refuse_left_records
from tests.kafka_server import KafkaServer
from tests.system.cluster import Row, connected
from topology import StreamsBuilder

PATIENCE_S = 120.0


@pytest.mark.kafka
def test_records_in_flight_of_an_earlier_version_are_not_left_unread(apache_kafka: KafkaServer, tmp_path: Path) -> None:
    name = f"left-{tmp_path.name}".replace("_", "-")
    topic = f"{name}-old-repartition"
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").to(f"{name}-out")
    with connected(apache_kafka) as cluster:
        cluster.make_topics(1, f"{name}-in", f"{name}-out", topic)
        cluster.write(topic, [Row(b"k", b"v", 1)] * 3, 1, partition=0)
        config = {
            "application.id": name,
            "bootstrap.servers": cluster.address,
            "state.dir": tmp_path,
            "group.protocol": "streams",
        }
        admin, built = cluster.network.admin, builder.build()
        read_at_start = {(topic, 0): OffsetAndMetadata(2)}
        with pytest.raises(TopologyMismatchError, match=r"\(1 record\)\."):
            refuse_left_records(StreamsConfig.of(config), built, admin, read_at_start)
        admin.commit(name, {(topic, 0): OffsetAndMetadata(1)})
        with pytest.raises(TopologyMismatchError, match=rf"does not read: {topic} \(2 records\)\."):
            KafkaStreams(builder.build(), config).run(until="quiet", timeout_s=PATIENCE_S, signals=False)
        allowed = KafkaStreams(builder.build(), {**config, "upgrade.lose.in.flight": True})
        allowed.run(until="quiet", timeout_s=PATIENCE_S, signals=False)
        cluster.network.admin.commit(name, {(topic, 0): OffsetAndMetadata(3)})
        KafkaStreams(builder.build(), config).run(until="quiet", timeout_s=PATIENCE_S, signals=False)
