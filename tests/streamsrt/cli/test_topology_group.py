"""``streamsrt topology diff`` beside the group that runs: its epoch, its topics, and cures that cure."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.application import load_application
from streamsrt.runtime.values import State
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command

PATIENCE_S = 60.0

PROGRAM = """
from topology import Store, StreamsBuilder, TimeWindows, serdes

TEXT = dict(key=serdes.string, value=serdes.string)

def version(topics, *, minutes=1, joined=False, clicks=False, added=False, last=None, value=TEXT["value"]):
    builder = StreamsBuilder()
    orders = builder.table("{t}-orders", **TEXT, store="orders")
    customers = builder.table("{t}-customers", **TEXT, store="customers")
    words = builder.stream(topics, **TEXT).group_by_key()
    windows = TimeWindows(60_000, grace=60_000 * minutes)
    if last is not None:
        words.aggregate(str, lambda _key, value, _last: value, store=last, value=value)
    words.windowed_by(windows).count(store="per-minute")
    if clicks:
        words.count(store="clicks")
    if added:
        builder.stream("{t}-wide", **TEXT).group_by_key().count(store="added")
    if joined:
        keep = Store("both", **TEXT)
        both = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, name="both", store=keep)
        both.to_stream().to("{t}-out", **TEXT)
    return builder.build()

first = version("{t}-words", clicks=True)
longer = version("{t}-words", clicks=True, minutes=600)
fewer = version("{t}-words")
wider = version(["{t}-words", "{t}-wide"], clicks=True)
joined = version("{t}-words", clicks=True, joined=True)
lacking = version("{t}-nowhere", clicks=True)
beside = version("{t}-words", clicks=True, joined=True, added=True)
fading = version("{t}-words", last=Store("last", ttl=60_000))
fading_soon = version("{t}-words", last=Store("last", ttl=30_000), minutes=2)
fading_bytes = version("{t}-words", last=Store("last", ttl=60_000), value=serdes.json)
"""


@pytest.fixture
def module(topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with versions of a program over the topics of this test."""
    name = topic.replace("-", "_").replace(".", "_") + "_versions"
    (tmp_path / f"{name}.py").write_text(PROGRAM.replace("{t}", topic), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
def topics(on_broker: Command, topic: str) -> str:
    names = [f"{topic}-{each}" for each in ("words", "orders", "customers", "out")]
    on_broker("topics", "create", *names, "--partitions", 2)
    on_broker("topics", "create", f"{topic}-wide", "--partitions", 4)
    on_broker("produce", f"{topic}-words", "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
    customers = "".join(f"c{n}:name {n}\n" for n in range(20))
    on_broker("produce", f"{topic}-customers", "--key-separator", ":", stdin=customers)
    orders = "".join(f"o{n}:c{n % 20}\n" for n in range(200))
    on_broker("produce", f"{topic}-orders", "--key-separator", ":", stdin=orders)
    return topic


def instance(
    address: str, topic: str, version: str, folder: Path, running: threading.Event | None = None, **more: Any
) -> KafkaStreams:
    config = {
        "application.id": f"{topic}-app",
        "bootstrap.servers": address,
        "state.dir": folder / "state",
        "commit.interval.ms": 50,
        **more,
    }

    def listen(new: State, _: State) -> None:
        if running is not None and new is State.RUNNING:
            running.set()

    return KafkaStreams(load_application(version).topology, config, state_listener=listen)


@pytest.fixture
def group(module: str, topics: str, bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[str]:
    """The first version runs with epoch 3."""
    address = bundled_broker.bootstrap_servers
    settings = {"topology.epoch": 3}
    # What is there is processed, so that all topics have their records.
    instance(address, topics, f"{module}:first", tmp_path, **settings).run(until="quiet", timeout_s=60, signals=False)
    running = threading.Event()
    with instance(address, topics, f"{module}:first", tmp_path, running, **settings):
        assert running.wait(PATIENCE_S)
        yield f"{topics}-app"


def fates(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["fate"] for each in found["state"]}


def test_the_epoch_is_that_of_the_group(on_broker: Command, module: str, group: str) -> None:
    old, new = f"{module}:first", f"{module}:fewer"
    assert on_broker("topology", "diff", old, new, "--json").rows[0]["epoch_needed"] == 1
    for versions in ([old, new], [new]):
        (found,) = on_broker("topology", "diff", *versions, "--group", group, "--json").rows
        assert (found["epoch_before"], found["epoch_needed"]) == (3, 4)
        assert found["running"]["members_by_epoch"] == {"3": 1}
        orphan = next(each for each in found["state"] if each["name"] == "clicks")
        assert (orphan["fate"], orphan["records"]) == ("orphaned", 3)
        assert orphan["cure"] == f"streamsrt topics delete {group}-clicks-changelog --execute"
        assert fates(found)["per-minute"] == "carried over"
    shown = on_broker("topology", "diff", new, "--group", group)
    assert shown.code == 11
    assert re.search(r"source topic +\S+-words +same +3\b", shown.out)
    assert re.search(r"\nsource topic \S+-words: 2 partitions\n", shown.out)
    assert "topology epoch 3, members: 1 with epoch 3" in shown.out
    assert "compared" not in shown.out, "the instance tells all of it"
    assert shown.out.endswith("run the new version with topology.epoch=4\n")
    for versions in ([old, old], [old]):
        same = on_broker("topology", "diff", *versions, "--group", group)
        assert (same.code, same.out.splitlines()[-1]) == (0, "the same topology: epoch 3 stays")
    other = on_broker("topology", "diff", new, old, "--group", group)
    assert "another version runs" in other.err


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_what_an_instance_keeps_is_compared_without_its_program(
    on_broker: Command, module: str, topics: str, bundled_broker: BundledBroker, tmp_path: Path, protocol: str
) -> None:
    address, running = bundled_broker.bootstrap_servers, threading.Event()
    group, old = f"{topics}-app", f"{module}:fading"
    with instance(address, topics, old, tmp_path, running, **{"group.protocol": protocol}):
        assert running.wait(PATIENCE_S)
        for version, fate, said in (
            ("fading_soon", "carried over", "ttl 60000 -> 30000 ms"),
            ("fading_bytes", "incompatible", "value_serde another one -> json"),
        ):
            for command in (("topology", "diff"), ("upgrade", "plan")):
                done = on_broker(*command, f"{module}:{version}", "--group", group, "--json")
                rows = done.rows[0]["state" if command[0] == "topology" else "rows"]
                (last,) = (each for each in rows if each["name"] == "last")
                assert said in last.get("reason", last.get("why"))
                assert last["fate"].replace("unchanged", "carried over") == fate
                assert (done.code == 12) == (fate == "incompatible")
                (window,) = (each for each in rows if each["name"] == "per-minute")
                reason = window.get("reason", window.get("why"))
                assert ("retention 120000 -> 180000 ms" in reason) == (version == "fading_soon")
        done = on_broker("upgrade", "plan", f"{module}:fading_soon", "--group", group)
        assert "not compared" not in done.out
    nobody = on_broker("topology", "diff", f"{module}:fewer", "--group", group)
    if protocol == "streams":
        assert (
            "generated names were not compared: no running instance tells them (OLD before NEW compares" in nobody.out
        )
        assert nobody.code == 11
    else:
        assert nobody.code == 2
        assert "no running one tells it: give the running version before the new one" in nobody.err


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_running_group_gives_what_its_program_gives(
    on_broker: Command, module: str, topics: str, bundled_broker: BundledBroker, tmp_path: Path, protocol: str
) -> None:
    address, running = bundled_broker.bootstrap_servers, threading.Event()
    group, old = f"{topics}-app", f"{module}:joined"
    with instance(address, topics, old, tmp_path, running, **{"group.protocol": protocol}):
        assert running.wait(PATIENCE_S)
        for name in ("first", "fewer", "wider", "lacking", "longer", "fading", "joined"):
            found = [
                on_broker("topology", "diff", *versions, f"{module}:{name}", "--group", group, "--json")
                for versions in ([], [old])
            ]
            told, known = (each.rows[0] for each in found)
            assert (found[0].code, told["epoch_needed"]) == (found[1].code, known["epoch_needed"]), name
            for key, what in (
                ("subtopologies", ("id", "change")),
                ("state", ("kind", "name", "fate", "cure")),
                ("sources", ()),
            ):
                mine, theirs = ([[row[each] for each in what or row] for row in rows[key]] for rows in (told, known))
                assert sorted(mine) == sorted(theirs), (name, key)


def test_of_a_group_without_members_the_broker_tells_what_ran(
    on_broker: Command, module: str, topics: str, bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    address = bundled_broker.bootstrap_servers
    instance(address, topics, f"{module}:first", tmp_path).run(until="quiet", timeout_s=60, signals=False)
    group = f"{topics}-app"
    same = on_broker("topology", "diff", f"{module}:first", "--group", group)
    assert same.code == 0
    assert "the same topology" in same.out
    other = on_broker("topology", "diff", f"{module}:fewer", "--group", group)
    assert other.code == 11


def test_partitions_and_retention_of_the_cluster_count(on_broker: Command, module: str, group: str) -> None:
    wider = on_broker("topology", "diff", f"{module}:first", f"{module}:wider", "--group", group, "--json")
    assert wider.code == 12
    reasons = {each["name"]: each["reason"] for each in wider.rows[0]["state"]}
    assert "its changelog has 2, and its subtopology has 4 tasks" in reasons["clicks"]
    assert on_broker("topology", "diff", f"{module}:first", f"{module}:wider").code == 10
    longer = on_broker("topology", "diff", f"{module}:longer", "--group", group, "--json")
    assert longer.code == 10
    (reason,) = (each["reason"] for each in longer.rows[0]["state"] if each["name"] == "per-minute")
    assert "retention.ms of its changelog 86520000 -> 122460000" in reason


def test_how_long_a_store_is_restored_is_measured(on_broker: Command, module: str, topics: str, group: str) -> None:
    on_broker("produce", f"{topics}-wide", "--key-separator", ":", stdin="".join(f"k{n}:v\n" for n in range(220)))
    command = ("topology", "diff", f"{module}:first", f"{module}:beside", "--group", group)
    (found,) = on_broker(*command, "--json").rows
    (added,) = (each for each in found["state"] if each["name"] == "added")
    assert (added["fate"], added["restores"]) == ("rebuilt", 220)
    assert added["seconds"] == round(220 / found["restored_records_per_second"], 1)
    (both,) = (each for each in found["state"] if each["name"] == "both")
    assert (both["fate"], both["restores"], both["seconds"]) == ("rebuilt", None, None), "its topics were read already"
    (kept,) = (each for each in found["state"] if each["name"] == "clicks")
    assert (kept["restores"], kept["seconds"]) == (None, None), "its tasks stay where they are"
    assert "seconds: time for a single instance to restore the store, at " in on_broker(*command).out


def test_source_topics_that_come_and_go_are_told(on_broker: Command, module: str, topics: str, group: str) -> None:
    command = ("topology", "diff", f"{module}:first", f"{module}:lacking", "--group", group)
    found = {each["name"]: each for each in on_broker(*command, "--json").rows[0]["sources"]}
    assert found[f"{topics}-nowhere"] == {
        "name": f"{topics}-nowhere",
        "change": "new",
        "partitions": None,
        "records": None,
    }
    assert found[f"{topics}-words"]["change"] == "gone"
    assert found[f"{topics}-orders"] == {
        "name": f"{topics}-orders",
        "change": "same",
        "partitions": 2,
        "records": 200,
    }
    assert f"\nsource topic {topics}-nowhere: it does not exist\n" in on_broker(*command).out
    alone = on_broker(*command[:4])
    assert re.search(rf"source topic +{topics}-words +gone", alone.out)


def test_records_in_flight_in_a_repartition_topic_that_goes_away_are_counted(
    on_broker: Command, module: str, topics: str, bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    instance(bundled_broker.bootstrap_servers, topics, f"{module}:joined", tmp_path).run(
        until="quiet", timeout_s=60, signals=False
    )
    group = f"{topics}-app"

    def in_flight() -> dict[str, int]:
        (found,) = on_broker("topology", "diff", f"{module}:first", "--group", group, "--json").rows
        return {
            each["name"]: each["records"]
            for each in found["state"]
            if (each["kind"], each["fate"]) == ("repartition topic", "orphaned")
        }

    before = in_flight()
    assert before
    assert set(before.values()) == {0}
    name = min(before)
    on_broker("produce", f"{group}-{name}", "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
    assert in_flight() == {**before, name: 3}
    shown = on_broker("topology", "diff", f"{module}:first", "--group", group)
    assert f"repartition topic {name}: 3 records not read yet" in shown.out


def test_what_is_described_has_the_epoch_that_runs(command: Command, module: str, tmp_path: Path) -> None:
    def epoch(*options: str) -> int:
        (row,) = command("topology", "describe", f"{module}:first", "--json", *options).rows
        return int(row["epoch"])

    assert (epoch(), epoch("--config", "topology.epoch=7")) == (0, 7)
    path = tmp_path / f"{module}_configured.py"
    path.write_text(f"from {module} import first\nconfig = {{'topology.epoch': 5}}\n", encoding="utf-8")
    (row,) = command("topology", "describe", f"{path}:first", "--json").rows
    assert (row["epoch"], row["stores"][0]["key_serde"]) == (5, "string")


def test_a_group_that_is_not_there_is_named(on_broker: Command, module: str, topics: str) -> None:
    done = on_broker("topology", "diff", f"{module}:first", "--group", "nobody")
    assert done.code != 0
    assert "no such group: nobody" in done.err
    assert on_broker("topology", "diff", f"{module}:first").code == 2


def test_the_cure_of_a_join_over_old_rows_fills_it(
    on_broker: Command, bundled_broker: BundledBroker, module: str, topics: str, tmp_path: Path
) -> None:
    address, app = bundled_broker.bootstrap_servers, f"{topics}-app"

    def run(version: str, epoch: int) -> int:
        streams = instance(address, topics, f"{module}:{version}", tmp_path, **{"topology.epoch": epoch})
        streams.run(until="quiet", timeout_s=60, signals=False)
        return len({row["key"] for row in on_broker("consume", f"{topics}-out", "--json").rows})

    run("first", 0)
    (found,) = on_broker("topology", "diff", f"{module}:first", f"{module}:joined", "--json").rows
    both = next(each for each in found["state"] if each["name"] == "both")
    assert both["fate"] == "rebuilt"
    assert f"does not include records of {topics}-customers, {topics}-orders that were already read" in both["reason"]
    assert run("joined", 1) == 0
    words = both["cure"].partition("stop all instances, ")[2].partition(" (")[0].replace("APP", app).split()
    assert words[:2] == ["streamsrt", "groups"]
    assert on_broker(*words[1:]).code == 0
    assert run("joined", 1) == 200
