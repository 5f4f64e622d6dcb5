"""``streamsrt groups remove-members``: removes static members that are away, before their sessions end.

1. A streams group shows who is away: the member epoch is -2. Such a member is removed by the heartbeat that it would
   have sent with ``--leave``; members that still run are not touched.
2. A classic group does not show it. Its members are removed by LeaveGroup, static ones by their instance id, whether or
   not they run: one that runs joins again, or ends as fenced (KIP-571).

Source: KIP-571, KIP-1071, ``KafkaAdminClient.removeMembersFromConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from streamsrt.cli.classic_group import described_classic_group
from streamsrt.cli.described_group import described_group, kind_of_group
from streamsrt.cli.output import note, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, cluster
from streamsrt.client.network import NetworkThread
from streamsrt.errors import ConfigError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wording import counted

_LEAVE_EPOCH = -1
_AWAY_EPOCH = -2
_REASON = "removed by streamsrt groups remove-members"
_GONE = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID})
"""Who is not in the group any more need not be removed."""


class ListedMember(NamedTuple):
    """One member. ``is_away`` None: its protocol does not tell."""

    member_id: str
    instance_id: str | None
    is_away: bool | None


def remove_members(
    group: Annotated[str, typer.Argument(help="application id")],
    bootstrap_servers: BootstrapServers = None,
    instances: Annotated[
        list[str] | None, typer.Option("--instance", help="group.instance.id of a member; repeatable")
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="all static members that have stopped; in a classic group, all members")
    ] = False,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Remove static members that have stopped, so that their tasks move immediately instead of when their sessions
    expire.

    A member that was killed counts as running until its session expires, and is then removed anyway.
    """
    if everyone is bool(instances):
        raise ConfigError("give the members to remove: --instance ID (repeatable) or --all")
    with cluster(bootstrap_servers) as network:
        found = _members(network, group)
        chosen = _all(found) if everyone else _named(group, found, instances or ())
        rows: list[dict[str, object]] = [
            {"group": group, "instance": each.instance_id or "-", "member": each.member_id} for each in chosen
        ]
        print_rows(["group", "instance", "member"], rows, as_json=as_json)
        if everyone and (left := [each for each in found if each.is_away is False]):
            note(
                f"left out: {counted(len(left), 'member')}, running or killed. One that was killed counts as running until "
                "its session expires, and is then removed anyway"
            )
        if not execute:
            note("nothing is changed: use --execute to do it")
            return
        failed = remove(network, group, chosen)
    if failed:
        raise ConfigError("; ".join(failed))
    note(f"removed {len(chosen)} member{'' if len(chosen) == 1 else 's'} of group {group}")


def _members(network: NetworkThread, group: str) -> list[ListedMember]:
    kind = kind_of_group(network, group)
    if kind == "streams":
        return [
            ListedMember(
                each.member_id, each.instance_id, None if each.is_classic else each.member_epoch == _AWAY_EPOCH
            )
            for each in described_group(network, group).members
        ]
    if kind != "classic":
        raise ConfigError(
            f"group {group} is a {kind} group: remove-members is for streams and classic groups. Its static members "
            "leave when their sessions end"
        )
    described = described_classic_group(network, group)
    return [ListedMember(each.member_id, each.group_instance_id, None) for each in described.members]


def _all(found: Sequence[ListedMember]) -> list[ListedMember]:
    """Who is away, and of those that don't tell everybody."""
    return [each for each in found if each.is_away is not False]


def _named(group: str, found: Sequence[ListedMember], instances: Sequence[str]) -> list[ListedMember]:
    by_instance = {each.instance_id: each for each in found if each.instance_id is not None}
    missing = sorted(set(instances) - set(by_instance))
    if missing:
        there = ", ".join(sorted(by_instance)) or "none"
        raise ConfigError(
            f"group {group} has no member with the group.instance.id {', '.join(missing)}; it has: {there}"
        )
    chosen = [by_instance[instance] for instance in dict.fromkeys(instances)]
    running = [str(each.instance_id) for each in chosen if each.is_away is False]
    if running:
        raise ConfigError(
            f"{', '.join(running)} of group {group} is running: stop the instance first. A killed instance counts as "
            "running until its session ends, and is then removed anyway"
        )
    return chosen


def remove(network: NetworkThread, group: str, chosen: Sequence[ListedMember]) -> list[str]:
    """Removes them; what went wrong."""
    failed = []
    for each in chosen:
        if each.is_away is None:
            continue
        beat = types.StreamsGroupHeartbeatRequest(
            group_id=group, member_id=each.member_id, member_epoch=_LEAVE_EPOCH, instance_id=each.instance_id
        )
        answer = network.request(beat, coordinator_of=group).result()
        if answer.error_code not in _GONE:
            reason = answer.error_message or error_name(answer.error_code)
            failed.append(f"{each.instance_id or each.member_id} was not removed: {reason}")
    untold = [each for each in chosen if each.is_away is None]
    if untold:
        failed += _leave_group(network, group, untold)
    return failed


def _leave_group(network: NetworkThread, group: str, members: Sequence[ListedMember]) -> list[str]:
    identity = types.LeaveGroupRequest.MemberIdentity
    request = types.LeaveGroupRequest(
        group_id=group,
        members=[
            identity(
                member_id=each.member_id if each.instance_id is None else "",
                group_instance_id=each.instance_id,
                reason=_REASON,
            )
            for each in members
        ],
    )
    answer = network.request(request, coordinator_of=group).result()
    if answer.error_code:
        return [f"no member was removed from group {group}: {error_name(answer.error_code)}"]
    return [
        f"{each.group_instance_id or each.member_id} was not removed: {error_name(each.error_code)}"
        for each in answer.members
        if each.error_code not in _GONE
    ]
