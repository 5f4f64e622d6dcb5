"""What members of a classic group write and read."""

from __future__ import annotations

import random
import uuid
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.classic.layout import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streamsrt.membership.classic.values import (
    ClassicAssignment,
    ClassicSubscription,
    Echo,
    ToldSetbacks,
    Topology,
    Unreadable,
)
from streamsrt.membership.values import Endpoint, Status, Tasks, UnknownStatus
from streamsrt.wire import packed
from streamsrt.wire.messages import decode, decode_consumer_protocol, encode, encode_record_value
from streamsrt.wire.types import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    StreamsGroupHeartbeatRequest,
    StreamsrtAssignment,
    StreamsrtSubscription,
)

int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
pairs = st.tuples(names, st.integers(0, 2**31 - 1))
pair_sets = st.frozensets(pairs, max_size=5)
task_sets = st.builds(Tasks, pair_sets, pair_sets, pair_sets)
digests = st.binary(min_size=16, max_size=16)
setbacks = st.builds(ToldSetbacks, int32s, int32s, int32s)
topologies = st.builds(
    lambda epoch, sources: Topology(
        epoch=epoch, subtopologies=[StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="s", source_topics=sources)]
    ),
    int32s,
    st.lists(names, max_size=3),
)
subscriptions = st.builds(
    ClassicSubscription,
    unique=int32s,
    topics=st.frozensets(names, max_size=5),
    owned_partitions=pair_sets,
    generation_id=int32s,
    rack_id=st.none() | names,
    process_id=st.uuids().map(str),
    endpoint=st.none() | st.builds(Endpoint, names, st.integers(0, 65_535)),
    client_tags=st.dictionaries(names, names, max_size=3),
    features=int32s,
    topology_epoch=int32s,
    topology_digest=digests,
    topology=st.none() | topologies,
    held=task_sets,
    echo=st.none() | st.builds(Echo, int32s, int32s, digests, task_sets, setbacks=st.none() | setbacks),
    offsets=st.dictionaries(pairs, int64s, max_size=4),
    end_offsets=st.dictionaries(pairs, int64s, max_size=4),
    requests_shutdown=st.booleans(),
    missed_sync=st.booleans(),
    shutdown_received=st.booleans(),
    returns=st.booleans(),
    awaits=st.booleans(),
)
assignments = st.builds(
    ClassicAssignment,
    generation=int32s,
    group_epoch=int32s,
    group_digest=digests,
    assigned_partitions=pair_sets,
    tasks=task_sets,
    target=task_sets,
    statuses=st.lists(
        st.builds(Status, st.sampled_from(StatusCode), names) | st.builds(UnknownStatus, st.integers(7, 127), names),
        max_size=3,
    ).map(tuple),
    setbacks=st.none() | setbacks,
    awaits=st.booleans(),
    error_code=st.integers(-1, 200),
    error_text=st.none() | names,
    is_same_topology=st.booleans(),
    send_topology=st.booleans(),
    rejoin_after_ms=st.none() | st.integers(0, 2**63 - 1),
    recovery_lag=int32s,
    offset_interval_ms=int32s,
    why=names,
    process_id=st.uuids().map(str),
    unique=int32s,
)


@given(subscriptions)
def test_a_subscription_is_read_as_it_was_written(said: ClassicSubscription) -> None:
    assert decode_subscription(encode_subscription(said)) == said


@given(assignments)
def test_an_assignment_is_read_as_it_was_written(told: ClassicAssignment) -> None:
    assert decode_assignment(encode_assignment(told)) == told


@given(task_sets)
def test_a_target_that_is_held_or_given_is_not_written_twice(tasks: Tasks) -> None:
    said = replace(SUBSCRIPTION, held=tasks, echo=Echo(3, 1, bytes(16), tasks))
    assert decode_subscription(encode_subscription(said)) == said
    own = own_subscription(encode_subscription(said))
    assert own.echo is not None
    assert own.echo.as_held
    assert own.echo.target == StreamsrtSubscription.RoleTasks()
    told = ClassicAssignment(generation=3, tasks=tasks, target=tasks)
    assert decode_assignment(encode_assignment(told)) == told


SUBSCRIPTION = ClassicSubscription(
    process_id=str(uuid.UUID(int=7)), topology_epoch=2, topology_digest=b"d" * 16, topics=frozenset({"b", "a"})
)


def own_subscription(metadata: bytes) -> StreamsrtSubscription:
    outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
    assert outer.user_data is not None
    return decode(StreamsrtSubscription, 0, packed.unpacked(outer.user_data))


def test_other_consumers_and_brokers_read_topics_and_partitions() -> None:
    owned = frozenset({("b", 1), ("a", 2), ("a", 0)})
    said = replace(SUBSCRIPTION, owned_partitions=owned, generation_id=5, rack_id="r")
    outer = decode_consumer_protocol(ConsumerProtocolSubscription, encode_subscription(said))
    assert outer.topics == ["a", "b"]
    assert [(entry.topic, entry.partitions) for entry in outer.owned_partitions] == [("a", [0, 2]), ("b", [1])]
    assert (outer.generation_id, outer.rack_id) == (5, "r")
    told = ClassicAssignment(generation=5, assigned_partitions=owned)
    given = decode_consumer_protocol(ConsumerProtocolAssignment, encode_assignment(told))
    assert [(entry.topic, entry.partitions) for entry in given.assigned_partitions] == [("a", [0, 2]), ("b", [1])]


def test_equal_values_are_equal_bytes_whatever_their_order() -> None:
    tasks = [(f"s{n % 3}", n) for n in range(20)]
    one = replace(
        SUBSCRIPTION, held=Tasks(frozenset(tasks)), offsets=dict.fromkeys(tasks, 1), client_tags={"a": "", "b": ""}
    )
    other = replace(
        SUBSCRIPTION,
        held=Tasks(frozenset(reversed(tasks))),
        offsets=dict.fromkeys(reversed(tasks), 1),
        client_tags={"b": "", "a": ""},
    )
    assert encode_subscription(one) == encode_subscription(other)


def test_tagged_fields_of_newer_members_are_passed_over() -> None:
    newer = own_subscription(encode_subscription(SUBSCRIPTION))
    newer.unknown_tags = {3: b"of the future"}
    newer.held.unknown_tags = {0: b"also"}
    outer = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"\0" + encode(newer, 0))
    assert decode_subscription(encode_record_value(outer, 3)) == SUBSCRIPTION
    told = StreamsrtAssignment(generation=4, target_as_given=True, recovery_lag=-1, unknown_tags={9: b"x"})
    given = ConsumerProtocolAssignment(user_data=b"\0" + encode(told, 0))
    read = decode_assignment(encode_record_value(given, 3))
    assert read == ClassicAssignment(generation=4, group_epoch=0, offset_interval_ms=0)


@given(st.binary(max_size=60))
def test_any_other_bytes_are_unreadable_or_read(data: bytes) -> None:
    for wrapped in (data, encode_record_value(ConsumerProtocolSubscription(user_data=data), 3)):
        assert isinstance(decode_subscription(wrapped), Unreadable | ClassicSubscription)
    for wrapped in (data, encode_record_value(ConsumerProtocolAssignment(user_data=data), 3)):
        assert isinstance(decode_assignment(wrapped), Unreadable | ClassicAssignment)


@given(subscriptions, st.data())
def test_a_changed_or_cut_subscription_raises_nothing(said: ClassicSubscription, data: Any) -> None:
    written = bytearray(encode_subscription(said))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] ^= data.draw(st.integers(1, 255))
    assert isinstance(decode_subscription(bytes(written)), Unreadable | ClassicSubscription)
    assert isinstance(decode_subscription(bytes(written[:at])), Unreadable)


@pytest.mark.parametrize(
    ("user_data", "reason"),
    [
        (None, "there is no user data"),
        (b"", "there is no user data"),
        (b"\2abc", "the first byte of the user data is 2"),
        (b"\1abc", "is not valid zlib data"),
        (b"\1" + zlib.compress(bytes(100))[:-5], "is cut off"),
        (b"\0", "StreamsrtSubscription"),
    ],
)
def test_why_a_subscription_is_unreadable(user_data: bytes | None, reason: str) -> None:
    read = decode_subscription(encode_record_value(ConsumerProtocolSubscription(user_data=user_data), 3))
    assert isinstance(read, Unreadable)
    assert reason in read.reason


def test_a_few_bytes_that_decompress_to_very_many_are_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_MAX_BYTES", 10_000)
    user_data = b"\1" + zlib.compress(bytes(10_001))
    read = decode_subscription(encode_record_value(ConsumerProtocolSubscription(user_data=user_data), 3))
    assert isinstance(read, Unreadable)
    assert "larger than 10000 bytes" in read.reason


def test_a_digest_names_topics_epoch_and_program() -> None:
    def topology(epoch: int, *sources: str) -> Topology:
        part = StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="s", source_topics=list(sources))
        return Topology(epoch=epoch, subtopologies=[part])

    digests = [
        topology_digest(topology(0, "a"), {}),
        topology_digest(topology(0, "b"), {}),
        topology_digest(topology(1, "a"), {}),
        topology_digest(topology(0, "a"), {"topology.digest": "x"}),
    ]
    assert len(set(digests)) == 4
    assert {len(digest) for digest in digests} == {16}
    assert digests[0] == topology_digest(topology(0, "a"), {"rack": "eu"})


def test_a_member_with_ten_active_and_ten_standby_tasks_takes_less_than_a_kilobyte() -> None:
    chance = random.Random(1)
    identities = [f"{chance.randrange(2**32):08x}" for _ in range(5)]

    def some(count: int) -> frozenset[tuple[str, int]]:
        return frozenset((chance.choice(identities), chance.randrange(2000)) for _ in range(count))

    tasks = Tasks(some(10), some(10))
    partitions = frozenset(("orders-of-the-shop", partition) for _, partition in tasks.active)
    offsets = {task: chance.randrange(10**9) for task in tasks.standby}
    said = ClassicSubscription(
        process_id=str(uuid.UUID(int=chance.randrange(2**128))),
        topology_epoch=3,
        topology_digest=chance.randbytes(16),
        topics=frozenset({"orders-of-the-shop", "customers-of-the-shop"}),
        owned_partitions=partitions,
        generation_id=17,
        rack_id="eu-central-1a",
        endpoint=Endpoint("10.0.17.4", 8080),
        held=tasks,
        echo=Echo(17, 3, chance.randbytes(16), tasks),
        offsets=offsets,
    )
    told = ClassicAssignment(generation=18, group_epoch=3, group_digest=chance.randbytes(16), tasks=tasks, target=tasks)
    told = replace(told, assigned_partitions=partitions)
    size = len(encode_subscription(said)) + len(encode_assignment(told))
    assert 500 < size < 950, size
