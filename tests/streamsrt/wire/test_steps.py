"""Requests and answers that are read and written a few elements at a time."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from streamsrt.wire import types
from streamsrt.wire.compiler import STEP_ELEMENTS
from streamsrt.wire.messages import (
    HEADER_TAGS_MAX,
    REQUEST_VERSIONS,
    TooManyElementsError,
    decode_request,
    decode_request_in_steps,
    encode_request,
    encode_response_in_steps,
    encode_response_parts,
)
from streamsrt.wire.primitives import DecodeError, write_uvarint
from streamsrt.wire.schema import message_class
from tests.streamsrt.wire.samples import Sampler

Result = TypeVar("Result")
VERSIONS = [(key, version) for key, (low, high, _) in REQUEST_VERSIONS.items() for version in range(low, high + 1)]


def all_steps(steps: Generator[None, None, Result]) -> tuple[Result, int]:
    """What comes out, and after how many steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_steps_give_the_same(key: int, version: int) -> None:
    for seed in range(4):
        request = Sampler(message_class(key, request=True), version, seed).message()
        frame = encode_request(request, version, 5, "client")[4:]
        assert all_steps(decode_request_in_steps(frame, 1 << 20))[0] == decode_request(frame)
        answer = Sampler(message_class(key, request=False), version, seed).message()
        whole = b"".join(encode_response_parts(answer, key, version, 5))
        assert b"".join(all_steps(encode_response_in_steps(answer, key, version, 5))[0]) == whole


def groups(count: int) -> bytes:
    return encode_request(types.DescribeGroupsRequest(groups=[""] * count), 5, 1, "client")[4:]


def test_each_step_is_short() -> None:
    count = 100 * STEP_ELEMENTS
    assert all_steps(decode_request_in_steps(groups(count), count))[1] >= 100
    answer = types.DescribeGroupsResponse(groups=[types.DescribeGroupsResponse.DescribedGroup()] * count)
    assert all_steps(encode_response_in_steps(answer, types.DescribeGroupsRequest.API_KEY or 0, 5, 1))[1] >= 100


def test_too_many_elements_are_not_made() -> None:
    with pytest.raises(TooManyElementsError, match="DescribeGroupsRequest with more than 1000 elements"):
        next(decode_request_in_steps(groups(1001), 1000))


def test_elements_of_all_arrays_count_together() -> None:
    topic = types.OffsetFetchRequest.OffsetFetchRequestTopic
    message = types.OffsetFetchRequest(
        group_id="g", topics=[topic(name=f"t{i}", partition_indexes=list(range(100))) for i in range(10)]
    )
    frame = encode_request(message, 7, 1, "client")[4:]
    assert all_steps(decode_request_in_steps(frame, 1010))[0][1].topics == message.topics
    with pytest.raises(TooManyElementsError):
        all_steps(decode_request_in_steps(frame, 1009))


@pytest.mark.parametrize("cut", range(1, 30))
def test_what_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        all_steps(decode_request_in_steps(groups(10_000)[:-cut], 1 << 20))


def test_tags_without_end_are_refused() -> None:
    frame = groups(0)
    tags = b"".join(write_uvarint(i) + b"\0" for i in range(100_000))
    with pytest.raises(DecodeError):
        all_steps(decode_request_in_steps(frame[:-1] + write_uvarint(100_000) + tags, 1 << 20))
    plain = encode_request(types.SaslAuthenticateRequest(auth_bytes=b""), 2, 1, "client")[4:]
    with pytest.raises(DecodeError):
        decode_request(plain[:-1] + write_uvarint(100_000) + tags)
    head = frame[:16] + write_uvarint(HEADER_TAGS_MAX + 1)
    with pytest.raises(DecodeError, match="tagged fields"):
        decode_request(head + tags)
