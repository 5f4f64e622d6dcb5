"""Every transcript in tests/golden/groups comes out as it is written. ``UPDATE_TRANSCRIPTS=1`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator.group.transcript import run

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "groups"


def check(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    expected = path.read_text(encoding="utf-8")
    found = run(expected)
    if os.environ.get("UPDATE_TRANSCRIPTS") and not name.startswith("java_"):
        path.write_text(found, encoding="utf-8")
        return
    assert found == expected


def test_every_transcript_is_run_by_a_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in FOLDER.glob("*.txt") if f'"{path.stem}"' not in source] == []


@pytest.mark.requirement(
    "SG-001",
    "SG-002",
    "SG-051",
    "SG-052",
    "SG-058",
    "SG-068",
    "SG-084",
    "SG-092",
    "SG-093",
    "SG-094",
    "SG-165",
    "SG-166",
    "SG-177",
    "SG-178",
    "SG-218",
    "SG-233",
    "SG-308",
)
@pytest.mark.parametrize(
    "name",
    [
        "java_one_instance",
        "java_two_instances",
        "java_killed_instance",
        "java_standby",
        "java_missing_source",
        "java_other_topology",
        "java_copartition_mismatch",
        "java_wrong_changelog",
        "java_static_member",
        "java_shutdown",
        "java_two_threads",
        "java_source_appears",
    ],
)
def test_as_recorded_with_apache_kafka(name: str) -> None:
    check(name)


@pytest.mark.requirement("SG-219", "SG-221", "SG-222", "SG-223", "SG-233", "SG-234", "SG-235", "SG-081")
def test_an_active_task_moves_when_it_was_given_back() -> None:
    check("move_active_task")


@pytest.mark.requirement("SG-063", "SG-083", "SG-251", "SG-062", "SG-081")
def test_a_repeated_heartbeat_after_a_lost_answer() -> None:
    check("lost_answers")


@pytest.mark.requirement("SG-115", "SG-245", "SG-246", "SG-247", "SG-250")
def test_the_coordinator_goes_on_after_a_restart() -> None:
    check("failover")


@pytest.mark.requirement("SG-167", "SG-240", "SG-242")
def test_a_member_that_gives_nothing_back_is_removed() -> None:
    check("rebalance_timeout")


@pytest.mark.requirement(
    "SG-117",
    "SG-141",
    "SG-144",
    "SG-146",
    "SG-147",
    "SG-148",
    "SG-151",
    "SG-152",
    "SG-153",
    "SG-154",
    "SG-156",
    "SG-168",
    "SG-050",
)
def test_the_first_start_with_everything_missing() -> None:
    check("first_start")


@pytest.mark.requirement("SG-069", "SG-070", "SG-071", "SG-072", "SG-241", "SG-253")
def test_a_static_member_comes_back() -> None:
    check("static_member")


@pytest.mark.requirement(
    "SG-053",
    "SG-054",
    "SG-055",
    "SG-056",
    "SG-064",
    "SG-118",
    "SG-119",
    "SG-120",
    "SG-121",
    "SG-123",
    "SG-126",
    "SG-127",
    "SG-128",
)
def test_a_rolling_topology_upgrade() -> None:
    check("topology_update")


@pytest.mark.requirement("SG-125")
def test_tasks_of_two_topologies_never_share_a_partition() -> None:
    check("renumbered_subtopologies")


@pytest.mark.requirement("SG-198", "SG-225", "SG-230")
def test_roles_change_in_place() -> None:
    check("standby_takes_over")


def test_delays_of_the_assignment() -> None:
    check("delays")


@pytest.mark.requirement("SG-005", "SG-060", "GA-050", "GA-051", "GA-059", "GA-064", "GA-072", "GA-074")
def test_a_group_from_its_first_join_to_its_deletion() -> None:
    check("life_and_death")


@pytest.mark.requirement("SG-091", "SG-096", "SG-119", "SG-120", "SG-121", "SG-144")
def test_an_upgrade_with_new_topics_does_not_stop_who_runs_the_old_version() -> None:
    check("upgrade_with_new_topics")


@pytest.mark.requirement("SG-123", "SG-125", "SG-227")
def test_an_upgrade_and_a_way_back_where_old_and_new_tasks_share_a_changelog() -> None:
    check("upgrade_shared_changelog")


@pytest.mark.requirement("SG-119", "SG-125", "SG-231")
def test_a_changed_subtopology_goes_over_warm_and_comes_back_when_the_new_version_dies() -> None:
    check("upgrade_handed_over_warm")


@pytest.mark.requirement(
    "SG-170",
    "SG-171",
    "SG-175",
    "SG-181",
    "SG-189",
    "SG-192",
    "SG-193",
    "SG-215",
    "SG-231",
    "SG-301",
    "SG-081",
    "SG-238",
)
def test_a_task_with_state_moves_by_a_warm_up_task() -> None:
    check("warm_up")


@pytest.mark.requirement("SG-116", "SG-129", "SG-130", "SG-138", "SG-168", "SG-303")
def test_topics_that_match_a_pattern_are_followed() -> None:
    check("patterns")


@pytest.mark.requirement("SG-087", "SG-088")
def test_who_has_what_is_told_when_it_changes() -> None:
    check("endpoints")


@pytest.mark.requirement("SG-073", "SG-075", "SG-095", "SG-090")
def test_one_member_ends_the_whole_application() -> None:
    check("shutdown")


@pytest.mark.requirement("SG-174", "SG-180", "SG-198", "SG-244", "SG-282")
def test_settings_of_the_group_take_effect_at_the_next_heartbeat() -> None:
    check("settings")


def test_standby_tasks_in_other_zones() -> None:
    check("rack_tags")


@pytest.mark.requirement("SG-059", "SG-157", "SG-159", "SG-161", "SG-162", "SG-164", "SG-248", "SG-249", "SG-090")
def test_the_states_of_a_group() -> None:
    check("states")
