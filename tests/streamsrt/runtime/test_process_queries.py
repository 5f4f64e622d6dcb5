"""Queries over sockets: two members answer as one instance."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from streamsrt.errors import UserError
from streamsrt.membership.values import Endpoint, EndpointsChanged, Tasks
from streamsrt.queries.errors import InvalidStateStorePartitionError, QueryTimedOutError, StreamsRebalancingError
from streamsrt.queries.read_only import LocalKeyValueStore
from streamsrt.queries.routing import StoreDirectory
from streamsrt.queries.store_queries import CHUNK_ROWS, StoreQueries
from streamsrt.queries.values import FailureReason, HostInfo, KeyQuery, PrefixQuery, RangeQuery, WindowKeyQuery
from streamsrt.runtime.metrics import Metric
from streamsrt.runtime.process_queries import WHOLE_INSTANCE, ProcessQueries, QueryChannel, QueryServer
from streamsrt.wire.murmur2 import partition_for_key
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import APPLICATION_ID, CHANGELOG, Rig, counting, number
from tests.system.processes import wait_until
from topology import serdes

NAMES = [f"key-{index:04d}" for index in range(3_600)]


class Worker:
    """One stream thread, without its process."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.joined = True

    def local_queries(self) -> StoreQueries:
        if not self.joined:
            raise StreamsRebalancingError("it has not joined its group yet")
        return self.rig.queries

    def metrics(self) -> list[Metric]:
        return [Metric("some-total", "some-metrics", 1.0, {})]


class Whole:
    """The application's process, which knows of all of them."""

    def __init__(self, queries: ProcessQueries) -> None:
        self.queries = queries

    def local_queries(self) -> StoreQueries:
        return self.queries

    def metrics(self) -> list[Metric]:
        return self.queries.metrics()


class Scene:
    def __init__(self, folder: Path) -> None:
        network = InProcessNetwork({"in": 3, "out": 3, CHANGELOG: 3})
        for partition in range(3):
            network.write(("in", partition), [(name.encode(), number(1)) for name in of(partition)])
        self.channel = QueryChannel.new()
        self.workers = []
        self.servers = []
        for index, partitions in ((1, (0,)), (2, (1,))):
            rig = Rig(folder / str(index), network=network, partitions=3)
            rig.give(Tasks(active=rig.tasks(*partitions)))
            rig.iterate(6)
            # The processing thread waits for input: queries are answered on the threads that bring them.
            rig.gate.give()
            self.workers.append(Worker(rig))
            self.servers.append(QueryServer(self.channel, index, self.workers[-1]))
        self.threads = 2
        self.stores = StoreDirectory(counting(), APPLICATION_ID)
        self.queries = ProcessQueries(self.channel, self.stores, lambda: self.threads)

    def store(self, **options: Any) -> LocalKeyValueStore:
        return LocalKeyValueStore(self.queries, self.queries.routing, "counts", **options)

    def close(self) -> None:
        for server in self.servers:
            server.close()
        for worker in self.workers:
            worker.rig.gate.take()
            worker.rig.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def of(*partitions: int) -> list[str]:
    return [name for name in NAMES if partition_for_key(name.encode(), 3) in partitions]


def test_both_answer_as_one(scene: Scene) -> None:
    store = scene.store()
    assert [store.get(name) for name in of(0)[:3] + of(1)[:3]] == [1] * 6
    # More rows than come at once.
    assert min(len(of(0)), len(of(1))) > CHUNK_ROWS
    assert sorted(key for key, _ in store.all()) == of(0, 1)
    assert [key for key, _ in store.reverse_range("key-0100", "key-0199")] != []
    assert {key for key, _ in store.prefix_scan("key-00", serdes.string)} == {n for n in of(0, 1) if n < "key-01"}
    assert scene.store(partition=1).get(of(1)[0]) == 1


def test_scans_of_one_store_go_on_side_by_side(scene: Scene) -> None:
    first, second = scene.store().all(), scene.store().all()
    pairs = list(zip(first, second, strict=True))
    assert all(one == other for one, other in pairs)
    assert len(pairs) == len(of(0, 1))


def test_partitions_say_why_they_do_not_answer(scene: Scene) -> None:
    found = scene.queries.query("counts", KeyQuery(of(1)[0]), partitions=[0, 1, 2, 7]).partition_results
    assert [found[partition].result for partition in (0, 1)] == [None, 1]
    assert found[2].failure_reason is FailureReason.NOT_PRESENT
    assert found[7].failure_reason is FailureReason.DOES_NOT_EXIST
    wrong = scene.queries.query("counts", WindowKeyQuery("x")).partition_results
    assert {result.failure_reason for result in wrong.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}


def test_another_instance_is_named(scene: Scene) -> None:
    with pytest.raises(InvalidStateStorePartitionError, match="try again"):
        scene.store().get(of(2)[0])
    partitions = {Endpoint("there", 80): (frozenset({("in", 2)}), frozenset[tuple[str, int]]())}
    for worker in scene.workers:
        worker.rig.thread._handle(EndpointsChanged(partitions))
    fresh = ProcessQueries(scene.channel, scene.stores, lambda: 2)
    with pytest.raises(InvalidStateStorePartitionError, match="ask there:80") as raised:
        LocalKeyValueStore(fresh, fresh.routing, "counts").get(of(2)[0])
    assert (raised.value.partition, raised.value.host) == (2, "there:80")
    assert fresh.routing.key_metadata("counts", of(2)[0]).active_host == HostInfo("there", 80)


def test_mistakes_are_told_where_they_are_made(scene: Scene) -> None:
    with pytest.raises(UserError, match="can't be a key"):
        scene.store().get(7)
    with pytest.raises(UserError, match="can't be serialized as a prefix"):
        scene.queries.query("counts", PrefixQuery(7, serdes.string))


def test_a_stream_thread_that_is_not_there_yet(scene: Scene) -> None:
    scene.threads = 3
    with pytest.raises(StreamsRebalancingError, match="stream thread 3 of this instance is being started"):
        scene.store().get(of(0)[0])
    assert set(scene.queries.query("counts", RangeQuery()).partition_results) == {0, 1}
    scene.threads = 2
    scene.workers[0].joined = False
    with pytest.raises(StreamsRebalancingError, match="has not joined its group yet"):
        scene.store().get(of(1)[0])
    assert set(scene.queries.query("counts", RangeQuery()).partition_results) == {1}
    scene.workers[1].joined = False
    with pytest.raises(StreamsRebalancingError):
        scene.queries.query("counts", RangeQuery())


def test_metrics_and_sizes_are_those_of_all(scene: Scene) -> None:
    assert [each.name for each in scene.queries.metrics()] == ["some-total"] * 2
    assert sorted(size.task_id[-2:] for size in scene.queries.store_sizes()) == ["_0", "_1"]


def test_the_first_stream_thread_shows_the_metrics_of_the_whole_instance(scene: Scene) -> None:
    assert scene.channel.metrics_of_all() is None, "the instance is starting"
    server = QueryServer(scene.channel, WHOLE_INSTANCE, Whole(scene.queries))
    assert [each.name for each in scene.channel.metrics_of_all() or ()] == ["some-total"] * 2
    server.close()
    assert scene.channel.metrics_of_all() is None, "it ends"


def test_only_who_knows_the_secret_is_answered(scene: Scene) -> None:
    with pytest.raises((AuthenticationError, OSError, EOFError)):
        Client(scene.channel.address(1), "AF_UNIX", authkey=b"another")
    assert scene.store().get(of(0)[0]) == 1


def test_a_client_that_says_nothing_keeps_nobody_waiting(scene: Scene) -> None:
    # It never answers the challenge.
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(scene.channel.address(1))
        assert scene.store().get(of(0)[0]) == 1
        server = QueryServer(scene.channel, WHOLE_INSTANCE, Whole(scene.queries))
        with socket.socket(socket.AF_UNIX) as another:
            another.connect(scene.channel.address(WHOLE_INSTANCE))
            server.close()
    assert scene.channel.metrics_of_all() is None, "it is closed"


def test_a_client_that_talks_nonsense_ends_nothing(scene: Scene) -> None:
    # More than an answer to the challenge may have.
    with Client(scene.channel.address(1), "AF_UNIX") as stranger:
        stranger.send_bytes(b"?" * 300)
        assert stranger.recv_bytes()
        with pytest.raises((EOFError, ConnectionError)):
            stranger.recv_bytes()
    assert scene.store().get(of(0)[0]) == 1


def test_queries_are_answered_again_after_too_many_files_were_open(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX) as waiting:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
        held = []
        try:
            with suppress(OSError):
                while True:
                    held.append(os.dup(waiting.fileno()))
            waiting.connect(scene.channel.address(1))
            wait_until(lambda: "can't be accepted" in caplog.text, "it is told", timeout_s=20)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in held:
                os.close(descriptor)
    assert scene.store().get(of(0)[0]) == 1


@pytest.mark.parametrize("sent", [b"", b"\x7f" * 64], ids=["nothing", "nonsense"])
def test_what_another_process_sends_keeps_nobody_waiting(scene: Scene, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(scene.channel.address(1))
        stranger.sendall(sent)
        if sent:
            with suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
        assert scene.store(timeout_s=5.0).get(of(0)[0]) == 1


def test_a_process_that_does_not_run_keeps_nobody_waiting_for_longer_than_the_timeout(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(scene.channel.address(3))
        stopped.listen(0)
        scene.threads = 3
        for _ in range(3):
            with pytest.raises(QueryTimedOutError, match=r"stream thread 3 .* took no query in 0\.05 s"):
                scene.store(timeout_s=0.05).get(of(0)[0])
        scene.threads = 2
