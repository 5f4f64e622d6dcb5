"""Writing results into logs."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.log_writer import TRANSACTION_BYTES, LogTarget, TransactionalLogWriter
from streamsrt.backfill.sources import connected
from streamsrt.client.values import NewTopic, OffsetAndMetadata, ProducerFencedError
from streamsrt.errors import StreamsError
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
        writer.take_over()
        end = writer.write(target)
        assert writer.write(target) == end
        written = [key for columns in read_log(network, (TOPIC, 0), 0, end) for key in columns.keys]
    assert written == [b"%d" % number for number in range(count)]
    # Beside the records there is the marker of each transaction.
    assert end == count + 3


def test_only_the_writer_that_took_over_last_commits_offsets(scene: Scene) -> None:
    admin, group, tp = scene.network.admin, "of-two-writers", (TOPIC, 0)
    admin.create_topics([NewTopic(name=TOPIC, partitions=1)])
    with ExitStack() as stack:
        first, second = (
            TransactionalLogWriter(
                stack.enter_context(connected(scene.servers, transactional_id="shared")), f"counts-{i}"
            )
            for i in range(2)
        )
        first.take_over()
        first.commit_offsets(group, {tp: OffsetAndMetadata(1)}, lambda: None)
        assert admin.committed(group) == {tp: OffsetAndMetadata(1)}

        def refuse() -> None:
            raise HandOverError("somebody else was here")

        with pytest.raises(HandOverError, match="was here"):
            first.commit_offsets(group, {tp: OffsetAndMetadata(2)}, refuse)
        assert admin.committed(group) == {tp: OffsetAndMetadata(1)}
        with pytest.raises(ProducerFencedError):
            # As late as it can be.
            first.commit_offsets(group, {tp: OffsetAndMetadata(3)}, second.take_over)
        with pytest.raises(ProducerFencedError):
            first.check_written(())
        second.commit_offsets(group, {tp: OffsetAndMetadata(4)}, lambda: None)
        assert admin.committed(group) == {tp: OffsetAndMetadata(4)}
        path = scene.folder / "one.log"
        path.write_bytes(encode_batch([b"k"], [b"v"], [1]))
        with pytest.raises(StreamsError):
            first.write(LogTarget(TOPIC, 0, 0, (path,), 1))
        assert scene.count(TOPIC) == 0
        assert second.write(LogTarget(TOPIC, 0, 0, (path,), 1)) == 2
