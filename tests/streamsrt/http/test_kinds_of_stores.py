"""Stores of every kind over HTTP and by the command line: from whichever instance is asked, and from standbys."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.http.test_server import get
from tests.streamsrt.queries.test_application import PATIENCE_S, wait_until
from tests.system.processes import run_command
from topology import SessionWindows, Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.topology import Topology

KEYS = [f"key-{number}" for number in range(12)]
PARTITIONS = 2
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
_NUMBERS = itertools.count()


def of_every_kind(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-words", key=serdes.string, value=serdes.string).group_by_key()
    words.count(store="counts")
    words.windowed_by(TimeWindows(MINUTE_MS, grace=HOUR_MS)).count(store="minutes")
    words.windowed_by(SessionWindows(1_000, grace=HOUR_MS)).count(store="sessions")
    history = Store("history", kind="versioned", retention=HOUR_MS)
    builder.table(f"{name}-table", key=serdes.string, value=serdes.string, store=history)
    builder.global_table(f"{name}-global", key=serdes.string, value=serdes.string, store="everywhere")
    return builder.build()


class Scene:
    """Topics with two rounds of records a minute apart, and the settings of instances."""

    def __init__(self, address: str, network: NetworkThread, folder: Path) -> None:
        self.name = f"kinds-{os.getpid()}-{next(_NUMBERS)}"
        self.address, self.folder = address, folder
        topics = [NewTopic(name=f"{self.name}-{each}", partitions=PARTITIONS) for each in ("words", "table", "global")]
        assert set(network.admin.create_topics(topics).values()) == {None}
        collector = RecordCollector(network.producer.send, lambda _topic: PARTITIONS)
        keys = [key.encode() for key in KEYS]
        for at, value in ((1_000, b"old"), (1_000 + MINUTE_MS, b"new")):
            for each in topics:
                collector.add(each.name, keys, [value] * len(keys), [at] * len(keys))
        collector.flush()
        network.producer.flush(PATIENCE_S)

        self.network = network

    def write(self, topic: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        collector = RecordCollector(self.network.producer.send, lambda _topic: PARTITIONS)
        keys, values = zip(*rows, strict=True)
        collector.add(f"{self.name}-{topic}", keys, values, [1_000 + MINUTE_MS] * len(rows))
        collector.flush()
        self.network.producer.flush(PATIENCE_S)

    def instance(self, folder: str) -> KafkaStreams:
        config = {
            "application.id": self.name,
            "bootstrap.servers": self.address,
            "state.dir": self.folder / folder,
            "commit.interval.ms": 200,
            "num.standby.replicas": 1,
            "http.listen": "127.0.0.1:0",
        }
        streams = KafkaStreams(of_every_kind(self.name), config)
        streams.start()
        return streams


@pytest.fixture
def scene(bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[Scene]:
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    yield Scene(bundled_broker.bootstrap_servers, network, tmp_path)
    network.stop()


def answers(server: str, key: str, more: str = "") -> dict[str, Any]:
    """What an instance says of a key, of each kind of store; the status where it has no answer."""
    paths = {
        "key": (f"counts/keys/{key}", lambda body: body["value"]),
        "prefix": (f"counts/range?prefix={key}&limit=1", lambda body: body["rows"][0]["value"]),
        "windows": (f"minutes/windows/{key}", lambda body: [(row["start"], row["value"]) for row in body["rows"]]),
        "one window": (f"minutes/windows/{key}?from={MINUTE_MS}", lambda body: [row["value"] for row in body["rows"]]),
        "sessions": (f"sessions/sessions/{key}", lambda body: [(row["start"], row["value"]) for row in body["rows"]]),
        "newest": (f"history/keys/{key}", lambda body: body["value"]),
        "as of": (f"history/keys/{key}?as_of=2000", lambda body: body["value"]),
        "versions": (f"history/versions/{key}", lambda body: [row["value"] for row in body["rows"]]),
        "global": (f"everywhere/keys/{key}", lambda body: body["value"]),
    }
    found: dict[str, Any] = {}
    for name, (path, read) in paths.items():
        status, body = get(server, f"/stores/{path}{'&' if '?' in path else '?'}{more}")
        found[name] = read(body) if status == 200 and body.get("rows") != [] else status
    return found


EXPECTED = {
    "key": 2,
    "prefix": 2,
    "windows": [(0, 1), (MINUTE_MS, 1)],
    "one window": [1],
    "sessions": [(1_000, 1), (1_000 + MINUTE_MS, 1)],
    "newest": "new",
    "as of": "old",
    "versions": ["new", "old"],
    "global": "new",
}


def cli(*arguments: str) -> list[dict[str, Any]]:
    done = run_command("query", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [orjson.loads(line) for line in done.stdout.splitlines()]


def test_every_kind_of_store_from_any_instance_and_from_standbys(scene: Scene) -> None:
    with contextlib.closing(scene.instance("one")) as one:
        two = scene.instance("two")
        try:
            servers = [each.config.application_server for each in (one, two)]
            for server in servers:
                wait_until(
                    lambda server=server: all(answers(server, key) == EXPECTED for key in KEYS),  # type: ignore[misc]
                    "every instance answers for every key and kind",
                )

            status, body = get(servers[0], f"/stores/history/keys/{KEYS[0]}?as_of=999")
            assert (status, body["error"]) == (404, "KeyNotFound")
            assert "as of 999" in body["message"]
            assert f"/stores/history/versions/{KEYS[0]} shows" in body["message"]

            def roles(streams: KafkaStreams, role: str) -> int:
                return sum(
                    task.role == role and task.phase in ("running", "standby") for task in streams.progress.tasks
                )

            wait_until(lambda: all(roles(each, "active") and roles(each, "standby") for each in (one, two)), "standbys")
            wait_until(lambda: _global_rows(one) == {("-1_-1", "rocksdb-state-id")}, "metrics of the global store")
            position = orjson.dumps(get(servers[0], f"/stores/counts/keys/{KEYS[0]}")[1]["position"]).decode()
            asked = ("--server", servers[1], "--position", position)
            assert [row["value"] for row in cli("key", "counts", KEYS[0], *asked)] == [2]
            assert [row["value"] for row in cli("versions", "history", KEYS[2], "--server", servers[0])] == [
                "new",
                "old",
            ]
            _check_what_is_refused(servers[0])
            for server in servers:
                _check_another_partition(server, one.query_metadata_for_key("counts", KEYS[0]).partition)
            wait_until(lambda: _standbys_have_all(two, one), "the standbys have what the active tasks have")
            owners = {key: one.query_metadata_for_key("counts", key).active_host for key in KEYS}
            gone = [key for key, host in owners.items() if str(host) == servers[1]]
            assert gone
        finally:
            # Its tasks wait for it: until the group gives them to the other one, only a standby has an answer.
            two.close(membership=GroupMembershipOperation.REMAIN_IN_GROUP)
        assert answers(servers[0], gone[0], "stale=true") == EXPECTED
        status, body = get(servers[0], f"/stores/counts/keys/{gone[0]}?stale=true")
        ahead = {topic: {p: at + 100 for p, at in each.items()} for topic, each in body["position"].items()}
        status, body = get(
            servers[0], f"/stores/counts/keys/{gone[0]}?stale=true&position={orjson.dumps(ahead).decode()}"
        )
        assert (status, body["error"]) == (412, "NOT_UP_TO_BOUND")


def _check_what_is_refused(server: str) -> None:
    """A user's mistake has exit code 2; a key that is not there has 1."""
    (row,) = cli("range", "counts", "--prefix", KEYS[0], "--limit", "1", "--server", server)
    assert row["timestamp"] == cli("key", "counts", KEYS[0], "--server", server)[0]["timestamp"]
    for arguments, code, said in (
        (
            ("key", "counts", KEYS[0], "--as-of", "0"),
            2,
            "a timestamped key-value store, and only versioned stores know",
        ),
        (("key", "minutes", KEYS[0]), 2, "use `streamsrt query windows`"),
        (("range", "sessions"), 2, "use `streamsrt query sessions`"),
        (("windows", "history"), 2, "use `streamsrt query key` or `versions`"),
        (("windows", "counts", KEYS[0]), 2, "use `streamsrt query key` or `range`"),
        (("range", "counts", "--limit", "0"), 2, "Invalid value for '--limit'"),
        (("range", "counts", "--prefix", "a", "--to", "b"), 2, "give a prefix, or from and to"),
        (("key", "counts", KEYS[0], "--partition", "99"), 2, "99"),
        (("key", "counts", KEYS[0], "--position", "x"), 2, "position=x: give the position of an earlier response"),
        (("key", "counts", "nobody"), 1, "has no key 'nobody'"),
    ):
        done = run_command("query", *arguments, "--server", server)
        assert (done.returncode, said in " ".join(done.stderr.split())) == (code, True), (arguments, done.stderr)
    status, body = get(server, f"/stores/history/keys/{KEYS[0]}?as-of=2000")
    assert (status, "'as-of'" in body["message"]) == (400, True), "the newest value is no answer to this"
    assert all("everywhere" in each["stores"] for each in cli("instances", "--server", server)), "global stores, too"


def _check_another_partition(server: str, usual: int) -> None:
    """Whichever instance has the partition."""
    other = 1 - usual
    for store, more in (("counts", ""), ("history", "&as_of=2000")):
        status, body = get(server, f"/stores/{store}/keys/{KEYS[0]}?partition={other}{more}")
        assert (status, body["error"]) == (404, "KeyNotFound")
        assert body["message"].endswith(
            f" in partition {other}, which was asked for. The default partitioner puts it in partition {usual}"
        )


def _global_rows(streams: KafkaStreams) -> set[tuple[str, str]]:
    """Task and kind of store in the metrics of the global store."""
    return {
        (metric.tags["task-id"], tag)
        for metric in streams.metrics()
        for tag, value in metric.tags.items()
        if value == "everywhere"
    }


def _standbys_have_all(*instances: KafkaStreams) -> bool:
    return all(
        each.remaining_records == 0
        for streams in instances
        for task in streams.progress.tasks
        if task.role == "standby"
        for each in task.restoring
    )


ODD_KEYS = ["k", "k\n", "a\nb", "a/b", "\n"]


def test_a_key_with_a_newline_is_that_key(scene: Scene) -> None:
    scene.write("table", [(key.encode(), f"row of {key}".encode()) for key in ODD_KEYS])
    with contextlib.closing(scene.instance("odd")) as streams:
        server = streams.config.application_server

        def found(key: str) -> object:
            status, body = get(server, f"/stores/history/keys/{quote(key, safe='')}")
            return (body["key"], body["value"]) if status == 200 else None

        wait_until(lambda: all(found(key) == (key, f"row of {key}") for key in ODD_KEYS), "each key has its own row")


def test_a_row_that_no_serde_reads_is_named(scene: Scene) -> None:
    scene.write("words", [(b"\xff", b"counted, and not read")])
    with contextlib.closing(scene.instance("unreadable")) as streams:
        server = streams.config.application_server
        wait_until(lambda: get(server, "/stores/counts/range")[0] == 500, "the row is there")
        status, body = get(server, "/stores/counts/range")
        assert (status, body["error"]) == (500, "UnreadableStoreRow")
        assert r"store 'counts': the row with the key b'\xff' can't be read by the store's serdes" in body["message"]
        assert get(server, f"/stores/counts/keys/{KEYS[0]}")[0] == 200
        done = run_command("query", "range", "counts", "--server", server)
        assert (done.returncode, "can't be read by the store's serdes" in done.stderr) == (1, True)
