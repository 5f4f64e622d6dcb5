"""What members write where Java's Kafka Streams is in the group, and what they read of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.membership.classic.layout import encode_assignment, encode_subscription, with_consumer_fields
from streamsrt.membership.classic.stream_layout import (
    Hosts,
    JavaSubscription,
    UserDataVersions,
    decode_own_assignment,
    decode_own_subscription,
    decode_stream_assignment,
    decode_stream_subscription,
    encode_stream_assignment,
    encode_stream_subscription,
    is_numbered,
    versions_of,
)
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription, Unreadable
from streamsrt.membership.values import Endpoint, Tasks
from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.streams_user_data import (
    RUNNING,
    SHUTDOWN_REQUESTED,
    FutureSubscription,
    SubscriptionInfo,
    decode_subscription_info,
    encode_subscription_info,
)
from streamsrt.wire.types import ConsumerProtocolSubscription
from tests.streamsrt.membership.classic.group_model import wire_topology
from tests.streamsrt.membership.classic.test_layout import assignments, subscriptions

TOPOLOGY = wire_topology(0, "0: source=t changelog=c", "1: source=u")
SAID = ClassicSubscription(
    process_id="00000000-0000-0000-0000-000000000007",
    topology_epoch=0,
    topology_digest=bytes(16),
    topics=frozenset({"t", "u"}),
    held=Tasks(frozenset({("0", 1), ("1", 1)}), standby=frozenset({("0", 2)}), warmup=frozenset({("0", 3)})),
    offsets={("0", 3): 40, ("0", 9): 3, ("0", 1): 9},
)

numbered = st.frozensets(st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 99)), max_size=5)
roles = st.builds(Tasks, numbered, numbered, numbered)


def info_of(metadata: bytes) -> SubscriptionInfo:
    data = decode_consumer_protocol(ConsumerProtocolSubscription, metadata).user_data
    info = decode_subscription_info(data or b"")
    assert isinstance(info, SubscriptionInfo)
    return info


@given(subscriptions, roles, st.integers(7, 11))
def test_a_member_of_ours_is_read_in_its_own_words(
    subscription: ClassicSubscription, held: Tasks, version: int
) -> None:
    subscription = replace(subscription, held=held, echo=None)
    assert decode_stream_subscription(encode_stream_subscription(subscription, version, TOPOLOGY)) == subscription


@given(assignments, roles, st.integers(7, 11), st.booleans())
def test_an_assignment_is_read_in_both_words(
    told: ClassicAssignment, tasks: Tasks, version: int, is_java: bool
) -> None:
    everything = tasks.active | tasks.standby | tasks.warmup
    places = {task: [(f"topic-{task[0]}", task[1]), (f"other-{task[0]}", task[1])] for task in everything}
    partitions = frozenset(place for task in tasks.active for place in places[task])
    told = replace(told, tasks=tasks, assigned_partitions=partitions)
    read = decode_stream_assignment(
        encode_stream_assignment(told, places, UserDataVersions(version, 11), Hosts(), is_java=is_java)
    )
    assert isinstance(read, tuple)
    own, java = read
    assert own == (None if is_java else told)
    assert java.tasks == Tasks(tasks.active, (tasks.standby | tasks.warmup) - tasks.active)
    assert set(java.partitions) == partitions
    assert set(java.inputs()) >= {(task, place) for task in tasks.active for place in places[task]}


def test_java_reads_what_runs_what_is_on_disk_and_nothing_of_tasks_without_state() -> None:
    info = info_of(encode_stream_subscription(SAID, 11, TOPOLOGY))
    assert info.offset_sums == {(0, 1): RUNNING, (0, 2): 0, (0, 3): 40, (0, 9): 3}
    assert (info.version, info.newest_version, info.error, info.endpoint) == (11, 11, 0, "")
    subscription = replace(SAID, requests_shutdown=True, endpoint=Endpoint("host", 80))
    info = info_of(encode_stream_subscription(subscription, 9, TOPOLOGY))
    assert (info.version, info.newest_version, info.error, info.endpoint) == (9, 11, SHUTDOWN_REQUESTED, "host:80")


def test_another_number_makes_other_bytes_for_java_too() -> None:
    one, two = (info_of(encode_stream_subscription(replace(SAID, unique=n), 11, TOPOLOGY)) for n in (255, 256))
    assert one.unique != two.unique


def test_only_numbers_from_zero_on_are_javas_names() -> None:
    assert is_numbered(TOPOLOGY)
    assert not is_numbered(wire_topology(0, "0: source=t", "2: source=u"))
    assert not is_numbered(wire_topology(0, "a: source=t"))
    assert not is_numbered(wire_topology(0))


def test_the_version_is_the_lowest_that_is_used_and_the_common_one_the_lowest_of_the_newest() -> None:
    def java(version: int, newest: int) -> bytes:
        info = SubscriptionInfo(version=version, newest_version=newest, process_id=SAID.process_id)
        return with_consumer_fields(SAID, encode_subscription_info(info))

    ours = encode_stream_subscription(SAID, 11, TOPOLOGY)
    assert versions_of([ours, java(9, 10)]) == UserDataVersions(9, 10)
    assert versions_of([ours, java(9, 9), java(11, 11)]) == UserDataVersions(9, 9)
    # One that nobody here knows is answered with the newest one that is known here.
    future = with_consumer_fields(SAID, b"\0\0\0\x0c\0\0\0\x0c")
    assert versions_of([ours, future]) == UserDataVersions(11, 11)
    assert decode_stream_subscription(future) == JavaSubscription(FutureSubscription(12, 12), SAID.topics)


@pytest.mark.parametrize("metadata", [b"", b"\x00\x03what"])
def test_what_no_consumer_says_is_unreadable(metadata: bytes) -> None:
    assert isinstance(decode_stream_subscription(metadata), Unreadable)
    assert isinstance(decode_stream_assignment(metadata), Unreadable)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x06\0\0\0\x06", b"cut"])
def test_what_a_member_owns_counts_though_it_says_nothing_that_can_be_understood(data: bytes) -> None:
    subscription = decode_stream_subscription(
        with_consumer_fields(replace(SAID, owned_partitions=frozenset({("t", 1)})), data)
    )
    assert isinstance(subscription, JavaSubscription)
    assert subscription.owned_partitions == {("t", 1)}
    assert "can't be read" in subscription.unreadable
    assert subscription.running == frozenset()


def test_our_words_that_are_cut_off_are_not_understood() -> None:
    metadata = encode_stream_subscription(SAID, 11, TOPOLOGY)
    outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
    assert outer.user_data is not None
    for cut in (1, 20):
        subscription = decode_stream_subscription(with_consumer_fields(SAID, bytes(outer.user_data[:-cut])))
        assert isinstance(subscription, JavaSubscription), cut
        assert subscription.unreadable


def test_an_assignment_with_a_task_too_many_is_unreadable() -> None:
    told = ClassicAssignment(generation=1, tasks=Tasks(frozenset({("0", 1)})))
    data = encode_stream_assignment(told, {("0", 1): [("t", 1), ("t", 1)]}, UserDataVersions(), Hosts(), is_java=True)
    read = decode_stream_assignment(data)
    assert isinstance(read, Unreadable)
    assert "2 tasks for 1 partitions" in read.reason
    good = encode_stream_assignment(told, {("0", 1): [("t", 1)]}, UserDataVersions(), Hosts(), is_java=True)
    assert isinstance(decode_stream_assignment(good), tuple)


@pytest.mark.parametrize("protocol", ["streamsrt-1", "stream"])
def test_of_a_described_group_our_members_are_read_in_either_layout(protocol: str) -> None:
    told = ClassicAssignment(
        generation=4, tasks=Tasks(frozenset({("0", 1)})), assigned_partitions=frozenset({("t", 1)})
    )
    places, is_stream = {("0", 1): [("t", 1)]}, protocol == "stream"
    subscription = encode_stream_subscription(SAID, 11, TOPOLOGY) if is_stream else encode_subscription(SAID)
    given_bytes = (
        encode_stream_assignment(told, places, UserDataVersions(), Hosts(), is_java=False)
        if is_stream
        else encode_assignment(told)
    )
    assert decode_own_subscription(protocol, subscription) == SAID
    assert decode_own_assignment(protocol, given_bytes) == told
    assert decode_own_subscription("range", subscription) is None
    assert decode_own_assignment("range", given_bytes) is None
    javas = encode_stream_assignment(told, places, UserDataVersions(), Hosts(), is_java=True)
    assert decode_own_assignment("stream", javas) is None
    assert decode_own_subscription("stream", b"") is None
