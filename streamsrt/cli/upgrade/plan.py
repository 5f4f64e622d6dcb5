"""``streamsrt upgrade plan``: what a new version does to a running application, and whether it may start.

1. A plan *refuses* where the group, the topics or the rights would stop the new version, where its state would be
   misread, and where records in flight would be lost. Everything else that costs something is a row or a note.
2. Its epoch is fixed when it is made: instances that are started again and again with an old plan begin no other
   upgrade.
3. Times are what one instance takes that restores alone, at a speed that is measured here and now.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import orjson
import typer

from streamsrt.cli.arguments import ConfigOverModule
from streamsrt.cli.output import note, print_json, print_reasons, print_rows
from streamsrt.cli.restored_state import ALONE, RestoredState, restored_state
from streamsrt.cli.session import AsJson, BootstrapServers, cluster
from streamsrt.cli.topology_versions import RunningGroup, ready_application, running_group, version_of
from streamsrt.cli.upgrade.preflight import of_broker, refusals
from streamsrt.cli.upgrade.status import Group
from streamsrt.client.network import NetworkThread
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError
from streamsrt.wording import counted
from topology.graph.diff import NO_WAY_BACK, StateChange, TopologyDiff, Verdict
from topology.graph.diff import diff as compare
from topology.graph.outline import TopologyOutline, outline
from topology.graph.topology import Topology

FORMAT = 1
_READ_FIRST = "stop the producers, and let the old version read it to the end"


@dataclass(frozen=True, slots=True)
class PlannedState:
    """One store or topic. ``restores``: the number of records that an instance reads to restore it, and ``seconds`` the
    time that this takes.

    Both are None if nothing is read, or if it is not known.
    """

    kind: str
    name: str
    fate: str
    source: str
    restores: int | None = None
    seconds: float | None = None
    why: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """``refusals``: why the new version may not start. ``each_instance``: what an instance of the new version must
    have."""

    format: int = FORMAT
    group: str
    protocol: str
    state: str
    members: Mapping[int, int]
    epoch_before: int
    epoch_needed: int
    digest: str
    verdict: str
    records_per_second: float | None
    subtopologies: tuple[Mapping[str, object], ...]
    sources: tuple[Mapping[str, object], ...]
    rows: tuple[PlannedState, ...]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    each_instance: tuple[str, ...]
    bootstrap_servers: str | None = None
    """As they were named; None: the bundled broker of the directory in which the plan was made."""
    cluster_id: str | None = None

    @property
    def exit_code(self) -> int:
        return int(Verdict.INCOMPATIBLE if self.refusals else Verdict[self.verdict])


Old = Annotated[
    str | None,
    typer.Option("--old", help="the running version, MODULE:ATTRIBUTE or a saved file: for what instances don't tell"),
]
LoseInFlight = Annotated[
    bool, typer.Option("--lose-in-flight", help="accept that records in removed topics stay unread")
]


def plan(
    new: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of the new version")],
    group: Group,
    old: Old = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigOverModule = None,
    out: Annotated[Path | None, typer.Option("--out", help="file for `upgrade start --plan`")] = None,
    lose_in_flight: LoseInFlight = False,
    as_json: AsJson = False,
) -> None:
    """Check whether a new version can run safely, and show what happens to state, records and instances.

    Exit codes: 0 the same topology; 10 all state is carried over; 11 some state starts empty or is left behind; 12 it must
    not start.
    """
    topology = ready_application(new, key_value_pairs(config or []))
    with cluster(bootstrap_servers) as network:
        given = None if old is None else version_of(old)
        made = made_plan(network, group, topology, given, lose_in_flight=lose_in_flight)
        made = replace(made, bootstrap_servers=bootstrap_servers, cluster_id=network.admin.cluster().cluster_id)
    if out is not None:
        _write(out, made)
    if as_json:
        print_json(asdict(made))
    else:
        _show(made, out)
    raise typer.Exit(made.exit_code)


def made_plan(
    network: NetworkThread, group: str, new: Topology, old: TopologyOutline | None, *, lose_in_flight: bool
) -> UpgradePlan:
    """The plan for a running group. Raises ConfigError if there is no such group, or if its instances run another version
    than ``old``."""
    version = outline(new)
    running = running_group(network, group, version, old, how=" with --old")
    if old is not None:
        running.check_runs(old, version)
    before = running.outline(version) if old is None else running.seen_by(old)
    told = running.kept(before, version) if old is None else None
    found = compare(before, version, running.cluster_topics(), told)
    is_in_one_step = any(of_broker(network, group, running.kind))
    if is_in_one_step:
        found = in_one_step(found, group)
    restored = restored_state(network, running, before, version, found)
    rows = tuple(_row(each, restored) for each in found.state)
    ready = replace(new, epoch=found.epoch_needed)
    in_flight = list(in_flight_notes(found, running, is_in_one_step=is_in_one_step))
    are_lost = not lose_in_flight and not running.members and not running.strangers
    return UpgradePlan(
        group=group,
        protocol=running.kind,
        state=running.state,
        members=running.members,
        epoch_before=found.epoch_before,
        epoch_needed=found.epoch_needed,
        digest=version.digest,
        verdict=found.verdict.name,
        records_per_second=restored.records_per_second,
        subtopologies=tuple({**asdict(each), "why": each.why} for each in found.subtopologies),
        sources=tuple({**asdict(each), "records": running.of_topic(each.name)["records"]} for each in found.sources),
        rows=rows,
        refusals=(
            *(f"{each.kind} {each.name}: {each.reason}" for each in found.state if each.fate == "incompatible"),
            *_beside_strangers(found, running),
            *([] if lose_in_flight else why_it_would_wait(running, version)),
            *refusals(network, group, running.kind, ready),
            *(in_flight if are_lost else []),
        ),
        notes=(
            *notes(found, running, is_in_one_step=is_in_one_step),
            *([] if old is not None else filter(None, [running.not_compared(before, version, "--old")])),
            *running.unread_sources(found),
            *([] if are_lost else in_flight),
        ),
        each_instance=tuple(_each_instance(found, running)),
    )


def _row(change: StateChange, restored: RestoredState) -> PlannedState:
    topics = restored.topics[change]
    return PlannedState(
        kind=change.kind,
        name=change.name,
        fate=change.fate if topics or change.fate != "carried over" else "unchanged",
        source=", ".join(topics),
        restores=restored.records(change),
        seconds=restored.seconds(change),
        why=change.reason,
        cure=change.cure.replace("APP", restored.running.name),
    )


# -------------------------------------------------------------------------------------------------------- what it says


def in_one_step(found: TopologyDiff, group: str) -> TopologyDiff:
    """The differences with advice for a broker that does not update a topology: all instances of the old version stop
    before the first one of the new version starts."""
    return replace(
        found,
        state=tuple(
            replace(each, cure=_cure_in_one_step(each, group))
            if (each.kind, each.fate) == ("repartition topic", "orphaned")
            else each
            for each in found.state
        ),
    )


def _cure_in_one_step(change: StateChange, group: str) -> str:
    """What to do about a repartition topic that is removed, if old and new instances can't run at the same time."""
    topics = " ".join(f"{group}-{topic}" for topic in change.topics)
    return (
        f"{_READ_FIRST}: stop its last instance when streamsrt upgrade status --group {group} shows no unread records; "
        f"afterwards streamsrt topics delete {topics} --execute"
    )


def in_flight_notes(found: TopologyDiff, running: RunningGroup, *, is_in_one_step: bool) -> Iterator[str]:
    """What becomes of unread records in repartition topics that are removed."""
    for each in found.state:
        count = running.records(each) if (each.kind, each.fate) == ("repartition topic", "orphaned") else None
        if count and is_in_one_step:
            again = "" if running.members else "start the old version again, "
            yield (
                f"repartition topic {each.name} is removed with {counted(count, 'unread record')}, and on this broker old "
                f"and new instances can't run together: {again}{_READ_FIRST} before you go on, or leave the records unread "
                "in that topic (--lose-in-flight)"
            )
        elif count and running.members:
            yield (
                f"repartition topic {each.name} is removed with {counted(count, 'record')} in flight: old "
                "instances read them first. Leave one running until the new ones no longer wait for "
                "these records"
            )
        elif count:
            yield (
                f"repartition topic {each.name} is removed with {counted(count, 'unread record')}: run the old "
                "version and the new one together, or leave the records unread in that topic "
                "(--lose-in-flight)"
            )


def why_it_would_wait(running: RunningGroup, new: TopologyOutline) -> Iterator[str]:
    """Why a further version would not run: tasks of the present one wait for records that it does not read either."""
    own = {f"{running.name}-{topic}" for topic in new.repartition_topics}
    topics = ", ".join(sorted(running.awaited - own))
    if topics:
        who = "nothing is processed in this group, because all tasks" if running.stands_still else "tasks of the group"
        yield (
            f"{who} wait for records in flight in {topics}, which no instance reads, and this version does not read them "
            f"either. First do what streamsrt upgrade status --group {running.name} --once advises, or leave the records "
            "unread (--lose-in-flight)"
        )


def _beside_strangers(found: TopologyDiff, running: RunningGroup) -> Iterator[str]:
    """Why the new version can't run beside members of other clients."""
    if "Java" in running.strangers and found.verdict is not Verdict.SAME:
        yield (
            f"{running.strangers} run, which have no topology epochs: beside them, instances with another topology are "
            "rejected. First replace them with instances of streamsrt that run the same topology, or stop them all"
        )
    elif running.strangers and "Java" not in running.strangers:
        yield f"{running.strangers} run, and instances of streamsrt can't be in one group with them: stop them all first"


def notes(found: TopologyDiff, running: RunningGroup, *, is_in_one_step: bool = False) -> Iterator[str]:
    if not running.members and not running.strangers:
        yield "no instance runs: this is an ordinary start, and nothing is handed over"
    behind = {epoch: count for epoch, count in running.members.items() if epoch < running.epoch}
    if running.rolled_back_to and running.epoch not in running.members:
        epochs = ", ".join(map(str, running.rolled_back_to))
        yield (
            f"the group was rolled back: instances with topology epoch {epochs} run its topology until they are restarted, "
            f"with topology.epoch={running.epoch} or the new version"
        )
    elif running.members and running.epoch not in running.members:
        yield (
            f"no instance runs the group's topology epoch {running.epoch}: its version was rolled back or has failed. All "
            "instances run an older one"
        )
    elif behind and found.verdict is not Verdict.SAME:
        yield (
            f"an upgrade to epoch {running.epoch} is under way (on an older version: "
            f"{counted(sum(behind.values()), 'instance')}): finish it or roll it back before the next one. This plan "
            f"compares with epoch {running.epoch} only, and not with what the others keep"
        )
    for each in found.state:
        if NO_WAY_BACK in each.reason:
            yield f"store {each.name}: {NO_WAY_BACK[0].lower()}{NO_WAY_BACK[1:]} (streamsrt upgrade abort is refused)"
    if sum(running.members.values()) == 1 and not is_in_one_step:
        yield (
            "only one instance runs: while it is stopped, nothing is processed. Start the new version in addition, then "
            "stop it"
        )


def _each_instance(found: TopologyDiff, running: RunningGroup) -> Iterator[str]:
    yield f"topology.epoch={found.epoch_needed} (streamsrt upgrade start sets it)"
    yield f"application.id={running.name}, and group.protocol={running.kind}"
    yield "the state.dir of the instance that it replaces, so that unchanged tasks find their state"
    yield "disk space for the stores of new tasks, in addition to the existing ones, until the old instances have stopped"
    yield "group.instance.id, if the old one has one: its tasks wait for it while it restarts"


def _show(made: UpgradePlan, out: Path | None) -> None:
    members = ", ".join(f"{count} with epoch {epoch}" for epoch, count in made.members.items()) or "none"
    say = sys.stdout.write
    say(f"group {made.group} ({made.protocol}): {made.state}, topology epoch {made.epoch_before}, members: {members}\n")
    if made.verdict == Verdict.SAME.name:
        say(f"the same topology: epoch {made.epoch_before} stays\n")
        for row in made.rows:
            say(f"{row.kind} {row.name}: {row.why}\n" if row.why else "")
    else:
        _show_changes(made)
    for each in made.notes:
        say(f"note: {each}\n")
    for each in made.refusals:
        say(f"refused: {each}\n")
    if made.refusals:
        say("the new version must not start: the running one is not affected\n")
        return
    say("each instance of the new version needs:\n" + "".join(f"  {each}\n" for each in made.each_instance))
    file = "PLAN" if out is None else str(out)
    say(f"next, instance by instance: stop it, then run streamsrt upgrade start NEW --plan {file}\n")


def _reasons(row: PlannedState) -> tuple[str, str]:
    """Why a store or topic changes as it does, and which records are read for it."""
    if row.fate == "rebuilt":
        return row.why, row.source and f"it reads {row.source} from the start"
    return row.source and f"restored from {row.source}", row.why


def _show_changes(made: UpgradePlan) -> None:
    rows: list[dict[str, object]] = [
        {"what": "subtopology", "name": each["id"], "change": each["change"], "why": each["why"]}
        for each in made.subtopologies
    ]
    rows += [{"what": "source topic", **each} for each in made.sources if each["change"] != "same"]
    for each in made.rows:
        seconds = "" if each.seconds is None else each.seconds
        count = "" if each.restores is None else each.restores
        rows.append(
            {
                "what": each.kind,
                "name": each.name,
                "change": each.fate,
                "records": count,
                "seconds": seconds,
                "why": "; ".join(filter(None, _reasons(each))),
            }
        )
    print_rows(["what", "name", "change", "records", "seconds"], rows, as_json=False)
    print_reasons(rows)
    for each in made.rows:
        if each.cure:
            sys.stdout.write(f"{each.kind} {each.name}: {each.cure}\n")
    if made.records_per_second is not None:
        sys.stdout.write(f"seconds: {ALONE}, at {made.records_per_second:,.0f} records/s (measured)\n")


# --------------------------------------------------------------------------------------------------------- as a file


def _write(path: Path, made: UpgradePlan) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(orjson.dumps(asdict(made), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"plan {path} can't be written: {error.strerror}") from None
    note(f"the plan is in {path}")


@dataclass(frozen=True, slots=True)
class AgreedPlan:
    """What `upgrade start` takes from a file."""

    group: str
    epoch_before: int
    epoch_needed: int
    digest: str
    refusals: tuple[str, ...]
    bootstrap_servers: str | None
    cluster_id: str | None

    def check_cluster(self, path: Path, address: str | None, cluster_id: str | None) -> None:
        """Raises ConfigError for another cluster: judged by the ids, or by the addresses if a cluster has no id."""
        if self.cluster_id is not None and cluster_id is not None:
            is_the_same = self.cluster_id == cluster_id
        else:
            is_the_same = _addresses(self.bootstrap_servers) == _addresses(address)
        if not is_the_same:
            made_with = self.bootstrap_servers or "the bundled broker of another directory"
            raise ConfigError(
                f"plan {path} was made for another cluster ({made_with}) than {address or 'the one of this directory'}: "
                "leave --bootstrap-servers (and STREAMSRT_BOOTSTRAP_SERVERS) out to use the plan's, or make a new plan"
            )


def _addresses(servers: str | None) -> frozenset[str]:
    return frozenset(each.strip() for each in (servers or "").split(","))


def read_plan(path: Path) -> AgreedPlan:
    """Raises ConfigError."""
    try:
        found = orjson.loads(path.read_bytes())
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}")
        return AgreedPlan(
            str(found["group"]),
            int(found["epoch_before"]),
            int(found["epoch_needed"]),
            str(found["digest"]),
            tuple(map(str, found["refusals"])),
            found.get("bootstrap_servers"),
            found.get("cluster_id"),
        )
    except OSError as error:
        raise ConfigError(f"plan {path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a plan ({error}): make one with `streamsrt upgrade plan NEW --out {path}`"
        ) from None
