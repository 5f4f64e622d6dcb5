"""A rolling upgrade of a classic group under load, exactly once: in every order of three members, with any of them killed,
and back again. The leader is one of the three, so that it is killed too."""

from __future__ import annotations

import json
from itertools import permutations, product
from pathlib import Path

import pytest

from tests.system import expected
from tests.system.cluster import Cluster
from tests.system.drill import NAMES, PARTITIONS, V1, V2, Drill
from tests.system.processes import CLASSIC_SETTINGS, run_command, wait_until
from tests.system.test_results import final_delays
from tests.system.test_upgrade import roll

CLASSIC = {**CLASSIC_SETTINGS, "processing.guarantee": "exactly_once_v2"}

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("kills", list(product([False, True], repeat=3)))
@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="".join)
def test_in_every_order_with_any_of_them_killed(
    any_cluster: Cluster, tmp_path: Path, application_id: str, order: tuple[str, ...], kills: tuple[bool, ...]
) -> None:
    with Drill(any_cluster, tmp_path, application_id, CLASSIC) as drill:
        drill.start_all()
        for name, killed in zip(order, kills, strict=True):
            roll(drill, name, killed=killed)
        drill.finish()
        drill.assert_exact()


@pytest.mark.parametrize("killed", [False, True])
def test_the_way_back_is_a_further_epoch(
    any_cluster: Cluster, tmp_path: Path, application_id: str, killed: bool
) -> None:
    with Drill(any_cluster, tmp_path, application_id, CLASSIC) as drill:
        drill.start("A").wait_running(tasks=PARTITIONS)
        drill.write_a_part()
        newer = drill.start("B", V2)
        newer.wait_running()
        assert drill.members["A"].terminate() == 0
        drill.write_a_part()
        back = drill.start("A", V1)
        assert back.wait_end() == 2
        assert "behind the topology epoch 1" in back.last_words
        back = drill.start("A", V1, topology_epoch=2)
        back.wait_running()
        drill.wait_all_committed()
        if killed:
            newer.kill()
        else:
            assert newer.terminate() == 0
        drill.write_a_part()
        back.wait_running(tasks=PARTITIONS)
        for _ in range(2):
            drill.write_a_part()
        drill.wait_all_committed()
        assert back.terminate() == 0
        assert final_delays(any_cluster.read("delays")) == expected.delays_by_hour(drill.departures)


def test_the_command_sends_two_of_three_back(any_cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    place = ("--group", application_id, "-b", any_cluster.address)
    with Drill(any_cluster, tmp_path, application_id, CLASSIC) as drill:
        drill.start_all()
        *newer, staying = NAMES
        for name in newer:
            roll(drill, name)
        done = run_command("upgrade", "abort", V1, *place, "--execute", "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["topology_epoch"], len(told["removed"]), len(told["staying"])) == (2, 2, 1)
        assert [drill.members[name].wait_end() for name in newer] == [2, 2]
        drill.write_a_part()
        drill.members[staying].wait_running(tasks=PARTITIONS)
        for name in NAMES:
            if name == staying:
                assert drill.members[name].terminate() == 0
            drill.start(name, V1, topology_epoch=2).wait_running()
        drill.write_a_part()
        drill.wait_all_committed()
        wait_until(lambda: run_command("upgrade", "status", *place, "--once").returncode == 0, "the group is settled")
        for name in NAMES:
            assert drill.members[name].terminate() == 0
        assert final_delays(any_cluster.read("delays")) == expected.delays_by_hour(drill.departures)
