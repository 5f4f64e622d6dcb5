"""``streamsrt topology lock``, and who refuses what is not locked."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from streamsrt.app import KafkaStreams
from streamsrt.application import load_application
from streamsrt.errors import ConfigError, TopologyMismatchError
from streamsrt.runtime.topology_lock import locked
from streamsrt.testing.topology_lock import assert_topology_locked
from tests.streamsrt.cli.conftest import Command
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

PROGRAM = """
from topology import StreamsBuilder, serdes

def build(*topics, key=serdes.string):
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic, key=key, value=serdes.string).group_by_key().count(store=topic + "-counts")
    return builder.build()

first, second, other = build("a"), build("a", "b"), build("a", key=serdes.long)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str) -> str:
    name = f"locked_{topic.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def counting(*topics: str) -> Topology:
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic, key=serdes.string, value=serdes.string).group_by_key().count(store=f"{topic}-counts")
    return builder.build()


def epoch(path: Path) -> int:
    return int(orjson.loads(path.read_bytes())["epoch"])


def test_each_change_is_shown_and_gets_the_next_epoch(command: Command, module: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.lock"
    assert command("topology", "lock", f"{module}:first", "--check").code == 2
    assert command("topology", "lock", f"{module}:first", "--config", "topology.epoch=4").code == 0
    assert epoch(path) == 4
    before = path.read_bytes()
    again = command("topology", "lock", f"{module}:first")
    assert (again.code, path.read_bytes()) == (0, before)
    checked = command("topology", "lock", f"{module}:second", "--check")
    assert (checked.code, path.read_bytes()) == (11, before)
    assert "b-counts" in checked.out
    assert command("topology", "lock", f"{module}:second").code == 0
    assert epoch(path) == 5
    assert command("topology", "diff", path, f"{module}:second").code == 0


def test_a_join_whose_sides_have_changed_places_is_refused(command: Command, tmp_path: Path, module: str) -> None:
    program = """
from topology import JoinWindows, StreamsBuilder, serdes

def build(left, right):
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, key=serdes.string, value=serdes.string) for topic in (left, right))
    one.join(other, lambda a, b: a + b, JoinWindows(1_000), store="pairs").foreach(print)
    return builder.build()

first, swapped = build("a", "b"), build("b", "a")
"""
    (tmp_path / f"{module}.py").write_text(program, encoding="utf-8")
    shown = command("topology", "diff", f"{module}:first", f"{module}:swapped")
    assert shown.code == 12
    assert "the sides of the join have changed places" in " ".join(shown.out.split())
    assert command("topology", "lock", f"{module}:first").code == 0
    before = (tmp_path / "topology.lock").read_bytes()
    assert command("topology", "lock", f"{module}:swapped").code == 12
    assert (tmp_path / "topology.lock").read_bytes() == before


def test_a_file_without_what_is_compared_now_is_to_be_written_again(
    command: Command, tmp_path: Path, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "topology.lock"
    (tmp_path / f"{module}.py").write_text(
        "from topology import JoinWindows, Store, StreamsBuilder, TimeWindows, serdes\n\n"
        "builder = StreamsBuilder()\n"
        "one, other = (builder.stream(each, key=serdes.string, value=serdes.string) for each in 'ab')\n"
        "one.group_by_key().windowed_by(TimeWindows(9)).count(store='w')\n"
        "one.join(other, lambda a, b: a + b, JoinWindows(9), store='j')\n"
        "one.group_by_key().count(store=Store('t', ttl=9))\n"
        "app = builder.build()\n"
    )
    command("topology", "lock", f"{module}:app", "--config", "topology.epoch=4")
    whole = path.read_bytes()
    assert "earlier release" not in command("topology", "lock", f"{module}:app", "--check").err
    for lacking in ("windows", "sides", "ttl_ms"):
        file = orjson.loads(whole)
        for row in (*file["origins"].values(), *file["stores"]):
            row.pop(lacking, None)
        path.write_bytes(orjson.dumps(file))
        checked = command("topology", "lock", f"{module}:app", "--check")
        assert checked.code == 0
        told = " ".join(checked.err.split())
        assert f"lock file {path.name} was written by an earlier release" in told
        rows = [each["name"] for each in file["stores"]] if lacking == "ttl_ms" else list(file["origins"])
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        assert (
            f"of {', '.join(sorted(rows)[:5])}{more} (inputs, windows, sides of joins, ttl, max_entries, serdes "
            "of repartition topics)" in told
        )
        application = load_application(f"{module}:app").topology
        caplog.clear()
        KafkaStreams(application, {"application.id": "shop", "topology.lock": path, "state.dir": tmp_path})
        assert "Write it again with `streamsrt topology lock APPLICATION`" in caplog.text
        assert command("topology", "lock", f"{module}:app").code == 0
        assert orjson.loads(path.read_bytes()) == orjson.loads(whole)


def test_a_file_of_an_earlier_release_is_named_whatever_the_topology_has(
    command: Command, tmp_path: Path, module: str
) -> None:
    """A later version may have windows, joins and so on."""
    path = tmp_path / "topology.lock"
    command("topology", "lock", f"{module}:first")
    file = orjson.loads(path.read_bytes())
    for row in file["origins"].values():
        del row["windows"], row["sides"]
    path.write_bytes(orjson.dumps(file))
    checked = command("topology", "lock", f"{module}:first", "--check")
    assert checked.code == 0
    assert "was written by an earlier release: it does not contain what is compared now of a-counts (" in " ".join(
        checked.err.split()
    )


def test_another_serde_of_an_upcast_is_said_of_the_same_topology(
    command: Command, tmp_path: Path, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    program = """
from topology import Store, StreamsBuilder, Upcast, serdes

def build(upcast):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=serdes.string, value=serdes.string)
    store = Store("kept", version=2, upcast={1: upcast})
    stream.group_by_key().aggregate(dict, lambda _key, value, last: last, store=store, value=serdes.json)
    return builder.build()

first, changed = build(dict), build(Upcast(dict, serde=serdes.string))
"""
    (tmp_path / f"{module}.py").write_text(program, encoding="utf-8")
    said = "store kept: the serde that reads values of version 1 is string, and was json"
    shown = command("topology", "diff", f"{module}:first", f"{module}:changed")
    assert shown.code == 0
    assert shown.out.startswith(f"the same topology: epoch 0 stays\n{said}")
    assert command("topology", "diff", f"{module}:first", f"{module}:first").out == "the same topology: epoch 0 stays\n"
    command("topology", "lock", f"{module}:first")
    checked = command("topology", "lock", f"{module}:changed", "--check")
    assert checked.code == 0
    assert said in checked.out
    changed = load_application(f"{module}:changed").topology
    assert locked(changed, tmp_path / "topology.lock").digest == changed.digest
    assert said in caplog.text
    command("topology", "lock", f"{module}:changed")
    assert said not in command("topology", "lock", f"{module}:changed", "--check").out


def test_edited_functions_are_written_with_the_same_epoch(command: Command, tmp_path: Path, module: str) -> None:
    path = tmp_path / "topology.lock"
    program = """
from topology import StreamsBuilder, serdes

def build(kept):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=serdes.string, value=serdes.string)
    stream.filter(lambda _key, value: value == kept).group_by_key().count()
    return builder.build()

first, edited = build("x"), build("y")
"""
    (tmp_path / f"{module}.py").write_text(program, encoding="utf-8")
    command("topology", "lock", f"{module}:first", "--config", "topology.epoch=4")
    before = path.read_bytes()
    checked = command("topology", "lock", f"{module}:edited", "--check")
    assert (checked.code, path.read_bytes()) == (0, before)
    assert command("topology", "lock", f"{module}:edited").code == 0
    assert epoch(path) == 4
    assert path.read_bytes() != before
    edited = path.read_bytes()
    again = command("topology", "lock", f"{module}:edited")
    assert (again.code, path.read_bytes()) == (0, edited)


def test_what_is_incompatible_is_locked_by_force_only(command: Command, module: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.lock"
    command("topology", "lock", f"{module}:first", "--file", path)
    refused = command("topology", "lock", f"{module}:other", "--file", path)
    assert (refused.code, epoch(path)) == (12, 0)
    assert "key_serde string -> long" in refused.out
    assert command("topology", "lock", f"{module}:other", "--file", path, "--force").code == 0
    assert epoch(path) == 1


def test_a_file_that_cannot_be_read_is_replaced_only_if_it_is_said(
    command: Command, module: str, tmp_path: Path
) -> None:
    path = tmp_path / "topology.lock"
    path.write_bytes(b"{")
    for options in ((), ("--check",), ("--check", "--force")):
        broken = command("topology", "lock", f"{module}:first", "--file", path, *options)
        assert broken.code == 2
        assert f"APPLICATION --file {path} --force --config topology.epoch=N`" in broken.err
    assert path.read_bytes() == b"{"
    guessed = command("topology", "lock", f"{module}:first", "--file", path, "--force")
    assert (guessed.code, path.read_bytes()) == (2, b"{")
    assert "--force --config topology.epoch=N`, where N is the epoch that runs" in guessed.err
    done = command("topology", "lock", f"{module}:first", "--file", path, "--force", "--config", "topology.epoch=7")
    assert (done.code, epoch(path)) == (0, 7)


def test_it_says_one_epoch(command: Command, module: str, tmp_path: Path) -> None:
    command("topology", "lock", f"{module}:first", "--config", "topology.epoch=2")
    done = command("topology", "lock", f"{module}:second", "--config", "topology.epoch=9")
    assert (done.code, epoch(tmp_path / "topology.lock")) == (0, 9)
    assert "run the new version with topology.epoch=9" in done.out
    assert "topology.epoch=3" not in done.out
    same = command("topology", "lock", f"{module}:second", "--config", "topology.epoch=11")
    assert "the same topology: with topology.epoch=11 from now on" in same.out
    assert epoch(tmp_path / "topology.lock") == 11


@pytest.mark.parametrize("missing", ["nofile.json", "no/topology.lock"])
def test_a_saved_version_that_is_missing_is_said(command: Command, module: str, missing: str) -> None:
    done = command("topology", "diff", missing, f"{module}:first")
    assert (done.code, f"the file {missing} is missing" in done.err) == (2, True)


def test_a_topology_that_is_not_locked_does_not_run(command: Command, module: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.lock"
    command("topology", "lock", f"{module}:first", "--config", "topology.epoch=4")
    done = command("run", f"{module}:second", "-a", "shop", "-b", "127.0.0.1:1", "--lock", path)
    assert done.code == 2
    assert "store b-counts: rebuilt" in done.err
    assert "it gets topology epoch 5" in done.err
    settings = {"application.id": "shop", "topology.lock": path, "state.dir": tmp_path}
    assert KafkaStreams(counting("a"), settings).topology.epoch == 4
    assert KafkaStreams(counting("a"), {**settings, "topology.epoch": 4}).topology.epoch == 4
    with pytest.raises(TopologyMismatchError, match=r"topology.epoch=3 is set, and lock file .* has epoch 4"):
        KafkaStreams(counting("a"), {**settings, "topology.epoch": 3})
    with pytest.raises(ConfigError, match="there is no lock file"):
        KafkaStreams(counting("a"), {**settings, "topology.lock": tmp_path / "none"})
    (tmp_path / "bad").write_bytes(b"{")
    with pytest.raises(ConfigError, match="write another one with `streamsrt topology lock"):
        KafkaStreams(counting("a"), {**settings, "topology.lock": tmp_path / "bad"})


def test_a_test_fails_for_what_is_not_locked(command: Command, module: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.lock"
    command("topology", "lock", f"{module}:first")
    assert_topology_locked(counting("a"))
    assert_topology_locked(counting("a"), path, {"commit.interval.ms": 5})
    with pytest.raises(AssertionError, match=r"subtopology \w+: new\n  store b-counts: rebuilt"):
        assert_topology_locked(counting("a", "b"), path)
    with pytest.raises(AssertionError, match="there is no lock file"):
        assert_topology_locked(counting("a"), tmp_path / "none")
