"""Results on their way into a log."""

from __future__ import annotations

from pathlib import Path

from streamsrt.backfill.log_writer import TRANSACTION_BYTES, LogTarget, TransactionalLogWriter
from streamsrt.backfill.sources import connected
from streamsrt.client.values import NewTopic
from streamsrt.wire.records import encode_batch, iter_headers
from tests.fixtures_brokers import BundledBroker

TOPIC, GROUP = "log-writer", "log-writer-backfill"
VALUE_BYTES = 1 << 19


def test_large_records_make_many_transactions(tmp_path: Path, bundled_broker: BundledBroker) -> None:
    """The broker ends one that lasts too long: with large records, so many of them would never get there."""
    count = 2 * TRANSACTION_BYTES // VALUE_BYTES + 1
    path = tmp_path / "x.log"
    with path.open("wb") as log:
        for number in range(count):
            log.write(encode_batch([b"%d" % number], [bytes(VALUE_BYTES)], [0]))
    with connected(bundled_broker.bootstrap_servers, transactional_id=GROUP) as network:
        network.admin.create_topics([NewTopic(name=TOPIC, partitions=1, configs={"retention.ms": "-1"})])
        writer = TransactionalLogWriter(network, GROUP)
        end = writer.write(LogTarget(TOPIC, 0, 0, (path,), count))
        network.fetcher.add_partitions({(TOPIC, 0): 0})
        at = records = transactions = 0
        while at < end:
            for fetched in network.fetcher.poll(1.0):
                at = fetched.next_offset
                for _, header in iter_headers(fetched.buffer):
                    transactions += header.is_control
                    records += 0 if header.is_control else header.records_count
    assert (records, transactions) == (count, 3)
