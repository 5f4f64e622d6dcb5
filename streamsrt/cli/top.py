"""``streamsrt top``: all applications of a cluster, refreshed in place.

1. All information comes from the group coordinator, so members of Kafka Streams of Java are shown as far as they report
   it.
2. A rate comes from the committed offsets of two looks; the first look has none.
3. Groups of other programs are left out: a classic group is shown if a member reports that it runs tasks, or if it is
   named.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamsrt.cli.group_lag import offset_rows_of
from streamsrt.cli.live_table import LiveTable
from streamsrt.cli.output import note, print_json
from streamsrt.cli.session import AsJson, BootstrapServers, cluster
from streamsrt.client.network import NetworkThread
from streamsrt.errors import RequestFailedError, StreamsError
from streamsrt.runtime.group_facts import ROLES, GroupDescription, GroupFacts, Role, describe, facts_of
from streamsrt.runtime.upgrade_status import UpgradeWatch

_COLUMNS = ("group", "state", "epoch", "members", "a/s/w", "lag", "rec/s", "restore", "eta")
_TEXTS = ("group", "state", "members")
_WIDE = 10_000


@dataclass(frozen=True, slots=True)
class GroupRow:
    """An application. ``members``: how many by topology epoch. ``to_restore``: of standby and warm-up tasks, as reported."""

    group: str
    protocol: str
    state: str
    topology_epoch: int | None
    members: dict[str, int]
    tasks: dict[Role, int]
    lag: int
    records_per_second: float | None
    to_restore: int
    eta_s: float | None


class Overview:
    """Looks again and again at some groups, or at all that run tasks."""

    def __init__(self, network: NetworkThread, names: Sequence[str]) -> None:
        self._network = network
        self._names = names
        self._watches: dict[str, UpgradeWatch] = {}
        self._committed: dict[str, tuple[float, int]] = {}

    def rows(self, at_s: float) -> list[GroupRow]:
        """By name. Raises ConfigError for a named group that is not there, BrokerError."""
        return [self._row(described, facts, at_s) for described, facts in self._found()]

    def _found(self) -> Iterator[tuple[GroupDescription, GroupFacts]]:
        admin = self._network.admin
        if self._names:
            for described in (describe(admin, name) for name in self._names):
                yield described, facts_of(admin, described)
            return
        for each in sorted(admin.list_groups(), key=lambda listed: listed.group_id):
            if each.group_type.lower() not in ("streams", "classic"):
                continue
            try:
                described = describe(admin, each.group_id)
                facts = facts_of(admin, described)
            except RequestFailedError:
                continue  # it went away, or its coordinator moves: the next look tells
            if facts.kind == "streams" or any(member.process_id for member in facts.members):
                yield described, facts

    def _row(self, described: GroupDescription, facts: GroupFacts, at_s: float) -> GroupRow:
        status = self._watches.setdefault(facts.name, UpgradeWatch()).status(facts, at_s)
        offsets = offset_rows_of(self._network, described)
        return GroupRow(
            group=facts.name,
            protocol=facts.kind,
            state=facts.state,
            topology_epoch=facts.epoch,
            members=dict(Counter("?" if each.epoch is None else str(each.epoch) for each in facts.members)),
            tasks={role: sum(len(each.tasks[role]) for each in facts.members) for role in ROLES},
            lag=sum(_numbers(row["offset_lag"] for row in offsets)),
            records_per_second=self._rate(facts.name, at_s, sum(_numbers(row["current_offset"] for row in offsets))),
            to_restore=_to_restore(facts),
            eta_s=status.eta_s,
        )

    def _rate(self, group: str, at_s: float, committed: int) -> float | None:
        before, self._committed[group] = self._committed.get(group), (at_s, committed)
        if before is None or at_s <= before[0]:
            return None
        return max(0.0, (committed - before[1]) / (at_s - before[0]))


def _numbers(values: Iterator[object]) -> Iterator[int]:
    return (value for value in values if isinstance(value, int))


def _to_restore(facts: GroupFacts) -> int:
    ends = facts.task_ends
    return sum(
        max(0, ends[task] - member.offsets.get(task, 0))
        for member in facts.members
        for task in member.tasks["standby"] | member.tasks["warmup"]
        if task in ends
    )


def top(
    groups: Annotated[list[str] | None, typer.Argument(help="application ids (default: all)")] = None,
    bootstrap_servers: BootstrapServers = None,
    once: Annotated[bool, typer.Option("--once", help="print one snapshot instead of a live table")] = False,
    interval_s: Annotated[float, typer.Option("--interval", help="seconds between updates", min=0.1)] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show the applications of a cluster: versions, tasks by role, lag, rate, restore progress. Ctrl-C stops it.

    MEMBERS: 2@1 are two members with topology epoch 1. A/S/W: active, standby and warm-up tasks. REC/S: committed records
    per second, from the second update on. RESTORE: records that standby and warm-up tasks have not restored yet. With
    --json, one line per group and update.
    """
    with cluster(bootstrap_servers) as network:
        overview = Overview(network, groups or ())
        now = overview.rows(time.monotonic())
        if not (once or as_json):
            _follow(overview, now, interval_s)
        while True:
            if as_json:
                for row in now:
                    print_json(asdict(row))
            else:
                Console(width=None if sys.stdout.isatty() else _WIDE).print(table(now))
            sys.stdout.flush()
            if once:
                return
            time.sleep(interval_s)
            now = next_rows(overview)


def next_rows(overview: Overview) -> list[GroupRow]:
    """Nothing while the cluster does not answer: whoever follows it sees it come back."""
    try:
        return overview.rows(time.monotonic())
    except StreamsError as error:
        note(f"{error} Trying again")
        return []


def _follow(overview: Overview, first: list[GroupRow], interval_s: float) -> None:
    shown = [first]

    def drawn() -> Table:
        try:
            shown[:] = [overview.rows(time.monotonic())]
        except StreamsError as error:
            return table(shown[0], str(error))
        return table(shown[0])

    def line() -> str:
        return "; ".join(f"{row.group}: {row.state}, lag {row.lag:,}" for row in shown[0]) or "no applications"

    with LiveTable(Console(), drawn, line=line, interval_s=interval_s, line_interval_s=interval_s):
        while True:
            time.sleep(interval_s)


def table(rows: Sequence[GroupRow], said: str = "") -> Table:
    """A line for each group; it fits a terminal of 80 columns."""
    caption = Text(said) if said else None
    shown = Table(box=None, header_style="bold", caption=caption, caption_justify="left", padding=(0, 1, 0, 0))
    for column in _COLUMNS:
        shown.add_column(column.upper(), justify="left" if column in _TEXTS else "right", no_wrap=True)
    for row in rows:
        newest_first = sorted(row.members.items(), reverse=True)
        shown.add_row(
            row.group,
            row.state,
            "-" if row.topology_epoch is None else str(row.topology_epoch),
            " ".join(f"{count}@{epoch}" for epoch, count in newest_first) or "none",
            "/".join(str(row.tasks[role]) for role in ROLES),
            f"{row.lag:,}",
            "-" if row.records_per_second is None else f"{row.records_per_second:,.0f}",
            f"{row.to_restore:,}",
            "-" if row.eta_s is None else f"{row.eta_s:.0f} s",
        )
    return shown
