"""``streamsrt upgrade abort``: rolls an upgrade back, whether or not its instances run, without touching a process."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from streamsrt.cli.arguments import ConfigOverModule
from streamsrt.cli.group_members import ListedMember, remove
from streamsrt.cli.output import note, print_json
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, cluster
from streamsrt.cli.topology_versions import ready_application
from streamsrt.cli.upgrade.in_flight import InFlight, how_to_read, in_flight_lines, refusal, topics_left, unread_of
from streamsrt.cli.upgrade.preflight import of_broker
from streamsrt.cli.upgrade.status import Group
from streamsrt.cli.upgrade.unreadable_stores import unreadable_stores
from streamsrt.client.network import NetworkThread
from streamsrt.config import StreamsConfig, key_value_pairs
from streamsrt.errors import ConfigError, RequestFailedError
from streamsrt.runtime.group_facts import GroupFacts, MemberFacts, describe_when_settled, look
from streamsrt.runtime.rollback import has_epoch_of, members_to_remove, raise_epoch, runs
from streamsrt.runtime.store_origins import newer_values
from streamsrt.runtime.upgrade_status import member_name
from streamsrt.runtime.way_back import obstacle
from streamsrt.wire.error_codes import ErrorCode
from topology.graph.diff import Verdict
from topology.graph.topology import Topology

_PAUSE_S = 0.2
_ATTEMPTS = 5
_LET_RUN = "let the instances of the later version run"

LoseInFlight = Annotated[
    bool,
    typer.Option(
        "--lose-in-flight", help="leave records unread that only the later version can read; they stay in their topics"
    ),
]


@dataclass(frozen=True, slots=True)
class Rollback:
    """The actions of an abort, and whether they are ``executed``.

    ``next_one``: what the group gets, with the next epoch. ``topics``: those that nobody reads afterwards. ``refused``: the
    reason why it is refused, or empty. ``loses``: records in flight are left unread. ``has_epoch``: the group has the next
    epoch already.
    """

    old: str
    group: str
    protocol: str
    next_one: Topology
    leaving: Sequence[MemberFacts]
    staying: Sequence[MemberFacts]
    topics: frozenset[str]
    in_flight: InFlight
    refused: str
    lose_in_flight: bool
    executed: bool = False
    has_epoch: bool = False

    @property
    def epoch(self) -> int:
        return self.next_one.epoch

    @property
    def loses(self) -> bool:
        return bool(self.in_flight) and not self.refused

    @property
    def exit_code(self) -> int:
        """12 as well where records have been left unread that the user has not given up."""
        is_asked = self.executed and self.loses and not self.lose_in_flight
        return int(Verdict.INCOMPATIBLE) if self.refused or is_asked else 0

    def after_claim(self, unread: InFlight) -> Rollback:
        """What is left to do once the group has the next epoch. Nobody is removed if records are unread now that were not
        there before: the instances that read them go on, and the way back is that of an upgrade."""
        claimed = replace(self, has_epoch=True, in_flight=unread)
        if not unread or not self.leaving or self.lose_in_flight:
            return claimed
        why = (
            "these records were written while the rollback was under way, and only the later version reads them. The group "
            "has the next epoch, and no instance is removed. Without the later version they stay unread, and tasks that "
            f"share state with their readers wait. {how_to_read(self.old, self.group, self.epoch, _LET_RUN)}"
        )
        return replace(claimed, refused=why)

    @property
    def command(self) -> str:
        """The command that starts an instance of the former version."""
        more = " --lose-in-flight" if self.loses else ""
        return f"streamsrt run {self.old} -a {self.group} --config topology.epoch={self.epoch}{more}"

    def to_json(self) -> dict[str, object]:
        return {
            "group": self.group,
            "topology_epoch": self.epoch,
            "executed": self.executed,
            "removed": [member_name(each) for each in self.leaving],
            "staying": [member_name(each) for each in self.staying],
            "in_flight": dict(self.in_flight),
            "refused": self.refused,
        }


def abort(
    old: Annotated[
        str, typer.Argument(help="MODULE:ATTRIBUTE of the version to roll back to; its code must be available")
    ],
    group: Group,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigOverModule = None,
    lose_in_flight: LoseInFlight = False,
    execute: Execute = False,
    timeout_s: Annotated[float, typer.Option("--timeout", help="seconds for each step", min=1.0)] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Roll an upgrade back: the group returns to OLD, under the next epoch, and members with a later version are
    removed.

    These members need not be running. Those that are running are rejected when they rejoin, and exit with code 2.
    Instances
    of OLD take over the tasks, with their existing state. If no instance of OLD is running, no member is removed:
    start one first. Each rollback takes the next epoch, even if no later version has joined: plans made before are then
    invalid.

    Exit codes: 12 refused, because records are in flight that only the later version reads, or because it has written
    values of stores that OLD can't read. The records are counted again when the group has the next epoch, before any
    member is removed, and at the end: 12 if some have appeared in the meantime.
    """
    settings = key_value_pairs(config or [])
    former = ready_application(old, settings)
    with cluster(bootstrap_servers, read_committed=True) as network:
        for _ in range(_ATTEMPTS):
            made = _look(network, old, group, former, lose_in_flight=lose_in_flight)
            if not execute or made.refused:
                break
            claimed = _carry_out(network, made, settings, timeout_s)
            if claimed is not None:
                made = claimed
                break
        else:
            raise RequestFailedError(
                f"other versions join group {group} with each next epoch before the rollback can: stop starting them, and "
                "try again",
                ErrorCode.REQUEST_TIMED_OUT,
            )
        if execute and not made.refused:
            made = replace(made, executed=True, in_flight=unread_of(network, group, made.topics))
    print_json(made.to_json()) if as_json else show(made)
    raise typer.Exit(made.exit_code)


def _look(network: NetworkThread, old: str, group: str, former: Topology, *, lose_in_flight: bool) -> Rollback:
    """What the rollback would do now. Raises ConfigError if there is none."""
    facts = describe_when_settled(network.admin, group)
    why = [*of_broker(network, group, facts.kind)]
    if why:
        raise ConfigError(why[0])
    if facts.strangers and not facts.epochs:
        raise ConfigError(
            f"group {group} has {facts.strangers}, and none of streamsrt: there is no upgrade that could be rolled back"
        )
    epoch = max(facts.epochs, default=former.epoch) if facts.epoch is None else facts.epoch + 1
    leaving = members_to_remove(facts, former)
    staying = [each for each in facts.members if runs(each, former)]
    unreadable = unreadable_stores(network, group, former)
    topics = topics_left(network, facts, former, leaving, staying, is_raised=has_epoch_of(facts, former))
    unread = unread_of(network, group, topics)
    blocked = obstacle(leaving, staying, has_later_values=bool(unreadable), has_unread=bool(unread))
    if blocked == "nobody":
        raise ConfigError(_nobody_stays(old, facts, epoch, leaving, writes_newer=_writes_newer(group, former, leaving)))
    why_not = "; ".join(unreadable) if blocked == "values" else ""
    if blocked == "records" and not lose_in_flight:
        steps = _step_by_step(old, group, leaving)
        why_not = f"each later version reads its own. {steps}" if steps else refusal(old, facts, epoch, leaving)
    why_not = why_not or stop_first(facts, former, leaving)
    if facts.epoch is None and not facts.members and not why_not:
        raise ConfigError(_nothing_to_roll_back(old, group))
    next_one = replace(former, epoch=epoch)
    return Rollback(old, group, facts.kind, next_one, leaving, staying, topics, unread, why_not, lose_in_flight)


def _carry_out(
    network: NetworkThread, made: Rollback, settings: Mapping[str, object], timeout_s: float
) -> Rollback | None:
    """Claims the next epoch and removes the members, unless records have appeared that only these read. None: another
    version has taken the epoch in the meantime."""
    values = {**settings, "application.id": made.group, "group.protocol": made.protocol}
    if made.lose_in_flight:
        values["upgrade.lose.in.flight"] = "true"
    if not raise_epoch(network, StreamsConfig.of(values), made.next_one, timeout_s):
        return None
    claimed = made.after_claim(unread_of(network, made.group, made.topics))
    if not claimed.refused:
        _remove(network, made.group, made.leaving, timeout_s)
    return claimed


def _writes_newer(group: str, former: Topology, leaving: Sequence[MemberFacts]) -> bool:
    """Whether a leaving member is about to write values that ``former`` can't read."""
    return any(list(newer_values(group, former, each.value_versions)) for each in leaving)


def stop_first(facts: GroupFacts, former: Topology, leaving: Sequence[MemberFacts]) -> str:
    """Why a classic group would not take ``former``: the leader compares it with all members, whatever they have written.
    Empty if it would."""
    newer = [each for each in leaving if any(newer_values(facts.name, former, each.value_versions))]
    if facts.kind != "classic" or not newer:
        return ""
    names = ", ".join(map(member_name, newer))
    return (
        f"instances run that are about to write values which the former version can't read ({names}), and a classic group "
        "takes no such version beside them. Stop them first; those that were killed stay in the group until their sessions "
        "expire. Then try again: this command says whether they have written such values"
    )


def _nothing_to_roll_back(old: str, group: str) -> str:
    return (
        f"group {group} is a classic group without members, so it has no topology that could be rolled back. Start {old} "
        f"with a topology epoch above that of the later version: streamsrt run {old} -a {group} --config topology.epoch=N"
    )


def _nobody_stays(
    old: str, facts: GroupFacts, epoch: int, leaving: Sequence[MemberFacts], *, writes_newer: bool
) -> str:
    run = f"streamsrt run {old} -a {facts.name} --config topology.epoch={epoch}"
    why = f"no instance of {old} runs in group {facts.name}, so no instance would take over the tasks"
    if writes_newer:
        return (
            f"{why}, and it can't read the values that the later version is about to write: stop all instances, check "
            f"again with this command, then start {old} ({run})"
        )
    if steps := _step_by_step(old, facts.name, leaving):
        return f"{why}, and an upgrade is under way. {steps}"
    return (
        f"{why}: start one first ({run}). It takes over tasks when it is warmed up; then continue instance by instance, as "
        "in any upgrade"
    )


def _step_by_step(old: str, group: str, leaving: Sequence[MemberFacts]) -> str:
    """The commands, in order, that lead back over several versions; empty if members with only one version leave."""
    running = sorted({each.epoch for each in leaving if each.epoch is not None}, reverse=True)
    if len(running) < 2:
        return ""
    before = running[1]
    steps = [
        f"streamsrt upgrade abort BEFORE --group {group} --execute, where BEFORE is the version of topology epoch {before}",
        f"when streamsrt upgrade status --group {group} shows no instance of epoch {running[0]}: streamsrt upgrade plan "
        f"{old} --group {group} --out plan.json, as for an upgrade",
        f"instance by instance: stop it, then streamsrt upgrade start {old} --plan plan.json",
    ]
    return "Go back step by step: " + "; ".join(f"({number}) {step}" for number, step in enumerate(steps, 1))


def _remove(network: NetworkThread, group: str, leaving: Sequence[MemberFacts], timeout_s: float) -> None:
    """Removes these members, and waits until none of them has come back."""
    failed = remove(network, group, [ListedMember(each.member_id, each.instance_id, each.is_away) for each in leaving])
    if failed:
        raise ConfigError("; ".join(failed))
    gone = {each.member_id for each in leaving}
    deadline = time.monotonic() + timeout_s
    while gone & {each.member_id for each in look(network.admin, group).members}:
        if time.monotonic() > deadline:
            raise RequestFailedError(
                f"members of group {group} have not left yet: try again", ErrorCode.REQUEST_TIMED_OUT
            )
        time.sleep(_PAUSE_S)


def show(made: Rollback) -> None:
    did = "is now" if made.has_epoch else "would be"
    does = "removed" if made.executed else "not removed" if made.has_epoch else "to be removed"
    say = sys.stdout.write
    say(f"the topology of group {made.group} {did} that of {made.old}, with topology epoch {made.epoch}\n")
    for each in made.leaving:
        say(f"{member_name(each)} ({each.client_id} on {each.host}), topology epoch {each.epoch}: {does}\n")
    say(f"instances that stay: {', '.join(map(member_name, made.staying)) or 'none'}\n")
    for line in in_flight_lines(made.old, made.in_flight):
        say(f"{line}\n")
    if made.refused:
        say(f"refused: {made.refused}\n")
        note("no instance is removed" if made.has_epoch else "nothing is changed")
        return
    if made.loses:
        say("these records stay unread; start instances with --lose-in-flight, otherwise they wait for them\n")
    if made.exit_code:
        say(
            "they were written while the instances were removed. To have them read instead: start the later version again "
            f"with topology.epoch={made.epoch + 1}, beside instances of {made.old} that run without --lose-in-flight, and "
            "roll back when nothing is in flight\n"
        )
    if made.leaving:
        say("a removed instance that still runs ends with exit code 2, also when it is restarted\n")
    say(
        "start each stopped instance that you want to keep, with its state directory, and each new one, with the former "
        "version and the new epoch:\n"
    )
    say(f"  {made.command}\n")
    say("with a lock file, in the former release:\n")
    say(f"  streamsrt topology lock {made.old} --config topology.epoch={made.epoch}\n")
    if not made.executed:
        note("nothing is changed: use --execute to do it")
