"""How long a broker must keep the changelogs of a history that ended long ago, and what it may leave of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamsrt.backfill.kept_history import KeptLonger, configs_of, keeps_versions, kept_longer
from streamsrt.backfill.manifest import FileResult, LogResult, StoreResult, TaskManifest
from streamsrt.backfill.plan import BackfillPlan, Changelogs, InternalTopicPlan
from streamsrt.backfill.verify import Record, is_left_of

DAY_MS = 86_400_000
NOW_MS = 1_000 * DAY_MS
TOPIC = "shop-prices-changelog"
WINDOWS = {"cleanup.policy": "compact,delete", "retention.ms": str(2 * DAY_MS)}
VERSIONS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2 * DAY_MS)}


def changelog(configs: Mapping[str, str]) -> InternalTopicPlan:
    return InternalTopicPlan(name=TOPIC, kind="changelog", partitions=2, configs=dict(configs))


def result(partition: int, newest_days: float, oldest_days: float) -> TaskManifest:
    """The result of a task whose changelog has records of so many days ago."""
    store = StoreResult(
        name="prices",
        entries=2,
        changelog=LogResult(
            topic=TOPIC,
            partition=partition,
            file=FileResult(path="a/prices.changelog", records=2, size_bytes=1, digest=""),
        ),
        newest_ms=NOW_MS - int(newest_days * DAY_MS),
        oldest_ms=NOW_MS - int(oldest_days * DAY_MS),
    )
    return TaskManifest(task=f"0_{partition}", fingerprint="", attempt="a", stores=(store,))


def needed(configs: Mapping[str, str], *ends: tuple[float, float], changelogs: Changelogs = "live") -> list[KeptLonger]:
    plan = BackfillPlan(
        application="shop:topology",
        application_id="shop",
        code_digest="",
        version="",
        topology_digest="",
        internal_topics=(changelog(configs),),
        changelogs=changelogs,
        created_ms=0,
    )
    return kept_longer(plan, [result(number, *end) for number, end in enumerate(ends)], NOW_MS)


@pytest.mark.parametrize(
    ("configs", "setting"),
    [(WINDOWS, "retention.ms"), (VERSIONS, "min.compaction.lag.ms")],
    ids=["windows", "versions"],
)
def test_a_changelog_is_kept_longer_by_the_age_of_its_history(configs: Mapping[str, str], setting: str) -> None:
    (kept,) = needed(configs, (9.5, 400), (299.5, 400))
    assert configs_of(changelog(configs), [kept]) == {**configs, setting: str(302 * DAY_MS)}
    assert f"gets {setting}={302 * DAY_MS} instead of {2 * DAY_MS}: its history ends 299 days ago" in str(kept)
    assert not kept.suffices(str(301 * DAY_MS))
    assert kept.suffices("-1")


def test_windows_for_other_consumers_are_kept_from_the_oldest_one_on() -> None:
    (kept,) = needed(WINDOWS, (0, 30), changelogs="full")
    assert kept.needed_ms == 32 * DAY_MS


@pytest.mark.parametrize(
    ("configs", "newest_days"),
    [
        (WINDOWS, 0.4),
        ({"cleanup.policy": "compact"}, 300),
        ({**WINDOWS, "retention.ms": "-1"}, 300),
        ({**WINDOWS, "message.timestamp.type": "LogAppendTime"}, 300),
        ({**VERSIONS, "message.timestamp.type": "LogAppendTime"}, 300),
        ({**VERSIONS, "max.compaction.lag.ms": str(2 * DAY_MS)}, 300),
    ],
    ids=[
        "recent",
        "one row per key",
        "for ever",
        "windows by append time",
        "versions by append time",
        "as long as it may",
    ],
)
def test_others_are_made_as_the_application_says(configs: Mapping[str, str], newest_days: float) -> None:
    assert needed(configs, (newest_days, 400)) == []


def test_versions_are_safe_only_under_a_lag_that_covers_their_age() -> None:
    (store,) = result(0, 300, 400).stores
    assert not keeps_versions(changelog(VERSIONS), store, VERSIONS, NOW_MS)
    assert keeps_versions(changelog(VERSIONS), store, {"min.compaction.lag.ms": str(302 * DAY_MS)}, NOW_MS)
    assert keeps_versions(changelog(WINDOWS), store, WINDOWS, NOW_MS)


A1, A2, B1, B_GONE, C1 = (b"a", b"1", 1), (b"a", b"2", 2), (b"b", b"1", 3), (b"b", None, 4), (b"c", b"1", 5)
WRITTEN: list[Record] = [A1, B1, A2, B_GONE, C1]


@pytest.mark.parametrize(
    ("left", "starts_later", "is_whole"),
    [
        pytest.param([A2, B_GONE, C1], False, True, id="compacted"),
        pytest.param([A2, C1], False, True, id="a deletion is gone, too"),
        pytest.param([A1, B1, A2, C1], False, True, id="compacted in part"),
        pytest.param([A1, B1, B_GONE, C1], False, False, id="the last one of a key is gone"),
        pytest.param([A2, B_GONE], False, False, id="a key is gone"),
        pytest.param([A2, C1, (b"d", b"1", 6)], False, False, id="somebody else's record"),
        pytest.param([C1, A2], False, False, id="another order"),
        pytest.param([C1], True, True, id="deleted from the beginning"),
        pytest.param([], True, True, id="all deleted"),
        pytest.param([], False, False, id="all gone"),
        pytest.param([B1, C1], True, False, id="deleted in the middle"),
    ],
)
def test_what_compaction_and_retention_may_leave(left: list[Record], starts_later: bool, is_whole: bool) -> None:
    assert is_left_of(iter(left), WRITTEN, starts_later=starts_later) is is_whole
