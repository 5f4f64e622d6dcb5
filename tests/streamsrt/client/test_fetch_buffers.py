"""A buffer is used again only when nothing reads it any more, and none is kept for long."""

from __future__ import annotations

import numpy as np

from streamsrt.client.fetch_buffers import KEEP_S, LARGE_BYTES, LIMIT_BYTES, FetchBuffers
from streamsrt.wire import types
from streamsrt.wire.messages import decode_response, encode_response
from streamsrt.wire.records import decode_batch, encode_batch
from streamsrt.wire.schema import ApiKey

LARGE = 3 << 20


def place_of(buffer: bytearray | memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def test_a_large_buffer_is_used_again_once_nothing_reads_it() -> None:
    buffers = FetchBuffers()
    first = buffers.take(LARGE, 0.0)
    place, part = place_of(first), memoryview(first)[10:20]
    del first
    assert place_of(buffers.take(LARGE - 1, 0.0)) != place
    part.release()
    again = buffers.take(LARGE, 0.0)
    assert place_of(again) == place
    assert len(again) == LARGE


def test_each_buffer_has_the_size_that_was_asked_for() -> None:
    buffers = FetchBuffers()
    sizes = [4, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, LARGE, LARGE + 1, LIMIT_BYTES + 1, LARGE - 1]
    assert [len(buffers.take(size, 0.0)) for size in sizes] == sizes


def test_a_buffer_that_is_too_small_makes_room_for_a_larger_one() -> None:
    buffers = FetchBuffers()
    for _ in range(20):
        buffers.take(LARGE, 0.0)
    assert len(buffers) == 1
    place = place_of(buffers.take(LIMIT_BYTES, 0.0))
    assert len(buffers) == 1
    assert place_of(buffers.take(LIMIT_BYTES, 0.0)) == place


def test_the_buffers_that_are_kept_are_limited() -> None:
    buffers = FetchBuffers()
    held = [buffers.take(LARGE, 0.0) for _ in range(2 * LIMIT_BYTES // LARGE)]
    assert len({place_of(each) for each in held}) == len(held)
    assert len(buffers) == LIMIT_BYTES // LARGE


def test_they_are_dropped_when_no_large_response_comes() -> None:
    buffers = FetchBuffers()
    buffers.take(LARGE, 0.0)
    buffers.take(100, KEEP_S)
    assert len(buffers) == 1
    buffers.take(100, KEEP_S + 1)
    assert not len(buffers)


def test_records_that_were_decoded_do_not_change_with_the_buffer() -> None:
    buffers = FetchBuffers()

    def received(value: bytes) -> types.FetchResponse:
        batch = encode_batch([b"k"] * 400, [value * 1000] * 400, [0] * 400)
        data = types.FetchResponse.PartitionData(records=memoryview(batch))
        response = types.FetchResponse(
            responses=[types.FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])]
        )
        body = encode_response(response, ApiKey.FETCH, 12, 1)[4:]
        buffer = buffers.take(len(body), 0.0)
        buffer[:] = body
        return decode_response(buffer, ApiKey.FETCH, 12)[1]  # type: ignore[return-value]

    first = received(b"a")
    columns = decode_batch(first.responses[0].partitions[0].records)
    unread = first.responses[0].partitions[0].records
    second = received(b"b")
    assert len(buffers) == 2, "the first response is still read"
    assert columns.values == decode_batch(unread).values == [b"a" * 1000] * 400
    del first, unread
    received(b"c")
    assert len(buffers) == 2
    assert columns.values == [b"a" * 1000] * 400
    assert decode_batch(second.responses[0].partitions[0].records).values == [b"b" * 1000] * 400
