"""``streamsrt groups reset-offsets`` and ``delete-offsets``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.cli.group_offsets import parse_datetime, parse_duration
from streamsrt.errors import ConfigError, UserError
from streamsrt.runtime.values import State
from tests.streamsrt.cli.conftest import Command, Done
from topology import StreamsBuilder, serdes

PATIENCE_S = 90


@pytest.fixture
def on_broker(command: Command, bootstrap_servers: str) -> Command:
    """Runs one command with the address of either broker."""

    def run(*arguments: object, stdin: str | bytes = b"") -> Done:
        return command(*arguments, "-b", bootstrap_servers, stdin=stdin)

    return run


@pytest.fixture
def running() -> threading.Event:
    """Set when the application runs."""
    return threading.Event()


@pytest.fixture
def streams(
    on_broker: Command, bootstrap_servers: str, topic: str, tmp_path: Path, running: threading.Event
) -> KafkaStreams:
    """An application that counts; four records of two partitions are there."""
    on_broker("topics", "create", topic, f"{topic}-out", "--partitions", 2)
    on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nd:3\na:4\n")
    return application(bootstrap_servers, topic, tmp_path, running)


def application(bootstrap_servers: str, topic: str, path: Path, running: threading.Event | None = None) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.stream(topic).group_by_key().count(store="counts").to_stream().to(f"{topic}-out", value=serdes.long)
    config = {
        "application.id": f"{topic}-app",
        "bootstrap.servers": bootstrap_servers,
        "state.dir": path,
        "default.key.serde": serdes.string,
        "default.value.serde": serdes.string,
    }

    def listen(new: State, _: State) -> None:
        if running is not None and new is State.RUNNING:
            running.set()

    return KafkaStreams(builder.build(), config, state_listener=listen)


def moves(rows: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(row["current_offset"], row["new_offset"]) for row in rows]


def test_an_application_that_is_stopped_goes_on_elsewhere(
    on_broker: Command,
    command: Command,
    bootstrap_servers: str,
    streams: KafkaStreams,
    topic: str,
    tmp_path: Path,
) -> None:
    streams.run(until="quiet")
    group = f"{topic}-app"

    def reset(*arguments: object) -> list[tuple[Any, Any]]:
        return moves(on_broker("groups", "reset-offsets", group, "--json", *arguments).rows)

    ends = [at for at, _ in reset("--to-current")]
    assert sum(ends) == 4
    assert reset("--to-earliest") == [(end, 0) for end in ends]
    assert reset("--to-offset", 1) == [(end, min(1, end)) for end in ends]
    assert reset("--to-offset", 99) == reset("--to-latest") == [(end, end) for end in ends]
    assert reset("--shift-by", -1) == [(end, max(0, end - 1)) for end in ends]
    assert reset("--by-duration", "PT0S") == reset("--to-datetime", "2100-01-01") == [(end, end) for end in ends]
    assert reset("--by-duration", "P1D") == [(end, 0) for end in ends]
    assert reset("--to-earliest", "--topic", f"{topic}:1") == [(ends[1], 0)]
    # Nothing has happened so far.
    assert reset("--to-current", "--dry-run") == [(end, end) for end in ends]
    done = on_broker("groups", "reset-offsets", group, "--to-earliest", "--execute")
    assert "changelogs and stores were not changed: records that stores include already are processed twice" in done.err
    assert [at for at, _ in reset("--to-latest")] == [0, 0]
    _begin_anew(on_broker, topic)
    clean = ("state", "clean", "-a", group, "--state-dir", tmp_path)
    assert "would delete store counts of partition 0" in command(*clean).err
    streams.clean_up()
    assert "store counts" not in command(*clean, "--execute").err
    streams = application(bootstrap_servers, topic, tmp_path)
    streams.run(until="quiet")
    counts = on_broker("consume", f"{topic}-out", "--value", "long", "--json").rows
    # With everything of its own deleted, the counts are those of one pass.
    assert {row["key"]: row["value"] for row in counts} == {"a": 2, "b": 1, "d": 1}


def _begin_anew(on_broker: Command, topic: str) -> None:
    """Resets the application, with what is its own."""
    group, changelog = f"{topic}-app", f"{topic}-app-counts-changelog"
    done = on_broker("groups", "reset-offsets", group, "--to-earliest", "--delete-internal-topics")
    assert f"would delete topic {changelog}" in done.err
    done = on_broker("groups", "reset-offsets", group, "--to-earliest", "--delete-internal-topics", "--execute")
    assert f"deletes topic {changelog}" in done.err
    assert changelog not in on_broker("topics", "list").out


def test_topics_of_an_application_with_a_longer_name_are_not_deleted(on_broker: Command, topic: str) -> None:
    own, others = f"{topic}-app-counts-changelog", f"{topic}-app-eu-counts-changelog"
    on_broker("topics", "create", topic, own, others, "--partitions", 1)
    for group in (f"{topic}-app", f"{topic}-app-eu"):
        done = on_broker("groups", "reset-offsets", group, "--to-earliest", "--topic", topic, "--execute")
        assert done.code == 0
    reset = ("groups", "reset-offsets", f"{topic}-app", "--to-earliest", "--delete-internal-topics")
    assert f"would delete topic {own}" in on_broker(*reset).err
    done = on_broker(*reset, "--execute")
    assert (f"deletes topic {own}" in done.err, others in done.err) == (True, False)
    assert [name in on_broker("topics", "list").out for name in (own, others)] == [False, True]


def test_mistakes(on_broker: Command, streams: KafkaStreams, running: threading.Event, topic: str) -> None:
    group = f"{topic}-app"
    with streams:
        assert running.wait(PATIENCE_S)
        done = on_broker("groups", "reset-offsets", group, "--to-earliest")
        assert (done.code, "1 member: stop all instances" in done.err) == (2, True)
        with pytest.raises(UserError, match="Call close\\(\\) first"):
            streams.clean_up()
    for arguments, said in (
        ((), "give exactly one target: --to-earliest"),
        (("--to-earliest", "--to-offset", 3), "give exactly one target"),
        (("--to-earliest", "--dry-run", "--execute"), "are mutually exclusive"),
        (("--to-earliest", "--topic", "nothing"), f"no input topics of group {group!r}"),
        (("--to-earliest", "--topic", f"{topic}:7"), "has partitions 0 to 1, not 7"),
        (("--to-earliest", "--topic", f"{topic}:x"), "expected TOPIC or TOPIC:0,1,2"),
        (("--to-earliest", "--topic", f"{topic}:\u00b2"), "expected TOPIC or TOPIC:0,1,2"),
        (("--to-datetime", "yesterday"), "expected a time like"),
        (("--by-duration", "1h"), "expected a duration like"),
    ):
        done = on_broker("groups", "reset-offsets", group, *arguments)
        assert (done.code, said in done.err) == (2, True), done
    assert on_broker("groups", "reset-offsets", "nobody", "--to-earliest").code == 2


def test_an_application_that_needs_offsets_gets_its_first_ones(
    on_broker: Command, bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nd:3\na:4\n")
    builder, read = StreamsBuilder(), list[str]()
    builder.stream(topic, key=serdes.string, value=serdes.string, offset_reset="none").foreach(
        lambda _key, value: read.append(value)
    )
    config = {"application.id": f"{topic}-app", "bootstrap.servers": bootstrap_servers, "state.dir": tmp_path}
    with pytest.raises(UserError, match="no offset is committed"):
        KafkaStreams(builder.build(), config).run(until="quiet")
    offsets = ("groups", "reset-offsets", f"{topic}-app", "--topic", topic, "--to-earliest")
    assert moves(on_broker(*offsets, "--json").rows) == [("-", 0), ("-", 0)]
    assert on_broker(*offsets, "--execute").code == 0
    KafkaStreams(builder.build(), config).run(until="quiet")
    assert sorted(read) == ["1", "2", "3", "4"]


def test_offsets_are_deleted(on_broker: Command, streams: KafkaStreams, topic: str) -> None:
    streams.run(until="quiet")
    group = f"{topic}-app"
    before = on_broker("groups", "delete-offsets", group, "--topic", topic, "--json")
    assert sum(row["current_offset"] for row in before.rows) == 4
    assert "nothing is changed" in before.err
    assert on_broker("groups", "delete-offsets", group, "--topic", topic, "--execute").code == 0
    described = on_broker("groups", "describe", group, "--json").rows
    # A classic group without members names no topics, a streams group does.
    assert {row["current_offset"] for row in described} <= {"-"}
    done = on_broker("groups", "delete-offsets", group, "--topic", topic)
    assert (done.code, "has committed nothing for" in done.err) == (2, True)


def test_times() -> None:
    assert parse_duration("P1DT2H30M5.5S") == (26 * 3600 + 1805) * 1000 + 500
    assert parse_duration("PT0S") == 0
    assert parse_datetime("2026-01-31T12:00:00.250") == parse_datetime("2026-01-31T13:00:00.250+01:00")
    assert parse_datetime("1970-01-01T00:00:01") == 1000
    for wrong in ("P", "PT", "1D", "P1H", ""):
        with pytest.raises(ConfigError):
            parse_duration(wrong)
