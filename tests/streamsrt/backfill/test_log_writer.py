"""Writing results into logs."""

from __future__ import annotations

from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.log_writer import TRANSACTION_BYTES, LogTarget, TransactionalLogWriter
from streamsrt.backfill.sources import connected
from streamsrt.client.values import NewTopic
from streamsrt.wire.records import encode_batch
from tests.streamsrt.backfill.scene import Scene

TOPIC = "large-records"
RECORD_BYTES = 512 << 10


def test_a_transaction_of_large_records_does_not_grow_without_end(scene: Scene) -> None:
    count = 5 * TRANSACTION_BYTES // (2 * RECORD_BYTES)
    path = scene.folder / "large.log"
    with open(path, "wb") as file:
        file.writelines(encode_batch([b"%d" % number], [bytes(RECORD_BYTES)], [number]) for number in range(count))
    scene.network.admin.create_topics([NewTopic(name=TOPIC, partitions=1, configs={"retention.ms": "-1"})])
    target = LogTarget(TOPIC, 0, 0, (path,), count)
    with connected(scene.servers, transactional_id="large") as network:
        writer = TransactionalLogWriter(network, "large")
        end = writer.write(target)
        assert writer.write(target) == end
        written = [key for columns in read_log(network, (TOPIC, 0), 0, end) for key in columns.keys]
    assert written == [b"%d" % number for number in range(count)]
    # Beside the records there is the marker of each transaction.
    assert end == count + 3
