"""``streamsrt upgrade`` beside instances of two versions, in streams groups and in classic ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.application import load_application
from streamsrt.runtime.values import State
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command, Done
from tests.system.processes import wait_until

PROGRAM = """
from topology import StreamsBuilder, serdes

TEXT = dict(key=serdes.string, value=serdes.string)

def version(*, more=False, added=False, missing=False):
    builder = StreamsBuilder()
    words = builder.stream("{t}-words", **TEXT)
    if more:
        words = words.merge(builder.stream("{t}-more", **TEXT))
    if missing:
        words = words.merge(builder.stream("{t}-nowhere", **TEXT))
    words.group_by_key().count(store="counts").to_stream().to("{t}-out", key=serdes.string, value=serdes.long)
    if added:
        words.group_by_key().aggregate(str, lambda _k, v, _l: v, store="last", value=serdes.string)
    return builder.build()

first, second = version(), version(more=True)
third, missing = version(more=True, added=True), version(missing=True)
"""


class Scene:
    """A cluster with topics, a module with versions, and instances of them."""

    def __init__(self, command: Command, address: str, topic: str, folder: Path, **settings: Any) -> None:
        self._command = command
        self.address = address
        self.topic = topic
        self.app = f"{topic}-app"
        self.module = topic.replace("-", "_") + "_upgraded"
        self._folder = folder
        self._settings = settings
        self._running = ExitStack()
        (folder / f"{self.module}.py").write_text(PROGRAM.replace("{t}", topic), encoding="utf-8")
        self("topics", "create", *(f"{topic}-{each}" for each in ("words", "more", "out")), "--partitions", 2)
        lines = "".join(f"k{number % 50}:v\n" for number in range(500))
        self("produce", f"{topic}-words", "--key-separator", ":", stdin=lines)

    def __call__(self, *arguments: object, stdin: str = "") -> Done:
        return self._command(*arguments, "-b", self.address, stdin=stdin)

    def upgrade(self, what: str, *arguments: object) -> Done:
        return self("upgrade", what, *arguments, "--group", self.app)

    def version(self, name: str) -> str:
        return f"{self.module}:{name}"

    def start(self, name: str, version: str, epoch: int) -> KafkaStreams:
        """An instance that runs."""
        running = threading.Event()
        config = {
            "application.id": self.app,
            "bootstrap.servers": self.address,
            "state.dir": self._folder / name,
            "commit.interval.ms": 50,
            "topology.epoch": epoch,
            **self._settings,
        }

        def listen(new: State, _: State) -> None:
            if new is State.RUNNING:
                running.set()

        topology = load_application(self.version(version)).topology
        streams = self._running.enter_context(KafkaStreams(topology, config, state_listener=listen))
        assert running.wait(60)
        return streams

    def wait_done(self) -> None:
        wait_until(lambda: all(row["offset_lag"] == 0 for row in self._offsets()), "all is processed")

    def _offsets(self) -> list[dict[str, Any]]:
        return self("groups", "describe", self.app, "--json").rows

    def close(self) -> None:
        self._running.close()


@pytest.fixture
def streams_group(
    command: Command, bundled_broker: BundledBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    scene = Scene(command, bundled_broker.bootstrap_servers, topic, tmp_path)
    yield scene
    scene.close()


CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}


@pytest.fixture
def classic_group(
    command: Command, any_version: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    scene = Scene(command, any_version, topic, tmp_path, **CLASSIC)
    yield scene
    scene.close()


def versions(scene: Scene) -> list[tuple[int, int]]:
    """Epoch and number of members."""
    (row,) = scene.upgrade("status", "--once", "--json").rows
    return [(each["topology_epoch"], each["members"]) for each in row["versions"]]


def follow_an_upgrade(scene: Scene) -> None:
    old = scene.start("a", "first", 3)
    scene.wait_done()
    wait_until(lambda: scene.upgrade("status", "--once").code == 0, "the group is stable")
    alone = scene.upgrade("status", "--once", "--json")
    (row,) = alone.rows
    assert (row["phase"], row["topology_epoch"], row["is_over"]) == ("one version", 3, True)
    assert row["versions"][0]["tasks"] == {"active": 2, "standby": 0, "warmup": 0}
    scene.start("b", "second", 4)
    wait_until(lambda: versions(scene) == [(4, 1), (3, 1)], "both are there")
    both = scene.upgrade("status", "--once")
    assert both.code == 10
    assert "1 of 2 instances run topology epoch 4: stop one of the others" in " ".join(both.out.split())
    old.close()
    followed = scene.upgrade("status", "--json", "--interval", "0.1")
    assert followed.code == 0
    assert followed.rows[-1]["is_over"]
    assert versions(scene) == [(4, 1)]


def test_the_status_of_a_streams_group(streams_group: Scene) -> None:
    follow_an_upgrade(streams_group)
    live = streams_group.upgrade("status")
    assert live.code == 0
    assert "one version, Stable, topology epoch 4" in live.out


def test_the_status_of_a_classic_group(classic_group: Scene) -> None:
    follow_an_upgrade(classic_group)


def test_the_status_of_a_group_that_is_not_there(streams_group: Scene) -> None:
    done = streams_group("upgrade", "status", "--group", "nobody", "--once")
    assert (done.code, "no such group: nobody" in done.err) == (2, True)
