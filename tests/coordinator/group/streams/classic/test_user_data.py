"""What Kafka Streams 4.3.1 said in the classic protocol, read and written again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.group.streams.classic.user_data import (
    UntranslatableError,
    assignment_of,
    subscription_of,
    tasks_of,
)
from coordinator.group.streams.state import Endpoint
from streamsrt.assignment.configuration import configure
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import topology_of
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription, StreamsGroupHeartbeatRequest
from tests.coordinator.group.streams.classic.java import user_data
from tests.streamsrt.assignment.notation import subtopology

RECORDED = json.loads((Path(__file__).parents[4] / "golden" / "classic" / "kafka-streams-4.3.1.json").read_text())
APP = "s14_classic_to_streams-v0"


def test_a_recorded_subscription() -> None:
    found = subscription_of(bytes.fromhex(RECORDED["subscription"]))
    assert (found.version, found.process_id) == (11, "91d4a3fe-5a60-4823-8c96-a8c52c571100"[:-2] + "00")
    assert (found.endpoint, found.owned, found.client_tags) == (None, frozenset(), ())


@pytest.mark.requirement("SG-325")
def test_a_recorded_assignment_is_written_as_it_was() -> None:
    recorded = bytes.fromhex(RECORDED["assignment"])
    tasks = tasks_of(recorded)
    assert tasks == Tasks(frozenset(TaskId(name, index) for name in "01" for index in (0, 1)))
    parts = [subtopology(f"0: source={APP}.words sink={APP}-by-word-repartition")]
    parts.append(subtopology(f"1: repartition={APP}-by-word-repartition"))
    names = (f"{APP}.words", f"{APP}-by-word-repartition")
    image = TopicsImage.of(*(TopicImage(name.encode()[-16:], name, 2) for name in names))
    configuration = configure(topology_of(StreamsGroupHeartbeatRequest.Topology(subtopologies=parts)), image)
    assert configuration.is_ready
    written = assignment_of(tasks, configuration, 11, endpoints={})
    assert tasks_of(written) == tasks
    one, other = (decode_consumer_protocol(ConsumerProtocolAssignment, each) for each in (written, recorded))
    assert one.assigned_partitions == other.assigned_partitions
    assert one.user_data == other.user_data
    with_endpoint = assignment_of(tasks, configuration, 11, endpoints={Endpoint("h", 1): ([(names[0], 1)], [])})
    assert tasks_of(with_endpoint) == tasks


@pytest.mark.requirement("SG-333")
@pytest.mark.parametrize(
    "data", [None, b"", b"\0\0\0\6" + bytes(40), user_data("p", {})[:30], user_data("p", {TaskId("0", 1): 5})[:-3]]
)
def test_what_is_no_subscription_of_kafka_streams(data: bytes | None) -> None:
    metadata = encode_record_value(ConsumerProtocolSubscription(topics=["t"], user_data=data))
    with pytest.raises(UntranslatableError):
        subscription_of(metadata)


def test_an_endpoint_and_offsets() -> None:
    data = user_data("p", {TaskId("1", 3): 7}, version=10, endpoint="host:80")
    found = subscription_of(encode_record_value(ConsumerProtocolSubscription(topics=["t"], user_data=data)))
    assert (found.version, found.endpoint, found.offset_sums) == (10, Endpoint("host", 80), {TaskId("1", 3): 7})
