"""Warnings of a plan about the age of its history: here of archives, so no broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.backfill.history_age import with_notes_on_age
from streamsrt.backfill.plan import BackfillPlan, StoreRepair, load_plan
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from tests.streamsrt.backfill.test_engine_local import ID, planned

DAY_MS = 86_400_000
CHANGELOG = f"{ID}-counts-changelog"
WINDOWS = {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}


def warnings(
    folder: Path, created_ms: int, configs: dict[str, str], repair: StoreRepair | None = None
) -> tuple[str, ...]:
    """Of a plan made at that time, over partitions that end at 100 and at 105 days."""
    parts = [[("ax", day * DAY_MS) for day in (3, 100)], [("bx", 105 * DAY_MS)]]
    plan = load_plan(planned(folder, parts).directory)
    topics = tuple(
        topic.model_copy(update={"configs": configs if topic.name == CHANGELOG else {}})
        for topic in plan.internal_topics
    )
    made: BackfillPlan = plan.model_copy(update={"internal_topics": topics, "created_ms": created_ms, "repair": repair})
    network = NetworkThread(ClientConfig(bootstrap_servers="127.0.0.1:1", client_id="none"))
    return with_notes_on_age(network, made).warnings


def test_windows_behind_a_repartition_topic_are_as_old_as_what_fills_it(tmp_path: Path) -> None:
    (warning,) = warnings(tmp_path, 115 * DAY_MS, WINDOWS)
    assert warning.startswith(
        f"old history; at commit, {CHANGELOG} gets retention.ms={11 * DAY_MS} instead of {DAY_MS}"
    )
    assert "its history ends 10 days ago" in warning


@pytest.mark.parametrize(("days", "configs"), [(105, WINDOWS), (500, {"cleanup.policy": "compact"})])
def test_recent_history_and_plain_tables_need_nothing(tmp_path: Path, days: int, configs: dict[str, str]) -> None:
    assert warnings(tmp_path, days * DAY_MS, configs) == ()


def test_a_repair_says_nothing_about_changelogs_that_it_does_not_write(tmp_path: Path) -> None:
    for store, count in (("another", 0), ("counts", 1)):
        repair = StoreRepair(store=store, committed={})
        assert len(warnings(tmp_path / store, 115 * DAY_MS, WINDOWS, repair)) == count
