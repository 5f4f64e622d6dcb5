from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from streamsrt.wire import types
from streamsrt.wire.schema import message_names, named_class
from tests.tools import generate_schema_table

STUB = Path(generate_schema_table.WIRE) / "types.pyi"


def test_the_stub_is_what_the_table_gives() -> None:
    assert STUB.read_text(encoding="utf-8") == generate_schema_table.stub_text()


def test_every_message_has_a_class_of_slots() -> None:
    for name in message_names():
        cls = getattr(types, name)
        assert name == cls.NAME
        assert cls() == cls()
        assert not hasattr(cls(), "__dict__")
        for struct in cls.SCHEMA.structs:
            assert getattr(cls, struct)() == getattr(cls, struct)()


def test_missing_keywords_have_the_defaults_of_the_schema() -> None:
    request = types.StreamsGroupHeartbeatRequest(group_id="g")
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "", 0)
    assert (request.rebalance_timeout_ms, request.shutdown_application) == (-1, False)
    assert (request.topology, request.active_tasks, request.unknown_tags) == (None, None, None)
    topology = types.StreamsGroupHeartbeatRequest.Topology()
    assert topology.subtopologies == []
    assert types.FetchRequest().max_bytes == 0x7FFF_FFFF
    assert types.FetchRequest().replica_state == types.FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert types.FetchRequest.FetchTopic().topic_id == bytes(16)
    assert types.DescribeClusterRequest().endpoint_type == 1


def test_arrays_and_structs_are_not_shared() -> None:
    first, second = types.MetadataResponse(), types.MetadataResponse()
    assert first.topics == []
    assert first.topics is not second.topics
    assert types.FetchRequest().replica_state is not types.FetchRequest().replica_state


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TypeError, match="no_such_field"):
        types.HeartbeatRequest(no_such_field=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        types.HeartbeatRequest("g")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        types.HeartbeatRequest().no_such_field = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no message 'NoSuchRequest'"):
        _ = types.NoSuchRequest  # type: ignore[attr-defined]


def test_equality() -> None:
    tasks = types.StreamsGroupHeartbeatRequest.TaskIds
    assert tasks(subtopology_id="0", partitions=[1]) == tasks(subtopology_id="0", partitions=[1])
    assert tasks(partitions=[1]) != tasks(partitions=[2])
    assert tasks(unknown_tags={1: b""}) != tasks()
    # The same fields in another message are another thing.
    assert tasks() != types.StreamsGroupHeartbeatResponse.TaskIds()
    with pytest.raises(TypeError, match="unhashable"):
        hash(tasks())


def test_repr_shows_what_differs_from_the_defaults() -> None:
    request = types.StreamsGroupHeartbeatRequest
    message = request(group_id="g", active_tasks=[request.TaskIds(partitions=[2])])
    assert repr(message) == (
        "StreamsGroupHeartbeatRequest(group_id='g', "
        "active_tasks=[StreamsGroupHeartbeatRequest.TaskIds(partitions=[2])])"
    )


def test_messages_are_copied_and_pickled() -> None:
    request = types.StreamsGroupHeartbeatRequest
    message = request(group_id="g", topology=request.Topology(epoch=3))
    for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert other == message
    deep = copy.deepcopy(message)
    assert deep.topology is not None
    deep.topology.epoch = 4
    assert deep != message


def test_dir_lists_the_messages() -> None:
    assert "StreamsGroupHeartbeatRequest" in dir(types)
    assert named_class("FetchRequest") is types.FetchRequest
