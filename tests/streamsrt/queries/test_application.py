"""Queries of running applications: who has what, and what they say before the start and after the end. Both brokers."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.queries.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StreamsNotStartedError,
    StreamsStoppedError,
    UnknownStateStoreError,
)
from streamsrt.queries.values import FailureReason, HostInfo, KeyQuery, PositionBound
from streamsrt.tasks.output.record_collector import RecordCollector
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

PATIENCE_S = 90.0
PARTITIONS = 4
KEYS = [f"key-{n}" for n in range(40)]
_NUMBERS = itertools.count()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(round(PATIENCE_S / 0.05)):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


def counting(source: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
    return builder.build()


class Scene:
    """A topic with words, and instances that count them."""

    def __init__(self, address: str, network: NetworkThread, folder: Path) -> None:
        # The brokers of a session are shared: names are of this process and test.
        name = f"{os.getpid()}-{next(_NUMBERS)}"
        self.address = address
        self.folder = folder
        self.source, self.application_id = f"queried-{name}", f"queries-{name}"
        self._network = network
        self.other = f"other-{name}"
        # Its records are old: a broker that runs for minutes would delete them.
        kept = {"retention.ms": "-1"}
        topics = [NewTopic(name=topic, partitions=PARTITIONS, configs=kept) for topic in (self.source, self.other)]
        assert set(network.admin.create_topics(topics).values()) == {None}

    def write(self, keys: list[str]) -> None:
        collector = RecordCollector(self._network.producer.send, lambda _topic: PARTITIONS)
        collector.add(self.source, [key.encode() for key in keys], [b"x"] * len(keys), [1_000] * len(keys))
        collector.flush()
        self._network.producer.flush(PATIENCE_S)

    def instance(self, name: str, **values: Any) -> KafkaStreams:
        return KafkaStreams(counting(self.source), self.config(name, **values))

    def config(self, name: str, **values: Any) -> dict[str, Any]:
        return {
            "application.id": self.application_id,
            "bootstrap.servers": self.address,
            "state.dir": self.folder / name,
            "commit.interval.ms": 200,
            **{key.replace("_", "."): value for key, value in values.items()},
        }


@pytest.fixture
def scene(bootstrap_servers: str, tmp_path: Path) -> Iterator[Scene]:
    network = NetworkThread(ClientConfig(bootstrap_servers=bootstrap_servers))
    network.start()
    yield Scene(bootstrap_servers, network, tmp_path)
    network.stop()


def answer(streams: KafkaStreams, key: str) -> Any:
    try:
        return streams.store("counts").get(key)
    except InvalidStateStoreError as error:
        return error


def test_two_instances_know_who_has_what(scene: Scene) -> None:
    scene.write(KEYS + KEYS)
    one = scene.instance("one", application_server="one:1")
    two = scene.instance("two", application_server="two:2")
    with contextlib.closing(one), contextlib.closing(two):
        with pytest.raises(StreamsNotStartedError, match="was not started"):
            one.store("counts")
        one.start()
        wait_until(lambda: all(answer(one, key) == 2 for key in KEYS), "one instance has counted all")
        two.start()

        def is_shared() -> bool:
            answers = [{key: answer(each, key) for key in KEYS} for each in (one, two)]
            counted = [{key for key, found in each.items() if found == 2} for each in answers]
            return counted[0] | counted[1] == set(KEYS) and all(counted) and not counted[0] & counted[1]

        wait_until(is_shared, "each key is in one of both instances")
        owners = {key: HostInfo("one", 1) if answer(one, key) == 2 else HostInfo("two", 2) for key in KEYS}
        for streams in (one, two):
            wait_until(
                lambda streams=streams: all(  # type: ignore[misc]
                    streams.query_metadata_for_key("counts", key).active_host == owners[key] for key in KEYS
                ),
                "every instance knows the owner of every key",
            )
        elsewhere = next(key for key in KEYS if owners[key] == HostInfo("two", 2))
        with pytest.raises(InvalidStateStorePartitionError, match="ask two:2"):
            one.store("counts").get(elsewhere)
        metadata = one.metadata_for_key("counts", elsewhere)
        assert metadata is not None
        assert metadata.host_info == HostInfo("two", 2)
        assert {each.host_info.host for each in one.metadata_for_store("counts")} == {"one", "two"}
        # What was read once is a bound for what must not be behind it.
        result = two.query("counts", KeyQuery(elsewhere))
        assert result.only_partition_result is not None
        again = two.query("counts", KeyQuery(elsewhere), position_bound=PositionBound.at(result.position))
        assert [each.result for each in again.partition_results.values() if each.result] == [2]
        with pytest.raises(UnknownStateStoreError, match="its stores: counts"):
            one.query("nothing", KeyQuery("a"))
    with pytest.raises(StreamsStoppedError, match="NOT_RUNNING"):
        one.store("counts")


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_queries_under_load_see_whole_records(scene: Scene, guarantee: str) -> None:
    streams = scene.instance("one", processing_guarantee=guarantee)
    with contextlib.closing(streams):
        streams.start()
        wait_until(lambda: answer(streams, KEYS[0]) is None, "the store can be asked")
        rounds = 30
        last = 0
        for _ in range(rounds):
            scene.write(KEYS)
            found = answer(streams, KEYS[0]) or 0
            assert last <= found <= rounds
            last = found
        wait_until(
            lambda: dict(streams.store("counts").all()) == dict.fromkeys(KEYS, rounds), "all records are counted"
        )


def test_a_global_store_is_answered_by_every_instance(scene: Scene) -> None:
    scene.write(KEYS)

    def topology() -> Topology:
        builder = StreamsBuilder()
        builder.global_table(scene.source, store="everything", key=serdes.string, value=serdes.string)
        builder.stream(scene.other, key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
        return builder.build()

    one, two = (KafkaStreams(topology(), scene.config(name)) for name in ("one", "two"))
    with contextlib.closing(one), contextlib.closing(two):
        for streams in (one, two):
            streams.start()

        def all_of(streams: KafkaStreams) -> Any:
            try:
                return dict(streams.store("everything").all())
            except InvalidStateStoreError as error:
                return error

        for streams in (one, two):
            wait_until(lambda streams=streams: all_of(streams) == dict.fromkeys(KEYS, "x"), "all is there")  # type: ignore[misc]
            assert streams.store("everything").get(KEYS[0]) == "x"
            assert streams.store("everything").get("nobody") is None
            result = streams.query("everything", KeyQuery(KEYS[0]))
            assert sum(offset + 1 for _, _, offset in result.position) == len(KEYS)
            late = PositionBound.at(result.position.with_component(scene.source, 0, 10_000))
            (answer,) = streams.query("everything", KeyQuery(KEYS[0]), position_bound=late).partition_results.values()
            assert answer.failure_reason is FailureReason.NOT_UP_TO_BOUND
