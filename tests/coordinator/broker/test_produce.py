from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator.server.tcp import ProtocolViolationError
from streamsrt.wire import types
from streamsrt.wire.records import Compression, encode_batch
from tests.coordinator.broker import odd_batches
from tests.coordinator.broker.in_process import START_MS, InProcessBroker, batch, production

Result = types.ProduceResponse.PartitionProduceResponse


def produce(broker: InProcessBroker, request: types.ProduceRequest, version: int = 12) -> Result:
    result: Result = broker.ask(request, version).responses[0].partition_responses[0]
    return result


def numbered(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 5) -> bytes:
    values = [b"%d" % (sequence + i) for i in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class TestProduce:
    @pytest.mark.parametrize("acks", [1, -1])
    @pytest.mark.parametrize("version", range(3, 13))
    def test_offsets_by_name(self, broker: InProcessBroker, version: int, acks: int) -> None:
        broker.create("t")
        first = produce(broker, production("t", {0: batch(b"a", b"b")}, acks=acks), version)
        second = produce(broker, production("t", {0: batch(b"c")}, acks=acks), version)
        assert [(each.error_code, each.base_offset) for each in (first, second)] == [(0, 0), (0, 2)]
        assert broker.values("t") == [b"a", b"b", b"c"]

    def test_by_id(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t")
        answer = broker.ask(production(topic_id, {0: batch(b"a")}), 13)
        assert answer.responses[0].topic_id == topic_id
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert produce(broker, production(b"x" * 16, {0: batch(b"a")}), 13).error_code == 100

    def test_without_acks_there_is_no_answer(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert broker.ask(production("t", {0: batch(b"a")}, acks=0), 12) is None
        assert broker.values("t") == [b"a"]

    def test_an_error_without_acks_ends_the_connection(self, broker: InProcessBroker) -> None:
        with pytest.raises(ProtocolViolationError, match="UNKNOWN_TOPIC_OR_PARTITION for t-0"):
            broker.ask(production("t", {0: batch(b"a")}, acks=0), 12)

    @pytest.mark.parametrize("count", [3, 300])
    def test_an_error_without_acks_leaves_nothing_else_out(self, broker: InProcessBroker, count: int) -> None:
        broker.create("t", count)
        batches: dict[int, bytes | None] = {count: batch(b"a"), **dict.fromkeys(range(count), batch(b"a"))}

        async def scenario() -> None:
            with pytest.raises(ProtocolViolationError, match=f"UNKNOWN_TOPIC_OR_PARTITION for t-{count}"):
                await broker.send(production("t", batches, acks=0), 12)

        asyncio.run(scenario())
        assert [broker.values("t", partition) for partition in range(count)] == [[b"a"]] * count

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_other_acks(self, broker: InProcessBroker, acks: int) -> None:
        broker.create("t")
        assert produce(broker, production("t", {0: batch(b"a")}, acks=acks)).error_code == 21
        assert broker.values("t") == []

    def test_each_partition_succeeds_or_fails_by_itself(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        damaged = bytearray(batch(b"abc"))
        damaged[-1] ^= 1
        parts = {0: batch(b"a"), 1: bytes(damaged), 2: batch(b"c"), -1: batch(b"d")}
        results = broker.ask(production("t", parts), 12).responses[0].partition_responses
        assert [(each.index, each.error_code, each.base_offset) for each in results] == [
            (0, 0, 0),
            (1, 2, -1),
            (2, 3, -1),
            (-1, 3, -1),
        ]

    @pytest.mark.parametrize(
        ("records", "code"),
        [
            (None, 87),
            (b"", 87),
            (b"\0", 87),
            (batch(b"v")[:-1], 87),
            (batch(b"v") + b"\0", 2),
            (batch(b"x" * 2000), 10),
            (numbered(0) + numbered(1), 87),
        ],
    )
    def test_what_the_log_refuses(self, broker: InProcessBroker, records: bytes | None, code: int) -> None:
        broker.create("t", max_message_bytes="1000")
        result = produce(broker, production("t", {0: records}))
        assert (result.error_code, result.base_offset) == (code, -1)
        assert result.error_message
        assert broker.values("t") == []

    @pytest.mark.parametrize("body", [b"", b"\x0c", b"\x80", b"\x80" * 8])
    def test_a_claim_of_many_records(self, broker: InProcessBroker, body: bytes) -> None:
        broker.create("t")
        assert produce(broker, production("t", {0: odd_batches.batch(body, 400)})).error_code == 87

    def test_internal_topics_are_the_brokers(self, broker: InProcessBroker) -> None:
        assert produce(broker, production("__consumer_offsets", {0: batch(b"v")})).error_code == 17

    def test_unknown_topics(self, broker: InProcessBroker) -> None:
        assert produce(broker, production("t", {0: batch(b"v")})).error_code == 3

    def test_log_append_time(self, broker: InProcessBroker) -> None:
        broker.create("t", message_timestamp_type="LogAppendTime")
        broker.now_ms += 777
        assert produce(broker, production("t", {0: batch(b"v")})).log_append_time_ms == START_MS + 777

    @pytest.mark.parametrize("compression", list(Compression))
    def test_batches_stay_as_they_came(self, broker: InProcessBroker, compression: Compression) -> None:
        broker.create("t")
        broker.produce("t", b"first")
        produce(broker, production("t", {0: batch(*[b"value"] * 50, compression=compression)}))
        assert broker.values("t", offset=1) == [b"value"] * 50


class TestIdempotence:
    def test_a_batch_sent_again_is_written_once(self, broker: InProcessBroker) -> None:
        broker.create("t")
        for sequence in range(3):
            produce(broker, production("t", {0: numbered(sequence)}))
        again = produce(broker, production("t", {0: numbered(1)}))
        assert (again.error_code, again.base_offset) == (0, 1)
        assert broker.values("t") == [b"0", b"1", b"2"]

    def test_gaps_and_old_epochs(self, broker: InProcessBroker) -> None:
        broker.create("t")
        produce(broker, production("t", {0: numbered(0, epoch=1)}))
        assert produce(broker, production("t", {0: numbered(5, epoch=1)})).error_code == 45
        assert produce(broker, production("t", {0: numbered(1, epoch=0)})).error_code == 47
        assert produce(broker, production("t", {0: numbered(3, epoch=2)})).error_code == 45
        assert produce(broker, production("t", {0: numbered(0, epoch=2)})).error_code == 0

    def test_sequences_are_known_after_a_restart(self, broker: InProcessBroker) -> None:
        broker.create("t")
        produce(broker, production("t", {0: numbered(0)}))
        broker.restart()
        assert produce(broker, production("t", {0: numbered(0)})).base_offset == 0
        assert produce(broker, production("t", {0: numbered(2)})).error_code == 45
        assert produce(broker, production("t", {0: numbered(1)})).base_offset == 1


class TestTransactionalBatches:
    """One without an open transaction would keep read_committed readers waiting for ever."""

    @pytest.mark.parametrize(("transactional_id", "code"), [(None, 53), ("x", 49)])
    def test_without_a_transaction(self, broker: InProcessBroker, transactional_id: str | None, code: int) -> None:
        broker.create("t")
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        result = produce(broker, production("t", {0: records}, transactional_id=transactional_id))
        assert result.error_code == code
        assert produce(broker, production("t", {0: records[:40]}, transactional_id="x")).error_code == 87
        topic = broker.broker.topics.get("t")
        assert topic is not None
        assert topic.partitions[0].last_stable_offset == topic.partitions[0].high_watermark == 0

    def test_plain_batches_of_a_transactional_producer_are_its_own_matter(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert produce(broker, production("t", {0: batch(b"v")}, transactional_id="x")).error_code == 0


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    def test_ids_are_given_out_once(self, broker: InProcessBroker, version: int) -> None:
        request = types.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        given = [broker.ask(request, version).producer_id for _ in range(3)]
        broker.restart()
        given += [broker.ask(request, version).producer_id for _ in range(1100)]
        assert len(set(given)) == 1103
        assert min(given) >= 0


def test_a_group_fsync_holds_the_answer_back_until_the_disk_has_it(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path, {"log.fsync": "group"})

    async def scenario() -> None:
        created = await broker.send(types.CreateTopicsRequest(topics=[], timeout_ms=0))
        assert created.topics == []
        topic = broker.broker.topics.create("t", 1, {})
        log = topic.partitions[0]
        answer = broker.send(production("t", {0: batch(b"v")}), 12)
        assert log.synced_offset == 0
        result = (await answer).responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (0, 0)
        assert log.synced_offset == 1
        assert not broker.broker.topics.log.has_unsynced

    asyncio.run(scenario())
    broker.close()


def refusal_of(broker: InProcessBroker, topic: str, records: bytes) -> tuple[int, str]:
    result = broker.ask(production(topic, {0: records}), 12).responses[0].partition_responses[0]
    return result.error_code, result.error_message or ""


def test_a_compacted_topic_takes_no_record_without_a_key(broker: InProcessBroker) -> None:
    broker.create("t", cleanup_policy="compact")
    code, text = refusal_of(broker, "t", batch(b"a", b"b"))
    assert code == 87
    assert "batchIndex=1, message='Compacted topic cannot accept message without key in topic partition t-0'" in text
    assert refusal_of(broker, "t", encode_batch([b"k"], [None], [START_MS])) == (0, "")


def test_timestamps_too_far_from_the_brokers_clock(broker: InProcessBroker) -> None:
    broker.create("t", message_timestamp_before_max_ms="1000")
    assert refusal_of(broker, "t", batch(b"a", timestamp_ms=START_MS + 3_600_000))[0] == 0
    code, text = refusal_of(broker, "t", batch(b"a", timestamp_ms=START_MS + 3_600_001))
    assert code == 32
    assert text == "One or more records have been rejected due to invalid timestamp"
    assert refusal_of(broker, "t", batch(b"a", timestamp_ms=START_MS - 1000))[0] == 0
    assert refusal_of(broker, "t", encode_batch([None], [b"a"], [-1]))[0] == 0
    code, text = refusal_of(broker, "t", batch(b"a", b"b", timestamp_ms=START_MS - 1001))
    assert code == 32
    assert text == "One or more records have been rejected due to invalid timestamp"
    broker.create("appended", message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1000")
    assert refusal_of(broker, "appended", batch(b"a", timestamp_ms=5))[0] == 0
