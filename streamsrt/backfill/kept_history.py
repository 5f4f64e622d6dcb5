"""How long the broker must keep what a hand-over writes into changelogs.

A store drops windows and versions by stream time. A broker deletes and compacts by its own clock and the timestamps of
records: of a history that ended months ago it would delete windows, and all but the latest version of each key, within
minutes. So a changelog is kept longer by the age of its latest record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamsrt.backfill.manifest import StoreResult, TaskManifest
from streamsrt.backfill.plan import BackfillPlan, InternalTopicPlan
from streamsrt.wording import counted
from topology.graph.internal_topics import ADDITIONAL_COMPACTION_LAG_MS, deleted_after_ms
from topology.spec.windows import END_OF_TIME_MS

RETENTION = "retention.ms"
LAG = "min.compaction.lag.ms"
_LAG_MAX = "max.compaction.lag.ms"
_DAY_MS = 86_400_000
_RECENT_MS = _DAY_MS // 2
"""A live application may be that late as well: what is added to the stores' own retention is for that."""


@dataclass(frozen=True, slots=True)
class KeptLonger:
    """A setting of a changelog, in ms: what the application gives it, and what this history needs. ``age_ms``: of the
    latest record of the partition that was written to least recently; of its oldest record if everything is kept."""

    topic: str
    setting: str
    configured_ms: int
    needed_ms: int
    age_ms: int

    def __str__(self) -> str:
        lost = "all but the latest version of each key" if self.setting == LAG else "its windows"
        return (
            f"{self.topic} gets {self.setting}={self.needed_ms} instead of {self.configured_ms}: its history ends "
            f"{counted(self.age_ms // _DAY_MS, 'day')} ago, and the broker would delete {lost}"
        )

    def suffices(self, there: str | None) -> bool:
        """Whether a topic with this value of the setting keeps its records at least as long."""
        return there is not None and (int(there) < 0 or int(there) >= self.needed_ms)


def kept_longer(plan: BackfillPlan, manifests: Sequence[TaskManifest], now_ms: int) -> list[KeptLonger]:
    """The settings that must be larger than the application says, by topic."""
    stores = [store for manifest in manifests for store in manifest.stores]
    whole = plan.changelogs == "full"
    return kept_for(plan, {topic.name: _age_ms(_of(topic, stores), now_ms, whole=whole) for topic in limited(plan)})


def limited(plan: BackfillPlan) -> list[InternalTopicPlan]:
    """The changelogs that lose history: those with windows or versions."""
    return [topic for topic in plan.internal_topics if _limit(topic) is not None]


def kept_for(plan: BackfillPlan, ages_ms: Mapping[str, int]) -> list[KeptLonger]:
    """The same for changelogs whose latest records have these ages, by topic."""
    found = []
    for topic in plan.internal_topics:
        limit, age_ms = _limit(topic), ages_ms.get(topic.name, 0)
        if limit is None or age_ms < _RECENT_MS:
            continue
        setting, configured_ms = limit
        days = -(-age_ms // _DAY_MS)
        most_ms = int(topic.configs.get(_LAG_MAX, END_OF_TIME_MS)) if setting == LAG else END_OF_TIME_MS
        needed_ms = min(configured_ms + days * _DAY_MS, most_ms)
        if needed_ms > configured_ms:
            found.append(KeptLonger(topic.name, setting, configured_ms, needed_ms, age_ms))
    return found


def configs_of(topic: InternalTopicPlan, kept: Iterable[KeptLonger]) -> dict[str, str]:
    """The settings with which a topic is made."""
    return {**topic.configs, **{each.setting: str(each.needed_ms) for each in kept if each.topic == topic.name}}


def keeps_versions(topic: InternalTopicPlan, store: StoreResult, there: Mapping[str, str | None], now_ms: int) -> bool:
    """Whether compaction of a topic with the settings that are ``there`` leaves all versions that a store of versions
    still has; True for every other store."""
    limit, newest_ms = _limit(topic), store.newest_ms
    if limit is None or limit[0] != LAG or newest_ms is None:
        return True
    # The day that is added to the store's own history is for the time since it was written.
    needed_ms = limit[1] - ADDITIONAL_COMPACTION_LAG_MS + now_ms - newest_ms
    return int(there.get(LAG) or 0) >= needed_ms


def _limit(topic: InternalTopicPlan) -> tuple[str, int] | None:
    """The setting by which a changelog loses history, and its value."""
    if topic.kind != "changelog":
        return None
    retention_ms = deleted_after_ms(topic.configs)
    if retention_ms is not None:
        return RETENTION, retention_ms
    is_own_time = topic.configs.get("message.timestamp.type") != "LogAppendTime"
    return (LAG, int(topic.configs[LAG])) if LAG in topic.configs and is_own_time else None


def _of(topic: InternalTopicPlan, stores: Iterable[StoreResult]) -> Iterator[StoreResult]:
    yield from (store for store in stores if store.changelog is not None and store.changelog.topic == topic.name)


def _age_ms(stores: Iterable[StoreResult], now_ms: int, *, whole: bool) -> int:
    times = [store.oldest_ms if whole else store.newest_ms for store in stores]
    return max((now_ms - time_ms for time_ms in times if time_ms is not None), default=0)
