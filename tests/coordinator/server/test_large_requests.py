"""Large requests: bounded, taken apart, folded; others get their turn in between. Counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker import slices, splitting
from coordinator.broker.fetch import PARTITIONS_AT_ONCE
from coordinator.broker.splitting import SPLITS, in_pieces, joined, split_of
from coordinator.server.dispatch import HANDLERS
from coordinator.server.tcp import ProtocolViolationError
from streamsrt.wire import types
from streamsrt.wire.compiler import STEP_ELEMENTS
from streamsrt.wire.messages import encode_request
from streamsrt.wire.schema import ApiKey
from tests.coordinator.broker.in_process import InProcessBroker, batch, fetching, production
from tests.coordinator.server.huge_requests import Huge, every_array
from tests.coordinator.turns import PATIENCE_S, counted_calls, turn

ARRAYS = list(every_array())
NEWEST = {(each.api_key, *(field.attribute for field in each.path)): each for each in ARRAYS}.values()
"""Each array in the highest version that has it."""
COUNT = 1500
WHOLE = {
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.API_VERSIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.END_TXN,
    ApiKey.HEARTBEAT,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.JOIN_GROUP,
    ApiKey.LEAVE_GROUP,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.SYNC_GROUP,
    ApiKey.UPDATE_FEATURES,
}
"""APIs whose requests are handled at once: they are one change, or are answered from little."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path_factory.mktemp("large") / "data")
    made.create("words", 700)
    made.create("few", 3)
    made.produce("few", b"v", partition=1)
    yield made
    made.close()


@pytest.fixture
def _smallest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is a slice of its own."""
    monkeypatch.setattr(slices, "SLICE_S", -1.0)


def answered(broker: InProcessBroker, frame: bytes) -> bytes:
    """The answer. Raises ProtocolViolationError where the connection would be closed."""

    async def scenario() -> Any:
        answer = broker.dispatcher.handle(frame, "127.0.0.1")
        return await asyncio.wait_for(answer, PATIENCE_S) if isawaitable(answer) else answer

    return b"".join(asyncio.run(scenario()) or ())


def test_it_is_decided_for_each_api_whether_its_requests_are_taken_apart() -> None:
    assert set(SPLITS) | WHOLE | {ApiKey.FETCH} == set(HANDLERS)
    assert not set(SPLITS) & WHOLE


@pytest.mark.parametrize("huge", ARRAYS, ids=lambda huge: huge.name)
def test_more_elements_than_allowed_are_refused(
    broker: InProcessBroker, huge: Huge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "ELEMENTS_MAX", COUNT - 1)
    monkeypatch.setattr(splitting, "WHOLE_ELEMENTS_MAX", COUNT - 1)
    with pytest.raises(ProtocolViolationError, match=f"with more than {COUNT - 1} elements"):
        answered(broker, huge.frame(COUNT))


@pytest.mark.usefixtures("_smallest_slices")
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("huge", ARRAYS, ids=lambda huge: huge.name)
def test_others_get_their_turn_while_a_large_request_is_answered(
    broker: InProcessBroker, huge: Huge, distinct: bool
) -> None:
    before = broker.broker.slices.pauses
    with suppress(ProtocolViolationError):
        answered(broker, huge.frame(COUNT, distinct=distinct))
    is_numbers = huge.path[-1].element in {"int8", "int16", "int32", "int64", "uuid"}
    if not is_numbers:
        assert broker.broker.slices.pauses - before >= COUNT // STEP_ELEMENTS - 10
    assert broker.produce("few", b"alive", partition=2) >= 0


CALLS_PER_STEP_MAX = 15_000
"""What a step, or what is done at once, may make."""


@pytest.mark.usefixtures("_smallest_slices")
@pytest.mark.parametrize("huge", NEWEST, ids=lambda huge: huge.name)
def test_no_step_of_a_large_request_is_long(broker: InProcessBroker, huge: Huge) -> None:
    frame = huge.frame(COUNT, distinct=True)
    # The readers and writers of a message are compiled when the first one comes.
    with suppress(ProtocolViolationError):
        answered(broker, frame)
    assert 0 < longest_step(broker, frame) <= CALLS_PER_STEP_MAX


def longest_step(broker: InProcessBroker, frame: bytes) -> int:
    """How many calls the longest step makes until the request is answered."""
    longest = 0

    async def scenario() -> None:
        nonlocal longest
        with counted_calls() as calls:
            try:
                answer = broker.dispatcher.handle(frame, "127.0.0.1")
            finally:
                longest = calls[0]
            if isawaitable(answer):
                answering = asyncio.ensure_future(answer)
                while not answering.done():
                    calls[0] = 0
                    await turn()
                    longest = max(longest, calls[0])
                answering.result()

    with suppress(ProtocolViolationError):
        asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
    return longest


@pytest.mark.usefixtures("_smallest_slices")
@pytest.mark.parametrize("partitions", [3, 600])
def test_no_step_of_a_transaction_of_many_partitions_is_long(broker: InProcessBroker, partitions: int) -> None:
    name = f"of-{partitions}"
    broker.create(name, partitions + 1)
    begun = broker.ask(
        types.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
    )

    def frames() -> Iterator[bytes]:
        topic = types.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[*range(partitions)])
        added = types.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[topic],
        )
        ended = types.EndTxnRequest(
            transactional_id=name,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            committed=True,
        )
        yield encode_request(added, 3, 7, "test")[4:]
        yield encode_request(ended, 2, 7, "test")[4:]

    def ends() -> list[int]:
        topic = broker.broker.topics.get(name)
        assert topic is not None
        return [log.log_end_offset for log in topic.partitions]

    # The first time, logs open their files.
    for frame in frames():
        answered(broker, frame)
    assert ends() == [1] * partitions + [0], "a marker in each of them"
    steps = [longest_step(broker, frame) for frame in frames()]
    assert max(steps) <= CALLS_PER_STEP_MAX, steps
    assert ends() == [2] * partitions + [0]


class TestMetadataOfAllTopics:
    """It is encoded once, until something changes."""

    def test_the_second_answer_is_not_made_anew(self, broker: InProcessBroker) -> None:
        request = types.MetadataRequest(topics=None)
        with counted_calls() as calls:
            first = answered(broker, encode_request(request, 12, 7, "a")[4:])
            made_by_calls = calls[0]
            calls[0] = 0
            second = answered(broker, encode_request(request, 12, -9, "b")[4:])
            assert calls[0] < made_by_calls / 2
        assert second[4:8] == (-9).to_bytes(4, "big", signed=True)
        assert second[:4] + second[8:] == first[:4] + first[8:]

    def test_changes_are_seen(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path / "data")

        def shown(version: int = 12) -> dict[str, int]:
            answer = broker.ask(types.MetadataRequest(topics=None), version)
            return {topic.name: len(topic.partitions) for topic in answer.topics if not topic.is_internal}

        assert shown() == {}
        broker.create("one", 2)
        assert shown() == shown() == {"one": 2}
        broker.create("two", 1)
        assert shown(9) == shown() == {"one": 2, "two": 1}
        topic = types.CreatePartitionsRequest.CreatePartitionsTopic(name="two", count=3, assignments=None)
        broker.ask(types.CreatePartitionsRequest(topics=[topic], timeout_ms=1000))
        assert shown() == {"one": 2, "two": 3}
        broker.ask(types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="one")]))
        assert shown() == {"two": 3}
        broker.close()


@pytest.mark.usefixtures("_smallest_slices")
def test_others_get_their_turn_between_pieces(broker: InProcessBroker) -> None:
    seen: list[int] = []

    async def scenario() -> None:
        frame = next(huge for huge in ARRAYS if huge.api_key == ApiKey.FIND_COORDINATOR).frame(COUNT, distinct=True)
        answer = asyncio.ensure_future(broker.dispatcher.handle(frame, "127.0.0.1"))  # type: ignore[arg-type]
        while not answer.done():
            await turn()
            seen.append(broker.broker.slices.pauses)

    asyncio.run(scenario())
    assert len(set(seen)) > COUNT // 64


class TestFolding:
    """What is asked for again and again is answered once."""

    @pytest.mark.parametrize(
        ("request_", "array"),
        [
            (types.MetadataRequest(topics=[types.MetadataRequest.MetadataRequestTopic(name="words")] * 300), "topics"),
            (types.FindCoordinatorRequest(coordinator_keys=["g"] * 3000), "coordinators"),
            (types.DescribeGroupsRequest(groups=["g"] * 3000), "groups"),
            (
                types.DescribeConfigsRequest(
                    resources=[
                        types.DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="few")
                    ]
                    * 500
                ),
                "results",
            ),
        ],
    )
    def test_repeated_entries(self, broker: InProcessBroker, request_: Any, array: str) -> None:
        assert len(getattr(asyncio.run(broker.send(request_)), array)) == 1

    def test_keys_that_are_asked_for_one_by_one_are_together(self, broker: InProcessBroker) -> None:
        resource = types.DescribeConfigsRequest.DescribeConfigsResource
        keys = ["retention.ms", "segment.bytes"] * 100
        asked = [resource(resource_type=2, resource_name="few", configuration_keys=[key]) for key in keys]
        (result,) = asyncio.run(broker.send(types.DescribeConfigsRequest(resources=asked))).results
        assert {row.name for row in result.configs} == set(keys)

    def test_what_one_asks_for_again_and_again_is_put_together_in_place(self) -> None:
        """Not copied each time: that would take a time that grows with the square of the entries."""
        made = 0
        topic, partition = types.ListOffsetsRequest.ListOffsetsTopic, types.ListOffsetsRequest.ListOffsetsPartition

        class Watched(topic):  # type: ignore[misc, valid-type]
            def __setattr__(self, name: str, value: Any) -> None:
                nonlocal made
                made += value is not getattr(self, name, None)
                super().__setattr__(name, value)

        parts = [[partition(partition_index=index, timestamp=-1)] for index in range(500)]
        asked = [Watched(name="few", partitions=part) for part in parts]
        before = made
        split = SPLITS[ApiKey.LIST_OFFSETS]._replace(entries=1000)
        pieces = in_pieces(split, types.ListOffsetsRequest(topics=asked))
        (piece,) = [each for each in pieces if each is not None]
        assert [each.partition_index for each in piece.topics[0].partitions] == list(range(500))
        assert made - before == 2, "once to have a list of its own, once without what is there twice"
        assert len(parts[0]) == 1, "what may be somebody else's list stays as it is"

    def test_a_fetch_of_one_partition_many_times_is_answered_when_something_is_appended(
        self, broker: InProcessBroker
    ) -> None:
        request = fetching("few", {0: 0}, max_wait_ms=60_000)
        request.topics[0].partitions *= 20 * PARTITIONS_AT_ONCE

        async def scenario() -> Any:
            answer = asyncio.ensure_future(broker.send(request, 12))
            while not len(broker.broker.purgatory):
                await turn()
            assert len(broker.broker.purgatory) == 1
            broker.produce("few", b"v")
            return await asyncio.wait_for(answer, PATIENCE_S)

        ((partition,),) = [topic.partitions for topic in asyncio.run(scenario()).responses]
        assert partition.records


class TestWholeAnswers:
    """The answers to the pieces make the answer to the whole."""

    @pytest.mark.parametrize("entries", [1, 2, 3, 7])
    def test_of_nested_arrays(self, broker: InProcessBroker, entries: int) -> None:
        topic, partition = types.ListOffsetsRequest.ListOffsetsTopic, types.ListOffsetsRequest.ListOffsetsPartition
        message = types.ListOffsetsRequest(
            topics=[
                topic(name=name, partitions=[partition(partition_index=i, timestamp=-1) for i in range(count)])
                for name, count in (("few", 3), ("words", 9), ("unknown", 2), ("none", 0))
            ]
        )
        split = SPLITS[ApiKey.LIST_OFFSETS]._replace(entries=entries)
        whole = broker.ask(message, 7)
        pieces = [piece for piece in in_pieces(split, message) if piece is not None]
        assert len(pieces) >= 14 // entries
        assert slices.whole(joined(split, [broker.ask(piece, 7) for piece in pieces])) == whole

    def test_of_one_partition_at_several_times(self, broker: InProcessBroker) -> None:
        topic, partition = types.ListOffsetsRequest.ListOffsetsTopic, types.ListOffsetsRequest.ListOffsetsPartition
        times = [-1, -2, -3, -1, 0, 7]
        asked = topic(name="few", partitions=[partition(partition_index=0, timestamp=time) for time in times])
        message = types.ListOffsetsRequest(replica_id=-1, topics=[asked])
        split = SPLITS[ApiKey.LIST_OFFSETS]._replace(entries=2)
        (whole,) = broker.ask(message, 7).topics
        pieces = [piece for piece in in_pieces(split, message) if piece is not None]
        (found,) = slices.whole(joined(split, [broker.ask(piece, 7) for piece in pieces])).topics
        assert found.partitions == whole.partitions[:3] + whole.partitions[4:], "what is asked twice is answered once"

    def test_of_offsets_three_arrays_deep(self, broker: InProcessBroker) -> None:
        group, topic = (
            types.OffsetFetchRequest.OffsetFetchRequestGroup,
            types.OffsetFetchRequest.OffsetFetchRequestTopics,
        )
        message = types.OffsetFetchRequest(
            groups=[
                group(
                    group_id="a", topics=[topic(name=n, partition_indexes=list(range(30))) for n in ("few", "words")]
                ),
                group(group_id="b", topics=None),
                group(group_id="c", topics=[topic(name="few", partition_indexes=[0])]),
            ]
        )
        split = SPLITS[ApiKey.OFFSET_FETCH]._replace(entries=7)
        whole = broker.ask(message, 9)
        pieces = [piece for piece in in_pieces(split, message) if piece is not None]
        assert len(pieces) > 8
        assert slices.whole(joined(split, [broker.ask(piece, 9) for piece in pieces])) == whole

    @pytest.mark.parametrize("entries", [1, 7, 40])
    def test_of_offsets_of_one_group(self, broker: InProcessBroker, entries: int) -> None:
        topic = types.OffsetFetchRequest.OffsetFetchRequestTopic
        message = types.OffsetFetchRequest(
            group_id="a",
            topics=[
                topic(name=name, partition_indexes=list(range(count)))
                for name, count in (("few", 30), ("words", 9), ("none", 0), ("unknown", 2))
            ],
        )
        split = split_of(ApiKey.OFFSET_FETCH, 7)
        assert split is not None
        split = split._replace(entries=entries)
        whole = broker.ask(message, 7)
        pieces = [piece for piece in in_pieces(split, message) if piece is not None]
        assert len(pieces) >= 41 // entries
        assert slices.whole(joined(split, [broker.ask(piece, 7) for piece in pieces])) == whole

    def test_of_records(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path / "data")
        broker.create("wide", 450)
        answer = asyncio.run(broker.send(production("wide", {i: batch(b"v%d" % i) for i in range(450)}), 12))
        (topic,) = answer.responses
        assert [partition.index for partition in topic.partition_responses] == list(range(450))
        assert not any(partition.error_code for partition in topic.partition_responses)
        assert broker.values("wide", 449) == [b"v449"]
        broker.close()


def test_a_fetch_of_many_partitions_waits_for_any_of_them(broker: InProcessBroker) -> None:
    async def scenario() -> Any:
        answer = asyncio.ensure_future(
            broker.send(fetching("words", dict.fromkeys(range(700), 0), max_wait_ms=60_000), 12)
        )
        while not len(broker.broker.purgatory):
            await turn()
        broker.produce("words", b"found", partition=650)
        return await asyncio.wait_for(answer, PATIENCE_S)

    (topic,) = asyncio.run(scenario()).responses
    assert [each.partition_index for each in topic.partitions if each.records] == [650]


def test_others_get_as_much_while_too_many_answers_wait_to_be_sent(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data")
    broker.create("much")
    for _ in range(5):
        broker.produce("much", b"x" * 50_000)
    memory = broker.broker.memory
    assert memory.limit_bytes is not None
    memory.unsent("somebody", memory.limit_bytes)
    assert len(broker.values("much")) == 5
    broker.close()


def test_what_a_client_has_left_is_not_worked_on(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    frame = next(huge for huge in ARRAYS if huge.api_key == ApiKey.DESCRIBE_GROUPS).frame(40_000, distinct=True)

    async def scenario() -> int:
        before = broker.broker.slices.pauses
        answer = asyncio.ensure_future(broker.dispatcher.handle(frame, "127.0.0.1"))  # type: ignore[arg-type]
        while broker.broker.slices.pauses < before + 5:
            await turn()
        answer.cancel()
        await turn()
        assert answer.done()
        async with broker.broker.slices:
            return broker.broker.slices.pauses - before

    assert asyncio.run(scenario()) < 10


def test_large_and_small_are_read_alike(broker: InProcessBroker) -> None:
    """Frames of the sizes around which another way is taken."""
    for length in (900, 1010, 1030, 5000, 16_000, 17_000, 30_000):
        message = types.DescribeGroupsRequest(groups=["g" * length])
        answer = asyncio.run(_sent(broker, message))
        assert answer.groups[0].group_id == "g" * length


async def _sent(broker: InProcessBroker, message: types.Message) -> Any:
    answer = broker.send(message)
    return await answer if isawaitable(answer) else answer
