"""Queries over the tasks of one instance: what they answer, and why they don't."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsrt.errors import UserError
from streamsrt.membership.values import Endpoint, EndpointsChanged, Tasks
from streamsrt.queries.errors import (
    InvalidStateStorePartitionError,
    StateStoreMigratedError,
    StreamsRebalancingError,
    UnknownStateStoreError,
)
from streamsrt.queries.read_only import LocalKeyValueStore, LocalSessionStore, LocalVersionedStore, LocalWindowStore
from streamsrt.queries.values import (
    FailureReason,
    HostInfo,
    KeyQuery,
    Position,
    PositionBound,
    PrefixQuery,
    Query,
    QueryResult,
    RangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from streamsrt.wire.murmur2 import partition_for_key
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import APPLICATION_ID, CHANGELOG, MakeRig, Rig, number
from topology import SessionWindows, Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.topology import Topology
from topology.spec.stores import ValueAndTimestamp, VersionedRecord

HERE, THERE = HostInfo("here", 80), HostInfo("there", 80)


def place(key: str) -> tuple[str, int]:
    return "in", partition_for_key(key.encode(), 2)


def write(rig: Rig, *keys: str) -> None:
    for key in keys:
        rig.network.write(place(key), [(key.encode(), number(1))])


def began(rig: Rig, *partitions: int) -> Rig:
    rig.give(Tasks(active=rig.tasks(*partitions)))
    rig.iterate(4)
    return rig


def ask(rig: Rig, query: Query, store: str = "counts", **settings: Any) -> dict[int, QueryResult[Any]]:
    with rig.gate.idle:
        return dict(rig.queries.query(store, query, **settings).partition_results)


def values(rig: Rig, query: Query, store: str = "counts") -> list[Any]:
    """All rows of a scan, over all partitions."""
    with rig.gate.idle:
        found = rig.queries.query(store, query).partition_results.values()
        return [row for each in found for row in each.result or ()]


def counts_of(rig: Rig, **settings: Any) -> LocalKeyValueStore:
    return LocalKeyValueStore(rig.queries, rig.routing, "counts", **settings)


# ------------------------------------------------------------------------------------------------------------ answers


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["", "", "commit", "evict"])), max_size=12),
    st.none() | st.sampled_from("bdf"),
    st.none() | st.sampled_from("ceg"),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_queries_equal_a_model(
    make_rig: MakeRig, script: list[tuple[str, str]], lower: str | None, upper: str | None
) -> None:
    rig = make_rig()
    began(rig, 0, 1)
    for key, then in script:
        write(rig, key)
        rig.iterate(2)
        if then == "commit":
            rig.commit()
        if then == "evict":
            for owned in rig.manager:
                owned.task.caches["counts"].evict(0)
    rig.iterate(3)
    model = Counter(key for key, _ in script)
    with rig.gate.idle:
        store = counts_of(rig)
        assert {key: store.get(key) for key in "abcdefghx"} == {key: model.get(key) for key in "abcdefghx"}
        within = {k: n for k, n in model.items() if (lower or "") <= k <= (upper or "z")}
        assert dict(store.range(lower, upper)) == within
        assert dict(store.reverse_range(lower, upper)) == within
        assert store.approximate_num_entries() == len(model)
    rig.close()


def test_timestamps_and_prefixes(rig: Rig) -> None:
    began(rig, 0, 1)
    write(rig, "apple", "apricot", "beet", "apple")
    rig.iterate(4)
    stamp = values(rig, TimestampedRangeQuery("apple", "apple"))[0][1].timestamp
    (answer,) = [each for each in ask(rig, TimestampedKeyQuery("apple")).values() if each.result is not None]
    assert answer.result == ValueAndTimestamp(2, stamp)
    assert dict(values(rig, PrefixQuery("ap", serdes.string))) == {"apple": 2, "apricot": 1}
    stamped = dict(values(rig, PrefixQuery("apple", serdes.string, with_timestamps=True)))
    assert stamped == {"apple": ValueAndTimestamp(2, stamp)}
    with rig.gate.idle:
        assert dict(counts_of(rig).prefix_scan("be", serdes.string)) == {"beet": 1}
        assert counts_of(rig, timestamped=True).get("beet").value == 1
        assert [key for key, _ in counts_of(rig, partition=place("beet")[1]).reverse_all()][-1:] != []


def test_a_long_scan_is_read_in_pieces_and_is_of_one_moment(rig: Rig) -> None:
    began(rig, 0)
    rig.network.write(("in", 0), [(b"%05d" % n, number(1)) for n in range(1_600)])
    rig.iterate(4)
    rig.commit()
    with rig.gate.idle:
        rows = iter(counts_of(rig).all())
        found = [next(rows)]
    rig.network.write(("in", 0), [(b"%05d" % n, number(1)) for n in range(1_600)])
    rig.iterate(4)
    rig.commit()
    with rig.gate.idle:
        found += list(rows)
        assert found == [(f"{n:05d}", 1) for n in range(1_600)]
        assert {value for _, value in counts_of(rig).all()} == {2}


def test_a_scan_whose_task_goes_away_says_so(rig: Rig) -> None:
    began(rig, 0)
    rig.network.write(("in", 0), [(b"%05d" % n, number(1)) for n in range(1_600)])
    rig.iterate(4)
    rig.commit()
    with rig.gate.idle:
        rows = iter(counts_of(rig).all())
        next(rows)
    rig.manager.close_all()
    with rig.gate.idle, pytest.raises(StateStoreMigratedError, match="try again, or ask another instance"):
        list(rows)


def windowed() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.integer)
        .group_by_key()
        .windowed_by(TimeWindows(1_000, grace=60_000))
        .count(store="per-second")
    )
    return builder.build()


def test_windows(make_rig: MakeRig) -> None:
    rig = make_rig(
        topology=windowed(),
        network=InProcessNetwork({"in": 2, f"{APPLICATION_ID}-per-second-changelog": 2}),
    )
    began(rig, 0, 1)
    for key, time in [("a", 100), ("b", 200), ("a", 900), ("a", 1_100), ("b", 2_500), ("a", 2_600)]:
        rig.network.write(place(key), [(key.encode(), number(1))], timestamp=time)
        rig.iterate(2)
        if time == 1_100:
            rig.commit()
    rig.iterate(2)
    with rig.gate.idle:
        store = LocalWindowStore(rig.queries, rig.routing, "per-second")
        assert [store.fetch("a", start) for start in (0, 1_000, 2_000, 3_000)] == [2, 1, 1, None]
        assert list(store.fetch_range("a", 0, 1_500)) == [(0, 2), (1_000, 1)]
        assert list(store.backward_fetch_range("a", 0, 1_500)) == [(1_000, 1), (0, 2)]
        assert sorted((*key, n) for key, n in store.fetch_all(1_000, 2_000)) == [
            ("a", 1_000, 2_000, 1),
            ("a", 2_000, 3_000, 1),
            ("b", 2_000, 3_000, 1),
        ]
        assert {key.key for key, _ in store.fetch_keys("b", None, 0, 9_000)} == {"b"}
        assert len(list(store.all())) == 5
        stamped = LocalWindowStore(rig.queries, rig.routing, "per-second", timestamped=True)
        assert stamped.fetch("a", 0) == ValueAndTimestamp(2, 900)
    assert values(rig, WindowKeyQuery("a", 0, 999), "per-second") == [(0, ValueAndTimestamp(2, 900))]
    assert len(values(rig, WindowRangeQuery(0, 0), "per-second")) == 2
    assert {each.failure_reason for each in ask(rig, KeyQuery("a"), "per-second").values()} == {
        FailureReason.UNKNOWN_QUERY_TYPE
    }


# ----------------------------------------------------------------------------------------------------------- positions


def test_positions_bound_what_is_asked(rig: Rig) -> None:
    began(rig, 0, 1)
    write(rig, "a", "a", "a")
    rig.iterate(4)
    partition = place("a")[1]
    result = ask(rig, KeyQuery("a"))[partition]
    assert result.position == Position({"in": {partition: 2}})
    enough = PositionBound.at(result.position)
    assert ask(rig, KeyQuery("a"), position_bound=enough)[partition].result == 3
    too_much = PositionBound.at(result.position.with_component("in", partition, 3))
    late = ask(rig, KeyQuery("a"), position_bound=too_much)
    assert late[partition].failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert f"in-{partition} is at offset 2, not yet at 3" in late[partition].failure_message
    assert late[1 - partition].is_success
    write(rig, "a")
    rig.iterate(2)
    assert ask(rig, KeyQuery("a"), position_bound=too_much)[partition].result == 4


def test_a_position_begins_where_the_task_begins(make_rig: MakeRig) -> None:
    rig = make_rig("same")
    began(rig, 0, 1)
    write(rig, "a", "a")
    rig.iterate(4)
    rig.commit()
    rig.close()
    again = make_rig("same", network=rig.network)
    began(again, 0, 1)
    partition = place("a")[1]
    assert ask(again, KeyQuery("a"))[partition] == QueryResult(2, Position({"in": {partition: 1}}))


def behind_a_cache() -> Topology:
    builder = StreamsBuilder()
    counted = builder.stream("in", key=serdes.string, value=serdes.integer).group_by_key().count(store="counts")
    counted.map_values(lambda n: n * 10, store="tens")
    return builder.build()


def test_a_store_behind_a_cache_is_where_that_was_flushed(make_rig: MakeRig) -> None:
    network = InProcessNetwork({"in": 2, CHANGELOG: 2, f"{APPLICATION_ID}-tens-changelog": 2})
    rig = make_rig(topology=behind_a_cache(), network=network)
    began(rig, 0, 1)
    write(rig, "a")
    rig.iterate(4)
    partition = place("a")[1]
    bound = PositionBound.at(Position({"in": {partition: 0}}))
    assert ask(rig, KeyQuery("a"), position_bound=bound)[partition].result == 1
    behind = ask(rig, KeyQuery("a"), "tens", position_bound=bound)[partition]
    assert behind.failure_reason is FailureReason.NOT_UP_TO_BOUND
    rig.commit()
    assert ask(rig, KeyQuery("a"), "tens", position_bound=bound)[partition].result == 10


def test_positions_are_values() -> None:
    position = Position({"a": {0: 5, 1: 7}})
    assert position.merge(Position({"a": {0: 9}, "b": {2: 1}})) == Position({"a": {0: 9, 1: 7}, "b": {2: 1}})
    assert Position.from_json(position.to_json()) == position
    assert hash(Position({"a": {1: 7, 0: 5}})) == hash(position)
    assert not Position()
    assert position.offsets("a") == {0: 5, 1: 7}
    assert "'a'" in repr(position)


# ------------------------------------------------------------------------------------------------- why there is none


def test_what_another_instance_has_is_named(make_rig: MakeRig) -> None:
    rig = make_rig(own_host=HERE)
    began(rig, 0)
    nothing: frozenset[tuple[str, int]] = frozenset()
    rig.member.waiting.append(
        EndpointsChanged(
            {
                Endpoint("here", 80): (frozenset({("in", 0)}), nothing),
                Endpoint("there", 80): (frozenset({("in", 1)}), frozenset({("in", 0)})),
            }
        )
    )
    rig.iterate()
    theirs = next(key for key in "abcdefgh" if place(key)[1] == 1)
    mine = next(key for key in "abcdefgh" if place(key)[1] == 0)
    found = ask(rig, KeyQuery(theirs), partitions=[0, 1, 2])
    assert found[0].is_success
    assert found[1].failure_reason is FailureReason.NOT_PRESENT
    assert found[1].failure_message == "partition 1 of store 'counts' is not on this instance: ask there:80"
    assert found[2].failure_reason is FailureReason.DOES_NOT_EXIST
    with rig.gate.idle:
        assert counts_of(rig).get(mine) is None
        with pytest.raises(InvalidStateStorePartitionError, match="ask there:80") as raised:
            counts_of(rig).get(theirs)
        with pytest.raises(InvalidStateStorePartitionError, match="partition 1 of store 'counts'"):
            counts_of(rig, partition=1).get(mine)
    assert (raised.value.partition, raised.value.host) == (1, "there:80")
    metadata = rig.routing.key_metadata("counts", mine)
    assert (metadata.active_host, metadata.standby_hosts, metadata.partition) == (HERE, frozenset({THERE}), 0)
    assert rig.routing.key_metadata("counts", mine, lambda key, count: 1).active_host == THERE
    here, there = rig.routing.all_metadata()
    assert (here.host_info, here.state_store_names, here.standby_state_store_names) == (
        HERE,
        frozenset({"counts"}),
        frozenset(),
    )
    assert (there.topic_partitions, there.standby_topic_partitions) == ({("in", 1)}, {("in", 0)})
    assert rig.routing.metadata_for_store("counts") == [here, there]


def test_a_standby_answers_when_it_may(make_rig: MakeRig) -> None:
    first = make_rig()
    began(first, 0, 1)
    write(first, "a", "a")
    first.iterate(4)
    first.commit()
    rig = make_rig(network=first.network)
    rig.give(Tasks(standby=rig.tasks(0, 1)))
    rig.iterate(4)
    partition = place("a")[1]
    assert ask(rig, KeyQuery("a"))[partition] == QueryResult(2, Position({CHANGELOG: {partition: 0}}))
    refused = ask(rig, KeyQuery("a"), require_active=True)[partition]
    assert refused.failure_reason is FailureReason.NOT_ACTIVE
    assert "is standby and standby on this instance: 0 changelog records behind" in refused.failure_message
    with rig.gate.idle:
        assert counts_of(rig, stale=True).get("a") == 2
        with pytest.raises(InvalidStateStorePartitionError, match="no partition of store 'counts' with an active"):
            counts_of(rig).get("a")


def test_a_standby_does_not_answer_for_a_store_that_it_does_not_follow(make_rig: MakeRig) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=serdes.string, value=serdes.integer, store="rows")
    table.filter(lambda _, value: value > 0, store="counts")
    topology = builder.build({"topology.optimization": "reuse.ktable.source.topics"})
    first = make_rig(topology=topology)
    began(first, 0, 1)
    write(first, "a")
    first.iterate(4)
    first.commit()
    rig = make_rig(topology=topology, network=first.network)
    rig.give(Tasks(standby=rig.tasks(0, 1)))
    rig.iterate(4)
    partition = place("a")[1]
    assert ask(rig, KeyQuery("a"), "counts")[partition].result == 1
    refused = ask(rig, KeyQuery("a"), "rows")[partition]
    assert refused.failure_reason is FailureReason.NOT_PRESENT
    assert "store 'rows' has no changelog that a standby follows: ask the instance" in refused.failure_message
    with rig.gate.idle, pytest.raises(InvalidStateStorePartitionError, match="now has no partition of store 'rows'"):
        LocalKeyValueStore(rig.queries, rig.routing, "rows", stale=True).get("a")


def test_a_task_that_is_restored_is_waited_for(make_rig: MakeRig) -> None:
    first = make_rig()
    began(first, 0, 1)
    write(first, "a")
    first.iterate(4)
    first.commit()
    rig = make_rig(network=first.network)
    rig.start(Tasks(active=rig.tasks(0, 1)))
    partition = place("a")[1]
    with rig.gate.idle, pytest.raises(StreamsRebalancingError, match="1 changelog record left to restore"):
        counts_of(rig).get("a")
    refused = ask(rig, KeyQuery("a"), require_active=True)[partition]
    assert "active and restoring on this instance" in refused.failure_message
    with rig.gate.idle:
        assert counts_of(rig, stale=True).get("a") is None
    rig.move()
    with rig.gate.idle:
        assert counts_of(rig).get("a") == 1


def test_mistakes_are_told(rig: Rig) -> None:
    began(rig, 0, 1)
    with pytest.raises(UnknownStateStoreError, match="no store 'cuonts'; its stores: counts"):
        ask(rig, KeyQuery("a"), "cuonts")
    with pytest.raises(UserError, match="7 can't be a key of store 'counts': its serde raised"):
        ask(rig, KeyQuery(7))
    with pytest.raises(UnknownStateStoreError, match="a timestamped key-value store, not a window store"):
        LocalWindowStore(rig.queries, rig.routing, "counts")
    assert ask(rig, RangeQuery(), partitions=[]) == {}


def sessions_and_versions() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.integer)
        .group_by_key()
        .windowed_by(SessionWindows(1_000, grace=60_000))
        .count(store="visits")
    )
    builder.table(
        "prices", store=Store("prices", kind="versioned", retention=60_000), key=serdes.string, value=serdes.long
    )
    return builder.build()


def test_sessions_and_versions(make_rig: MakeRig) -> None:
    topology = sessions_and_versions()
    changelogs = {f"{APPLICATION_ID}-visits-changelog": 2, f"{APPLICATION_ID}-prices-changelog": 2}
    network = InProcessNetwork({"in": 2, "prices": 2, **changelogs})
    visits = make_rig(topology=topology, network=network)
    began(visits, 0, 1)
    for time in (100, 900, 5_000):
        network.write(place("a"), [(b"a", number(1))], timestamp=time)
        visits.iterate(2)
    with visits.gate.idle:
        store = LocalSessionStore(visits.queries, visits.routing, "visits")
        found = [(key.start_ms, key.end_ms, count) for key, count in store.fetch("a")]
        assert found == [(100, 900, 2), (5_000, 5_000, 1)]
        assert store.fetch_session("a", 100, 900) == 2
        assert store.fetch_session("a", 100, 901) is None
        assert [count for _, count in store.find_sessions("a", 0, 1_000)] == [2]
        assert len(list(store.all())) == 2
    prices = make_rig(topology=topology, network=network, subtopology=1)
    began(prices, 0, 1)
    partition = place("a")[1]
    for time, price in ((1_000, 5), (3_000, 7)):
        network.write(("prices", partition), [(b"a", price.to_bytes(8, "big"))], timestamp=time)
        prices.iterate(2)
    with prices.gate.idle:
        versioned = LocalVersionedStore(prices.queries, prices.routing, "prices")
        assert versioned.get("a") == VersionedRecord(7, 3_000, None)
        assert versioned.get("a", 2_000) == VersionedRecord(5, 1_000, 3_000)
        assert versioned.get("a", 500) is None
        assert versioned.versions("a") == [VersionedRecord(7, 3_000, None), VersionedRecord(5, 1_000, 3_000)]
        assert versioned.versions("nobody") == []
