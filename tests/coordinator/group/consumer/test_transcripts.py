"""Every transcript in tests/golden/consumer_groups comes out as it is written. ``UPDATE_TRANSCRIPTS=1`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator.group.consumer.transcript import run

FOLDER = Path(__file__).resolve().parents[3] / "golden" / "consumer_groups"


def proves(name: str, *ids: str) -> object:
    return pytest.param(name, marks=pytest.mark.requirement(*ids))


SCENARIOS = [
    proves(
        "three_members_one_after_the_other",
        "CG-004",
        "CG-005",
        "CG-006",
        "CG-007",
        "CG-013",
        "CG-029",
        "CG-031",
        "CG-036",
        "CG-046",
        "CG-058",
        "CG-064",
        "CG-078",
        "CG-079",
        "CG-080",
        "CG-081",
        "CG-085",
        "CG-086",
        "CG-087",
        "CG-108",
        "CG-234",
    ),
    proves("three_members_range", "CG-067", "CG-235"),
    proves(
        "third_member",
        "CG-037",
        "CG-061",
        "CG-089",
        "CG-099",
        "CG-100",
        "CG-101",
        "CG-102",
        "CG-219",
        "CG-236",
        "CG-237",
    ),
    proves("partition_added", "CG-062", "CG-238"),
    proves("static_members", "CG-018", "CG-094", "CG-095", "CG-096", "CG-097"),
    proves("fencing", "CG-017", "CG-030", "CG-032", "CG-034", "CG-041", "CG-092"),
    proves("regular_expressions", "CG-020", "CG-021", "CG-059", "CG-105", "CG-106", "CG-109"),
    proves("topics", "CG-009", "CG-035", "CG-062", "CG-063", "CG-077", "CG-114"),
    proves("rebalance_timeout", "CG-083", "CG-061", "CG-191"),
    proves("assignors", "CG-027", "CG-060", "CG-066", "CG-067", "CG-068", "CG-218"),
    "assignment_interval",
    proves("offsets", "CG-183", "CG-184", "CG-186", "CG-195", "CG-196"),
    proves("appends_fail", "CG-038", "CG-085"),
    proves(
        "online_migration",
        "CG-154",
        "CG-155",
        "CG-156",
        "CG-157",
        "CG-159",
        "CG-162",
        "CG-166",
        "CG-168",
        "CG-171",
        "CG-172",
        "CG-174",
        "CG-175",
        "CG-176",
        "CG-187",
        "CG-239",
        "CG-241",
    ),
    proves("online_migration_cooperative", "CG-169", "CG-170", "CG-177", "CG-240"),
    proves("classic_members", "CG-160", "CG-161", "CG-163", "CG-173", "CG-187", "CG-195"),
    "static_members_between_protocols",
    proves("classic_group", "GA-078", "GA-023", "GA-041", "GA-044", "GA-051"),
    proves("classic_static_members", "GA-080"),
    "migration_policy",
    "migration_other_protocols",
]


def test_every_transcript_is_run_by_a_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in FOLDER.glob("*.txt") if f'"{path.stem}"' not in source] == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_transcript(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    expected = path.read_text(encoding="utf-8")
    found = run(expected)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(found, encoding="utf-8")
        return
    assert found == expected
