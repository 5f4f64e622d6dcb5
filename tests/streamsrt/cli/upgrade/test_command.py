"""``streamsrt upgrade`` beside instances of two versions, in streams groups and in classic ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.application import load_application
from streamsrt.errors import ProcessingError, TopologyMismatchError, UserError
from streamsrt.membership.errors import StreamsTopologyFencedError
from streamsrt.runtime.values import State
from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import VERSION
from tests.streamsrt.cli.conftest import Command, Done
from tests.system.processes import wait_until

PROGRAM = """
import threading

from topology import Store, StreamsBuilder, serdes

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

gate = threading.Event()
gate.set()

def one_more(key, value, count):
    gate.wait()
    return count + 1

def grouped(name):
    builder = StreamsBuilder()
    words = builder.stream("{t}-words", **TEXT).group_by(lambda key, value: key, name=name, **TEXT)
    counts = words.aggregate(lambda: 0, one_more, store="counts", key=serdes.string, value=serdes.long)
    counts.to_stream().to("{t}-out", key=serdes.string, value=serdes.long)
    return builder.build()

by_word, by_term = grouped("by-word"), grouped("by-term")

def kept(store):
    builder = StreamsBuilder()
    words = builder.stream("{t}-words", **TEXT).group_by_key()
    words.aggregate(dict, lambda key, value, last: {**last, "value": value}, store=store, value=serdes.json)
    return builder.build()

def failing():
    builder = StreamsBuilder()
    words = builder.stream("{t}-words", **TEXT).map_values(lambda value: 1 // 0).group_by_key()
    words.count(store="counts").to_stream().to("{t}-out", key=serdes.string, value=serdes.long)
    return builder.build()

failing = failing()

plain, tagged = kept("rows"), kept(Store("rows", version=2, upcast={1: lambda row: {**row, "two": 2}}))
"""


class Scene:
    """A cluster with topics, a module with versions, and instances of them."""

    def __init__(self, command: Command, address: str, topic: str, folder: Path, **settings: Any) -> None:
        self.alone = command
        self.address = address
        self.topic = topic
        self.app = f"{topic}-app"
        self.module = topic.replace("-", "_") + "_upgraded"
        self._folder = folder
        self.settings = settings
        self.written = 0
        self._running = ExitStack()
        (folder / f"{self.module}.py").write_text(PROGRAM.replace("{t}", topic), encoding="utf-8")
        self("topics", "create", *(f"{topic}-{each}" for each in ("words", "more", "out")), "--partitions", 2)
        self.write()

    def __call__(self, *arguments: object, stdin: str = "") -> Done:
        return self.alone(*arguments, "-b", self.address, stdin=stdin)

    def write(self, records: int = 500) -> None:
        lines = "".join(f"k{number % 50}:v\n" for number in range(records))
        self("produce", f"{self.topic}-words", "--key-separator", ":", stdin=lines)
        self.written += records

    def counts(self) -> dict[str, int]:
        """What was written last for each key."""
        rows = self("consume", f"{self.topic}-out", "--value", "long", "--json").rows
        return {row["key"]: row["value"] for row in rows}

    def upgrade(self, what: str, *arguments: object) -> Done:
        return self("upgrade", what, *arguments, "--group", self.app)

    def version(self, name: str) -> str:
        return f"{self.module}:{name}"

    def made(self, name: str, version: str, epoch: int, **listeners: Any) -> KafkaStreams:
        """An instance that is not started."""
        config = {
            "application.id": self.app,
            "bootstrap.servers": self.address,
            "state.dir": self._folder / name,
            "commit.interval.ms": 50,
            "topology.epoch": epoch,
            **self.settings,
        }
        return KafkaStreams(load_application(self.version(version)).topology, config, **listeners)

    def start(self, name: str, version: str, epoch: int) -> KafkaStreams:
        """An instance that runs."""
        running = threading.Event()

        def listen(new: State, _: State) -> None:
            if new is State.RUNNING:
                running.set()

        streams = self._running.enter_context(self.made(name, version, epoch, state_listener=listen))
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
on_classic_brokers = pytest.mark.parametrize(
    "any_version",
    [
        "bundled",
        pytest.param("3.9.1", marks=pytest.mark.kafka),
        pytest.param(VERSION, marks=[pytest.mark.kafka, pytest.mark.full]),
        pytest.param("2.8.2", marks=[pytest.mark.kafka, pytest.mark.full]),
    ],
    indirect=True,
)
"""An upgrade differs by protocol, not by the version of Apache Kafka."""


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
    advice = "1 of 2 instances run topology epoch 4: stop one of the others"

    def is_advised() -> bool:
        both = scene.upgrade("status", "--once")
        return both.code == 10 and advice in " ".join(both.out.split())

    # A classic group that rebalances does not tell the versions.
    wait_until(is_advised, "it says what is next")
    old.close()
    followed = scene.upgrade("status", "--json", "--interval", "0.1")
    assert followed.code == 0
    assert followed.rows[-1]["is_over"]
    assert versions(scene) == [(4, 1)]


def test_the_status_of_a_streams_group(streams_group: Scene) -> None:
    follow_an_upgrade(streams_group)
    assert "last assignment: " in streams_group.upgrade("status", "--once").out
    live = streams_group.upgrade("status")
    assert live.code == 0
    assert "one version, Stable, topology epoch 4" in live.out


@on_classic_brokers
def test_the_status_of_a_classic_group(classic_group: Scene) -> None:
    follow_an_upgrade(classic_group)


def test_the_status_of_a_group_that_is_not_there(streams_group: Scene) -> None:
    done = streams_group("upgrade", "status", "--group", "nobody", "--once")
    assert (done.code, "no such group: nobody" in done.err) == (2, True)


# ------------------------------------------------------------------------------------------------- plan and start


def rows_of(plan: dict[str, Any]) -> dict[str, tuple[str, int | None]]:
    return {each["name"]: (each["fate"], each["restores"]) for each in plan["rows"]}


def plan_and_start(scene: Scene, *old: object) -> None:
    scene.start("a", "first", 3)
    scene.wait_done()
    same = scene.upgrade("plan", scene.version("first"), *old, "--json")
    assert (same.code, same.rows[0]["epoch_needed"], same.rows[0]["refusals"]) == (0, 3, [])
    done = scene.upgrade("plan", scene.version("third"), *old, "--json", "--out", "plan.json")
    (made,) = done.rows
    assert (done.code, made["epoch_before"], made["epoch_needed"], made["refusals"]) == (11, 3, 4, [])
    fates = rows_of(made)
    fate, restores = fates["counts"]
    assert fate == "carried over"
    assert restores is not None
    assert 50 <= restores <= 500, "each key at least once"
    assert fates["last"] == ("rebuilt", 0), "one topic was read already, and the new one has no records"
    assert made["records_per_second"] > 0
    assert all(each["seconds"] is not None for each in made["rows"] if each["restores"])
    shown = scene.upgrade("plan", scene.version("third"), *old)
    assert "topology.epoch=4 (streamsrt upgrade start sets it)" in shown.out
    assert "records/s (measured)" in shown.out
    (last,) = (
        line for line in shown.out.splitlines() if line.startswith("store last: new: it starts empty and does not")
    )
    assert last.endswith("-more from the start")
    other = scene("upgrade", "start", scene.version("second"), "--plan", "plan.json")
    assert (other.code, "is not the version that plan plan.json was made for" in other.err) == (2, True)


def test_a_streams_group_is_planned_for(streams_group: Scene) -> None:
    plan_and_start(streams_group)
    made = streams_group.upgrade(
        "plan", streams_group.version("third"), "--old", streams_group.version("first"), "--json"
    )
    assert not [each for each in made.rows[0]["notes"] if "were not compared" in each]


def test_another_version_than_that_of_a_streams_group_is_not_taken_for_it(streams_group: Scene) -> None:
    plan_from_another(streams_group)


@on_classic_brokers
def test_another_version_than_that_of_a_classic_group_is_not_taken_for_it(classic_group: Scene) -> None:
    plan_from_another(classic_group)


def plan_from_another(scene: Scene) -> None:
    scene.start("a", "second", 3)
    scene.wait_done()
    wrong = ("--old", scene.version("first"), "--out", "plan.json")
    refused = scene.upgrade("plan", scene.version("third"), *wrong)
    first, second = (load_application(scene.version(name)).topology.digest[:16] for name in ("first", "second"))
    said = f"the version given with --old, whose digest is {first}: its instances with topology epoch 3 run {second}. "
    assert (refused.code, f"{said}A plan would compare with state that is not there" in refused.err) == (2, True)
    assert not Path("plan.json").exists()
    begun = scene.upgrade("plan", scene.version("second"), *wrong)
    assert (begun.code, f"{said}They run the new version: the upgrade has begun" in begun.err) == (2, True)
    for old in ((), ("--old", scene.version("second"))):
        (made,) = scene.upgrade("plan", scene.version("third"), *old, "--json").rows
        assert (made["epoch_needed"], rows_of(made)["last"][0]) == (4, "rebuilt")
    scene.close()
    stopped = scene.upgrade("plan", scene.version("third"), *wrong)
    if scene.settings == CLASSIC:
        # Nobody tells what ran: it is taken for what it is called.
        assert stopped.code == 11
    else:
        assert (stopped.code, f": topology epoch 3 was {second}. A plan would" in stopped.err) == (2, True)
        assert scene.upgrade("plan", scene.version("second")).code == 0


def unread_source(scene: Scene, *old: object) -> None:
    scene.start("a", "second", 3)
    scene.wait_done()
    fine = scene.upgrade("plan", scene.version("first"), *old)
    assert "source topic" in fine.out
    assert "is no longer read" not in fine.out
    scene.close()
    scene("produce", f"{scene.topic}-more", "--key-separator", ":", stdin="".join(f"k{n}:v\n" for n in range(70)))
    said = (
        f"source topic {scene.topic}-more is no longer read: 70 records not read yet. The new version never reads them"
    )
    (made,) = scene.upgrade("plan", scene.version("first"), *old, "--json").rows
    assert [each for each in made["notes"] if each.startswith(said)]
    assert {(each["name"], each["change"], each["records"]) for each in made["sources"]} == {
        (f"{scene.topic}-words", "same", 500),
        (f"{scene.topic}-more", "gone", 70),
    }
    versions = (scene.version("second"), scene.version("first"))
    assert said in scene("topology", "diff", *versions, "--group", scene.app).out


def test_what_is_unread_in_a_source_that_is_dropped_is_said(streams_group: Scene) -> None:
    unread_source(streams_group)


@on_classic_brokers
def test_what_is_unread_in_a_source_that_is_dropped_is_said_of_a_classic_group(classic_group: Scene) -> None:
    unread_source(classic_group, "--old", classic_group.version("second"))


@on_classic_brokers
def test_a_classic_group_is_planned_for(classic_group: Scene) -> None:
    plan_and_start(classic_group)
    classic_group.close()
    unknown = classic_group.upgrade("plan", classic_group.version("third"))
    assert (unknown.code, "give the running version with --old, as its module" in unknown.err) == (2, True)


def test_what_would_refuse_a_version_is_found_before_it_starts(streams_group: Scene) -> None:
    scene = streams_group
    scene.start("a", "first", 0)
    scene.wait_done()
    done = scene.upgrade("plan", scene.version("missing"), "--out", "plan.json")
    assert done.code == 12
    assert f"refused: Source topics {scene.topic}-nowhere are missing. Create them" in done.out
    started = scene("upgrade", "start", scene.version("missing"), "--plan", "plan.json")
    assert (started.code, "plan plan.json refuses to start: Source topics" in started.err) == (2, True)
    scene("topics", "create", f"{scene.topic}-nowhere", "--partitions", 3)
    odd = scene.upgrade("plan", scene.version("missing"), "--json")
    assert odd.code == 12
    assert "has different number of partitions: expected 3, found 2" in " ".join(odd.rows[0]["refusals"])
    scene("topics", "delete", f"{scene.topic}-out", "--execute")
    unwritable = scene.upgrade("plan", scene.version("second"), "--json")
    assert [each.partition(":")[0] for each in unwritable.rows[0]["refusals"]] == [
        f"topics {scene.topic}-out are written to and don't exist"
    ]


def test_a_plan_is_checked_again_when_it_starts(streams_group: Scene) -> None:
    scene = streams_group
    old = scene.start("a", "first", 0)
    scene.wait_done()
    assert scene.upgrade("plan", scene.version("second"), "--out", "plan.json").code == 10
    options = ("--plan", "plan.json", "--until", "quiet", "--state-dir", "b", "--progress-interval", 0)
    scene("topics", "delete", f"{scene.topic}-more", "--execute")
    refused = scene("upgrade", "start", scene.version("second"), *options)
    assert (refused.code, f"Source topics {scene.topic}-more are missing" in refused.err) == (2, True)
    scene("topics", "create", f"{scene.topic}-more", "--partitions", 2)
    elsewhere = Path("plan.json").read_text().replace('"cluster_id": "', '"cluster_id": "other-')
    Path("elsewhere.json").write_text(elsewhere)
    wrong = scene("upgrade", "start", scene.version("second"), "--plan", "elsewhere.json")
    assert (wrong.code, "plan elsewhere.json was made for another cluster" in wrong.err) == (2, True)
    # On the cluster of the plan, which the command need not name.
    started = scene.alone("upgrade", "start", scene.version("second"), *options)
    assert (started.code, "runs with topology.epoch=1, as plan.json says" in started.err) == (0, True)
    old.close()
    again = scene("upgrade", "start", scene.version("second"), *options)
    assert again.code == 0, "the group has the planned epoch"
    scene.start("c", "first", 2).close()
    late = scene("upgrade", "start", scene.version("second"), *options)
    assert late.code == 2
    assert "from topology epoch 0 to 1, and the group has epoch 2 now: the upgrade was rolled back" in late.err


# ------------------------------------------------------------------------------------------- records that nobody reads


@pytest.fixture(params=["streams", "classic"])
def group_of_two(
    request: pytest.FixtureRequest, command: Command, bundled_broker: BundledBroker, topic: str, tmp_path: Path
) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        settings = CLASSIC if request.param == "classic" else {}
        scene = Scene(command, bundled_broker.bootstrap_servers, topic, tmp_path, **settings)
        yield scene
        scene.close()


def status_now(scene: Scene) -> dict[str, Any]:
    (row,) = scene.upgrade("status", "--once", "--json").rows
    return dict(row)


def test_what_only_a_later_version_without_tasks_would_read_is_said(group_of_two: Scene) -> None:
    scene = group_of_two
    scene.start("a", "by_word", 3)
    scene.start("b", "by_word", 3)
    scene.wait_done()
    new = scene.start("c", "by_term", 4)
    topic = f"{scene.app}-by-term-repartition"
    wait_until(lambda: topic in scene("topics", "list", "--internal").out, "the later version has its topic")
    write_in_flight(scene)
    wait_until(lambda: status_now(scene)["unread"] == {topic: 20}, "it is said")
    assert active(new) == 0, "one of three is not half of them"
    advice = status_now(scene)["advice"]
    assert advice[0] == f"in flight, and no instance reads them: {topic}: 20 records"
    if scene.settings.get("group.protocol") != "classic":
        assert advice[1].startswith(
            f"instances of topology epoch 4 run, and have no task that reads {topic}: they read"
        )
    new.close()
    wait_until(lambda: versions(scene) == [(3, 2)], "it is gone")
    if scene.settings.get("group.protocol") != "classic":
        assert status_now(scene)["unread"] == {topic: 20}
    else:
        unknown = scene.upgrade("plan", scene.version("by_word"))
        assert unknown.code == 2
        assert "give the version of topology epoch 4, which no instance runs any more, with --old" in unknown.err


def test_what_is_unread_in_a_source_that_was_dropped_is_said(group_of_two: Scene) -> None:
    scene = group_of_two
    scene("produce", f"{scene.topic}-more", "--key-separator", ":", stdin="k:v\n" * 2)
    both = scene.start("a", "second", 3)
    scene.wait_done()
    both.close()
    scene("produce", f"{scene.topic}-more", "--key-separator", ":", stdin="k:v\n" * 7)
    one = scene.start("a", "first", 4)
    wait_until(lambda: status_now(scene)["unread_sources"] == {f"{scene.topic}-more": 7}, "it is said")
    told = f"source topic {scene.topic}-more is not read by topology epoch 4: 7 records not read yet, and no instance reads"
    assert any(told in each for each in status_now(scene)["advice"])
    one.close()
    again = scene.start("a", "second", 5)
    wait_until(lambda: status_now(scene)["unread_sources"] == {}, "who has the topic reads it")
    again.close()


def test_a_version_that_fails_says_first_what_its_upgrade_needs(group_of_two: Scene) -> None:
    scene = group_of_two
    scene.start("a", "first", 3)
    scene.wait_done()
    new = scene.start("b", "failing", 4)
    wait_until(lambda: active(new) == 1, "it has its share")
    scene.write()
    wait_until(lambda: new.state is State.ERROR, "it fails")
    with pytest.raises(ProcessingError) as raised:
        new.close()
    assert str(raised.value).startswith(
        "the new version, topology epoch 4, has failed during an upgrade. 1 instance with"
    )
    assert f"; to roll back: streamsrt upgrade abort OLD --group {scene.app}. What failed: a user's" in str(
        raised.value
    )


# ------------------------------------------------------------------------------------------------------ sending back


def active(streams: KafkaStreams) -> int:
    return sum(task.role == "active" and task.phase == "running" for task in streams.progress.tasks)


def send_back(scene: Scene) -> None:
    scene.settings["processing.guarantee"] = "exactly_once_v2"
    old = scene.start("a", "first", 3)
    scene.wait_done()
    new = scene.start("b", "second", 4)
    wait_until(lambda: active(new) == 1, "the new version has its share")
    scene.write()
    only_told = scene.upgrade("abort", scene.version("first"))
    assert only_told.code == 0
    assert "nothing is changed: use --execute to do it" in only_told.err
    assert versions(scene) == [(4, 1), (3, 1)]
    done = scene.upgrade("abort", scene.version("first"), "--execute")
    assert done.code == 0, done.err
    command = f"streamsrt run {scene.version('first')} -a {scene.app} --config topology.epoch=5"
    assert command in done.out
    wait_until(lambda: new.state is State.ERROR, "the new instance is refused and ends")
    with pytest.raises(StreamsTopologyFencedError, match="Topology epoch 4 is behind the topology epoch 5"):
        new.close()
    wait_until(lambda: active(old) == 2, "the old instance has all tasks")
    scene.write()
    scene.wait_done()
    again = scene.upgrade("abort", scene.version("first"), "--execute", "--json")
    assert (again.rows[0]["topology_epoch"], again.rows[0]["removed"]) == (6, [])
    # The second rollback has begun another rebalance.
    wait_until(
        lambda: scene.upgrade("status", "--once", "--json").rows[0]["phase"] == "no new member", "the group is settled"
    )
    (told,) = scene.upgrade("status", "--once", "--json").rows
    assert told["topology_epoch"] == 6
    (planned,) = scene.upgrade("plan", scene.version("third"), "--json").rows
    assert planned["epoch_needed"] == 7, "who goes on tells what the group runs"
    assert planned["notes"][0].startswith("the group was rolled back: instances with topology epoch 3 run its topology")
    assert not [each for each in planned["notes"] if "were not compared" in each]
    back = scene.start("b", "first", 6)
    wait_until(lambda: active(old) + active(back) == 2 and active(back) == 1, "who comes back gets a share")
    scene.write()
    scene.wait_done()
    assert scene.counts() == {f"k{number}": scene.written // 50 for number in range(50)}


def test_an_upgrade_of_a_streams_group_is_sent_back(streams_group: Scene) -> None:
    send_back(streams_group)


@on_classic_brokers
def test_an_upgrade_of_a_classic_group_is_sent_back(classic_group: Scene) -> None:
    send_back(classic_group)


def send_back_what_has_not_joined(scene: Scene) -> None:
    old = scene.start("a", "first", 3)
    scene.wait_done()
    for epoch in (4, 5):
        done = scene.upgrade("abort", scene.version("first"), "--execute", "--json")
        assert (done.code, done.rows[0]["topology_epoch"], done.rows[0]["removed"]) == (0, epoch, [])
    with pytest.raises(UserError, match=r"differs from the one of group .*both have topology epoch 5"):
        scene.made("b", "second", 5).run()
    assert active(old) == 2
    back = scene.start("c", "first", 5)
    wait_until(lambda: active(back) == 1, "who comes back gets a share")


def test_a_version_that_joins_after_the_rollback_of_a_streams_group_is_refused(streams_group: Scene) -> None:
    send_back_what_has_not_joined(streams_group)


@on_classic_brokers
def test_a_version_that_joins_after_the_rollback_of_a_classic_group_is_refused(classic_group: Scene) -> None:
    send_back_what_has_not_joined(classic_group)


def test_a_version_with_other_steps_only_is_told_from_the_former_one(streams_group: Scene) -> None:
    scene = streams_group
    scene.start("a", "first", 3)
    scene.wait_done()
    new = scene.start("b", "failing", 4)
    wait_until(lambda: active(new) == 1, "the new version has its share")
    new.close()
    wait_until(lambda: status_now(scene)["phase"] == "no new member", "the group is settled")
    (advice,) = status_now(scene)["advice"]
    assert advice.startswith(
        "no instance runs topology epoch 4, and instances with epoch 3 run everything: roll back with streamsrt upgrade "
        f"abort OLD --group {scene.app}"
    )
    done = scene.upgrade("abort", scene.version("first"), "--execute", "--json")
    assert (done.code, done.rows[0]["topology_epoch"]) == (0, 5)
    (advice,) = status_now(scene)["advice"]
    assert advice.startswith("the group was rolled back, and no instance runs topology epoch 5 yet")
    with pytest.raises(UserError, match=r"both have topology epoch 5: topics and stores are equal, and the steps"):
        scene.made("c", "failing", 5).run()
    back = scene.start("d", "first", 5)
    wait_until(lambda: active(back) == 1, "who comes back gets a share")


def test_nobody_is_removed_where_nobody_would_take_the_tasks(streams_group: Scene) -> None:
    scene = streams_group
    scene.start("b", "second", 4)
    done = scene.upgrade("abort", scene.version("first"), "--execute")
    assert done.code == 2
    assert (
        f"start one first (streamsrt run {scene.version('first')} -a {scene.app} --config topology.epoch=5)" in done.err
    )
    assert versions(scene) == [(4, 1)]
    scene.start("a", "first", 5)
    wrong_way = scene.upgrade("abort", scene.version("first"), "--execute", "--json")
    assert (wrong_way.code, wrong_way.rows[0]["removed"]) == (0, []), (
        "who is behind goes on: it is an upgrade like any other"
    )
    assert versions(scene) == [(5, 1), (4, 1)]


def write_in_flight(scene: Scene) -> str:
    """Into the topic that only the later version has; its name."""
    topic = f"{scene.app}-by-term-repartition"
    scene("produce", topic, "--key-separator", ":", stdin="".join(f"k{number}:v\n" for number in range(20)))
    return topic


def assert_all_counted(scene: Scene, in_flight: int) -> None:
    expected = {f"k{number}": scene.written // 50 + (number < in_flight) for number in range(50)}
    wait_until(lambda: scene.counts() == expected, "all are counted")


def later_version_is_slow(scene: Scene) -> tuple[KafkaStreams, KafkaStreams, threading.Event]:
    """Both versions run; what the later one is to read waits for the event."""
    old = scene.start("a", "by_word", 3)
    scene.wait_done()
    new = scene.start("b", "by_term", 4)
    wait_until(lambda: active(new) == 4, "the new version has all tasks")
    gate: threading.Event = sys.modules[scene.module].gate
    return old, new, gate


def keep_what_is_in_flight(scene: Scene) -> None:
    old, new, gate = later_version_is_slow(scene)
    gate.clear()
    try:
        topic = write_in_flight(scene)
        told = scene.upgrade("abort", scene.version("by_word"), "--json")
        assert (told.code, told.rows[0]["in_flight"], told.rows[0]["executed"]) == (12, {topic: 20}, False)
        advice = status_now(scene)["advice"][-1]
        assert advice.startswith(
            f"only the new version reads what is in flight ({topic}: 20 records), so it has to run"
        )
        done = scene.upgrade("abort", scene.version("by_word"), "--execute")
        assert done.code == 12
        assert (
            f"repartition topic {topic}, which {scene.version('by_word')} does not have, holds 20 records" in done.out
        )
        assert "refused: only the later version reads these records" in done.out
        command = f"streamsrt run {scene.version('by_word')} -a {scene.app} --config topology.epoch=5"
        assert f"with the next epoch ({command})" in done.out
        wait_until(lambda: versions(scene) == [(4, 1), (3, 1)], "nobody was removed")
        # As it says. One of three is not half of them.
        back = scene.start("c", "by_word", 5)
        late = scene.upgrade("abort", scene.version("by_word"), "--execute", "--json")
        assert (late.code, late.rows[0]["in_flight"], late.rows[0]["topology_epoch"]) == (12, {topic: 20}, 6)
        old.close()
    finally:
        gate.set()
    wait_until(lambda: active(back) == 4 and active(new) == 0, "the former version has all tasks")
    assert_all_counted(scene, 20)
    again = scene.upgrade("abort", scene.version("by_word"), "--json")
    assert (again.code, again.rows[0]["in_flight"]) == (0, {})
    new.close()
    scene.write()
    assert_all_counted(scene, 20)


def test_an_upgrade_of_a_streams_group_is_not_sent_back_over_records_in_flight(streams_group: Scene) -> None:
    keep_what_is_in_flight(streams_group)


@on_classic_brokers
def test_an_upgrade_of_a_classic_group_is_not_sent_back_over_records_in_flight(classic_group: Scene) -> None:
    keep_what_is_in_flight(classic_group)


@on_classic_brokers
def test_what_a_classic_group_without_instances_would_be_refused_for_is_found_first(classic_group: Scene) -> None:
    scene = classic_group
    scene.start("a", "by_term", 4)
    scene.wait_done()
    scene.close()
    topic = write_in_flight(scene)
    (told,) = scene.upgrade("status", "--once", "--json").rows
    assert told["advice"][0] == f"no instance runs, and records are in flight: {topic}: 20 records"
    for options in ((), ("--execute",)):
        done = scene.upgrade("abort", scene.version("by_word"), *options)
        assert done.code == 12
        assert f"{topic}, which {scene.version('by_word')} does not have, holds 20 records" in done.out
        assert "start the version that has these topics" in done.out


@on_classic_brokers
def test_a_classic_group_without_instances_has_nothing_to_roll_back(classic_group: Scene) -> None:
    scene = classic_group
    scene.start("a", "by_word", 3)
    scene.wait_done()
    scene.close()
    for options in ((), ("--execute",)):
        done = scene.upgrade("abort", scene.version("by_word"), *options)
        assert done.code == 2
        assert "is a classic group without members, so it has no topology that could be rolled back" in done.err
        assert "is now that of" not in done.out


def test_values_that_only_the_later_version_reads_leave_no_way_back(streams_group: Scene) -> None:
    scene = streams_group
    old = scene.start("a", "plain", 3)
    scene.wait_done()
    plan = scene.upgrade("plan", scene.version("tagged"), "--old", scene.version("plain"))
    assert plan.code == 10
    assert "note: store rows: the old version can't read what the new one writes" in plan.out
    new = scene.start("b", "tagged", 4)
    wait_until(lambda: active(new) == 1, "the new version has its share")
    assert scene.upgrade("abort", scene.version("plain")).code == 0, "it has written nothing"
    # Beside it, the former version would fail at the first value that it writes.
    with pytest.raises(
        TopologyMismatchError, match="the values of store 'rows' have version 2, and it reads them up to 1"
    ):
        scene.start("c", "plain", 5)
    assert versions(scene) == [(4, 1), (3, 1)]
    scene.write()
    scene.wait_done()
    done = scene.upgrade("abort", scene.version("plain"), "--execute")
    assert done.code == 12
    assert f"store rows: its changelog {scene.app}-rows-changelog has values of version 2" in done.out
    assert "nothing is changed" in done.err
    assert versions(scene) == [(4, 1), (3, 1)]
    (no_way,) = [each for each in status_now(scene)["advice"] if "way back" in each or "roll back" in each]
    assert no_way.startswith(f"there is no way back: {scene.app}-rows-changelog has values of version 2, and instances")
    assert scene.upgrade("abort", scene.version("tagged")).code == 0, "it reads them"
    old.close()
    wait_until(lambda: versions(scene) == [(4, 1)], "the old one has left")
    done = scene.upgrade("abort", scene.version("plain"))
    assert (done.code, "has values of version 2" in done.out) == (12, True), "it must not be told to start the old one"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_who_has_written_no_later_value_goes_back_with_its_state(
    group_of_two: Scene, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = group_of_two
    scene.settings["processing.guarantee"] = guarantee
    scene.start("a", "plain", 3)
    two = scene.start("b", "plain", 3)
    scene.wait_done()
    two.close()
    later = scene.start("b", "tagged", 4)
    wait_until(lambda: active(later) == 1, "it has a task")
    later.close()
    # A classic group takes no former version beside it.
    wait_until(lambda: scene.upgrade("abort", scene.version("plain")).code == 0, "it has left")
    done = scene.upgrade("abort", scene.version("plain"), "--execute")
    caplog.clear()
    back = scene.start("b", "plain", int(done.out.partition("topology.epoch=")[2].split()[0]))
    scene.write()
    scene.wait_done()
    wait_until(lambda: back.state is State.RUNNING, "it runs")
    assert not [each for each in caplog.messages if "the files are deleted" in each]


def test_who_goes_back_alone_is_refused_before_its_first_record(group_of_two: Scene) -> None:
    scene = group_of_two
    later = scene.start("a", "tagged", 3)
    scene.wait_done()
    later.close()
    # An empty classic group has forgotten its epoch.
    for epoch in (4, 0) if "group.protocol" in scene.settings else (4,):
        with pytest.raises(TopologyMismatchError, match="can't read what a later one has written") as raised:
            scene.start("fresh", "plain", epoch)
        assert f"store 'rows' in {scene.app}-rows-changelog have version 2, and it reads them up to 1" in str(
            raised.value
        )
    scene.start("fresh", "tagged", 3)


def test_who_goes_back_is_not_told_to_run_beside_values_that_he_cannot_read(streams_group: Scene) -> None:
    scene = streams_group
    new = scene.start("b", "tagged", 4)
    done = scene.upgrade("abort", scene.version("plain"))
    assert new.state is State.RUNNING
    assert done.code in {2, 12}, "12: it has written values already"
    assert "It takes over tasks when it is warmed up" not in done.err


def test_what_the_user_says_may_be_lost_does_not_keep_an_upgrade_from_being_sent_back(streams_group: Scene) -> None:
    scene = streams_group
    old, new, gate = later_version_is_slow(scene)
    gate.clear()
    try:
        topic = write_in_flight(scene)
        options = (scene.version("by_word"), "--lose-in-flight")
        told = scene.upgrade("abort", *options)
        assert told.code == 0
        assert f"{topic}, which {scene.version('by_word')} does not have, holds 20 records" in told.out
        done = scene.upgrade("abort", *options, "--execute", "--json")
        assert (done.code, done.rows[0]["in_flight"], done.rows[0]["executed"]) == (0, {topic: 20}, True)
    finally:
        gate.set()
    wait_until(lambda: new.state is State.ERROR, "the new instance is refused and ends")
    with pytest.raises(StreamsTopologyFencedError):
        new.close()
    wait_until(lambda: active(old) == 4, "the old instance has all tasks")
    old.close()
    held = scene.start("a", "by_word", 5)
    wait_until(lambda: active(held) == 2, "tasks wait that share state with the readers")
    why = scene.upgrade("status", "--once", "--json").rows[0]["last_assignment"]
    assert f"Records are in flight that no member can read: {topic}: 20 records of topology epoch 4" in why
    held.close()
    scene.settings["upgrade.lose.in.flight"] = True
    back = scene.start("a", "by_word", 5)
    wait_until(lambda: active(back) == 4, "nothing waits for what may be lost")


def test_an_upgrade_whose_instances_are_gone_leaves_nothing_unread_unasked(streams_group: Scene) -> None:
    scene = streams_group
    old, new, _ = later_version_is_slow(scene)
    new.close()
    wait_until(lambda: active(old) == 4, "the old instance has all tasks")
    topic = write_in_flight(scene)
    done = scene.upgrade("abort", scene.version("by_word"), "--execute")
    assert done.code == 12
    assert "start the later version again, with topology epoch 4" in done.out
    (told,) = scene.upgrade("status", "--once", "--json").rows
    assert told["topology_epoch"] == 4
    lost = scene.upgrade("abort", scene.version("by_word"), "--execute", "--lose-in-flight", "--json")
    assert (lost.code, lost.rows[0]["in_flight"], lost.rows[0]["topology_epoch"]) == (0, {topic: 20}, 5)


def test_a_lock_file_takes_the_epoch_of_a_version_that_was_gone_back_to(streams_group: Scene) -> None:
    first = streams_group.version("first")
    streams_group.alone("topology", "lock", first)
    again = streams_group.alone("topology", "lock", first, "--config", "topology.epoch=5")
    assert (again.code, "locked with topology epoch 5" in again.err) == (0, True)
