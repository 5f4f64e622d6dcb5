"""Transactions over the whole broker: what readers see, what is refused, what a restart brings back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator.log import PartitionLog
from streamsrt.wire import types
from tests.coordinator.broker.in_process import START_MS, InProcessBroker, batch, production
from tests.coordinator.broker.transactional import (
    TransactionalProducer,
    committed_values,
    fetched_offset,
    stable_offset,
)

FENCED, OLD_EPOCH, UNKNOWN_MAPPING, WRONG_STATE, CONCURRENT = 90, 47, 49, 48, 51
UNSTABLE, UNKNOWN_PARTITION = 88, 3


@pytest.fixture
def topic(broker: InProcessBroker) -> str:
    broker.create("t", 2)
    return "t"


@pytest.fixture
def producer(broker: InProcessBroker, topic: str) -> TransactionalProducer:
    made = TransactionalProducer(broker)
    assert made.init() == 0
    return made


class TestRecords:
    def test_count_from_the_commit_on(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        assert producer.send("t", 0, b"a", b"b") == 0
        assert producer.send("t", 1, b"c") == 0
        assert committed_values(broker, "t") == []
        assert broker.values("t") == [b"a", b"b"], "read_uncommitted"
        assert producer.commit() == 0
        assert [committed_values(broker, "t", number) for number in (0, 1)] == [[b"a", b"b"], [b"c"]]
        assert stable_offset(broker, "t") == 3

    def test_never_count_after_an_abort(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.send("t", 0, b"a")
        assert producer.abort() == 0
        producer.send("t", 0, b"b")
        assert producer.commit() == 0
        assert committed_values(broker, "t") == [b"b"]

    def test_wait_for_an_older_transaction(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        other = TransactionalProducer(broker, "y")
        other.init()
        producer.send("t", 0, b"a")
        other.send("t", 0, b"b")
        other.commit()
        assert (committed_values(broker, "t"), stable_offset(broker, "t")) == ([], 0)
        producer.abort()
        assert committed_values(broker, "t") == [b"b"]

    def test_sequences_go_on_over_transactions(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        for number in range(3):
            assert producer.send("t", 0, b"%d" % number) == 0
            assert producer.commit() == 0
        assert producer.send("t", 0, b"3") == 0
        producer.sequences["t", 0] = 3
        assert producer.write("t", 0, b"3") == 0, "sent again"
        producer.commit()
        assert committed_values(broker, "t") == [b"0", b"1", b"2", b"3"]

    def test_only_in_partitions_of_the_transaction(self, producer: TransactionalProducer) -> None:
        assert producer.write("t", 0, b"a") == WRONG_STATE
        producer.add("t", 1)
        assert producer.write("t", 0, b"a") == WRONG_STATE
        producer.commit()
        assert producer.write("t", 1, b"a") == WRONG_STATE

    def test_markers_fit_whatever_the_topic_allows(self, broker: InProcessBroker) -> None:
        broker.create("small", max_message_bytes="100", message_timestamp_type="LogAppendTime")
        producer = TransactionalProducer(broker)
        producer.init()
        assert producer.send("small", 0, b"a") == 0
        broker.broker.topics.set_configs(_topic(broker, "small"), {"max.message.bytes": "1", "segment.bytes": "14"})
        assert producer.commit() == 0
        assert committed_values(broker, "small") == [b"a"]

    def test_a_topic_that_is_deleted_meanwhile(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        broker.create("gone")
        producer.send("gone", 0, b"a")
        producer.send("t", 0, b"b")
        broker.ask(types.DeleteTopicsRequest(topics=[], topic_names=["gone"], timeout_ms=0), 5)
        assert producer.commit() == 0
        assert committed_values(broker, "t") == [b"b"]
        assert producer.send("t", 0, b"c") == 0


def _topic(broker: InProcessBroker, name: str):  # type: ignore[no-untyped-def]
    topic = broker.broker.topics.get(name)
    assert topic is not None
    return topic


class TestFencing:
    def test_an_older_producer_can_do_nothing(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.send("t", 0, b"old")
        newer = TransactionalProducer(broker)
        assert newer.init() == CONCURRENT, "the transaction of the older one is being aborted"
        assert newer.init() == 0
        assert newer.producer.id == producer.producer.id
        newer.send("t", 0, b"new")
        assert producer.write("t", 0, b"zombie") == OLD_EPOCH
        assert producer.add("t", 0) == FENCED
        assert producer.add_offsets("g") == FENCED
        assert producer.commit_offset("g", "t", 0, 1) == OLD_EPOCH
        assert producer.commit() == FENCED
        assert producer.init(expected=producer.producer) == FENCED
        assert newer.commit() == 0
        assert committed_values(broker, "t") == [b"new"]

    @pytest.mark.parametrize(
        ("message", "first_version"),
        [
            (
                types.InitProducerIdRequest(
                    transactional_id="x", transaction_timeout_ms=1, producer_id=9, producer_epoch=0
                ),
                4,
            ),
            (types.AddOffsetsToTxnRequest(transactional_id="x", group_id="g", producer_id=0, producer_epoch=9), 2),
            (types.EndTxnRequest(transactional_id="x", producer_id=0, producer_epoch=9), 2),
        ],
    )
    def test_older_clients_are_told_so_in_their_way(
        self, broker: InProcessBroker, producer: TransactionalProducer, message: types.Message, first_version: int
    ) -> None:
        assert broker.ask(message, first_version).error_code == FENCED
        assert broker.ask(message, first_version - 1).error_code == OLD_EPOCH

    def test_a_producer_id_of_somebody_else(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.producer = producer.producer._replace(id=77)
        assert producer.add("t", 0) == UNKNOWN_MAPPING
        assert producer.write("t", 0, b"a") == UNKNOWN_MAPPING
        assert producer.commit() == UNKNOWN_MAPPING

    def test_transactions_that_last_too_long(self, broker: InProcessBroker, topic: str) -> None:
        producer = TransactionalProducer(broker, timeout_ms=5000)
        producer.init()
        producer.send("t", 0, b"a")
        broker.now_ms += 4999
        assert broker.broker.transactions.tick() == 1
        assert stable_offset(broker, "t") == 0
        broker.now_ms += 1
        broker.broker.transactions.tick()
        assert (committed_values(broker, "t"), stable_offset(broker, "t")) == ([], 2)
        assert producer.write("t", 0, b"b") == OLD_EPOCH
        assert producer.commit() == FENCED
        assert producer.init() == 0
        assert producer.send("t", 0, b"c") == 0

    def test_the_bounds_of_the_timeout(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path, {"transaction.max.timeout.ms": "1000"})
        assert TransactionalProducer(broker, timeout_ms=1000).init() == 0
        assert TransactionalProducer(broker, timeout_ms=1001).init() == 50
        assert TransactionalProducer(broker, timeout_ms=0).init() == 50
        broker.close()


class TestAddPartitions:
    def test_one_unknown_partition_and_nothing_is_added(
        self, broker: InProcessBroker, producer: TransactionalProducer
    ) -> None:
        entry = types.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = types.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer.id,
            v3_and_below_producer_epoch=producer.producer.epoch,
            v3_and_below_topics=[
                entry(name="t", partitions=[0, 2]),
                entry(name="nosuch", partitions=[0]),
                entry(name="__transaction_state", partitions=[0]),
            ],
        )
        answer = broker.ask(request)
        codes = [[e.partition_error_code for e in t.results_by_partition] for t in answer.results_by_topic_v3_and_below]
        assert codes == [[55, 3], [3], [17]]
        assert producer.write("t", 0, b"a") == WRONG_STATE


class TestOffsets:
    @pytest.mark.requirement("GA-062")
    def test_count_from_the_commit_on(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        assert producer.add_offsets("g") == 0
        assert producer.commit_offset("g", "t", 0, 5, metadata="m") == 0
        assert fetched_offset(broker, "g", "t") == (UNSTABLE, -1)
        assert fetched_offset(broker, "g", "t", stable=False) == (0, -1)
        assert fetched_offset(broker, "g", "t", 1) == (0, -1), "another partition is stable"
        assert fetched_offset(broker, "h", "t") == (0, -1), "another group is stable"
        assert producer.commit() == 0
        assert fetched_offset(broker, "g", "t") == (0, 5)
        assert fetched_offset(broker, "h", "t") == (0, -1)

    def test_never_count_after_an_abort(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 0, 5)
        producer.commit()
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 0, 9)
        assert fetched_offset(broker, "g", "t", stable=False) == (0, 5)
        producer.abort()
        assert fetched_offset(broker, "g", "t") == (0, 5)

    def test_only_in_a_transaction_that_has_the_group(
        self, broker: InProcessBroker, producer: TransactionalProducer
    ) -> None:
        assert producer.commit_offset("g", "t", 0, 5) == WRONG_STATE
        producer.add("t", 0)
        assert producer.commit_offset("g", "t", 0, 5) == WRONG_STATE
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, -1)

    def test_metadata_that_is_too_large(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.add_offsets("g")
        assert producer.commit_offset("g", "t", 0, 5, metadata="m" * 5000) == 12
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, -1)

    def test_not_for_what_does_not_exist(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.add_offsets("g")
        assert producer.commit_offset("g", "nosuch", 0, 5) == UNKNOWN_PARTITION
        assert producer.commit_offset("g", "t", 2, 5) == UNKNOWN_PARTITION
        assert producer.commit_offset("g", "t", 1, 5) == 0
        assert producer.commit() == 0
        assert fetched_offset(broker, "g", "nosuch") == (0, -1)
        assert fetched_offset(broker, "g", "t", 2) == (0, -1)
        assert fetched_offset(broker, "g", "t", 1) == (0, 5)

    def test_of_known_and_unknown_partitions_each_has_its_answer(
        self, broker: InProcessBroker, producer: TransactionalProducer
    ) -> None:
        producer.add_offsets("g")
        request = types.TxnOffsetCommitRequest
        entries = [request.TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in (0, 7)]
        answer = broker.ask(
            request(
                transactional_id=producer.name,
                group_id="g",
                producer_id=producer.producer.id,
                producer_epoch=producer.producer.epoch,
                topics=[request.TxnOffsetCommitRequestTopic(name="t", partitions=entries)],
            ),
            5,
        )
        (topic,) = answer.topics
        assert {e.partition_index: e.error_code for e in topic.partitions} == {0: 0, 7: UNKNOWN_PARTITION}

    def test_none_of_a_deleted_topic_for_one_of_its_name(
        self, broker: InProcessBroker, producer: TransactionalProducer
    ) -> None:
        """A consumer would pass over the new topic's first records."""
        producer.add_offsets("g")
        broker.ask(types.DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=0), 5)
        assert producer.commit_offset("g", "t", 0, 1_000) == UNKNOWN_PARTITION
        assert producer.commit() == 0
        broker.create("t", 2)
        assert fetched_offset(broker, "g", "t") == (0, -1)

    @pytest.mark.parametrize("version", range(6))
    def test_in_every_version(self, broker: InProcessBroker, producer: TransactionalProducer, version: int) -> None:
        producer.add_offsets("g")
        assert producer.commit_offset("g", "t", 0, 5, version=version) == 0
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, 5)

    def test_the_later_of_two_commits_counts(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        other = TransactionalProducer(broker, "y")
        other.init()
        for each, offset in ((producer, 5), (other, 7)):
            each.add_offsets("g")
            each.commit_offset("g", "t", 0, offset)
        other.commit()
        assert fetched_offset(broker, "g", "t") == (UNSTABLE, -1)
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, 7)

    def test_a_plain_commit_after_a_transactional_one(
        self, broker: InProcessBroker, producer: TransactionalProducer
    ) -> None:
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 0, 5)
        commit = types.OffsetCommitRequest
        entry = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=8, committed_metadata="")
        broker.ask(commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=[entry])]), 9)
        assert fetched_offset(broker, "g", "t") == (UNSTABLE, -1)
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, 8)
        broker.restart()
        assert fetched_offset(broker, "g", "t") == (0, 8)

    def test_a_deleted_group_gets_no_offsets_from_before(
        self, broker: InProcessBroker, producer: TransactionalProducer
    ) -> None:
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 0, 5)
        producer.commit()
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 0, 6)
        assert broker.ask(types.DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, -1)


class TestMembers:
    """Only a member of a streams group with its current epoch, or a producer that names no member."""

    @pytest.mark.requirement("CG-192", "SG-422")
    @pytest.mark.parametrize("version", [3, 5])
    def test_epochs(self, broker: InProcessBroker, producer: TransactionalProducer, version: int) -> None:
        epoch = join_streams_group(broker, "g", "m")
        producer.add_offsets("g")

        def code(member_id: str, member_epoch: int) -> int:
            return producer.commit_offset("g", "t", 0, 5, member_id=member_id, epoch=member_epoch, version=version)

        assert code("m", epoch + 1) == 22
        assert code("m", epoch - 1) == 22
        assert code("nobody", epoch) == 25
        assert code("m", epoch) == 0
        assert code("", -1) == 0
        producer.commit()
        assert fetched_offset(broker, "g", "t") == (0, 5)

    def test_a_generation_without_a_group(self, producer: TransactionalProducer) -> None:
        producer.add_offsets("g")
        assert producer.commit_offset("g", "t", 0, 5, member_id="m", epoch=1) == 22


def join_streams_group(broker: InProcessBroker, group_id: str, member_id: str) -> int:
    """The member's epoch."""
    heartbeat = types.StreamsGroupHeartbeatRequest
    subtopology = heartbeat.Subtopology(subtopology_id="0", source_topics=["t"])
    answer = broker.ask(
        heartbeat(
            group_id=group_id,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=1000,
            topology=heartbeat.Topology(epoch=0, subtopologies=[subtopology]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            client_tags=[],
        )
    )
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


class TestRestart:
    def test_an_open_transaction_goes_on(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.send("t", 0, b"a")
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 0, 5)
        broker.restart()
        assert fetched_offset(broker, "g", "t") == (UNSTABLE, -1)
        assert producer.write("t", 0, b"b") == 0
        assert producer.commit() == 0
        assert committed_values(broker, "t") == [b"a", b"b"]
        assert fetched_offset(broker, "g", "t") == (0, 5)
        broker.restart()
        assert committed_values(broker, "t") == [b"a", b"b"]
        assert fetched_offset(broker, "g", "t") == (0, 5)

    def test_a_transaction_that_nobody_knows_is_aborted(self, broker: InProcessBroker) -> None:
        broker.create("t")
        records = batch(b"lost", producer_id=9, producer_epoch=2, base_sequence=0, transactional=True)
        _topic(broker, "t").partitions[0].append(records, now_ms=START_MS)
        broker.restart()
        assert (committed_values(broker, "t"), stable_offset(broker, "t")) == ([], 2)

    def test_ids_do_not_repeat(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        broker.restart()
        other = TransactionalProducer(broker, "y")
        other.init()
        assert other.producer.id != producer.producer.id
        again = TransactionalProducer(broker)
        again.init()
        assert again.producer == producer.producer._replace(epoch=1)


class TestGroupFsync:
    """With log.fsync=group the outcome is on disk before any marker, and the markers before it counts as done."""

    def test_an_answer_means_that_all_of_it_is_on_disk(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path, {"log.fsync": "group"})

        async def scenario() -> None:
            log: PartitionLog = broker.broker.topics.create("t", 1, {}).partitions[0]
            init = types.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
            producer = await broker.send(init)
            (state,) = broker.broker.transactions.logs_of("x")
            assert not state.has_unsynced
            named = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
            add = types.AddPartitionsToTxnRequest
            await broker.send(
                add(
                    v3_and_below_transactional_id="x",
                    **{f"v3_and_below_{key}": value for key, value in named.items()},
                    v3_and_below_topics=[add.AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
            )
            records = batch(b"v", base_sequence=0, transactional=True, **named)
            await broker.send(production("t", {0: records}, transactional_id="x"), 12)
            end = types.EndTxnRequest(transactional_id="x", committed=True, **named)
            answer = broker.send(end)
            assert log.log_end_offset == 1, "no marker before the decision is on disk"
            again = await broker.send(end)
            assert again.error_code == CONCURRENT
            assert (await answer).error_code == 0
            assert (log.log_end_offset, log.synced_offset, log.last_stable_offset) == (2, 2, 2)
            assert (await broker.send(end)).error_code == 0

        asyncio.run(scenario())
        broker.close()


class TestTools:
    def test_list_and_describe(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        other = TransactionalProducer(broker, "y")
        other.init()
        broker.now_ms += 10
        producer.add("t", 1, 0)
        broker.now_ms += 100
        ask = types.ListTransactionsRequest

        def names(**filters: object) -> list[tuple[str, str]]:
            found = broker.ask(ask(**filters)).transaction_states  # type: ignore[arg-type]
            return [(entry.transactional_id, entry.transaction_state) for entry in found]

        assert names() == [("x", "Ongoing"), ("y", "Empty")]
        assert names(state_filters=["Ongoing", "CompleteCommit"]) == [("x", "Ongoing")]
        assert names(producer_id_filters=[other.producer.id]) == [("y", "Empty")]
        assert names(duration_filter=99) == [("x", "Ongoing")]
        assert names(duration_filter=100) == []
        unknown = broker.ask(ask(state_filters=["Running"]))
        assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Running"], [])
        described = broker.ask(types.DescribeTransactionsRequest(transactional_ids=["x", "z"])).transaction_states
        assert [(e.error_code, e.transaction_state) for e in described] == [(0, "Ongoing"), (105, "")]
        assert described[0].transaction_start_time_ms == START_MS + 10
        assert [(t.topic, t.partitions) for t in described[0].topics] == [("t", [0, 1])]

    def test_before_there_was_any_transaction(self, broker: InProcessBroker) -> None:
        assert broker.ask(types.ListTransactionsRequest()).transaction_states == []
        described = broker.ask(types.DescribeTransactionsRequest(transactional_ids=["x", ""])).transaction_states
        assert [entry.error_code for entry in described] == [105, 42]
        assert broker.broker.topics.get("__transaction_state") is None

    def test_describe_producers(self, broker: InProcessBroker, producer: TransactionalProducer) -> None:
        producer.send("t", 0, b"a", b"b")
        wanted = types.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1, 7])
        (topic,) = broker.ask(types.DescribeProducersRequest(topics=[wanted])).topics
        assert [entry.error_code for entry in topic.partitions] == [0, 0, 3]
        (found,) = topic.partitions[0].active_producers
        assert (found.producer_id, found.producer_epoch) == producer.producer
        assert (found.last_sequence, found.current_txn_start_offset) == (1, 0)
        assert topic.partitions[1].active_producers == []

    @pytest.mark.requirement("GA-012")
    @pytest.mark.parametrize("version", range(1, 7))
    def test_find_coordinator(self, broker: InProcessBroker, version: int) -> None:
        answer = broker.ask(types.FindCoordinatorRequest(key_type=1, key="x", coordinator_keys=["x"]), version)
        found = answer if version < 4 else answer.coordinators[0]
        assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
        assert _topic(broker, "__transaction_state").is_internal
