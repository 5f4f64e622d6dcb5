from __future__ import annotations

import linecache
import traceback

import pytest

from streamsrt.wire.compiler import READ_FAULTS, compile_reader, compile_writer
from streamsrt.wire.types import FetchResponse, HeartbeatRequest, StreamsGroupHeartbeatRequest


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
