from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker import fetch, slices
from coordinator.broker.fetch import PARTITIONS_AT_ONCE
from coordinator.log import FileRecords, PartitionLog
from coordinator.log.segment import Segment
from streamsrt.wire import types
from streamsrt.wire.messages import encode_request
from streamsrt.wire.records import ControlRecord, ControlType, encode_control_batch
from streamsrt.wire.schema import ApiKey
from tests.coordinator.broker.in_process import (
    START_MS,
    InProcessBroker,
    batch,
    creation,
    fetching,
    production,
    values_of,
)
from tests.coordinator.turns import turn

Data = types.FetchResponse.PartitionData
LONG_MS = 60_000


def fetched(broker: InProcessBroker, request: types.FetchRequest, version: int = 12) -> list[Data]:
    answer = broker.ask(request, version)
    assert (answer.error_code, answer.session_id) == (0, 0)
    return [data for topic in answer.responses for data in topic.partitions]


def log_of(broker: InProcessBroker, name: str, partition: int = 0) -> PartitionLog:
    topic = broker.broker.topics.get(name)
    assert topic is not None
    return topic.partitions[partition]


class TestFetch:
    @pytest.mark.parametrize("version", range(4, 13))
    def test_by_name(self, broker: InProcessBroker, version: int) -> None:
        broker.create("t")
        broker.produce("t", b"a", b"b")
        (data,) = fetched(broker, fetching("t", {0: 0}, session_epoch=-1), version)
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
        assert values_of(data.records) == [b"a", b"b"]

    @pytest.mark.parametrize("version", range(13, 19))
    def test_by_id(self, broker: InProcessBroker, version: int) -> None:
        topic_id = broker.create("t")
        broker.produce("t", b"a")
        answer = broker.ask(fetching(topic_id, {0: 0}), version)
        assert answer.responses[0].topic_id == topic_id
        assert values_of(answer.responses[0].partitions[0].records) == [b"a"]

    @pytest.mark.parametrize(("partition", "offset", "code"), [(0, 3, 1), (0, -1, 1), (2, 0, 3), (-1, 0, 3)])
    def test_errors_of_a_partition(self, broker: InProcessBroker, partition: int, offset: int, code: int) -> None:
        topic_id = broker.create("t")
        broker.produce("t", b"a", b"b")
        for topic, version in (("t", 12), (topic_id, 18)):
            (data,) = fetched(broker, fetching(topic, {partition: offset}, max_wait_ms=LONG_MS), version)
            assert (data.error_code, bytes(data.records or b"")) == (code, b"")

    def test_unknown_topics(self, broker: InProcessBroker) -> None:
        assert fetched(broker, fetching("t", {0: 0}, max_wait_ms=LONG_MS))[0].error_code == 3
        assert fetched(broker, fetching(b"x" * 16, {0: 0}, max_wait_ms=LONG_MS), 18)[0].error_code == 100

    @pytest.mark.parametrize("session_epoch", [0, -1])
    def test_of_nothing_waits_for_nothing(self, broker: InProcessBroker, session_epoch: int) -> None:
        """Java's consumer ends its session so when it is closed."""
        request = fetching("t", {}, session_epoch=session_epoch, max_wait_ms=LONG_MS)
        request.topics = []
        assert broker.ask(request, 12).responses == []

    def test_leader_epochs(self, broker: InProcessBroker) -> None:
        broker.create("t")
        log = log_of(broker, "t")
        assert fetched(broker, fetching("t", {0: 0}, current_leader_epoch=log.leader_epoch))[0].error_code == 0
        assert fetched(broker, fetching("t", {0: 0}, current_leader_epoch=log.leader_epoch + 1))[0].error_code == 75

    def test_a_batch_is_given_whole_from_its_start(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"0", b"1", b"2")
        (data,) = fetched(broker, fetching("t", {0: 2}))
        assert values_of(data.records) == [b"0", b"1", b"2"]
        assert values_of(data.records, 2) == [b"2"]

    def test_the_first_batch_is_given_above_every_limit(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        for partition in (0, 1):
            broker.produce("t", b"x" * 500, partition=partition)
            broker.produce("t", b"y" * 500, partition=partition)
        for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}, {"max_bytes": -1}):
            first, second = fetched(broker, fetching("t", {0: 0, 1: 0}, **limits))
            assert values_of(first.records) == [b"x" * 500]
            assert values_of(second.records) == []

    def test_limits(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        size = len(batch(b"x" * 500))
        for partition in (0, 1):
            for _ in range(3):
                broker.produce("t", b"x" * 500, partition=partition)

        def counts(**limits: int) -> list[int]:
            return [len(values_of(data.records)) for data in fetched(broker, fetching("t", {0: 0, 1: 0}, **limits))]

        assert counts() == [3, 3]
        assert counts(max_bytes=5 * size) == [3, 2]
        assert counts(max_bytes=5 * size - 1) == [3, 1]
        assert counts(partition_max_bytes=2 * size) == [2, 2]

    def test_the_brokers_own_limit(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path, {"fetch.max.bytes": "1024"})
        broker.create("t")
        for _ in range(5):
            broker.produce("t", b"x" * 400)
        (data,) = fetched(broker, fetching("t", {0: 0}))
        assert len(values_of(data.records)) == 2
        broker.close()

    def test_a_diverging_epoch(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"a", b"b")
        epoch = log_of(broker, "t").leader_epoch

        def fetch(offset: int, last_epoch: int) -> Data:
            request = fetching("t", {0: offset}, last_fetched_epoch=last_epoch, max_wait_ms=LONG_MS, min_bytes=0)
            return fetched(broker, request)[0]

        assert fetch(2, epoch).diverging_epoch.epoch == -1
        beyond = fetch(9, epoch)
        assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset, beyond.error_code) == (epoch, 2, 0)
        assert fetch(2, epoch + 5).error_code == 1


class TestLongPoll:
    def run(self, broker: InProcessBroker, request: types.FetchRequest, *then: types.Message, version: int = 12) -> Any:
        """The answer to a fetch that waits until the other requests are done."""

        async def scenario() -> Any:
            answer = broker.send(request, version)
            assert asyncio.iscoroutine(answer), "the fetch does not wait"
            waiting = asyncio.ensure_future(answer)
            for message in then:
                await turn()
                assert not waiting.done()
                broker.ask(message, None if not isinstance(message, types.ProduceRequest) else 12)
            return await asyncio.wait_for(waiting, 10)

        return asyncio.run(scenario())

    def test_an_append_wakes_it(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        answer = self.run(broker, fetching("t", {0: 0, 1: 0}, max_wait_ms=LONG_MS), production("t", {1: batch(b"new")}))
        assert [values_of(data.records) for data in answer.responses[0].partitions] == [[], [b"new"]]
        assert len(broker.broker.purgatory) == 0

    def test_an_append_before_it_gets_to_wait_is_not_missed(self, broker: InProcessBroker) -> None:
        broker.create("t")

        async def scenario() -> Any:
            answer = broker.send(fetching("t", {0: 0}, max_wait_ms=LONG_MS), 12)
            broker.produce("t", b"new")
            return await asyncio.wait_for(answer, 10)

        answer = asyncio.run(scenario())
        assert values_of(answer.responses[0].partitions[0].records) == [b"new"]

    def test_it_waits_for_the_minimum(self, broker: InProcessBroker) -> None:
        broker.create("t")
        size = len(batch(b"v"))
        answer = self.run(
            broker,
            fetching("t", {0: 0}, max_wait_ms=LONG_MS, min_bytes=3 * size),
            *[production("t", {0: batch(b"v")})] * 3,
        )
        assert values_of(answer.responses[0].partitions[0].records) == [b"v"] * 3

    def test_a_minimum_above_the_maximum_does_not_wait_for_ever(self, broker: InProcessBroker) -> None:
        broker.create("t")
        request = fetching("t", {0: 0}, max_wait_ms=LONG_MS, min_bytes=1 << 30, max_bytes=100)
        answer = self.run(broker, request, production("t", {0: batch(b"x" * 200)}))
        assert values_of(answer.responses[0].partitions[0].records) == [b"x" * 200]

    def test_the_time_ends_it_with_what_is_there(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"little")
        answer = self.run(broker, fetching("t", {0: 0}, max_wait_ms=20, min_bytes=10_000))
        assert values_of(answer.responses[0].partitions[0].records) == [b"little"]
        assert len(broker.broker.purgatory) == 0

    def test_the_time_ends_a_wide_one_on_a_broker_that_is_never_quiet(
        self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While many partitions are looked at, others append to topics that are none of its."""
        monkeypatch.setattr(slices, "SLICE_S", 0.0)
        broker.create("t", PARTITIONS_AT_ONCE + 100)
        broker.create("busy")

        async def scenario() -> Any:
            loop = asyncio.get_running_loop()
            request = fetching("t", dict.fromkeys(range(PARTITIONS_AT_ONCE + 100), 0), max_wait_ms=200)
            waiting = asyncio.ensure_future(broker.send(request, 12))

            def append() -> None:
                if not waiting.done():
                    broker.produce("busy", b"v")
                    loop.call_soon(append)

            append()
            done, _ = await asyncio.wait({waiting}, timeout=5)
            assert done, "it looks again and again, though its time is over"
            assert broker.broker.slices.pauses < 100, "it looks once, and again when its time is over"
            return waiting.result()

        answer = asyncio.run(scenario())
        assert not any(data.records for data in answer.responses[0].partitions)
        assert len(broker.broker.purgatory) == 0

    def test_the_deletion_of_the_topic_wakes_it(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t")
        deletion = types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="t")])
        answer = self.run(broker, fetching(topic_id, {0: 0}, max_wait_ms=LONG_MS), deletion, version=18)
        assert answer.responses[0].partitions[0].error_code == 100

    def test_a_topic_made_anew_is_waited_for_in_its_place(self, broker: InProcessBroker) -> None:
        broker.create("t")
        deletion = types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="t")])

        async def scenario() -> Any:
            waiting = asyncio.ensure_future(broker.send(fetching("t", {0: 0}, max_wait_ms=LONG_MS), 12))
            await turn()
            broker.ask(deletion)
            broker.ask(creation("t"))
            await turn()
            await turn()
            broker.produce("t", b"new")
            return await asyncio.wait_for(waiting, 10)

        answer = asyncio.run(scenario())
        assert values_of(answer.responses[0].partitions[0].records) == [b"new"]

    def test_a_broker_that_stops_lets_nobody_wait(self, broker: InProcessBroker) -> None:
        broker.create("t")

        async def scenario() -> Any:
            waiting = asyncio.ensure_future(broker.send(fetching("t", {0: 0}, max_wait_ms=LONG_MS), 12))
            await turn()
            broker.broker.purgatory.close()
            first = await asyncio.wait_for(waiting, 10)
            second = await asyncio.wait_for(broker.send(fetching("t", {0: 0}, max_wait_ms=LONG_MS), 12), 10)
            return first, second

        for answer in asyncio.run(scenario()):
            assert values_of(answer.responses[0].partitions[0].records) == []

    def test_a_client_that_goes_away_leaves_nothing_behind(self, broker: InProcessBroker) -> None:
        broker.create("t")

        async def scenario() -> None:
            waiting = asyncio.ensure_future(broker.send(fetching("t", {0: 0}, max_wait_ms=LONG_MS), 12))
            await turn()
            assert len(broker.broker.purgatory) == 1
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

        asyncio.run(scenario())
        assert len(broker.broker.purgatory) == 0


class TestMuch:
    """More than is held in memory."""

    MANY = 1 << 30

    @pytest.fixture(autouse=True)
    def _little_in_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch, "IN_MEMORY_BYTES", 1000)

    def sent(self, broker: InProcessBroker, *between: types.Message, **limits: int) -> list[Data]:
        """The answer for both partitions, sent after other requests were answered."""
        frame = encode_request(fetching("t", {0: 0, 1: 0}, **limits), 12, 7, "test")[4:]
        parts = broker.dispatcher.handle(frame, "127.0.0.1")
        assert isinstance(parts, list)
        assert sum(len(part) for part in parts if not isinstance(part, FileRecords)) < 1000
        for message in between:
            broker.ask(message)
        (topic,) = broker.decoded(parts, ApiKey.FETCH, 12).responses
        return list(topic.partitions)

    @pytest.fixture
    def broker(self, broker: InProcessBroker) -> InProcessBroker:
        broker.create("t", 2, segment_bytes="5000")
        for i in range(100):
            broker.produce("t", b"%03d" % i + bytes(200))
        broker.produce("t", b"large" + bytes(3000))
        broker.produce("t", b"other", partition=1)
        return broker

    def all_values(self) -> list[bytes]:
        return [*(b"%03d" % i + bytes(200) for i in range(100)), b"large" + bytes(3000)]

    def test_it_is_given_whole(self, broker: InProcessBroker) -> None:
        much, other = self.sent(broker)
        assert values_of(much.records) == self.all_values()
        assert values_of(other.records) == [b"other"]

    @pytest.mark.parametrize("limit", [1500, 5000, 5001, 20_000, 29_000, 31_000])
    def test_limits(self, broker: InProcessBroker, limit: int) -> None:
        log = log_of(broker, "t")
        at_once = sum(map(len, log.read(0, limit).buffers))
        much, other = self.sent(broker, partition_max_bytes=limit)
        assert len(much.records or b"") == at_once
        assert values_of(other.records) == [b"other"]
        much, other = self.sent(broker, max_bytes=limit)
        assert len(much.records or b"") == at_once

    def test_what_is_deleted_meanwhile_is_no_error(self, broker: InProcessBroker) -> None:
        topic, partition = types.DeleteRecordsRequest.DeleteRecordsTopic, types.DeleteRecordsRequest
        deletion = types.DeleteRecordsRequest(
            topics=[topic(name="t", partitions=[partition.DeleteRecordsPartition(partition_index=0, offset=-1)])]
        )
        much, _ = self.sent(broker, deletion)
        assert much.error_code == 0
        assert values_of(much.records) == self.all_values()

    def test_nor_is_a_topic_that_is_deleted_meanwhile(self, broker: InProcessBroker) -> None:
        much, other = self.sent(broker, types.DeleteTopicsRequest(topics=[_named("t")]))
        assert values_of(much.records) == self.all_values()
        assert values_of(other.records) == [b"other"]

    def test_a_fetch_that_waits_reads_nothing_until_there_is_enough(
        self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, reads = log_of(broker, "t"), 0
        size = log.available_bytes(0, log.high_watermark, self.MANY)
        find = Segment.find

        def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return find(*args, **options)

        async def scenario() -> Any:
            options = {"max_bytes": self.MANY, "partition_max_bytes": self.MANY}
            wanted = fetching("t", {0: 0}, max_wait_ms=LONG_MS, min_bytes=size + 2000, **options)
            answer = asyncio.ensure_future(broker.send(wanted, 12))
            while not len(broker.broker.purgatory):
                await turn()
            monkeypatch.setattr(Segment, "find", counted)
            for _ in range(8):
                broker.produce("t", b"v" * 100)
                await turn()
                await turn()
            assert (reads, answer.done()) == (0, False)
            broker.produce("t", b"v" * 1000)
            return await asyncio.wait_for(answer, 10)

        ((data,),) = [topic.partitions for topic in asyncio.run(scenario()).responses]
        assert len(data.records or b"") >= size + 2000


def _named(name: str) -> types.DeleteTopicsRequest.DeleteTopicState:
    return types.DeleteTopicsRequest.DeleteTopicState(name=name)


class TestReadCommitted:
    """Transactions can't be begun by clients; the log may hold them all the same."""

    def transactional(self, broker: InProcessBroker, producer_id: int, value: bytes) -> None:
        records = batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        log_of(broker, "t").append(records, now_ms=START_MS)

    def end(self, broker: InProcessBroker, producer_id: int, kind: ControlType) -> None:
        marker = encode_control_batch(ControlRecord(kind, producer_id, 0, 0), timestamp_ms=START_MS)
        log_of(broker, "t").append(marker, now_ms=START_MS, from_coordinator=True)

    def test_it_stops_at_the_last_stable_offset_and_lists_what_was_aborted(self, broker: InProcessBroker) -> None:
        broker.create("t")
        self.transactional(broker, 1, b"aborted")
        self.end(broker, 1, ControlType.ABORT)
        broker.produce("t", b"plain")
        self.transactional(broker, 2, b"open")
        (data,) = fetched(broker, fetching("t", {0: 0}, isolation_level=1))
        assert (data.high_watermark, data.last_stable_offset) == (4, 3)
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(1, 0)]
        assert values_of(data.records)[-1] == b"plain"
        (data,) = fetched(broker, fetching("t", {0: 0}, isolation_level=0))
        assert values_of(data.records)[-1] == b"open"
        assert not data.aborted_transactions

    def test_list_offsets(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"plain", timestamp_ms=START_MS - 10)
        self.transactional(broker, 2, b"open")
        assert [list_offset(broker, -1, isolation_level=level)[1] for level in (0, 1)] == [2, 1]
        assert [list_offset(broker, START_MS, isolation_level=level)[1] for level in (0, 1)] == [1, -1]


def list_offset(
    broker: InProcessBroker,
    timestamp: int,
    *,
    version: int = 11,
    partition: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
    name: str = "t",
) -> tuple[int, int, int]:
    """Error code, offset and timestamp."""
    partition_class = types.ListOffsetsRequest.ListOffsetsPartition
    request = types.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            types.ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    partition_class(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
                ],
            )
        ],
    )
    result = broker.ask(request, version).topics[0].partitions[0]
    return result.error_code, result.offset, result.timestamp


class TestListOffsets:
    @pytest.mark.parametrize("version", range(1, 12))
    def test_earliest_latest_and_by_time(self, broker: InProcessBroker, version: int) -> None:
        broker.create("t")
        broker.produce("t", b"0", b"1", b"2", timestamp_ms=START_MS)
        broker.produce("t", b"3", timestamp_ms=START_MS - 50)
        log_of(broker, "t").delete_records_before(1)
        assert list_offset(broker, -1, version=version) == (0, 4, -1)
        assert list_offset(broker, -2, version=version) == (0, 1, -1)
        assert list_offset(broker, START_MS + 2, version=version) == (0, 2, START_MS + 2)
        assert list_offset(broker, 0, version=version) == (0, 1, START_MS + 1)
        assert list_offset(broker, START_MS + 3, version=version) == (0, -1, -1)

    def test_the_largest_timestamp(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert list_offset(broker, -3) == (0, -1, -1)
        broker.produce("t", b"0", b"1", timestamp_ms=START_MS)
        broker.produce("t", b"2", timestamp_ms=START_MS - 50)
        assert list_offset(broker, -3) == (0, 1, START_MS + 1)

    def test_tiers(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"0")
        assert list_offset(broker, -4) == (0, 0, -1)
        assert list_offset(broker, -5) == (0, -1, -1)
        assert list_offset(broker, -6) == (0, -1, -1)

    @pytest.mark.parametrize(("timestamp", "version"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
    def test_special_timestamps_have_versions(self, broker: InProcessBroker, timestamp: int, version: int) -> None:
        broker.create("t")
        assert list_offset(broker, timestamp, version=version)[0] == 0
        assert version == 1 or list_offset(broker, timestamp, version=version - 1)[0] == 35

    def test_what_is_refused(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert list_offset(broker, -7)[0] == 35
        assert list_offset(broker, -1, partition=1)[0] == 3
        assert list_offset(broker, -1, name="u")[0] == 3
        assert list_offset(broker, -1, epoch=99)[0] == 75


class TestOffsetForLeaderEpoch:
    def ask(self, broker: InProcessBroker, epoch: int, *, partition: int = 0, current: int = -1) -> tuple[int, ...]:
        partition_class = types.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        request = types.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                types.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[partition_class(partition=partition, current_leader_epoch=current, leader_epoch=epoch)],
                )
            ],
        )
        result = broker.ask(request).topics[0].partitions[0]
        return result.error_code, result.leader_epoch, result.end_offset

    def test_ends_of_epochs(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"0", b"1")
        epoch = log_of(broker, "t").leader_epoch
        assert self.ask(broker, epoch) == (0, epoch, 2)
        assert self.ask(broker, epoch + 9) == (0, -1, -1)
        assert self.ask(broker, epoch, partition=7)[0] == 3
        assert self.ask(broker, epoch, current=epoch + 1)[0] == 75
