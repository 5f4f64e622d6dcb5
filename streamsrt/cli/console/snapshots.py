"""Snapshots of the cluster for the page: one at a time, each shared by all browsers that ask at about the same time.

1. A snapshot is taken on request: while no page is open, nothing is requested from the cluster.
2. A rate comes from two snapshots. After a pause without snapshots the first one has none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from streamsrt.cli.console.changes import change_letters
from streamsrt.cli.console.dead_letters import letters_of
from streamsrt.cli.console.group_view import GroupSnapshot, PartView, group_json, parts_of_description, parts_of_outline
from streamsrt.cli.console.instances import InstanceFacts, Json, query_instances, rows_of_key
from streamsrt.cli.described_group import Described
from streamsrt.cli.group_lag import offset_rows_of
from streamsrt.cli.top import Overview
from streamsrt.client.interface import Administering
from streamsrt.client.network import NetworkThread
from streamsrt.dead_letters.letters import LetterOutcome, Position
from streamsrt.errors import BrokerError, BrokerUnreachableError, ConfigError
from streamsrt.runtime.group_facts import (
    Committed,
    DescribedRebalance,
    GroupFacts,
    describe,
    described_rebalances,
    facts_of,
    look,
    with_left,
)
from streamsrt.runtime.upgrade_status import UpgradeWatch
from streamsrt.runtime.way_back import WayBack
from streamsrt.wire.types import StreamsGroupDescribeResponse

FRESH_S: Final = 1.0
REACHED_WITHIN_S: Final = 3.0
LETTERS_FRESH_S: Final = 5.0
NOTHING_LEFT_FRESH_S: Final = 30.0
"""Beside upgrades, a topic that no task reads gets records only when somebody else writes to it."""
_RATES_WITHIN_S: Final = 30.0
_PATIENCE_S: Final = 2.0
_REBALANCES: Final = 100


class _Watched:
    """The values kept for one application from one snapshot to the next."""

    def __init__(self, network: NetworkThread) -> None:
        self.upgrade = UpgradeWatch()
        self._way_back = WayBack(network, patience_s=_PATIENCE_S)
        self._read: tuple[float, dict[str, int]] | None = None
        self._nothing_left: tuple[float, object] | None = None

    def with_left(self, admin: Administering, facts: GroupFacts, committed: Committed, at_s: float) -> GroupFacts:
        """Adds unread records that no task reads. Where there are none, that is so until the group changes."""
        now = (facts.state, facts.epoch, {(each.member_id, each.epoch) for each in facts.members})
        if self._nothing_left is not None:
            since_s, before = self._nothing_left
            if before == now and at_s - since_s < NOTHING_LEFT_FRESH_S:
                return facts
        found = with_left(admin, facts, committed)
        self._nothing_left = None if found.left or found.dropped or found.unassigned else (at_s, now)
        return found

    def with_way_back(self, facts: GroupFacts, committed: Committed) -> GroupFacts:
        """Adds what rules out a rollback."""
        return self._way_back.look(facts, committed)

    def rates(self, offsets: Sequence[Json], at_s: float) -> dict[str, float]:
        """Computes the records a second by topic from the growth of committed offsets."""
        now: dict[str, int] = {}
        for row in offsets:
            if isinstance(offset := row["current_offset"], int):
                now[row["topic"]] = now.get(row["topic"], 0) + offset
        before, self._read = self._read, (at_s, now)
        if before is None or not 0 < at_s - before[0] <= _RATES_WITHIN_S:
            return {}
        return {
            topic: max(0.0, (count - before[1][topic]) / (at_s - before[0]))
            for topic, count in now.items()
            if topic in before[1]
        }


class Snapshots:
    """Thread-safe. All methods raise BrokerError if the cluster can't be reached."""

    def __init__(
        self,
        network: NetworkThread,
        *,
        bootstrap_servers: str,
        groups: Sequence[str] = (),
        letter_topics: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self._bootstrap_servers = bootstrap_servers
        self._groups = tuple(groups)
        self._letter_topics = tuple(letter_topics)
        self._clock = clock
        self._overview = Overview(network, self._groups)
        self._watched: dict[str, _Watched] = {}
        self._kept: dict[tuple[str, str], tuple[float, Json]] = {}
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        self._unreached: tuple[float, str] | None = None
        self._unreached_since = ""

    def overview(self) -> Json:
        """Returns one row per application."""
        return self._fresh(("overview", ""), FRESH_S, self._take_overview)

    def group(self, name: str) -> Json:
        """Returns one application. Raises ConfigError if it does not exist."""
        self._check(name)
        return self._fresh(("group", name), FRESH_S, lambda: self._take_group(name))

    def rows_of_key(self, name: str, store: str, key: str) -> Json:
        """Returns the rows of a key, as the instances report them. Raises ConfigError, InstanceUnreachableError."""
        self._check(name)
        return rows_of_key(_addresses(look(self._network.admin, name)), store, key)

    def letters(self, topic: str) -> Json:
        """Returns the letters of a dead-letter topic that the command names. Raises ConfigError for another one."""
        self._check_letters(topic)
        return self._fresh(("letters", topic), LETTERS_FRESH_S, lambda: letters_of(self._bootstrap_servers, topic))

    def change_letters(self, topic: str, outcome: LetterOutcome, positions: Collection[Position]) -> Json:
        """Replays or drops letters of a topic that the command names. Raises ConfigError for another one."""
        self._check_letters(topic)
        with self._changing:
            done = change_letters(self._bootstrap_servers, topic, outcome, positions)
        with self._lock:
            self._kept.pop(("letters", topic), None)
        return done

    def _check_letters(self, topic: str) -> None:
        if topic not in self._letter_topics:
            raise ConfigError(f"{topic!r} is not shown here: start the console with --dead-letters {topic}")

    def _check(self, name: str) -> None:
        if self._groups and name not in self._groups:
            raise ConfigError(f"{name!r} is not shown here: start the console with it, or without names")

    def _fresh(self, key: tuple[str, str], for_s: float, take: Callable[[], Json]) -> Json:
        with self._lock:
            if key in self._kept and self._clock() - self._kept[key][0] < for_s:
                return self._kept[key][1]
            self._check_cluster()
            taken = take()
            self._kept[key] = (self._clock(), taken)
            return taken

    def _check_cluster(self) -> None:
        """Raises BrokerUnreachableError within seconds; the requests of a look have longer."""
        if self._unreached is not None and self._clock() - self._unreached[0] < FRESH_S:
            # Who has waited for another look meanwhile need not try as well.
            raise BrokerUnreachableError(self._unreached[1])
        try:
            self._network.admin.cluster(timeout_s=REACHED_WITHIN_S)
        except BrokerError as error:
            self._unreached_since = self._unreached_since or f"{datetime.now(UTC):%H:%M:%S}"
            told = f"the cluster can't be reached since {self._unreached_since} UTC: {error}"
            self._unreached = (self._clock(), told)
            raise BrokerUnreachableError(told) from error
        self._unreached, self._unreached_since = None, ""

    def _take_overview(self) -> Json:
        rows = self._overview.rows(self._clock())
        return {"groups": [asdict(row) for row in rows], "letter_topics": self._letter_topics}

    def _take_group(self, name: str) -> Json:
        at_s, described = self._clock(), describe(self._network.admin, name)
        facts = facts_of(self._network.admin, described)
        watched = self._watched.setdefault(name, _Watched(self._network))
        committed = self._network.admin.committed(name)
        known = watched.with_way_back(watched.with_left(self._network.admin, facts, committed, at_s), committed)
        offsets = offset_rows_of(self._network, described, committed)
        instances = query_instances(_addresses(facts))
        streams = described if isinstance(described, StreamsGroupDescribeResponse.DescribedGroup) else None
        parts = _parts(name, streams, instances, facts)
        of_global_tables = {topic for part in parts if part.is_global for topic in part.sources}
        return group_json(
            GroupSnapshot(
                facts=facts,
                status=watched.upgrade.status(known, at_s),
                offsets=offsets,
                rates=watched.rates(offsets, at_s),
                parts=parts,
                rebalances=_rebalances(streams),
                instances=instances,
                global_partitions=self._network.admin.partitions_for(of_global_tables) if of_global_tables else {},
            )
        )


def _addresses(facts: GroupFacts) -> list[str]:
    return [each.endpoint for each in facts.members if each.endpoint is not None]


def _parts(
    name: str, described: Described | None, instances: Mapping[str, InstanceFacts], facts: GroupFacts
) -> list[PartView]:
    """Returns the parts of the newest version that an instance reports, else those in the group's description."""
    told = [each.topology for each in instances.values() if each.topology.get("subtopologies")]
    newest = max(told, key=lambda outline: int(outline.get("epoch") or 0), default=None)
    topology = None if described is None else described.topology
    if newest is not None and (topology is None or newest.get("epoch") == topology.epoch):
        named = {task[0] for member in facts.members for tasks in member.tasks.values() for task in tasks}
        return parts_of_outline(name, newest, named)
    return [] if topology is None else parts_of_description(topology.subtopologies or ())


def _rebalances(described: Described | None) -> list[DescribedRebalance] | None:
    told = None if described is None else described_rebalances(described)
    if told is None:
        return None
    return list(reversed(told[-_REBALANCES:]))
