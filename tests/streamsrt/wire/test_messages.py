from __future__ import annotations

import dataclasses
import io
import tracemalloc
import uuid
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from streamsrt.wire import types
from streamsrt.wire.compiler import MessageVersion
from streamsrt.wire.messages import (
    RequestHeader,
    decode,
    decode_consumer_protocol,
    decode_from,
    decode_record_key,
    decode_record_value,
    decode_request,
    decode_request_header,
    decode_response,
    encode,
    encode_parts,
    encode_record_key,
    encode_record_value,
    encode_request,
    encode_request_parts,
    encode_response,
    encode_response_parts,
    warm,
)
from streamsrt.wire.primitives import (
    DecodeError,
    EncodeError,
    NewerRecordError,
    UnknownRecordTypeError,
    UnsupportedVersionError,
)
from streamsrt.wire.schema import FRESH, Message, message_names, message_schema, named_class
from tests.streamsrt.wire import recorded
from tests.streamsrt.wire.json_form import from_json, to_json
from tests.streamsrt.wire.samples import Sampler

# group, member, epoch 7, endpoint epoch -1, no instance and rack, timeout -1, no topology, tasks, process, endpoint,
# tags and offsets, no shutdown, no tagged fields.
HEARTBEAT_V0 = bytes.fromhex("0267 026d 00000007 ffffffff 00 00 ffffffff ff 00 00 00 00 ff 00 00 00 00 00")


# -- against Apache Kafka's own classes ---------------------------------------------------------------------------


def as_kafka_encodes(name: str) -> None:
    """Kafka's bytes of random and default messages, both ways, in every version."""
    rows = recorded.messages_by_name()[name]
    assert {row["version"] for row in rows} == set(message_schema(name).versions)
    for row in rows:
        message = from_json(name, row["version"], row.get("data", {}))
        kafka = bytes.fromhex(row["hex"])
        assert encode(message, row["version"]) == kafka
        assert decode(type(message), row["version"], kafka) == message


def every_field_in_every_state(name: str) -> None:
    """Null, default and extreme values of each field come back, and no prefix of the bytes is a message."""
    cls = named_class(name)
    schema = message_schema(name)
    for version in schema.versions:
        plan = MessageVersion(schema, version, {})
        wanted = states_of(plan)
        seen: set[tuple[str, str, str]] = set()
        shortest = b""
        for seed in range(400):
            message = Sampler(cls, version, seed).message()
            collect_states(plan, message, seen)
            data = encode(message, version)
            assert decode(cls, version, data) == message
            shortest = data if seed == 0 or 40 < len(data) < len(shortest) else shortest
            if wanted <= seen:
                break
        assert wanted <= seen, wanted - seen
        for size in range(min(len(shortest), 300)):
            with pytest.raises(DecodeError):
                decode(cls, version, shortest[:size])


def states_of(plan: MessageVersion) -> set[tuple[str, str, str]]:
    wanted = set()
    for struct in plan.reachable(plan.schema.root):
        for f in [*plan.fields(struct), *plan.tagged(struct)]:
            if f.element in plan.schema.structs and not f.is_array:
                states = ["value"]
            else:
                states = ["value", "default"]
            if f.type in ("int8", "int16", "int32", "int64", "uint16"):
                states += ["lowest", "highest"]
            wanted |= {(struct.name, f.attribute, state) for state in states}
            if plan.version in f.nullable:
                wanted.add((struct.name, f.attribute, "null"))
    return wanted


LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def collect_states(plan: MessageVersion, value: Any, seen: set[tuple[str, str, str]]) -> None:
    struct = plan.schema.structs.get(value.NAME, plan.schema.root)
    for f in [*plan.fields(struct), *plan.tagged(struct)]:
        part = getattr(value, f.attribute)
        parts = part if f.is_array and part is not None else [part]
        for element in parts:
            if isinstance(element, Message):
                collect_states(plan, element, seen)
        default = ([], b"") if f.default is FRESH or f.type == "records" else (f.default,)
        state = {"null"} if part is None else {"value"}
        if part in default or (part == b"" and f.type == "records"):
            state.add("default")
        if f.type == "uint16":
            low, high = 0, (1 << 16) - 1
        else:
            bits = LIMITS.get(f.type, 0)
            low, high = -(1 << bits), (1 << bits) - 1
        if f.type in (*LIMITS, "uint16"):
            state |= {"lowest"} if part == low else {"highest"} if part == high else set()
        seen |= {(struct.name, f.attribute, s) for s in state}


@pytest.mark.requirement("SG-011", "SG-012")
def test_streams_group_heartbeat_request() -> None:
    as_kafka_encodes("StreamsGroupHeartbeatRequest")
    every_field_in_every_state("StreamsGroupHeartbeatRequest")
    assert fields_in_order("StreamsGroupHeartbeatRequest", 0) == [
        "GroupId", "MemberId", "MemberEpoch", "EndpointInformationEpoch", "InstanceId", "RackId", "RebalanceTimeoutMs",
        "Topology", "ActiveTasks", "StandbyTasks", "WarmupTasks", "ProcessId", "UserEndpoint", "ClientTags",
        "TaskOffsets", "TaskEndOffsets", "ShutdownApplication",
    ]  # fmt: skip
    null_by_default = {"InstanceId", "RackId", "Topology", "ActiveTasks", "StandbyTasks", "WarmupTasks", "ProcessId"}
    null_by_default |= {"UserEndpoint", "ClientTags", "TaskOffsets", "TaskEndOffsets"}
    schema = message_schema("StreamsGroupHeartbeatRequest")
    assert {f.name for f in schema.root.fields if f.default is None} == null_by_default
    message = types.StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=7)
    message.endpoint_information_epoch = -1
    assert encode(message, 0) == encode(message, 1) == HEARTBEAT_V0


def fields_in_order(name: str, version: int) -> list[str]:
    plan = MessageVersion(message_schema(name), version, {})
    return [f.name for f in plan.fields(message_schema(name).root)]


@pytest.mark.requirement("SG-077")
def test_streams_group_heartbeat_response() -> None:
    as_kafka_encodes("StreamsGroupHeartbeatResponse")
    every_field_in_every_state("StreamsGroupHeartbeatResponse")
    common = ["ThrottleTimeMs", "ErrorCode", "ErrorMessage", "MemberId", "MemberEpoch", "HeartbeatIntervalMs"]
    tasks = ["Status", "ActiveTasks", "StandbyTasks", "WarmupTasks"]
    endpoints = ["EndpointInformationEpoch", "PartitionsByUserEndpoint"]
    assert fields_in_order("StreamsGroupHeartbeatResponse", 0) == [
        *common, "AcceptableRecoveryLagLegacy", "TaskOffsetIntervalMs", *tasks, *endpoints,
    ]  # fmt: skip
    assert fields_in_order("StreamsGroupHeartbeatResponse", 1) == [
        *common, "TaskOffsetIntervalMs", "AcceptableRecoveryLag", *tasks, "TopologyDescriptionRequired", *endpoints,
    ]  # fmt: skip


def case(subject: str, mark: pytest.MarkDecorator) -> Any:
    """The messages of that name: a request and its response, a record's key and value, or the one alone."""
    names = [subject, *(subject + suffix for suffix in ("Request", "Response", "Key", "Value"))]
    return pytest.param([name for name in names if name in NAMES], marks=mark, id=subject)


NAMES = set(message_names())


@pytest.mark.requirement("GA-003")
@pytest.mark.parametrize(
    "names",
    [
        case("StreamsGroupDescribeRequest", pytest.mark.requirement("SG-342")),
        case("StreamsGroupDescribeResponse", pytest.mark.requirement("SG-343")),
        case("StreamsGroupMemberMetadata", pytest.mark.requirement("SG-290")),
        case("StreamsGroupMetadata", pytest.mark.requirement("SG-291")),
        case("StreamsGroupTopology", pytest.mark.requirement("SG-293")),
        case("StreamsGroupCurrentMemberAssignment", pytest.mark.requirement("SG-294")),
        case("StreamsGroupTargetAssignmentMember", pytest.mark.requirement("SG-295")),
        case("StreamsGroupTargetAssignmentMetadata", pytest.mark.requirement("SG-296")),
        case("ConsumerGroupHeartbeatRequest", pytest.mark.requirement("CG-014")),
        case("ConsumerGroupHeartbeatResponse", pytest.mark.requirement("CG-040")),
        case("ConsumerGroupDescribeRequest", pytest.mark.requirement("CG-201")),
        case("ConsumerGroupDescribeResponse", pytest.mark.requirement("CG-202", "CG-203")),
        case("OffsetCommitValue", pytest.mark.requirement("CG-200")),
        case("ConsumerGroupMetadata", pytest.mark.requirement("CG-210")),
        case("ConsumerGroupPartitionMetadata", pytest.mark.requirement("CG-211")),
        case("ConsumerGroupMemberMetadata", pytest.mark.requirement("CG-212")),
        case("ConsumerGroupTargetAssignmentMetadata", pytest.mark.requirement("CG-213")),
        case("ConsumerProtocolSubscription", pytest.mark.requirement("CR-013")),
        case("ConsumerProtocolAssignment", pytest.mark.requirement("GA-035")),
        case("FindCoordinator", pytest.mark.requirement("GA-009")),
        case("JoinGroup", pytest.mark.requirement("GA-018")),
        case("SyncGroup", pytest.mark.requirement("GA-031")),
        case("Heartbeat", pytest.mark.requirement("GA-038")),
        case("LeaveGroup", pytest.mark.requirement("GA-043")),
        case("OffsetCommit", pytest.mark.requirement("GA-048", "CG-181")),
        case("OffsetFetch", pytest.mark.requirement("GA-058", "CG-193")),
        case("DescribeGroups", pytest.mark.requirement("GA-065")),
        case("ListGroups", pytest.mark.requirement("GA-068", "CG-207")),
        case("DeleteGroups", pytest.mark.requirement("GA-071")),
        case("OffsetDelete", pytest.mark.requirement("GA-075")),
    ],
)
def test_messages_of_groups_and_their_records(names: list[str]) -> None:
    assert names
    for name in names:
        as_kafka_encodes(name)
        every_field_in_every_state(name)


@pytest.mark.parametrize("name", message_names())
def test_every_message_is_encoded_as_kafka_encodes_it(name: str) -> None:
    as_kafka_encodes(name)


# -- against kio --------------------------------------------------------------------------------------------------

# Kafka 4.4 has these, kio speaks 4.3.
NOT_IN_KIO = {
    ("ApiVersions", 5),
    ("DeleteGroups", 3),
    ("StreamsGroupDescribe", 1),
    ("StreamsGroupHeartbeat", 1),
    ("StreamsGroupTopologyDescriptionUpdate", 0),
    ("TxnOffsetCommit", 6),
    ("UnregisterController", 0),
}
API_NAMES = sorted(n for n in message_names() if n.endswith(("Request", "Response")))


def our_name(message: Message, name: str) -> str:
    """kio leaves the unit out of names; two fields have other names since Kafka 4.4."""
    candidates = (f"{name}_legacy", f"{name}_or_member_epoch", name, f"{name}_ms")
    return next(n for n in candidates if n in message.ATTRIBUTES)


def same(ours: Any, theirs: Any) -> bool:
    """Whether a value of ours is kio's, which has richer types."""
    if isinstance(ours, Message):
        names = [f.name for f in dataclasses.fields(theirs)]
        return all(same(getattr(ours, our_name(ours, name)), getattr(theirs, name)) for name in names)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, timedelta):
        return ours == theirs / timedelta(milliseconds=1)
    if isinstance(theirs, datetime):
        return ours == round(theirs.timestamp() * 1000)
    if isinstance(theirs, Enum):
        return ours == theirs.value
    if isinstance(theirs, uuid.UUID):
        return ours == theirs.bytes
    return ours == theirs or (theirs is None and ours in (-1, bytes(16)))


@pytest.mark.parametrize("name", API_NAMES)
def test_kio_reads_and_writes_the_same_bytes(name: str) -> None:
    cls = named_class(name)
    api = name.removesuffix("Request").removesuffix("Response")
    compared = 0
    for version in cls.SCHEMA.versions:
        if (api, version) in NOT_IN_KIO:
            continue
        assert cls.API_KEY is not None
        entity = (load_request_schema if cls.IS_REQUEST else load_response_schema)(cls.API_KEY, version)
        read, write = entity_reader(entity), entity_writer(entity)
        for seed in range(6):
            message = Sampler(cls, version, seed, plain=True).message()
            data = encode(message, version)
            theirs, size = read(data, 0)
            assert size == len(data)
            assert same(decode(cls, version, data), theirs)
            out = io.BytesIO()
            write(out, theirs)
            assert out.getvalue() == data
            compared += 1
    assert compared or (api, cls.SCHEMA.versions[-1]) in NOT_IN_KIO


def test_what_kio_lacks_is_what_it_says() -> None:
    for api, version in NOT_IN_KIO:
        key = named_class(api + "Request").API_KEY
        assert key is not None
        with pytest.raises((UnknownEntity, UnknownAPIKey)):
            load_request_schema(key, version)


# -- recorded exchanges -------------------------------------------------------------------------------------------


def without_records(data: Any) -> Any:
    """Kafka's JsonConverter shows every ``records`` field as empty; the bytes are compared with the frame's."""
    if isinstance(data, list):
        return [without_records(part) for part in data]
    if isinstance(data, dict):
        return {name: "" if name == "records" and part else without_records(part) for name, part in data.items()}
    return data


@pytest.mark.requirement("SG-011", "SG-077")
def test_recorded_frames_come_back_byte_for_byte() -> None:
    seen = set()
    for row in recorded.frames():
        frame = bytes.fromhex(row["hex"])
        version = row["api_version"]
        if row["dir"] == "req":
            header, message = decode_request(frame)
            assert header[:4] == (row["api_key"], version, row["correlation_id"], row["client_id"])
            again = encode_request(message, version, header.correlation_id, header.client_id)
        else:
            correlation_id, message = decode_response(frame, row["api_key"], version)
            assert correlation_id == row["correlation_id"]
            again = encode_response(message, row["api_key"], version, correlation_id)
        assert again == len(frame).to_bytes(4, "big") + frame
        assert without_records(to_json(message, version)) == row["data"]
        seen.add((row["api_key"], version))
    assert {(88, 0), (88, 1), (89, 0), (89, 1), (28, 5), (28, 6), (1, 18), (0, 13)} <= seen


@pytest.mark.requirement("SG-289", "SG-290", "SG-291", "SG-293", "SG-294", "SG-295", "SG-296", "CG-200")
def test_recorded_coordinator_records_come_back_byte_for_byte() -> None:
    seen = set()
    for row in recorded.records():
        data = bytes.fromhex(row["key_hex"])
        key = decode_record_key(data)
        assert encode_record_key(key) == data
        assert to_json(key, 0) == row["key"]
        seen.add(key.NAME)
        if row["value_hex"] is None:
            continue
        data = bytes.fromhex(row["value_hex"])
        value = decode_record_value(named_class(key.NAME.removesuffix("Key") + "Value"), data)
        assert encode_record_value(value) == data
        assert to_json(value, row["value_version"]) == row["value"]
    kinds = ("Metadata", "MemberMetadata", "Topology", "CurrentMemberAssignment", "TargetAssignmentMember")
    assert {f"StreamsGroup{kind}Key" for kind in kinds} | {"OffsetCommitKey", "GroupMetadataKey"} <= seen


# -- hostile bytes ------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200), pick=st.randoms(use_true_random=False))
def test_arbitrary_bytes_raise_only_decode_errors(data: bytes, pick: Any) -> None:
    for name in pick.sample(API_NAMES, 12):
        cls = named_class(name)
        version = pick.choice(cls.SCHEMA.versions)
        for buffer in (data, bytearray(data), memoryview(data)):
            try:
                message, end = decode_from(cls, version, buffer, 0)
            except DecodeError:
                continue
            assert end <= len(data)
            # Bytes, because a float that is not a number is not equal to itself.
            again = encode(message, version)
            assert encode(decode(cls, version, again), version) == again
    with suppress(DecodeError):
        decode_request(data)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 16), pick=st.randoms(use_true_random=False))
def test_mutated_frames_raise_only_decode_errors(seed: int, pick: Any) -> None:
    cls = named_class(pick.choice(API_NAMES))
    version = pick.choice(cls.SCHEMA.versions)
    message = Sampler(cls, version, seed).message()
    assert cls.API_KEY is not None
    if cls.IS_REQUEST:
        frame = bytearray(encode_request(message, version, 5, "client")[4:])
    else:
        frame = bytearray(encode_response(message, cls.API_KEY, version, 5)[4:])
    for _ in range(pick.randint(1, 4)):
        at = pick.randrange(len(frame))
        frame[at : at + pick.randint(0, 2)] = pick.choice((b"", b"\xff", b"\x80", b"\x7f\xff\xff\xff", b"\0"))
        if not frame:
            break
    with suppress(DecodeError):
        if cls.IS_REQUEST:
            decode_request(bytes(frame))
        else:
            decode_response(bytes(frame), cls.API_KEY, version)


@pytest.mark.parametrize(
    ("name", "version", "body"),
    [
        ("MetadataRequest", 12, "ffffffff0f"),
        ("MetadataRequest", 4, "7fffffff"),
        ("MetadataRequest", 4, "80000000"),
        ("StreamsGroupHeartbeatRequest", 0, "ffffffff0f"),
        ("ConsumerGroupDescribeRequest", 0, "ffffffffff"),
        ("ListGroupsRequest", 5, "0101ffffffff0f"),
        ("ProduceRequest", 13, "00ffff0000753002" + "00" * 16 + "ffffffff0f"),
    ],
)
def test_a_huge_length_costs_no_memory(name: str, version: int, body: str) -> None:
    cls = named_class(name)
    with pytest.raises(DecodeError):  # compiles
        decode(cls, version, b"")
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(cls, version, bytes.fromhex(body))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "version", "body", "text"),
    [
        ("StreamsGroupHeartbeatRequest", 0, "0267", "StreamsGroupHeartbeatRequest v0, member_id at byte 2"),
        ("StreamsGroupHeartbeatRequest", 0, "00", "group_id at byte 1: null, but the field may not be null"),
        ("StreamsGroupHeartbeatRequest", 0, "02ff", "group_id at byte 2: not UTF-8"),
        ("StreamsGroupHeartbeatRequest", 0, "0267026d000000", "member_epoch at byte 4: 4 bytes needed, 3 left"),
        ("JoinGroupRequest", 0, "fffe", "group_id at byte 2: negative length -2"),
        ("MetadataRequest", 12, "ffffffff0f", "an array of 4294967294 elements does not fit"),
        ("MetadataRequest", 12, "ffffffffff01", "is larger than 4294967295"),
        ("DeleteGroupsRequest", 2, "0305610000", "groups_names[0] at byte 2: 4 bytes needed, 3 left"),
        ("FetchRequest", 12, HEARTBEAT_V0.hex(), "FetchRequest v12, "),
    ],
)
def test_decode_errors_name_field_and_place(name: str, version: int, body: str, text: str) -> None:
    with pytest.raises(DecodeError) as raised:
        decode(named_class(name), version, bytes.fromhex(body))
    assert text in str(raised.value)


def test_a_length_in_more_bytes_than_it_needs() -> None:
    message = types.StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=7)
    message.endpoint_information_epoch = -1
    assert HEARTBEAT_V0[12:14] == b"\0\0"
    long_null = HEARTBEAT_V0[:12] + b"\x80\x80\0" + HEARTBEAT_V0[13:]
    assert decode(types.StreamsGroupHeartbeatRequest, 0, long_null) == message
    long_text = b"\x82\0" + HEARTBEAT_V0[1:]
    assert decode(types.StreamsGroupHeartbeatRequest, 0, long_text) == message
    with pytest.raises(DecodeError, match="group_id at byte 2: null"):
        decode(types.StreamsGroupHeartbeatRequest, 0, b"\x80\0" + HEARTBEAT_V0[1:])


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    body = encode(types.FetchRequest(), 12)
    assert body[-1] == 0
    good = body[:-1] + b"\x01\x00\x02\x02c"
    assert decode(types.FetchRequest, 12, good).cluster_id == "c"
    with pytest.raises(DecodeError, match="the tagged field has 3 bytes, its value 2"):
        decode(types.FetchRequest, 12, body[:-1] + b"\x01\x00\x03\x02cx")
    with pytest.raises(DecodeError, match="cluster_id"):
        decode(types.FetchRequest, 12, body[:-1] + b"\x01\x00\x7f\x02c")


# -- frames and buffers -------------------------------------------------------------------------------------------


@pytest.mark.requirement("GA-002")
def test_headers_change_with_the_first_flexible_version() -> None:
    first_flexible = {8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 42: 2, 47: None}
    for key, first in first_flexible.items():
        cls = next(c for c in map(named_class, API_NAMES) if key == c.API_KEY and c.IS_REQUEST)
        answer = named_class(cls.NAME.removesuffix("Request") + "Response")
        for version in cls.SCHEMA.versions:
            flexible = first is not None and version >= first
            request = encode_request(cls(), version, 1, "c")
            assert len(request) == 4 + 8 + 2 + 1 + flexible + len(encode(cls(), version))
            response = encode_response(answer(), key, version, 1)
            assert len(response) == 4 + 4 + flexible + len(encode(answer(), version))
            # Flexible structs end with the number of their tagged fields.
            assert (encode(cls(), version) != encode(cls(unknown_tags={9: b"x"}), version)) is flexible


def test_api_versions_is_answered_without_a_flexible_header() -> None:
    response = types.ApiVersionsResponse()
    for version in range(6):
        assert encode_response(response, 18, version, 7)[4:8] == b"\0\0\0\7"
        assert encode_response(response, 18, version, 7)[8:] == encode(response, version)
        assert decode_response(encode_response(response, 18, version, 7)[4:], 18, version) == (7, response)


def test_request_header() -> None:
    message = types.StreamsGroupHeartbeatRequest(group_id="g")
    frame = encode_request(message, 1, 42, "me")[4:]
    assert decode_request_header(frame) == RequestHeader(88, 1, 42, "me", 13)
    assert decode_request(memoryview(frame)) == (RequestHeader(88, 1, 42, "me", 13), message)
    assert decode_request_header(encode_request(message, 1, -1, None)[4:]).client_id is None
    assert decode_request_header(encode_request(message, 1, -1, "")[4:]).client_id == ""
    # Tagged fields of a newer header version are passed over.
    tagged = frame[:12] + b"\x02\x05\x01x\x06\x00" + frame[13:]
    assert decode_request(tagged) == (RequestHeader(88, 1, 42, "me", 18), message)


@pytest.mark.parametrize(
    "frame", ["", "0058", "00580001000000010005", "0058000100000001fffe", "00580001000000010001ff"]
)
def test_a_broken_request_header_is_a_decode_error(frame: str) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(bytes.fromhex(frame))


@pytest.mark.parametrize(("key", "version"), [(88, 2), (88, -1), (999, 0), (4, 0), (-1, 0), (18, 9), (0, 2)])
def test_unknown_apis_and_versions_carry_what_an_answer_needs(key: int, version: int) -> None:
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x07\xff\xff"
    with pytest.raises(UnsupportedVersionError) as raised:
        decode_request_header(frame)
    error = raised.value
    assert (error.api_key, error.api_version, error.correlation_id) == (key, version, 7)
    with pytest.raises(UnsupportedVersionError):
        decode_response(b"\0\0\0\0", key, version)


def test_records_are_not_copied() -> None:
    records = bytearray(b"0123456789" * 100)
    request = types.ProduceRequest
    data = request.PartitionProduceData(index=3, records=records)
    message = request(acks=-1, topic_data=[request.TopicProduceData(name="t", partition_data=[data])])
    for version in (3, 9):
        parts = encode_parts(message, version)
        assert b"".join(parts) == encode(message, version)
        assert sum(part is records for part in parts) == 1
        frame = encode_request(message, version, 1, "c")
        sized = encode_request_parts(message, version, 1, "c")
        assert b"".join(sized) == frame
        body = bytearray(frame[4:])
        _, decoded = decode_request(body)
        assert isinstance(decoded, request)
        view = decoded.topic_data[0].partition_data[0].records
        assert isinstance(view, memoryview)
        assert view == records
        body[body.index(b"0123456789")] = ord("X")
        assert bytes(view[:3]) == b"X12"


def test_records_may_come_in_pieces() -> None:
    response = types.FetchResponse

    def answer(records: Any) -> types.FetchResponse:
        partition = response.PartitionData(partition_index=0, high_watermark=1, records=records)
        return response(responses=[response.FetchableTopicResponse(topic="t", partitions=[partition])])

    pieces = [b"ab", bytearray(b"cd"), memoryview(b"ef")]
    for version in (4, 12):
        whole = encode(answer(b"abcdef"), version)
        assert encode(answer(pieces), version) == whole
        parts = encode_parts(answer(pieces), version)
        assert [part for part in parts if any(part is piece for piece in pieces)] == pieces
        assert b"".join(encode_response_parts(answer(pieces), 1, version, 3)) == encode_response(
            answer(b"abcdef"), 1, version, 3
        )
        assert encode(answer([]), version) == encode(answer(b""), version)
        assert encode(answer(None), version) != encode(answer(b""), version)
        decoded = decode(response, version, encode(answer(None), version))
        assert decoded.responses[0].partitions[0].records is None


def test_a_body_may_stand_anywhere_in_a_buffer() -> None:
    message = types.HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    body = encode(message, 4)
    for buffer in (b"xx" + body + b"rest", bytearray(b"xx" + body + b"rest"), memoryview(b"xx" + body + b"rest")):
        assert decode(types.HeartbeatRequest, 4, buffer, 2) == message
        assert decode_from(types.HeartbeatRequest, 4, buffer, 2) == (message, 2 + len(body))


def test_unknown_tagged_fields_are_kept() -> None:
    tags = {7: b"seven", 300: b"", 5: b"x" * 200}
    request = types.StreamsGroupHeartbeatRequest
    message = request(
        group_id="g",
        active_tasks=[request.TaskIds(subtopology_id="0", partitions=[1], unknown_tags={0: b"t"})],
        unknown_tags=tags,
    )
    data = encode(message, 1)
    decoded = decode(request, 1, data)
    assert decoded == message
    assert decoded.unknown_tags == tags
    assert encode(decoded, 1) == data
    # KIP-482: tagged fields are written in ascending order of their tags.
    places = [data.index(b"x" * 200), data.index(b"seven"), data.rindex(b"\xac\x02\x00")]
    assert all(a < b for a, b in pairwise(places))


def test_a_known_tag_wins_over_an_unknown_one_of_the_same_number() -> None:
    message = types.FetchRequest(cluster_id="c", unknown_tags={0: b"\x02d", 99: b"z"})
    decoded = decode(types.FetchRequest, 12, encode(message, 12))
    assert decoded.cluster_id == "c"
    assert decoded.unknown_tags == {99: b"z"}


def test_fields_that_a_version_lacks_are_left_out_and_read_as_default() -> None:
    response = types.StreamsGroupHeartbeatResponse(acceptable_recovery_lag=10_000, acceptable_recovery_lag_legacy=5)
    assert decode(type(response), 0, encode(response, 0)).acceptable_recovery_lag == -1
    assert decode(type(response), 0, encode(response, 0)).acceptable_recovery_lag_legacy == 5
    assert decode(type(response), 1, encode(response, 1)).acceptable_recovery_lag == 10_000
    assert decode(type(response), 1, encode(response, 1)).acceptable_recovery_lag_legacy == 0


def test_arrays_of_a_decoded_message_are_its_own() -> None:
    data = encode(types.MetadataResponse(), 0)
    first, second = decode(types.MetadataResponse, 0, data), decode(types.MetadataResponse, 0, data)
    first.topics.append(types.MetadataResponse.MetadataResponseTopic())
    assert second.topics == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"group_id": None}, "group_id is None"),
        ({"group_id": 5}, "group_id: string expected, got 5"),
        ({"group_id": b"g"}, "group_id: string expected"),
        ({"group_id": "\ud800"}, "group_id: string expected"),
        ({"member_epoch": 1 << 31}, "member_epoch: int32 expected, got 2147483648"),
        ({"member_epoch": "1"}, "member_epoch: int32 expected"),
        ({"active_tasks": 5}, "active_tasks: a list expected"),
        ({"active_tasks": ["x"]}, "active_tasks[0]: TaskIds expected, got 'x'"),
        ({"topology": 1}, "topology: Topology expected"),
    ],
)
def test_encode_errors_name_the_field(changes: dict[str, Any], text: str) -> None:
    message = types.StreamsGroupHeartbeatRequest(**changes)
    with pytest.raises(EncodeError) as raised:
        encode(message, 0)
    assert f"StreamsGroupHeartbeatRequest v0, {text}" in str(raised.value)
    with pytest.raises(EncodeError):
        encode_parts(message, 0)


def test_encode_errors_of_other_kinds() -> None:
    topic = types.FetchRequest.FetchTopic(topic_id=b"short")
    with pytest.raises(EncodeError, match=r"topics\[0\]\.topic_id: uuid expected"):
        encode(types.FetchRequest(topics=[topic]), 17)
    with pytest.raises(EncodeError, match="group_id: string expected"):
        encode(types.HeartbeatRequest(group_id="x" * 40_000), 0)
    with pytest.raises(EncodeError, match="has versions 0 to 1, not 2"):
        encode(types.StreamsGroupHeartbeatRequest(), 2)
    with pytest.raises(EncodeError, match="is a part of a message"):
        encode(types.StreamsGroupHeartbeatRequest.Topology(), 0)
    with pytest.raises(EncodeError, match="is not a request"):
        encode_request(types.HeartbeatResponse(), 0, 0, None)
    with pytest.raises(EncodeError):
        encode_request(types.HeartbeatRequest(), 0, 1 << 31, None)
    with pytest.raises(EncodeError):
        encode_request(types.HeartbeatRequest(), 0, 1, "x" * 40_000)
    with pytest.raises(EncodeError):
        encode_request(types.HeartbeatRequest(), 0, 1, "\ud800")
    with pytest.raises(EncodeError):
        encode_response(types.HeartbeatResponse(), 999, 0, 1)
    with pytest.raises(UnsupportedVersionError):
        decode(types.StreamsGroupHeartbeatRequest, 2, b"")


def test_warm_leaves_nothing_to_compile() -> None:
    warm([12])
    for cls in (types.HeartbeatRequest, types.HeartbeatResponse):
        assert set(cls.READERS) == set(cls.WRITERS) == set(range(5))


# -- records of the coordinators ----------------------------------------------------------------------------------


@pytest.mark.requirement("SG-289")
def test_record_keys_begin_with_their_own_type() -> None:
    types_of_keys = {}
    for name in message_names():
        schema = message_schema(name)
        if schema.kind == "key" and name != "TransactionLogKey":
            key = named_class(name)()
            data = encode_record_key(key)
            assert decode_record_key(data) == key
            types_of_keys[name] = int.from_bytes(data[:2], "big")
    assert len(set(types_of_keys.values())) == len(types_of_keys)
    assert {n: t for n, t in types_of_keys.items() if n.startswith("StreamsGroup")} == {
        "StreamsGroupMetadataKey": 17,
        "StreamsGroupMemberMetadataKey": 19,
        "StreamsGroupTargetAssignmentMetadataKey": 20,
        "StreamsGroupTargetAssignmentMemberKey": 21,
        "StreamsGroupCurrentMemberAssignmentKey": 22,
        "StreamsGroupTopologyKey": 23,
    }


def test_the_two_logs_have_their_own_record_types() -> None:
    key = types.TransactionLogKey(transactional_id="t")
    assert decode_record_key(encode_record_key(key), transactions=True) == key
    assert encode_record_key(key)[:2] == encode_record_key(types.LegacyOffsetCommitKey())[:2]
    with pytest.raises(UnknownRecordTypeError):
        decode_record_key(b"\0\1\0\1t", transactions=True)


def test_an_unknown_record_type_says_its_number() -> None:
    with pytest.raises(UnknownRecordTypeError) as raised:
        decode_record_key(b"\x03\xe8rest")
    assert raised.value.record_type == 1000
    with pytest.raises(DecodeError, match="shorter than the int16"):
        decode_record_key(b"\0")
    with pytest.raises(NewerRecordError, match=r"StreamsGroupMetadataValue has versions 0 to \d, not 5"):
        decode_record_value(types.StreamsGroupMetadataValue, b"\0\5")
    with pytest.raises(EncodeError, match="is not the key"):
        encode_record_key(types.StreamsGroupMetadataValue())


def test_a_tagged_structure_that_is_not_there_is_written_as_kafka_writes_it() -> None:
    """A number says so, in the generated code of Kafka's ``ConsumerGroupMemberMetadataValue``: its tools read no other one.
    What logs hold with the sign of a byte, as in front of structures elsewhere, is read too."""
    value = types.ConsumerGroupMemberMetadataValue(client_id="c", client_host="h", rebalance_timeout_ms=5)
    value.instance_id = value.rack_id = value.subscribed_topic_regex = value.server_assignor = None
    value.classic_member_metadata = None
    head = bytes.fromhex("000000000263026801000000000500")
    assert encode_record_value(value) == head + bytes.fromhex("01000100")
    for there in ("00", "ff"):
        read = decode_record_value(types.ConsumerGroupMemberMetadataValue, head + bytes.fromhex("010001" + there))
        assert read.classic_member_metadata is None
    value.classic_member_metadata = types.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(session_timeout_ms=7)
    written = encode_record_value(value)
    assert written == head + bytes.fromhex("01000701000000070100")
    assert decode_record_value(types.ConsumerGroupMemberMetadataValue, written) == value


def test_group_metadata_is_written_in_the_version_that_kafka_writes() -> None:
    assert encode_record_value(types.GroupMetadataValue())[:2] == b"\0\3"
    assert encode_record_value(types.OffsetCommitValue())[:2] == b"\0\4"
    assert encode_record_value(types.OffsetCommitValue(expire_timestamp=5), 1)[:2] == b"\0\1"


@pytest.mark.requirement("CR-014")
def test_consumer_protocol_data_of_other_versions() -> None:
    subscription = types.ConsumerProtocolSubscription
    owned = subscription.TopicPartition(topic="t", partitions=[0])
    message = subscription(topics=["t"], user_data=b"u", owned_partitions=[owned], generation_id=4, rack_id="r")
    old = decode_consumer_protocol(subscription, encode_record_value(message, 0))
    assert old == subscription(topics=["t"], user_data=b"u")
    newer = b"\0\x09" + encode(message, 3) + b"fields of version 9"
    assert decode_consumer_protocol(subscription, newer) == message
    # An older reader: the fields of version 0 come first and the rest is left alone.
    assert decode(subscription, 0, encode(message, 3)) == old
    with pytest.raises(DecodeError):
        decode_consumer_protocol(subscription, b"\xff\xff")
