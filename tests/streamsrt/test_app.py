"""An instance of an application, from its start to its end, over the bundled broker."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, ClientConfig, NewTopic
from streamsrt.errors import (
    BrokerUnreachableError,
    ConfigError,
    DeserializationError,
    MissingTopicError,
    ProcessingError,
    StateDirectoryLockedError,
    StreamsError,
    UserError,
)
from streamsrt.runtime.lifecycle import GroupMembershipOperation, Response
from streamsrt.runtime.values import State
from streamsrt.state.directory import StateDirectory
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.records import iter_columns
from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import free_ports
from tests.system.processes import wait_until
from topology import EmitStrategy, Processor, ProcessorContext, Record, StreamsBuilder, TimeWindows, serdes
from topology.graph.nodes import StoreSpec
from topology.graph.topology import Topology

PATIENCE_S = 30.0
_NUMBERS = itertools.count()


def doubling(source: str, sink: str) -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream(source, key=serdes.string, value=serdes.integer)
    numbers.map_values(lambda number: 2 * number).to(sink, key=serdes.string, value=serdes.integer)
    return builder.build()


class Scene:
    """Two topics, a topology between them, and a connection of the test's own."""

    def __init__(self, network: NetworkThread, address: str, folder: Path) -> None:
        number = next(_NUMBERS)
        self.network = network
        self.address = address
        self.source, self.sink, self.application_id = f"source-{number}", f"sink-{number}", f"application-{number}"
        self.folder = folder
        for error in network.admin.create_topics(
            [NewTopic(name=name, partitions=2) for name in (self.source, self.sink)]
        ).values():
            assert error is None

    def config(self, **values: Any) -> dict[str, Any]:
        return {
            "application.id": self.application_id,
            "bootstrap.servers": self.address,
            "state.dir": self.folder / "state",
            "commit.interval.ms": 50,
            **{key.replace("_", "."): value for key, value in values.items()},
        }

    def streams(self, **values: Any) -> KafkaStreams:
        return KafkaStreams(doubling(self.source, self.sink), self.config(**values))

    def write(self, *values: bytes) -> None:
        collector = RecordCollector(self.network.producer.send, lambda _topic: 2)
        collector.add(self.source, [b"k"] * len(values), list(values), [1_000] * len(values))
        collector.flush()
        self.network.producer.flush(PATIENCE_S)

    def read(self) -> list[int]:
        places = [(self.sink, index) for index in range(2)]
        starts = self.network.admin.list_offsets(dict.fromkeys(places, EARLIEST))
        ends = self.network.admin.list_offsets(dict.fromkeys(places, LATEST))
        left = {place for place in places if starts[place].offset < ends[place].offset}
        self.network.fetcher.add_partitions({place: starts[place].offset for place in left})
        found: list[int] = []
        while left:
            for fetched in self.network.fetcher.poll(PATIENCE_S):
                for columns in iter_columns(fetched.buffer, from_offset=fetched.offset):
                    found += [int.from_bytes(value or b"", "big", signed=True) for value in columns.values]
                if fetched.next_offset >= ends[fetched.topic, fetched.partition].offset:
                    left.discard((fetched.topic, fetched.partition))
                    self.network.fetcher.remove_partitions([(fetched.topic, fetched.partition)])
        return found


@pytest.fixture
def scene(bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[Scene]:
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    yield Scene(network, bundled_broker.bootstrap_servers, tmp_path)
    network.stop()


def numbers(*values: int) -> list[bytes]:
    return [value.to_bytes(4, "big") for value in values]


# ------------------------------------------------------------------------------------------------------------ running


def test_run_until_quiet(scene: Scene) -> None:
    scene.write(*numbers(1, 2, 3))
    seen: list[tuple[State, State]] = []
    streams = KafkaStreams(
        doubling(scene.source, scene.sink), scene.config(), state_listener=lambda new, old: seen.append((old, new))
    )
    assert streams.state is State.CREATED
    assert streams.progress.state is State.CREATED
    done = streams.run(until="quiet", timeout_s=PATIENCE_S)
    assert done.processed_records == 3
    assert done.counters["processed"] == 3
    assert scene.read() == [2, 4, 6]
    assert streams.state is done.state is streams.progress.state is State.NOT_RUNNING
    assert seen[0] == (State.CREATED, State.REBALANCING)
    assert seen[-2:] == [(State.RUNNING, State.PENDING_SHUTDOWN), (State.PENDING_SHUTDOWN, State.NOT_RUNNING)]
    assert [old for old, _ in seen[1:]] == [new for _, new in seen[:-1]]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_run_returns_its_results(scene: Scene, guarantee: str) -> None:
    scene.write(*numbers(1))
    assert scene.streams().run(until="quiet", timeout_s=PATIENCE_S).processed_records == 1
    scene.write(*numbers(2, 3))
    streams = scene.streams(processing_guarantee=guarantee)
    (topic, records), *others = streams.collect(timeout_s=PATIENCE_S).items()
    assert (topic, others) == (scene.sink, [])
    assert [(record.key, record.value, record.timestamp) for record in records] == [("k", 4, 1_000), ("k", 6, 1_000)]
    assert [record.offset for record in records] == [1, 2]


def test_a_wrapper_sees_what_comes_to_an_operator(scene: Scene) -> None:
    seen: list[tuple[str, int]] = []

    class Seeing(Processor[Any, Any, Any, Any]):
        def __init__(self, name: str, inner: Processor[Any, Any, Any, Any]) -> None:
            self.name, self.inner = name, inner

        def init(self, context: ProcessorContext[Any, Any]) -> None:
            self.inner.init(context)

        def process(self, record: Record[Any, Any]) -> None:
            seen.append((self.name, record.value))
            self.inner.process(record.with_value(record.value + 1))

    builder = StreamsBuilder()
    read = builder.stream(scene.source, key=serdes.string, value=serdes.integer)
    doubled = read.map_values(lambda number: 2 * number, name="double")
    doubled.to(scene.sink, key=serdes.string, value=serdes.integer)
    wrapper = {"processor.wrapper.class": lambda name, supplier: lambda: Seeing(name, supplier())}
    scene.write(*numbers(1, 2))
    KafkaStreams(builder.build(wrapper), {**scene.config(), **wrapper}).run(until="quiet", timeout_s=PATIENCE_S)
    assert seen == [("double", 1), ("double", 2)]
    assert scene.read() == [4, 6]


def test_what_is_not_written_can_not_be_collected(scene: Scene) -> None:
    with pytest.raises(UserError, match=rf"does not write to 'other'; its topics: {scene.sink}"):
        scene.streams().collect("other")
    missing = KafkaStreams(doubling(scene.source, "nowhere-to-go"), scene.config())
    with pytest.raises(MissingTopicError, match="no such topic: nowhere-to-go"):
        missing.collect()


def test_run_until_so_many_records_are_processed(scene: Scene) -> None:
    scene.write(*numbers(*range(10)))
    assert scene.streams().run(records=10, timeout_s=PATIENCE_S).processed_records >= 10
    assert scene.read() == [2 * number for number in range(10)]


def test_so_many_records_have_their_asynchronous_results_when_the_run_ends(scene: Scene) -> None:
    async def double(number: int) -> int:
        answer = asyncio.get_running_loop().create_future()
        answer.get_loop().call_later(0.05, answer.set_result, 2 * number)
        return int(await answer)

    builder = StreamsBuilder()
    read = builder.stream(scene.source, key=serdes.string, value=serdes.integer)
    read.map_async(double, concurrency=2).to(scene.sink, key=serdes.string, value=serdes.integer)
    scene.write(*numbers(*range(50)))
    done = KafkaStreams(builder.build(), scene.config()).run(records=3, timeout_s=PATIENCE_S)
    assert 3 <= done.processed_records < 50
    assert done.pending_calls == 0
    assert scene.read() == [2 * number for number in range(done.processed_records)]


def test_run_until_the_time_is_up(scene: Scene) -> None:
    streams = scene.streams()
    assert streams.run(timeout_s=0.5).processed_records == 0
    assert streams.state is State.NOT_RUNNING


def test_stop_from_another_thread(scene: Scene) -> None:
    running = threading.Event()
    streams = KafkaStreams(
        doubling(scene.source, scene.sink),
        scene.config(),
        state_listener=lambda new, _old: running.set() if new is State.RUNNING else None,
    )
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(streams.run().processed_records))
    thread.start()
    assert running.wait(PATIENCE_S)
    streams.stop()
    thread.join(PATIENCE_S)
    assert results == [0]
    assert streams.state is State.NOT_RUNNING


def test_in_a_with_statement_it_runs_beside(scene: Scene) -> None:
    running = threading.Event()
    streams = KafkaStreams(
        doubling(scene.source, scene.sink),
        scene.config(),
        state_listener=lambda new, _old: running.set() if new is State.RUNNING else None,
    )
    scene.write(*numbers(7))
    with streams:
        assert running.wait(PATIENCE_S)
        pause = threading.Event()
        for _ in range(600):
            if streams.progress.processed_records:
                break
            pause.wait(0.05)
    assert streams.state is State.NOT_RUNNING
    assert scene.read() == [14]
    assert streams.close()


def test_an_instance_runs_once(scene: Scene) -> None:
    streams = scene.streams()
    streams.run(timeout_s=0.1)
    with pytest.raises(UserError, match="runs only once: create another one"):
        streams.run()
    with pytest.raises(UserError, match="runs only once"):
        streams.start()


def test_an_instance_that_never_ran_can_be_closed(scene: Scene) -> None:
    streams = scene.streams()
    assert streams.close()
    assert streams.state is State.NOT_RUNNING


# ------------------------------------------------------------------------------------------------------------ failures


def test_a_failure_is_raised_by_run_and_by_close(scene: Scene) -> None:
    scene.write(*numbers(1), b"abc")
    streams = scene.streams()
    with pytest.raises(DeserializationError, match=f"{scene.source}-"):
        streams.run(timeout_s=PATIENCE_S)
    assert streams.state is State.ERROR
    assert scene.read() == [2]

    failed = threading.Event()
    beside = KafkaStreams(
        doubling(scene.source, scene.sink),
        scene.config(),
        state_listener=lambda new, _old: failed.set() if new is State.ERROR else None,
    )
    beside.start()
    assert failed.wait(PATIENCE_S)
    with pytest.raises(DeserializationError):
        beside.close()
    assert beside.close(), "a failure is raised once"


def test_a_function_that_exits_ends_the_instance_as_a_failure_after_the_handler_was_asked(scene: Scene) -> None:
    scene.write(*numbers(1, 2))
    asked: list[str] = []

    def decide(error: StreamsError) -> Response:
        asked.append(str(error))
        return Response.SHUTDOWN_CLIENT

    builder = StreamsBuilder()
    doubled = builder.stream(scene.source, key=serdes.string, value=serdes.integer).map_values(
        lambda number: sys.exit(3) if number == 2 else 2 * number
    )
    doubled.to(scene.sink, value=serdes.integer)
    config = scene.config(processing_exception_handler="continue")
    streams = KafkaStreams(builder.build(), config, uncaught_exception_handler=decide)
    with pytest.raises(
        ProcessingError, match=r"raised SystemExit: 3 \(at .* offset 1, in node .*test_app.py:\d+\)"
    ) as raised:
        streams.run(timeout_s=PATIENCE_S)
    assert raised.value.exit_code == 5
    assert asked == [str(raised.value)]
    assert streams.state is State.ERROR
    assert scene.read() == [2]


def test_what_can_be_checked_before_is_raised_by_start(scene: Scene) -> None:
    missing = KafkaStreams(doubling(scene.source, "no-such-topic"), scene.config())
    with pytest.raises(MissingTopicError, match="no-such-topic"):
        missing.start()
    assert missing.state is State.ERROR
    assert missing.close()


def test_a_mistake_in_a_state_listener_is_not_swallowed(scene: Scene) -> None:
    def fail(new: State, _old: State) -> None:
        if new is State.RUNNING:
            raise RuntimeError("in the listener")

    streams = KafkaStreams(doubling(scene.source, scene.sink), scene.config(), state_listener=fail)
    with pytest.raises(RuntimeError, match="in the listener"):
        streams.run(timeout_s=PATIENCE_S)
    assert streams.state is State.ERROR


def test_nobody_answers(tmp_path: Path) -> None:
    config = {
        "application.id": "app",
        "bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "state.dir": tmp_path,
        "default.api.timeout.ms": 300,
    }
    streams = KafkaStreams(doubling("a", "b"), config)
    with pytest.raises(BrokerUnreachableError, match=r"within 0\.3 s"):
        streams.run()
    assert streams.state is State.ERROR


def test_two_instances_do_not_share_a_state_directory(scene: Scene) -> None:
    with scene.streams(), pytest.raises(StateDirectoryLockedError, match=r"another state\.dir"):
        scene.streams().run(timeout_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"application.server": "nonsense"}, r"application\.server='nonsense': expected HOST:PORT"),
        ({"deserialization.exception.handler": "maybe"}, "'maybe'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(scene: Scene, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        KafkaStreams(doubling(scene.source, scene.sink), {**scene.config(), **values}).run(timeout_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("streams", "runs another application: the two have no source topic.* give it another application"),
        ("classic", "topology epoch 0 does not fit the group.* give it another application"),
    ],
)
def test_another_program_with_the_id_of_a_running_one_is_told_to_take_another_id(
    scene: Scene, protocol: str, said: str
) -> None:
    other = Scene(scene.network, scene.address, scene.folder / "other")
    config = {**other.config(group_protocol=protocol), "application.id": scene.application_id}
    with scene.streams(group_protocol=protocol) as streams:
        scene.write(*numbers(1))
        wait_until(lambda: streams.progress.processed_records == 1, "it runs", timeout_s=PATIENCE_S)
        with pytest.raises(UserError, match=said):
            KafkaStreams(doubling(other.source, other.sink), config).run(timeout_s=PATIENCE_S)


@pytest.mark.parametrize("protocol", ["streams", "classic"])
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("topic.segment.bytes", "Invalid value abc for configuration segment.bytes"),
        ("topic.vendors.own.setting", "Unknown topic config name: vendors.own.setting"),
    ],
)
def test_what_the_cluster_refuses_of_internal_topics_leaves_no_trace_in_the_group(
    scene: Scene, key: str, said: str, protocol: str
) -> None:
    def counting() -> Topology:
        builder = StreamsBuilder()
        numbers_in = builder.stream(scene.source, key=serdes.string, value=serdes.integer)
        numbers_in.group_by_key().count(store="counts").to_stream().to(scene.sink, key=serdes.string, value=serdes.long)
        return builder.build()

    config = scene.config(group_protocol=protocol)
    with pytest.raises(ConfigError, match=rf"the cluster refuses .* {key}=abc\. It said: {said}"):
        KafkaStreams(counting(), {**config, key: "abc"}).run(timeout_s=PATIENCE_S)
    scene.write(*numbers(1))
    KafkaStreams(counting(), {**config, "topic.segment.bytes": 1_048_576}).run(until="quiet", timeout_s=PATIENCE_S)
    with pytest.raises(ConfigError, match=said):
        KafkaStreams(counting(), {**config, key: "abc"}).run(timeout_s=PATIENCE_S)
    assert set(scene.network.admin.topics()) & {f"{scene.application_id}-judged-settings-changelog"} == set()


def test_settings_reach_the_internal_topics(scene: Scene) -> None:
    builder = StreamsBuilder()
    numbers_in = builder.stream(scene.source, key=serdes.string, value=serdes.integer)
    numbers_in.group_by_key().count(store="counts").to_stream().to(scene.sink, key=serdes.string, value=serdes.long)
    scene.write(*numbers(1))
    KafkaStreams(builder.build(), {**scene.config(), "topic.segment.bytes": 1_048_576}).run(
        until="quiet", timeout_s=PATIENCE_S
    )
    changelog = f"{scene.application_id}-counts-changelog"
    assert scene.network.admin.describe_topic_configs([changelog])[changelog]["segment.bytes"] == "1048576"


def test_topics_that_a_pattern_matches_are_read_when_they_appear(scene: Scene) -> None:
    builder = StreamsBuilder()
    prefix = f"{scene.application_id}-in-"
    stream = builder.stream(re.compile(f"{prefix}.*"), key=serdes.string, value=serdes.integer)
    stream.map_values(lambda number: 2 * number).to(scene.sink, key=serdes.string, value=serdes.integer)
    admin = scene.network.admin

    def fill(name: str, value: int) -> None:
        assert admin.create_topics([NewTopic(name=name, partitions=2)])[name] is None
        collector = RecordCollector(scene.network.producer.send, lambda _topic: 2)
        collector.add(name, [b"k"], numbers(value), [1_000])
        collector.flush()
        scene.network.producer.flush(PATIENCE_S)

    fill(f"{prefix}one", 1)
    with KafkaStreams(builder.build(), scene.config()) as streams:
        wait_until(lambda: streams.progress.processed_records >= 1, "the first topic is read", timeout_s=PATIENCE_S)
        fill(f"{prefix}two", 2)
        wait_until(lambda: streams.progress.processed_records >= 2, "the second topic is read", timeout_s=PATIENCE_S)
    assert sorted(scene.read()) == [2, 4]


def test_an_optimization_that_the_topology_was_not_built_with_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = {"application.id": "app", "topology.optimization": "all"}
    with pytest.raises(ConfigError, match="built with none"):
        KafkaStreams(builder.build(), config)
    KafkaStreams(builder.build(config), config)


# ---------------------------------------------------------------------------------------------------------- lifecycle


def failing_once(source: str, sink: str, failures: list[int]) -> Topology:
    """Doubles numbers; the first time that it sees one of ``failures`` it raises."""

    def double(number: int) -> int:
        if number in failures:
            failures.remove(number)
            raise ValueError(number)
        return 2 * number

    builder = StreamsBuilder()
    builder.stream(source, key=serdes.string, value=serdes.integer).map_values(double).to(sink)
    return builder.build()


def test_a_new_thread_takes_the_place_of_one_that_failed(scene: Scene) -> None:
    scene.write(*numbers(1, 2, 3, 4))
    asked: list[str] = []

    def decide(error: StreamsError) -> Response:
        asked.append(str(error))
        return Response.REPLACE_THREAD

    streams = KafkaStreams(
        failing_once(scene.source, scene.sink, [3, 4]), scene.config(), uncaught_exception_handler=decide
    )
    streams.run(until="quiet", timeout_s=PATIENCE_S)
    assert scene.read()[-4:] == [2, 4, 6, 8]
    assert len(asked) == 2
    assert "ValueError" in asked[0]
    failed = next(metric.value for metric in streams.metrics() if metric.name == "failed-stream-threads")
    assert failed == 2


def test_while_it_is_paused_it_stays_in_the_group_and_does_nothing(scene: Scene) -> None:
    streams = scene.streams()
    streams.pause()
    assert streams.is_paused
    with streams:
        pause = threading.Event()
        while streams.state is not State.RUNNING or not streams.progress.tasks:
            pause.wait(0.02)
        scene.write(*numbers(1, 2))
        for _ in range(20):
            pause.wait(0.02)
            assert streams.progress.processed_records == 0
        streams.resume()
        while streams.progress.processed_records < 2:
            pause.wait(0.02)
    assert scene.read() == [2, 4]


@pytest.mark.parametrize(
    ("membership", "members"),
    [(GroupMembershipOperation.LEAVE_GROUP, 0), (GroupMembershipOperation.REMAIN_IN_GROUP, 1)],
)
def test_who_closes_leaves_or_remains(scene: Scene, membership: GroupMembershipOperation, members: int) -> None:
    streams = scene.streams()
    streams.start()
    assert streams.close(membership=membership)
    (group,) = scene.network.admin.describe_streams_groups([scene.application_id])
    assert len(group.members) == members


def test_close_gives_up_in_time_and_may_be_called_again(scene: Scene) -> None:
    """A user's function that blocks keeps the thread, not who closes it."""
    began, released = threading.Event(), threading.Event()

    def wait(number: int) -> int:
        began.set()
        released.wait(60)
        return number

    builder = StreamsBuilder()
    builder.stream(scene.source, key=serdes.string, value=serdes.integer).map_values(wait).to(scene.sink)
    scene.write(*numbers(1))
    streams = KafkaStreams(builder.build(), scene.config())
    streams.start()
    assert began.wait(PATIENCE_S)
    assert not streams.close(timeout_s=0.1)
    assert streams.state is not State.NOT_RUNNING
    released.set()
    assert streams.close(timeout_s=PATIENCE_S)
    assert streams.state is State.NOT_RUNNING
    assert scene.read() == [1]


def counting(scene: Scene) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream(scene.source, key=serdes.string, value=serdes.integer).group_by_key().count(store="counts")
    counts.to_stream().to(scene.sink, key=serdes.string, value=serdes.long)
    return builder.build()


def test_state_is_deleted_before_the_start_and_after_the_end_and_restored(scene: Scene) -> None:
    config, topology = scene.config(), counting(scene)
    scene.write(*numbers(1, 2, 3))
    streams = KafkaStreams(topology, config)
    streams.run(until="quiet", timeout_s=PATIENCE_S)
    folder = scene.folder / "state" / scene.application_id
    process_id = (folder / "process.json").read_bytes()
    assert list(folder.glob("stores/counts/*"))
    streams.clean_up()
    assert not list(folder.glob("stores/*"))
    assert (folder / "process.json").read_bytes() == process_id
    scene.write(*numbers(4))
    again = KafkaStreams(topology, config)
    with again:
        with pytest.raises(UserError, match="can be deleted before it starts and after it has ended"):
            again.clean_up()
        wait_until(lambda: again.progress.processed_records == 1, "it goes on", timeout_s=PATIENCE_S)
    assert again.progress.restored_records == 1


@pytest.mark.parametrize(("max_age_ms", "is_kept"), [(-1, True), (3_600_000, True), (0, False)])
def test_old_state_is_deleted_at_the_start(scene: Scene, max_age_ms: int, is_kept: bool) -> None:
    directory = StateDirectory(scene.folder / "state", scene.application_id)
    directory.open_store(StoreSpec(name="left"), 7)
    directory.close()
    left = directory.store_path("left", 7)
    minute_ago_s = time.time() - 60
    for path in (left, *left.iterdir()):
        os.utime(path, (minute_ago_s, minute_ago_s))
    streams = scene.streams(state_cleanup_dir_max_age_ms=max_age_ms)
    streams.run(timeout_s=0.1)
    assert left.exists() is is_kept


def test_windows_with_a_long_grace_are_closed_by_the_wall_clock(scene: Scene) -> None:
    """What says that they are closed is logged with a time that brokers accept: not that of a stream in the far future."""
    scene.write(*numbers(1, 2))
    builder = StreamsBuilder()
    windows = TimeWindows(10, grace=timedelta(days=365 * 80))
    counts = builder.stream(scene.source, key=serdes.string, value=serdes.integer).group_by_key().windowed_by(windows)
    table = counts.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_timeout=50).count(store="counts")
    table.to_stream(lambda window, _: window.key).to(scene.sink, key=serdes.string, value=serdes.long)
    topology = builder.build()
    with KafkaStreams(topology, scene.config()) as streams:
        wait_until(lambda: bool(scene.read()) or streams.state is State.ERROR, "the window is closed")
    assert streams.state is State.NOT_RUNNING
    assert scene.read() == [2]
