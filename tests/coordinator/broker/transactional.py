"""A transactional producer that is nothing but requests, for an :class:`InProcessBroker`."""

from __future__ import annotations

from coordinator.machine.values import ProducerIdAndEpoch
from coordinator.txn.values import NO_PRODUCER
from streamsrt.wire import types
from streamsrt.wire.records import decode_batches
from tests.coordinator.broker.in_process import InProcessBroker, batch, fetching, production


class TransactionalProducer:
    """Keeps its sequence numbers. Every method gives the error code of the answer, 0 for success."""

    def __init__(self, broker: InProcessBroker, name: str = "x", timeout_ms: int = 60_000) -> None:
        self.broker = broker
        self.name = name
        self.timeout_ms = timeout_ms
        self.producer = NO_PRODUCER
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, expected: ProducerIdAndEpoch = NO_PRODUCER) -> int:
        answer = self.broker.ask(
            types.InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=expected.id,
                producer_epoch=expected.epoch,
            )
        )
        if not answer.error_code:
            self.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return int(answer.error_code)

    def add(self, topic: str, *partitions: int) -> int:
        entry = types.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        answer = self.broker.ask(
            types.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer.id,
                v3_and_below_producer_epoch=self.producer.epoch,
                v3_and_below_topics=[entry],
            )
        )
        codes = {e.partition_error_code for t in answer.results_by_topic_v3_and_below for e in t.results_by_partition}
        assert len(codes) == 1, codes
        return int(codes.pop())

    def write(self, topic: str, partition: int, *values: bytes) -> int:
        """Produces one batch; ``add`` must have come before."""
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            *values,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        answer = self.broker.ask(production(topic, {partition: records}, transactional_id=self.name), 12)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequences[topic, partition] = sequence + len(values)
        return code

    def send(self, topic: str, partition: int, *values: bytes) -> int:
        """Adds the partition and produces."""
        return self.add(topic, partition) or self.write(topic, partition, *values)

    def add_offsets(self, group_id: str) -> int:
        answer = self.broker.ask(
            types.AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                group_id=group_id,
            )
        )
        return int(answer.error_code)

    def commit_offset(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        member_id: str = "",
        epoch: int = -1,
        metadata: str = "",
        version: int = 5,
    ) -> int:
        """TxnOffsetCommit of one offset; ``add_offsets`` must have come before."""
        request = types.TxnOffsetCommitRequest
        entry = request.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        answer = self.broker.ask(
            request(
                transactional_id=self.name,
                group_id=group_id,
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                topics=[request.TxnOffsetCommitRequestTopic(name=topic, partitions=[entry])],
            ),
            version,
        )
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, committed: bool) -> int:
        answer = self.broker.ask(
            types.EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                committed=committed,
            )
        )
        return int(answer.error_code)

    def commit(self) -> int:
        return self.end(committed=True)

    def abort(self) -> int:
        return self.end(committed=False)


def committed_values(broker: InProcessBroker, topic: str, partition: int = 0) -> list[bytes | None]:
    """What a read_committed consumer makes of the partition."""
    data = broker.ask(fetching(topic, {partition: 0}, isolation_level=1), 12).responses[0].partitions[0]
    assert data.error_code == 0, data
    aborted = [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()]
    return [value for columns in decode_batches(bytes(data.records), aborted=aborted) for value in columns.values]


def fetched_offset(
    broker: InProcessBroker, group_id: str, topic: str, partition: int = 0, *, stable: bool = True
) -> tuple[int, int]:
    """(error code, offset) of OffsetFetch; -1 stands for no offset."""
    request = types.OffsetFetchRequest
    asked = request.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    group = request.OffsetFetchRequestGroup(group_id=group_id, topics=[asked])
    answer = broker.ask(request(groups=[group], require_stable=stable), 9)
    entry = answer.groups[0].topics[0].partitions[0]
    return int(entry.error_code), int(entry.committed_offset)


def stable_offset(broker: InProcessBroker, topic: str, partition: int = 0) -> int:
    """The last stable offset of a partition."""
    found = broker.broker.topics.get(topic)
    assert found is not None
    return found.partitions[partition].last_stable_offset
