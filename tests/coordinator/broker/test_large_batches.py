"""Batches that are large when they are unpacked: bounded, and read beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker.produce import BATCHES_PER_REQUEST, TURN_BYTES
from coordinator.log import InvalidRecordError
from coordinator.log.config import LogConfig
from coordinator.log.contents import RECORD_COST_BYTES, admit
from coordinator.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from coordinator.server.tcp import ProtocolViolationError
from streamsrt.wire import types
from streamsrt.wire.compression import Compression
from streamsrt.wire.records import encode_batch, read_header
from tests.coordinator.broker.in_process import (
    AUTHORIZED,
    START_MS,
    SUPER_USER,
    InProcessBroker,
    fetching,
    production,
)
from tests.coordinator.broker.odd_batches import batch, record, sized, varint
from tests.coordinator.turns import counted_calls, turn

LIMIT_BYTES = 4 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path / "data", {"message.max.unpacked.bytes": str(LIMIT_BYTES)})
    yield made
    made.close()


def packed(size_bytes: int, codec: Compression = Compression.ZSTD, **fields: Any) -> bytes:
    """One record of so many zeros."""
    return encode_batch([b"k"], [bytes(size_bytes)], [START_MS], compression=codec, **fields)


def answers(
    broker: InProcessBroker, request: types.ProduceRequest
) -> list[types.ProduceResponse.PartitionProduceResponse]:
    sent = broker.send(request, 12)
    answer = asyncio.run(sent) if isawaitable(sent) else sent
    found: list[types.ProduceResponse.PartitionProduceResponse] = answer.responses[0].partition_responses
    return found


@pytest.mark.parametrize("codec", [each for each in Compression if each])
def test_what_holds_too_much_is_refused(broker: InProcessBroker, codec: Compression) -> None:
    broker.create("t", max_message_bytes="8000000")
    for size_bytes, code in ((LIMIT_BYTES - 1000, 0), (LIMIT_BYTES + 1, 10), (3 * LIMIT_BYTES, 10)):
        (result,) = answers(broker, production("t", {0: packed(size_bytes, codec)}))
        assert result.error_code == code
        assert ("message.max.unpacked.bytes" in (result.error_message or "")) == bool(code)
    assert len(broker.values("t")) == 1


@pytest.mark.parametrize("settings", [{}, {"compression_type": "lz4"}, {"cleanup_policy": "compact"}])
def test_so_is_one_of_too_many_records(broker: InProcessBroker, settings: dict[str, str]) -> None:
    broker.create("t", **settings)
    count = LIMIT_BYTES // (RECORD_COST_BYTES + len(record(b"k", b"v"))) + 1
    (result,) = answers(broker, production("t", {0: batch(record(b"k", b"v") * count, count, codec=Compression.ZSTD)}))
    assert result.error_code == 10
    # That it claims too many is enough: nothing is unpacked then.
    (result,) = answers(broker, production("t", {0: batch(b"", 10_000_000, codec=Compression.ZSTD)}))
    assert result.error_code == 10


def test_the_batches_of_a_request_are_bounded_together(broker: InProcessBroker) -> None:
    broker.create("t", 10)
    data = packed(LIMIT_BYTES - 1000)
    found = answers(broker, production("t", dict.fromkeys(range(10), data)))
    assert [each.error_code for each in found] == [0] * BATCHES_PER_REQUEST + [10] * (10 - BATCHES_PER_REQUEST)
    assert [each.index for each in found] == list(range(10))


def test_others_are_answered_while_one_is_read(broker: InProcessBroker) -> None:
    broker.create("t", 3, compression_type="lz4")

    async def scenario() -> list[int]:
        large = packed(TURN_BYTES + 1)
        slow = asyncio.ensure_future(broker.send(production("t", {0: large, 1: large, 2: packed(10)}), 12))
        quick = broker.send(production("t", {2: packed(20)}), 12)
        assert quick.responses[0].partition_responses[0].base_offset == 0
        found = (await slow).responses[0].partition_responses
        return [each.base_offset for each in found]

    assert asyncio.run(scenario()) == [0, 0, 1]
    data = broker.ask(fetching("t", {0: 0}), 12).responses[0].partitions[0].records
    assert read_header(bytes(data)).compression is Compression.LZ4


def test_what_is_not_packed_is_no_more_than_it_is(broker: InProcessBroker) -> None:
    broker.create("t", max_message_bytes="80000000")
    (result,) = answers(broker, production("t", {0: packed(2 * LIMIT_BYTES, Compression.NONE)}))
    assert result.error_code == 0
    count = TURN_BYTES // RECORD_COST_BYTES + 1
    many = broker.send(production("t", {0: encode_batch([b"k"] * count, [b"v"] * count, [START_MS] * count)}), 12)
    assert isawaitable(many)
    assert asyncio.run(_awaited(many)).responses[0].partition_responses[0].base_offset == 1


def of_headers(count: int, codec: Compression) -> bytes:
    """One record of so many headers, of two bytes each."""
    return batch(record(headers=varint(count) + (sized(b"") + sized(None)) * count), codec=codec)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("settings", [{}, {"compression_type": "lz4"}, {"cleanup_policy": "compact"}])
def test_headers_count_like_records(broker: InProcessBroker, settings: dict[str, str], codec: Compression) -> None:
    broker.create("t", **settings)
    for count, code in ((LIMIT_BYTES // RECORD_COST_BYTES + 1, 10), (LIMIT_BYTES // RECORD_COST_BYTES // 2, 0)):
        sent = broker.send(production("t", {0: of_headers(count, codec)}), 12)
        assert isawaitable(sent), "read beside the loop"
        (result,) = asyncio.run(_awaited(sent)).responses[0].partition_responses
        assert result.error_code == code
        assert ("message.max.unpacked.bytes" in (result.error_message or "")) == bool(code)
    assert len(broker.values("t")) == 1


def test_the_headers_of_a_request_are_bounded_together(broker: InProcessBroker) -> None:
    broker.create("t", 10)
    data = of_headers(LIMIT_BYTES // RECORD_COST_BYTES - 10, Compression.NONE)
    found = answers(broker, production("t", dict.fromkeys(range(10), data)))
    assert [each.error_code for each in found] == [0] * BATCHES_PER_REQUEST + [10] * (10 - BATCHES_PER_REQUEST)


async def _awaited(answer: Any) -> Any:
    return await answer


def test_without_acks(broker: InProcessBroker) -> None:
    broker.create("t")
    assert asyncio.run(_awaited(broker.send(production("t", {0: packed(TURN_BYTES + 1)}, acks=0), 12))) is None
    assert len(broker.values("t")) == 1
    with pytest.raises(ProtocolViolationError, match="MESSAGE_TOO_LARGE for t-0"):
        asyncio.run(_awaited(broker.send(production("t", {0: packed(LIMIT_BYTES + 1)}, acks=0), 12)))


def test_without_acks_what_is_allowed_is_written_beside_what_is_not(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data", AUTHORIZED)
    broker.principal = SUPER_USER
    broker.create("t")
    broker.grant(
        Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:writer", "*", Operation.WRITE, Permission.ALLOW)
    )
    broker.principal = "User:writer"
    request = production("t", {0: packed(TURN_BYTES + 1)}, acks=0)
    request.topic_data += production("hidden", {0: packed(1)}).topic_data

    async def scenario() -> None:
        with pytest.raises(ProtocolViolationError, match="not authorized"):
            await broker.send(request, 12)

    asyncio.run(scenario())
    broker.principal = SUPER_USER
    assert len(broker.values("t")) == 1
    broker.close()


def test_a_topic_that_is_deleted_meanwhile(broker: InProcessBroker) -> None:
    broker.create("t")

    async def scenario() -> int:
        slow = asyncio.ensure_future(broker.send(production("t", {0: packed(TURN_BYTES + 1)}), 12))
        await turn()
        broker.ask(types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="t")]))
        return int((await slow).responses[0].partition_responses[0].error_code)

    assert asyncio.run(scenario()) == 6


def test_a_producer_that_is_fenced_meanwhile(broker: InProcessBroker) -> None:
    broker.create("t")
    fields = {"producer_id": 5, "base_sequence": 0}

    async def scenario() -> list[int]:
        old = packed(TURN_BYTES + 1, producer_epoch=0, **fields)
        slow = asyncio.ensure_future(broker.send(production("t", {0: old}), 12))
        await turn()
        new = broker.ask(production("t", {0: packed(1, producer_epoch=1, **fields)}), 12)
        return [each.responses[0].partition_responses[0].error_code for each in (new, await slow)]

    assert asyncio.run(scenario()) == [0, 47]


def test_a_wrong_offset_is_refused_without_reading_the_records_behind_it() -> None:
    count = 30_000
    right = [record(b"", b"", offset=offset) for offset in range(count)]

    def calls_to_refuse(records: list[bytes]) -> int:
        sent = batch(b"".join(records), count, codec=Compression.ZSTD)
        with counted_calls() as calls, pytest.raises(InvalidRecordError, match="do not go up by one"):
            admit(sent, LogConfig(), START_MS, "t-0", 1 << 30)
        return calls[0]

    late = calls_to_refuse([*right[:-1], record(b"", b"", offset=5)])
    assert calls_to_refuse([right[0], *right[:-1]]) < late / 4
