"""``streamsrt groups``: what the group coordinator knows of running applications."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from streamsrt.assignment.in_flight import is_called_repartition
from streamsrt.cli.classic_group import (
    classic_members,
    classic_rebalances,
    classic_state,
    described_classic_group,
)
from streamsrt.cli.described_group import check_group, described_group, kind_of_group
from streamsrt.cli.group_lag import offset_rows
from streamsrt.cli.group_members import remove_members
from streamsrt.cli.group_offsets import delete_offsets, reset_offsets
from streamsrt.cli.offsets_backup import Offsets, offsets_to_restore, write_backup
from streamsrt.cli.output import note, print_json, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, cluster
from streamsrt.client.network import NetworkThread
from streamsrt.errors import ConfigError
from streamsrt.runtime.group_facts import described_rebalances, unread_records
from streamsrt.wording import counted

app = typer.Typer(help="Inspect and change streams groups, one per application.", no_args_is_help=True)
app.command("reset-offsets")(reset_offsets)
app.command("delete-offsets")(delete_offsets)
app.command("remove-members")(remove_members)

Group = Annotated[str, typer.Argument(help="application id")]

_VIEWS = ("offsets", "members", "state", "rebalances")


@app.command("list")
def list_groups(bootstrap_servers: BootstrapServers = None, as_json: AsJson = False) -> None:
    """List all groups with their types and states."""
    with cluster(bootstrap_servers) as network:
        groups = network.admin.list_groups()
    rows = [
        {"group": group.group_id, "type": group.group_type, "protocol": group.protocol_type, "state": group.state}
        for group in sorted(groups, key=lambda group: group.group_id)
    ]
    print_rows(["group", "type", "protocol", "state"], rows, as_json=as_json)


@app.command("describe")
def describe(
    group: Group,
    bootstrap_servers: BootstrapServers = None,
    view: Annotated[str, typer.Option("--view", help=f"one of {', '.join(_VIEWS)}")] = "offsets",
    verbose: Annotated[bool, typer.Option("--verbose", help="more columns")] = False,
    as_json: AsJson = False,
) -> None:
    """Show offsets and lag, members and their tasks, the state of a group, or why it was rebalanced and which tasks
    moved."""
    if view not in _VIEWS:
        raise ConfigError(f"unknown view {view!r}: give one of {', '.join(_VIEWS)}")
    with cluster(bootstrap_servers) as network:
        if view == "offsets":
            columns, rows = _offsets(network, group, verbose=verbose)
        elif kind_of_group(network, group) == "classic":
            columns, rows = _DESCRIBED_CLASSIC[view](described_classic_group(network, group), verbose=verbose)
        else:
            columns, rows = _DESCRIBED[view](described_group(network, group), verbose=verbose)
    print_rows(columns, rows, as_json=as_json)


def _offsets(network: NetworkThread, group: str, *, verbose: bool) -> tuple[list[str], list[dict[str, object]]]:
    rows = offset_rows(network, group)
    if not verbose:
        return ["group", "topic", "partition", "offset_lag"], rows
    return ["group", "topic", "partition", "current_offset", "leader_epoch", "log_end_offset", "offset_lag"], rows


def _members(described: Any, *, verbose: bool) -> tuple[list[str], list[dict[str, object]]]:
    rows = [
        {
            "group": described.group_id,
            "target_assignment_epoch": described.assignment_epoch,
            "topology_epoch": member.topology_epoch,
            "member": member.member_id,
            "member_epoch": member.member_epoch,
            "process": member.process_id,
            "client_id": member.client_id,
            "assignments": _assignments(member),
        }
        for member in described.members
    ]
    columns = ["group", "member", "process", "client_id", "assignments"]
    if verbose:
        columns[1:1] = ["target_assignment_epoch", "topology_epoch"]
        columns.insert(4, "member_epoch")
    return columns, rows


def _assignments(member: Any) -> str:
    parts = []
    for label, assignment in (("", member.assignment), ("TARGET-", member.target_assignment)):
        for role, tasks in (
            ("ACTIVE", assignment.active_tasks),
            ("STANDBY", assignment.standby_tasks),
            ("WARMUP", assignment.warmup_tasks),
        ):
            if tasks:
                listed = "; ".join(f"{task.subtopology_id}:{sorted(task.partitions)}" for task in tasks)
                parts.append(f"{label}{role}: {listed};")
    return " ".join(parts)


def _state(described: Any, *, verbose: bool) -> tuple[list[str], list[dict[str, object]]]:
    row = {
        "group": described.group_id,
        "state": described.group_state,
        "topology_epoch": "-" if described.topology is None else described.topology.epoch,
        "group_epoch": described.group_epoch,
        "target_assignment_epoch": described.assignment_epoch,
        "members": len(described.members),
    }
    if verbose:
        return ["group", "state", "topology_epoch", "group_epoch", "target_assignment_epoch", "members"], [row]
    return ["group", "state", "topology_epoch", "members"], [row]


def _rebalances(described: Any, *, verbose: bool) -> tuple[list[str], list[dict[str, object]]]:
    told = described_rebalances(described)
    if told is None:
        note(
            f"the broker does not report why group {described.group_id} was reassigned: Apache Kafka never does, and the "
            "bundled broker only since its start"
        )
        return ["group", "epoch", "at", "why", "moves"], []
    rows: list[dict[str, object]] = [
        {
            "group": described.group_id,
            "epoch": each["epoch"],
            "at": datetime.fromtimestamp(each["at_ms"] / 1000, UTC).isoformat(timespec="milliseconds"),
            "why": "; ".join(each["reasons"]),
            "moves": ", ".join(each["moves"]) or "no task moves",
        }
        for each in told
    ]
    return ["group", "epoch", "at", "why", "moves"], rows


_DESCRIBED = {"members": _members, "state": _state, "rebalances": _rebalances}
_DESCRIBED_CLASSIC = {"members": classic_members, "state": classic_state, "rebalances": classic_rebalances}


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(help="application ids")],
    bootstrap_servers: BootstrapServers = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    if not execute:
        note(
            f"would delete {', '.join(groups)} with all committed offsets: an application with this id then reads its input "
            "from the beginning, on top of the state that it has. Use --execute to do it"
        )
        return
    with cluster(bootstrap_servers) as network:
        results = network.admin.delete_groups(groups)
    failed = {name: error for name, error in results.items() if error is not None}
    if failed:
        raise ConfigError("; ".join(str(error) for error in failed.values()))
    if as_json:
        print_json({"deleted": groups})


@app.command("forget-topology")
def forget_topology(
    group: Group,
    bootstrap_servers: BootstrapServers = None,
    backup: Annotated[
        Path, typer.Option("--backup", help="file that the committed offsets are written to first")
    ] = Path("offsets-backup.json"),
    execute: Execute = False,
) -> None:
    """Delete a group that has no members and commit its offsets again, so that it accepts any topology.

    For brokers that do not support topology updates of a group. Stores and changelogs are not changed. If it fails after
    the group was deleted, the same command commits the offsets of the backup.
    """
    with cluster(bootstrap_servers) as network:
        offsets = network.admin.committed(group)
        left = offsets_to_restore(backup, group, offsets)
        if left is not None:
            note(f"an earlier forget-topology has deleted group {group}, and left its offsets in {backup}")
            if execute:
                _commit_again(network, group, left, backup)
            else:
                note(f"would commit {counted(len(left), 'offset')} of {backup}; use --execute to do it")
            return
        if not offsets:
            check_group(network, group)
        topics = {topic for topic, _ in offsets if is_called_repartition(group, topic)}
        for topic, count in sorted(unread_records(network.admin, group, topics, offsets).items()):
            note(
                f"{counted(count, 'record')} in flight in {topic}: if the next version does not have this repartition "
                "topic, let the old one read it to the end first"
            )
        if not execute:
            note(
                f"would delete group {group} and commit {counted(len(offsets), 'offset')} again; use --execute to do it"
            )
            return
        write_backup(backup, group, offsets, is_committed=False)
        error = network.admin.delete_groups([group])[group]
        if error is not None:
            write_backup(backup, group, offsets, is_committed=True)
            raise ConfigError(
                f"group {group!r} was not deleted: {error} Nothing was changed; stop all members first. Those with a "
                "group.instance.id stay in the group until their sessions have ended, unless they ran with `--leave` or are "
                f"removed: `streamsrt groups remove-members {group} --all --execute`"
            )
        _commit_again(network, group, offsets, backup)


def _commit_again(network: NetworkThread, group: str, offsets: Offsets, backup: Path) -> None:
    """Gives a group that was deleted its offsets back."""
    try:
        if offsets:
            network.admin.commit(group, offsets)
    except BaseException:
        note(
            f"group {group} is deleted, and what it had committed ({counted(len(offsets), 'offset')}) is only in {backup} "
            f"now. Start no instance before it is committed again: repeat `streamsrt groups forget-topology {group} "
            f"--backup {backup} --execute`"
        )
        raise
    write_backup(backup, group, offsets, is_committed=True)
    note(f"group {group} no longer has a topology; unchanged: {counted(len(offsets), 'offset')} (backup: {backup})")
