"""``streamsrt upgrade status``: the group's versions, their tasks, what warms up, and what to do next."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streamsrt.cli.live_table import LiveTable
from streamsrt.cli.output import print_json
from streamsrt.cli.session import AsJson, BootstrapServers, cluster
from streamsrt.errors import StreamsError
from streamsrt.runtime.group_facts import ROLES
from streamsrt.runtime.upgrade_status import UpgradeStatus, UpgradeWatch
from streamsrt.runtime.way_back import WayBack
from streamsrt.wording import counted

UNDER_WAY = 10
UNKNOWN = 13
_CHECK_INTERVAL_S = 1.0

Group = Annotated[str, typer.Option("--group", "-g", help="application id")]


def status(
    group: Group,
    bootstrap_servers: BootstrapServers = None,
    once: Annotated[bool, typer.Option("--once", help="print one snapshot instead of a live table")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", help="seconds between updates", min=0.1)
    ] = _CHECK_INTERVAL_S,
    as_json: AsJson = False,
) -> None:
    """Follow an upgrade until all members run one version: epochs, tasks by role, warm-up, and what to do next.

    Exit codes: 0 all members run the group's version and nothing warms up; with --once: 10 not yet, 13 the versions are
    unknown while a classic group rebalances. With --json, one line per update.
    """
    watch = UpgradeWatch()
    with cluster(bootstrap_servers, read_committed=True) as network:
        seen = WayBack(network)
        now = watch.status(seen.group(group), time.monotonic())
        if once or as_json:
            while True:
                print_json(now.to_json()) if as_json else Console(soft_wrap=not sys.stdout.isatty()).print(table(now))
                sys.stdout.flush()
                if once or now.is_over:
                    raise typer.Exit(exit_code(now))
                time.sleep(interval_s)
                now = watch.status(seen.group(group), time.monotonic())
        _follow(seen, group, watch, interval_s)


def exit_code(now: UpgradeStatus) -> int:
    if now.is_over:
        return 0
    return UNKNOWN if now.phase == "versions unknown" else UNDER_WAY


def _follow(seen: WayBack, group: str, watch: UpgradeWatch, interval_s: float) -> None:
    shown: list[UpgradeStatus] = []
    told: list[str] = []

    def drawn() -> Table | None:
        try:
            shown[:] = [watch.status(seen.group(group), time.monotonic())]
            told.clear()
        except StreamsError as error:
            told[:] = [str(error)]
        return table(shown[0], *told) if shown else None

    def line() -> str:
        return told[0] if told else summary(shown[0]) if shown else ""

    with LiveTable(Console(), drawn, line=line, interval_s=interval_s, line_interval_s=interval_s):
        while not (shown and shown[0].is_over):
            time.sleep(interval_s)


def summary(now: UpgradeStatus) -> str:
    """One line."""
    versions = ", ".join(
        f"{row.members} with epoch {'?' if row.topology_epoch is None else row.topology_epoch}" for row in now.versions
    )
    parts = [
        f"{now.group}: {now.headline}, {now.state}, topology epoch {now.topology_epoch}",
        f"members: {versions or 'none'}",
    ]
    if now.warming_up and not now.pending:
        parts.append(f"{counted(len(now.warming_up), 'task')} warming up{_eta(now.eta_s)}")
    return "; ".join(parts)


def table(now: UpgradeStatus, *notes: str) -> Table:
    """The versions, what warms up, and what to do."""
    shown = Table(title=summary(now), title_justify="left", box=None, header_style="bold", caption_justify="left")
    for column in ("topology epoch", "version", "members", *ROLES):
        shown.add_column(column, justify="left" if column == "version" else "right")
    for row in now.versions:
        epoch = "?" if row.topology_epoch is None else str(row.topology_epoch)
        shown.add_row(epoch, row.digest or "-", str(row.members), *(str(row.tasks[role]) for role in ROLES))
    lines = [
        f"{each.task} warms up on {each.member}: "
        + (
            "no offsets reported yet"
            if each.behind is None
            else f"{each.offset:,} of {each.end:,}, {each.behind:,} behind"
        )
        + _eta(each.eta_s)
        for each in now.warming_up
    ]
    if now.last_assignment:
        lines.append(f"last assignment: {now.last_assignment}")
    shown.caption = "\n".join([*lines, *now.advice, *notes])
    return shown


def _eta(eta_s: float | None) -> str:
    return "" if eta_s is None else f", about {eta_s:.0f} s"
