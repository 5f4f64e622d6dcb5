"""The user data of Kafka Streams, against what Java wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.streams_user_data import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    AssignmentInfo,
    FutureSubscription,
    SubscriptionInfo,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.fixtures_brokers import require_kafka
from tests.tools.record_streams_user_data import RECORDED, asked_of_java, drawn, ours, value_of

CASES = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
OF_A_GROUP = json.loads((RECORDED.parent.parent / "classic" / "kafka-streams-4.3.1.json").read_text(encoding="utf-8"))

int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
tasks = st.tuples(int32s, int32s)
places = st.frozensets(st.tuples(names, int32s), max_size=4)
versions = st.integers(OLDEST_VERSION, NEWEST_VERSION)
subscriptions = st.builds(
    lambda version, unique, error, tags, **fields: SubscriptionInfo(
        version=version,
        unique=unique if version >= 8 else 0,
        error=error if version >= 9 else 0,
        client_tags=tags if version >= 11 else {},
        **fields,
    ),
    version=versions,
    unique=st.integers(-128, 127),
    error=int32s,
    tags=st.dictionaries(names, names, max_size=3),
    newest_version=int32s,
    process_id=st.uuids().map(str),
    endpoint=names,
    offset_sums=st.dictionaries(tasks, int64s, max_size=5),
    rest=st.binary(max_size=9),
)
assignments = st.builds(
    AssignmentInfo,
    version=versions,
    common_version=int32s,
    active=st.lists(tasks, max_size=5).map(tuple),
    standby=st.dictionaries(tasks, places, max_size=3),
    active_by_host=st.dictionaries(st.tuples(names, int32s), places, max_size=3),
    standby_by_host=st.dictionaries(st.tuples(names, int32s), places, max_size=3),
    error=int32s,
    next_rebalance_ms=int64s,
    rest=st.binary(max_size=9),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['data']['version']}")
def test_what_java_wrote_is_read_and_written_alike(case: dict[str, Any]) -> None:
    data, value = bytes.fromhex(case["hex"]), value_of(case)
    decode: Callable[[bytes], object] = (
        decode_subscription_info if case["kind"] == "subscription" else decode_assignment_info
    )
    assert decode(data) == value
    hosts = [*case["data"].get("active_by_host", ()), *case["data"].get("standby_by_host", ())]
    if len({topic for *_, places in hosts for topic, _ in places}) < 2:
        # Java numbers several topics in the order of a hash table.
        assert ours(case) == data


def test_every_version_has_cases_of_both_kinds() -> None:
    found = {(case["kind"], case["data"]["version"]) for case in CASES}
    assert len(found) == 2 * (NEWEST_VERSION - OLDEST_VERSION + 1)


@pytest.mark.kafka
def test_java_reads_what_is_written_here() -> None:
    require_kafka()
    read = asked_of_java({**case, "ours": ours(case).hex()} for case in drawn())
    assert len(read) == len(CASES)
    assert [case for case in read if not case["equal"]] == []


def test_what_a_real_group_said_is_written_as_java_wrote_it() -> None:
    said = decode_consumer_protocol(ConsumerProtocolSubscription, bytes.fromhex(OF_A_GROUP["subscription"]))
    told = decode_consumer_protocol(ConsumerProtocolAssignment, bytes.fromhex(OF_A_GROUP["assignment"]))
    assert said.user_data is not None
    assert told.user_data is not None
    info = decode_subscription_info(said.user_data)
    assert isinstance(info, SubscriptionInfo)
    assert encode_subscription_info(info) == said.user_data
    given_tasks = decode_assignment_info(told.user_data)
    assert given_tasks.active == ((1, 0), (1, 1), (0, 0), (0, 1))
    assert encode_assignment_info(given_tasks) == told.user_data


@given(subscriptions)
def test_a_subscription_is_read_as_it_was_written(info: SubscriptionInfo) -> None:
    assert decode_subscription_info(encode_subscription_info(info)) == info


@given(assignments)
def test_an_assignment_is_read_as_it_was_written(info: AssignmentInfo) -> None:
    assert decode_assignment_info(encode_assignment_info(info)) == info


@given(assignments | subscriptions, st.integers(1, 200))
def test_what_is_cut_off_is_an_error_and_nothing_else(info: AssignmentInfo | SubscriptionInfo, cut: int) -> None:
    is_said = isinstance(info, SubscriptionInfo)
    data = encode_subscription_info(info) if isinstance(info, SubscriptionInfo) else encode_assignment_info(info)
    decode: Callable[[bytes], object] = decode_subscription_info if is_said else decode_assignment_info
    whole = data[: len(data) - len(info.rest)]
    with pytest.raises(DecodeError):
        decode(whole[: max(len(whole) - cut, 0)])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_subscription_info, decode_assignment_info):
        try:
            decode(b"\0\0\0\x0a" + data)
        except DecodeError:
            continue


def test_of_a_later_version_only_the_numbers_are_read() -> None:
    assert decode_subscription_info(b"\0\0\0\x0c\0\0\0\x0d???") == FutureSubscription(12, 13)
    with pytest.raises(DecodeError, match="version 6"):
        decode_subscription_info(b"\0\0\0\x06\0\0\0\x06")
