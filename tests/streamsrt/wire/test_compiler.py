from __future__ import annotations

import linecache
import traceback

import pytest

from streamsrt.wire.compiler import READ_FAULTS, compile_reader, compile_writer
from streamsrt.wire.messages import decode, decode_request_in_steps, encode, encode_request
from streamsrt.wire.primitives import TEXT_BYTES_MAX, DecodeError
from streamsrt.wire.types import (
    CreatePartitionsResponse,
    DeleteGroupsRequest,
    FetchResponse,
    HeartbeatRequest,
    StreamsGroupHeartbeatRequest,
)


def test_versions_of_one_layout_share_their_code() -> None:
    request = StreamsGroupHeartbeatRequest
    assert compile_reader(request, 0) is compile_reader(request, 1)
    assert compile_writer(request, 0) is compile_writer(request, 1)
    assert compile_reader(HeartbeatRequest, 3) is not compile_reader(HeartbeatRequest, 4)


def test_tracebacks_show_the_generated_lines() -> None:
    read = compile_reader(HeartbeatRequest, 4)
    with pytest.raises(READ_FAULTS) as raised:
        read(b"", 0, 0)
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.name == "read_HeartbeatRequest"
    assert frame.line == "n = b[o]"
    assert linecache.getline(frame.filename, 1) == "def read_HeartbeatRequest(b, o, z):\n"


def test_every_struct_has_a_function_of_its_own() -> None:
    read = compile_reader(FetchResponse, 12)
    names = {"FetchResponse", "FetchableTopicResponse", "PartitionData", "AbortedTransaction", "EpochEndOffset"}
    assert {f"read_{name}" for name in names} <= set(read.__globals__)
    # Not in this version.
    assert "read_NodeEndpoint" not in read.__globals__


def test_strings_of_requests_are_no_longer_than_kafka_reads_them() -> None:
    longest = DeleteGroupsRequest(groups_names=["g" * TEXT_BYTES_MAX])
    assert decode(DeleteGroupsRequest, 2, encode(longest, 2)) == longest
    longer = DeleteGroupsRequest(groups_names=["a", "g" * (TEXT_BYTES_MAX + 1)])
    with pytest.raises(DecodeError, match=r"groups_names\[1\] at byte 6: a string of 32768 bytes, at most 32767"):
        decode(DeleteGroupsRequest, 2, encode(longer, 2))
    with pytest.raises(DecodeError):
        list(decode_request_in_steps(encode_request(longer, 2, 1, None)[4:], 10))


@pytest.mark.parametrize("version", [0, 3])
def test_what_a_response_explains_is_cut_to_what_clients_read(version: int) -> None:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    message = CreatePartitionsResponse(results=[result(name="t", error_message="x" + "\u20ac" * TEXT_BYTES_MAX)])
    text = decode(CreatePartitionsResponse, version, encode(message, version)).results[0].error_message
    assert text is not None
    assert text.startswith("x\u20ac\u20ac")
    assert text.endswith("\u20ac...")
    assert TEXT_BYTES_MAX - 3 < len(text.encode()) <= TEXT_BYTES_MAX
