"""Every transcript in tests/golden/consumer_groups comes out as it is written. ``UPDATE_TRANSCRIPTS=1`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator.group.consumer.transcript import run

FOLDER = Path(__file__).resolve().parents[3] / "golden" / "consumer_groups"


def proves(name: str, *ids: str) -> object:
    return pytest.param(name, marks=pytest.mark.requirement(*(f"CG-{each}" for each in ids)))


SCENARIOS = [
    proves(
        "three_members_one_after_the_other",
        *("004", "005", "006", "007", "013", "029", "031", "036", "046", "058", "064", "078", "079", "080", "081"),
        *("085", "086", "087", "108", "234"),
    ),
    proves("three_members_range", "067", "235"),
    proves("third_member", "037", "061", "089", "099", "100", "101", "102", "219", "236", "237"),
    proves("partition_added", "062", "238"),
    proves("static_members", "018", "094", "095", "096", "097"),
    proves("fencing", "017", "030", "032", "034", "041", "092"),
    proves("regular_expressions", "020", "021", "059", "105", "106", "109"),
    proves("topics", "009", "035", "062", "063", "077", "114"),
    proves("rebalance_timeout", "083", "061", "191"),
    proves("assignors", "027", "060", "066", "067", "068", "218"),
    "assignment_interval",
    proves("offsets", "183", "184", "186", "195", "196"),
    proves("appends_fail", "038", "085"),
    proves(
        "online_migration",
        *(
            "154",
            "155",
            "156",
            "157",
            "159",
            "162",
            "166",
            "168",
            "171",
            "172",
            "174",
            "175",
            "176",
            "187",
            "239",
            "241",
        ),
    ),
    proves("online_migration_cooperative", "169", "170", "177", "240"),
    proves("classic_members", "160", "161", "163", "173", "187", "195"),
    "static_members_between_protocols",
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
