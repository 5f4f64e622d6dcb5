"""Rolling upgrades by topology epoch, with real processes: every record counts once, whatever the order of the members."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from examples import flights
from tests.kafka_server import KafkaServer
from tests.system import expected
from tests.system.cluster import Cluster, Row, connected
from tests.system.drill import NAMES, PARTITIONS, V1, V2, Drill, partitions_of
from tests.system.processes import ROOT, AppProcess, environment, run_command, wait_until
from tests.system.test_results import final_delays

pytestmark = pytest.mark.timeout(1200)

(_part,) = flights.topology.subtopologies
DELAYS_ID = _part.id


def roll(drill: Drill, name: str, *, killed: bool = False) -> None:
    """Replaces a member while input keeps coming."""
    if killed:
        drill.members[name].kill()
    else:
        assert drill.members[name].terminate() == 0
    drill.write_a_part()
    drill.start(name, V2).wait_running()


# ----------------------------------------------------------------------------------------------------------- the roll


@pytest.mark.requirement("SG-118", "SG-119")
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=() if list(order) in ([*NAMES], [*reversed(NAMES)]) else pytest.mark.full)
        for order in permutations(NAMES)
    ],
    ids="".join,
)
def test_in_every_order_of_the_members(
    bundled: Cluster, tmp_path: Path, application_id: str, order: tuple[str, ...]
) -> None:
    with Drill(bundled, tmp_path, application_id, {}) as drill:
        drill.be_patient()
        drill.start_all()
        for name in order:
            roll(drill, name)
        # While a classic group rebalances, the epochs of its members are not described.
        wait_until(lambda: drill.epochs() == [1, 1, 1], "all members run the new version")
        drill.finish()
        drill.assert_exact()


FIRST_KILLS = [("CAB", (True, True, True)), ("ABC", (False, True, False))]
OTHER_KILLS = [
    ("".join(order), kills)
    for order, kills in product(permutations(NAMES), product([False, True], repeat=3))
    if any(kills) and ("".join(order), kills) not in FIRST_KILLS
]


@pytest.mark.slow
@pytest.mark.parametrize(("order", "kills"), FIRST_KILLS)
def test_killed_members_come_back_as_the_next_version(
    bundled: Cluster, tmp_path: Path, application_id: str, order: str, kills: tuple[bool, ...]
) -> None:
    killing_roll(bundled, tmp_path, application_id, order, kills, "exactly_once_v2")


@pytest.mark.slow
def test_a_killed_member_comes_back_at_least_once(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    killing_roll(bundled, tmp_path, application_id, "ABC", (False, True, False), "at_least_once")


@pytest.mark.full
@pytest.mark.parametrize(("order", "kills"), OTHER_KILLS)
def test_killed_members_in_every_order(
    bundled: Cluster, tmp_path: Path, application_id: str, order: str, kills: tuple[bool, ...]
) -> None:
    killing_roll(bundled, tmp_path, application_id, order, kills, "exactly_once_v2")


def killing_roll(
    cluster: Cluster, folder: Path, application_id: str, order: str, kills: tuple[bool, ...], guarantee: str
) -> None:
    with Drill(cluster, folder, application_id, {"processing.guarantee": guarantee}) as drill:
        if guarantee == "at_least_once":
            # A member that is taken for dead because it is slow would have counted something that others count again.
            drill.be_patient(12_000)
        drill.start_all()
        for name, killed in zip(order, kills, strict=True):
            if guarantee == "at_least_once" and killed:
                # What is committed is not counted again: the kill must find nothing else.
                drill.wait_all_committed()
            roll(drill, name, killed=killed)
        drill.finish()
        drill.assert_exact()


@pytest.mark.slow
def test_old_members_that_miss_their_sessions_after_a_failed_version_return(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    """The new version raises the epoch of the group and dies. Then the machine of the old members stands still."""
    with Drill(bundled, tmp_path, application_id, {"processing.guarantee": "exactly_once_v2"}) as drill:
        drill.be_patient(12_000)
        drill.start_all()
        drill.start("D", V2).wait_running()
        drill.members.pop("D").kill()
        drill.write_a_part()
        for name in NAMES:
            drill.members[name].send(signal.SIGSTOP)
        wait_until(lambda: not bundled.members(application_id), "all sessions have ended")
        drill.write_a_part()
        for name in NAMES:
            drill.members[name].send(signal.SIGCONT)
        drill.wait_all_committed()
        assert not [name for name in NAMES if drill.members[name].has_ended]
        for name in NAMES:
            assert drill.members[name].terminate() == 0
            drill.start(name, V2).wait_running()
        drill.finish()
        drill.assert_exact()


# ------------------------------------------------------------------------------------------------------ carried over


def test_state_that_carries_over_is_not_restored(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    with Drill(bundled, tmp_path, application_id, {}, static=True) as drill:
        drill.start_all()
        first, *others = NAMES
        before = partitions_of(drill.members[first].tasks("active"), DELAYS_ID)
        logged = drill.changelog_ends("delays-per-hour")
        roll(drill, first)
        progress = drill.members[first].wait_for(lambda line: len(line["tasks"]) > len(before), "it has new tasks too")
        after = partitions_of(set(progress["tasks"]), DELAYS_ID)
        # The others have the older topology, so that they could not take over what this member left.
        assert after == before
        assert sum(logged[partition] for partition in before) > 0
        assert progress["restored_records"] == 0
        for name in others:
            drill.wait_settled()
            kept = drill.members[name].tasks("active")
            roll(drill, name)
            # Tasks come and go while the group settles: all that it ever had up to one line count, and that line's records.
            lines = drill.members[name].history
            gained = {task for line in lines for task in line["tasks"]} - kept
            bound = sum(drill.logged(task) for task in gained)
            assert lines[-1]["restored_records"] <= bound
        drill.finish()
        drill.assert_exact()


@pytest.mark.slow
def test_numbered_subtopologies_hand_over_what_they_share(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    # Task 0_p of version 1 and task 1_p of version 2 own the same changelog, and 0_p of version 2 is another task.
    with Drill(bundled, tmp_path, application_id, {"subtopology.id": "number"}, static=True) as drill:
        drill.start_all()
        assert {task[:2] for member in drill.members.values() for task in member.tasks("active")} == {"0_"}
        before = partitions_of(drill.members["A"].tasks("active"), "0")
        logged = drill.changelog_ends("delays-per-hour"), drill.changelog_ends("airlines")
        roll(drill, "A")
        # One of three members runs version 2: half of the partitions, of the two subtopologies, are its share.
        progress = drill.members["A"].wait_for(
            lambda line: (
                list(line["tasks"].values()).count("active running") == PARTITIONS and line["state"] == "RUNNING"
            ),
            "it has its share of version 2",
        )
        assert {member.topology_epoch for member in drill.described().members} == {0, 1}
        # Its own partitions lie in its stores, under the old and the new number; only those of the others are restored.
        of_others = sum(ends[partition] for ends in logged for partition in set(range(PARTITIONS)) - before)
        added = sum(drill.changelog_ends("delays-per-hour").values()) - sum(logged[0].values())
        assert progress["restored_records"] <= of_others + added
        for name in ("B", "C"):
            roll(drill, name)
        drill.finish()
        drill.assert_exact()


@pytest.mark.requirement("SG-022", "SG-064", "SG-106", "SG-123", "SG-284")
def test_the_way_back_is_a_further_epoch(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    with Drill(bundled, tmp_path, application_id, {}) as drill:
        # An old member is taken again while nobody runs the new version: the new one must not be missed.
        drill.be_patient()
        drill.start("A").wait_running(tasks=PARTITIONS)
        drill.write_a_part()
        drill.start("B", V2).wait_running()
        assert drill.members["A"].terminate() == 0
        drill.write_a_part()
        back = drill.start("A", V1)
        assert back.wait_end() == 2
        assert "STREAMS_TOPOLOGY_FENCED" in back.last_words
        back = drill.start("A", V1, topology_epoch=2)
        back.wait_running()
        assert drill.described().topology.epoch == 2
        stale = drill.members["B"].wait_for(lambda line: bool(line["statuses"]), "B is told that it is behind")
        assert "STALE_TOPOLOGY" in stale["statuses"][0]
        drill.wait_all_committed()
        assert drill.members["B"].terminate() == 0
        drill.write_a_part()
        back.wait_running(tasks=PARTITIONS)
        for _ in range(2):
            drill.write_a_part()
        drill.wait_all_committed()
        assert back.terminate() == 0
        assert final_delays(bundled.read("delays")) == expected.delays_by_hour(drill.departures)


# ------------------------------------------------------------------------------------------------------------ refused


@pytest.mark.requirement("SG-053", "SG-105", "SG-124")
def test_another_topology_under_the_same_epoch_is_refused_before_a_record_is_processed(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    with Drill(bundled, tmp_path, application_id, {}) as drill:
        drill.write_a_part()
        drill.start("A").wait_running(tasks=PARTITIONS)
        drill.wait_all_committed()
        epoch = drill.described().group_epoch

        def refused(name: str, word: str, topology_epoch: int) -> None:
            member = drill.start(name, V2, topology_epoch=topology_epoch)
            assert member.wait_end() == 2
            said = member.last_words
            assert word in said, said
            assert "streamsrt topology diff" in said
            assert "topology.epoch" in said
            assert all(line["processed_records"] == 0 for line in member.history)

        # A member tells it by the other members, the coordinator by topics and stores.
        refused("B", "runs another topology under the same topology epoch 0", 0)
        refused("B", "STREAMS_INVALID_TOPOLOGY_EPOCH", 2)
        assert drill.described().group_epoch == epoch
        assert drill.members["A"].terminate() == 0
        refused("B", "Set topology.epoch to 1", 0)
        refused("A", f"streamsrt topology diff {tmp_path}", 0)
        assert not bundled.ends("weather-days").keys() - {("weather-days", index) for index in range(PARTITIONS)}
        assert sum(bundled.ends("weather-days").values()) == 0


BAD_VERSION = """
from examples import flights
from topology import StreamsBuilder, serdes
builder = StreamsBuilder()
builder.stream("no-such-topic", key=serdes.string, value=serdes.string).to("delays")
flights.add_delays_per_hour(builder)
topology = builder.build(epoch=1)
"""


@pytest.mark.requirement("SG-104", "SG-119")
@pytest.mark.slow
def test_a_version_that_cannot_run_is_refused_and_the_old_members_go_on(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    with Drill(bundled, tmp_path, application_id, {}) as drill:
        for name in ("A", "B"):
            drill.start(name)
        drill.write_a_part()
        for name in ("A", "B"):
            drill.members[name].wait_running()
        drill.wait_all_committed()
        before = drill.described()

        def refused(new: AppProcess, *words: str) -> None:
            drill.write_a_part()
            assert new.wait_end() == 2
            said = new.last_words
            for word in (
                "STREAMS_INVALID_TOPOLOGY",
                "can't replace topology epoch 0",
                "start this version again",
                *words,
            ):
                assert word in said, said
            assert all(line["processed_records"] == 0 for line in new.history)
            drill.wait_all_committed()
            after = drill.described()
            assert (after.group_epoch, after.topology) == (before.group_epoch, before.topology)
            assert not [name for name in ("A", "B") if drill.members[name].has_ended]

        (tmp_path / "bad_version.py").write_text(BAD_VERSION, encoding="utf-8")
        bad = AppProcess(tmp_path / "C", "bad_version", application_id, bundled.address, cwd=tmp_path)
        with bad:
            refused(bad, "Source topics no-such-topic are missing")
        changelog = f"{application_id}-weather-per-day-changelog"
        bundled.make_topics(PARTITIONS + 1, changelog)
        refused(drill.start("C", V2), changelog, f"expected {PARTITIONS}, found {PARTITIONS + 1}")

        # With its topics as it needs them the new version rolls in.
        bundled.delete_topics(changelog)
        for name in ("A", "B"):
            roll(drill, name)
        drill.start("C", V2).wait_running()
        assert drill.described().topology.epoch == 1
        drill.finish()
        drill.assert_exact()


@pytest.mark.kafka
def test_apache_kafka_updates_no_topology_and_the_message_says_what_works(
    apache_kafka: KafkaServer, tmp_path: Path, application_id: str
) -> None:
    with connected(apache_kafka) as cluster, Drill(cluster, tmp_path, application_id, {}) as drill:
        drill.start_all()
        assert drill.members["A"].terminate() == 0
        drill.write_a_part()
        new = drill.start("A", V2)
        assert new.wait_end() == 2
        said = new.last_words
        assert "Topology updates are not supported yet." in said
        for step in ("streamsrt topology diff", "stop all members", "forget-topology", "application.id"):
            assert step in said
        assert new.stderr.count("Topology updates are not supported yet.") <= 2

        # And it works as the message says.
        for name in ("B", "C"):
            assert drill.members[name].terminate() == 0
        wait_until(lambda: not cluster.members(application_id), "all members are gone")
        before = cluster.committed(application_id)
        assert before
        done = run_command(
            *("groups", "forget-topology", application_id, "-b", cluster.address, "--execute"),
            *("--backup", tmp_path / "offsets.json"),
        )
        assert done.returncode == 0, done.stderr
        assert cluster.committed(application_id) == before
        for name in NAMES:
            drill.start(name, V2)
        for name in NAMES:
            drill.members[name].wait_running()
        drill.finish()
        drill.assert_exact()


def test_a_group_forgets_its_topology_when_it_has_no_members(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    command = (
        "groups",
        "forget-topology",
        application_id,
        "-b",
        bundled.address,
        "--backup",
        tmp_path / "offsets.json",
    )
    with Drill(bundled, tmp_path, application_id, {}) as drill:
        drill.write_a_part()
        drill.start("A").wait_running(tasks=PARTITIONS)
        drill.wait_all_committed()
        before = bundled.committed(application_id)
        done = run_command(*command, "--execute")
        assert done.returncode == 2
        assert "stop all members first" in done.stderr
        assert drill.members["A"].terminate() == 0
        assert run_command(*command).returncode == 0
        assert drill.described().topology is not None
        done = run_command(*command, "--execute")
        assert done.returncode == 0, done.stderr
        assert bundled.committed(application_id) == before
        # Whatever comes next is the group's first topology, at the epoch that it has.
        drill.start("B", V2, topology_epoch=7).wait_running(tasks=2 * PARTITIONS)
        assert drill.described().topology.epoch == 7
        drill.finish()
        drill.assert_exact()


# ----------------------------------------------------------------------------------------------------------- the demo


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["bundled", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.full])])
def test_the_demo_of_the_upgrade(tmp_path: Path, broker: str) -> None:
    command = [
        sys.executable,
        "-m",
        "examples.demo_upgrade",
        "--kill",
        "--rate",
        "600",
        "--broker",
        broker,
        "--directory",
        str(tmp_path / "demo"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused: Source topics charters are missing" in done.stdout
    assert "can't replace topology epoch 0 of group flights, which continues unchanged" in done.stdout
    assert (
        "the topology of group flights is now that of examples.flights:topology, with topology epoch 2" in done.stdout
    )
    assert "records while the old members processed, then took over" in done.stdout
    assert "topology.epoch=3 (streamsrt upgrade start sets it)" in done.stdout
    assert "NO" not in done.stdout.split("Compared with plain Python")[1]


# --------------------------------------------------------------------------------------------- the example of KIP-1071

KIP_TASKS = 9
KIP_V1 = """
from topology import StreamsBuilder, serdes
builder = StreamsBuilder()
builder.stream("in", key=serdes.string, value=serdes.string).to("out")
topology = builder.build()
"""
KIP_V2 = """
from topology import StreamsBuilder, serdes
builder = StreamsBuilder()
builder.stream("in", key=serdes.string, value=serdes.string).map_values(str.upper).to("out")
topology = builder.build(epoch=1)
"""


class KipExample:
    """Clients A, B and C of the example in "Topology updates", each with its tasks and topology epoch."""

    def __init__(self, cluster: Cluster, folder: Path, application_id: str) -> None:
        self.cluster, self.folder, self.application_id = cluster, folder, application_id
        self.clients: dict[str, AppProcess] = {}
        (folder / "kip_v1.py").write_text(KIP_V1, encoding="utf-8")
        (folder / "kip_v2.py").write_text(KIP_V2, encoding="utf-8")
        cluster.make_topics(KIP_TASKS, "in", "out")

    def start(self, name: str, version: str) -> None:
        settings = {"client.id": name, "commit.interval.ms": 100}
        address = self.cluster.address
        app = AppProcess(self.folder / name, version, self.application_id, address, settings, cwd=self.folder)
        self.clients[name] = app.start()

    def stop(self, name: str) -> None:
        client = self.clients.pop(name)
        assert client.terminate() == 0
        client.kill()

    def members(self) -> dict[str, Any]:
        (group,) = self.cluster.network.admin.describe_streams_groups([self.application_id])
        return {member.client_id: member for member in group.members}

    def tasks(self) -> dict[str, set[int]]:
        return {
            name: {partition for task in member.assignment.active_tasks for partition in task.partitions}
            for name, member in self.members().items()
        }

    def settled(self, **counts: tuple[int, ...]) -> dict[str, set[int]]:
        """The tasks of each client when each has one of these numbers of tasks, and every task is with somebody."""

        def holds() -> bool:
            tasks = self.tasks()
            spread = tasks.keys() == counts.keys() and all(len(tasks[name]) in counts[name] for name in counts)
            return spread and sorted(set().union(*tasks.values())) == list(range(KIP_TASKS))

        wait_until(holds, f"tasks are spread as {counts}; now {self.tasks()}")
        return self.tasks()

    def __enter__(self) -> KipExample:
        return self

    def __exit__(self, *exception: object) -> None:
        for client in self.clients.values():
            client.kill()


@pytest.mark.requirement("SG-126", "SG-127", "SG-128")
def test_the_example_of_the_kip_with_clients_a_b_and_c(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    three, four_or_five = (3,), (4, 5)
    with KipExample(bundled, tmp_path, application_id) as example:
        for name in NAMES:
            example.start(name, "kip_v1")
        first = example.settled(A=three, B=three, C=three)

        example.stop("C")
        without_c = example.settled(A=four_or_five, B=four_or_five)
        assert all(first[name] <= without_c[name] for name in "AB")

        example.start("C", "kip_v2")
        with_new_c = example.settled(A=three, B=three, C=three)
        assert all(with_new_c[name] <= without_c[name] for name in "AB")
        assert {name: member.topology_epoch for name, member in example.members().items()} == {"A": 0, "B": 0, "C": 1}

        example.stop("B")
        without_b = example.settled(A=three, C=(6,))
        assert without_b["A"] == with_new_c["A"]

        example.start("B", "kip_v2")
        with_new_b = example.settled(A=three, B=three, C=three)
        assert with_new_b["A"] == with_new_c["A"]
        assert with_new_b["C"] <= without_b["C"]

        example.stop("A")
        without_a = example.settled(B=four_or_five, C=four_or_five)
        assert all(with_new_b[name] <= without_a[name] for name in "BC")

        example.start("A", "kip_v2")
        example.settled(A=three, B=three, C=three)
        bundled.write("in", [Row(str(index).encode(), b"x") for index in range(50)], KIP_TASKS)
        bundled.wait_all_committed(application_id, "in")
        assert sorted(record.value or b"" for record in bundled.read("out")) == [b"X"] * 50

        example.start("D", "kip_v1")
        assert example.clients["D"].wait_end() == 2
        assert "STREAMS_TOPOLOGY_FENCED" in example.clients["D"].last_words
