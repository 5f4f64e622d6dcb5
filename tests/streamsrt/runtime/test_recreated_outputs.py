"""Output topics that are created again with other partitions, while the application writes to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from tests.fixtures_brokers import BundledBroker
from tests.system.cluster import Row, connected
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes

pytestmark = pytest.mark.waits

ROWS = [Row(b"%d" % number, b"v", number) for number in range(20)]


@pytest.mark.parametrize("placed", [False, True], ids=["by key", "by a partitioner"])
def test_a_topic_with_fewer_partitions_is_written_to_after_the_time_out(
    tmp_path: Path, bundled_broker: BundledBroker, placed: bool
) -> None:
    name = tmp_path.name
    builder = StreamsBuilder()

    def last(_topic: str, _key: object, _value: object, partitions: int) -> int:
        return partitions - 1

    builder.stream(f"{name}-in", key=serdes.bytes, value=serdes.bytes).to(
        f"{name}-out", partitioner=last if placed else None
    )
    config = {
        "application.id": name,
        "state.dir": tmp_path,
        "delivery.timeout.ms": 1_500,
        "commit.interval.ms": 100,
    }
    with connected(bundled_broker) as cluster:
        cluster.make_topics(1, f"{name}-in")
        cluster.make_topics(4, f"{name}-out")
        with KafkaStreams(builder.build(), {**config, "bootstrap.servers": cluster.address}) as streams:
            cluster.write(f"{name}-in", ROWS, 1)
            wait_until(lambda: len(cluster.read(f"{name}-out")) == 20, "all is written")
            cluster.network.admin.delete_topics([f"{name}-out"])
            cluster.make_topics(2, f"{name}-out")
            cluster.write(f"{name}-in", ROWS, 1)
            wait_until(lambda: streams.progress.processed_records >= 40, "all is processed")
            wait_until(
                lambda: {row.key for row in cluster.read(f"{name}-out")} == {row.key for row in ROWS},
                "all is written again",
                timeout_s=30,
                pause_s=0.5,
            )
