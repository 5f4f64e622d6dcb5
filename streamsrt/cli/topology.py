"""``streamsrt topology``: what an application computes, without running it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from streamsrt.cli.application import load_described
from streamsrt.cli.arguments import ConfigOverModule
from streamsrt.cli.output import note, print_json, print_reasons, print_rows
from streamsrt.cli.restored_state import ALONE, RestoredState, restored_state
from streamsrt.cli.session import AsJson, BootstrapServers, cluster
from streamsrt.cli.topology_versions import ready_application, running_group, version_of
from streamsrt.cli.upgrade.plan import in_one_step
from streamsrt.cli.upgrade.preflight import of_broker
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError
from streamsrt.runtime.topology_lock import LOCK_FILE, outdated_text, read_lock, write_lock
from streamsrt.wording import counted
from topology.graph.diff import TopologyDiff, Verdict
from topology.graph.diff import diff as compare
from topology.graph.outline import TopologyOutline, outline

app = typer.Typer(help="Describe, compare and lock topologies.", no_args_is_help=True)

Application = Annotated[
    str,
    typer.Argument(
        help="MODULE:ATTRIBUTE or FILE:ATTRIBUTE of a topology, e.g. examples.flights:topology or ./app.py:topology"
    ),
]


@app.command("describe")
def describe(application: Application, config: ConfigOverModule = None, as_json: AsJson = False) -> None:
    """Subtopologies with their nodes, stores and topics, as Kafka Streams' describe() prints them.

    With --json: the file to compare the next version with. If the module does not set the version's topology.epoch,
    pass it with --config.
    """
    if not as_json:
        sys.stdout.write(load_described(application).topology.describe())
        return
    print_json(outline(ready_application(application, key_value_pairs(config or []))).to_json())


@app.command("diff")
def diff(
    versions: Annotated[
        list[str],
        typer.Argument(
            metavar="[OLD] NEW",
            help="each MODULE:ATTRIBUTE, or a file of `topology describe --json`; OLD may be --group",
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="application id: compare with what runs, its epoch and topics too"),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigOverModule = None,
    as_json: AsJson = False,
) -> None:
    """Show what happens to the state when NEW replaces OLD, and which topology epoch NEW needs.

    With --group, the partitions, settings and records of the topics are checked as well, and the restore time is
    measured. OLD can then be omitted: running instances tell what they keep, and what they don't tell is listed. Exit
    codes: 0 the same topology; 10 all state is carried over; 11 some state starts empty or is left behind; 12
    incompatible.
    """
    if len(versions) > 2 or len(versions) < (1 if group else 2):
        raise ConfigError("give OLD and NEW, or NEW and --group APPLICATION_ID")
    new = version_of(versions[-1], key_value_pairs(config or []))
    old = version_of(versions[0]) if len(versions) == 2 else None
    restored: RestoredState | None = None
    remarks: list[str] = []
    if group is None:
        assert old is not None
        found = compare(old, new)
    else:
        with cluster(bootstrap_servers) as network:
            running = running_group(network, group, new, old, how=" before the new one")
            if old is not None and not running.runs(old):
                note(f"no member of group {group} runs the version given as OLD: another version runs")
            known = running.outline(new) if old is None else running.seen_by(old)
            told = running.kept(known, new) if old is None else None
            found = compare(known, new, running.cluster_topics(), told)
            remarks = [] if old is not None else [*filter(None, [running.not_compared(known, new, "OLD before NEW")])]
            refusals = list(of_broker(network, group, running.kind))
            if refusals:
                found = in_one_step(found, group)
                remarks += refusals
            restored = restored_state(network, running, known, new, found)
    if as_json:
        print_json(_as_json(found, restored))
    else:
        show(found, restored, remarks)
    raise typer.Exit(int(found.verdict))


def _as_json(found: TopologyDiff, restored: RestoredState | None) -> dict[str, object]:
    said: dict[str, object] = {**asdict(found), "verdict": found.verdict.name}
    if restored is None:
        return said
    running = restored.running
    said["running"] = running.to_json()
    said["restored_records_per_second"] = restored.records_per_second
    said["state"] = [
        {
            **asdict(each),
            "cure": each.cure.replace("APP", running.name),
            "records": running.records(each),
            "restores": restored.records(each),
            "seconds": restored.seconds(each),
        }
        for each in found.state
    ]
    said["sources"] = [{**asdict(each), **running.of_topic(each.name)} for each in found.sources]
    return said


def _rows(found: TopologyDiff, restored: RestoredState | None) -> Iterator[dict[str, object]]:
    for part in found.subtopologies:
        yield {"what": "subtopology", "name": part.id, "change": part.change, "why": part.why}
    for source in found.sources:
        row: dict[str, object] = {"what": "source topic", "name": source.name, "change": source.change}
        if restored is not None:
            about = restored.running.of_topic(source.name)
            row["records"] = about["records"]
            partitions = about["partitions"]
            row["why"] = "it does not exist" if partitions is None else counted(partitions, "partition")
        yield row
    for each in found.state:
        row = {"what": each.kind, "name": each.name, "change": each.fate, "why": each.reason}
        if restored is not None:
            records = restored.running.records(each)
            row["records"] = restored.records(each) if records is None else records
            row["seconds"] = restored.seconds(each)
        yield row


def show(found: TopologyDiff, restored: RestoredState | None, remarks: Sequence[str] = ()) -> None:
    running = None if restored is None else restored.running
    if running is not None:
        members = ", ".join(f"{count} with epoch {epoch}" for epoch, count in running.members.items()) or "none"
        sys.stdout.write(f"group {running.name}: {running.state}, topology epoch {running.epoch}, members: {members}\n")
    if found.verdict is Verdict.SAME:
        stays = found.epoch_needed == found.epoch_before
        said = f"epoch {found.epoch_before} stays" if stays else f"with topology.epoch={found.epoch_needed} from now on"
        sys.stdout.write(f"the same topology: {said}\n")
        sys.stdout.writelines(f"{each}\n" for each in found.kept_otherwise)
        return
    columns = ["what", "name", "change", *(["records", "seconds"] if restored is not None else [])]
    rows = [{key: "" if value is None else value for key, value in row.items()} for row in _rows(found, restored)]
    print_rows(columns, rows, as_json=False)
    print_reasons(rows)
    if restored is not None and restored.records_per_second is not None:
        sys.stdout.write(f"seconds: {ALONE}, at {restored.records_per_second:,.0f} records/s (measured)\n")
    for each in found.state:
        if each.cure:
            cure = each.cure if running is None else each.cure.replace("APP", running.name)
            sys.stdout.write(f"{each.kind} {each.name}: {cure}\n")
        lost = running.records(each) if running is not None and each.kind == "repartition topic" else None
        if lost and each.fate == "orphaned":
            sys.stdout.write(
                f"repartition topic {each.name}: {counted(lost, 'record')} not read yet, and the new version does not read "
                "them\n"
            )
    if running is not None:
        sys.stdout.writelines(f"{each}\n" for each in running.unread_sources(found))
    sys.stdout.writelines(f"{each}\n" for each in remarks)
    if found.verdict is Verdict.INCOMPATIBLE:
        sys.stdout.write("incompatible: the new version must not run with this state\n")
    else:
        sys.stdout.write(f"run the new version with topology.epoch={found.epoch_needed}\n")


@app.command("lock")
def lock(
    application: Application,
    file: Annotated[Path, typer.Option("--file", help="the lock file, to be committed to version control")] = Path(
        LOCK_FILE
    ),
    config: ConfigOverModule = None,
    check: Annotated[
        bool, typer.Option("--check", help="write nothing; exit codes are those of `topology diff`")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="write it even if state is incompatible; with topology.epoch, replace a broken file"
        ),
    ] = False,
) -> None:
    """Write the topology and its epoch to a lock file, and show what a change does to existing state.

    A changed topology gets the next epoch, or a higher one that is set with --config topology.epoch=N. If only
    functions have changed, the epoch stays the same. `streamsrt run --lock
    FILE` (topology.lock) refuses any other topology, and so does assert_topology_locked() of
    streamsrt.testing.topology_lock in a test.
    """
    new = version_of(application, key_value_pairs(config or []))
    given = key_value_pairs(config or []).get("topology.epoch")
    agreed = _agreed(file, replaces_broken=force and not check and (given is not None or new.epoch > 0))
    if agreed is None:
        if check:
            raise ConfigError(f"there is no lock file {file}: run the command without --check")
        write_lock(file, new)
        note(f"locked with topology epoch {new.epoch}: check {file} in")
        return
    found = compare(agreed, new)
    # A higher one that is set is meant: the former version has another epoch after it was gone back to.
    if given is not None and new.epoch < found.epoch_needed and not check:
        raise ConfigError(
            f"{file} has topology epoch {agreed.epoch}, and this is another topology: it needs topology.epoch="
            f"{found.epoch_needed} or higher, not {given}"
        )
    made = replace(new, epoch=max(found.epoch_needed, new.epoch))
    show(replace(found, epoch_needed=made.epoch), None)
    is_refused = found.verdict is Verdict.INCOMPATIBLE and not force
    outdated = outdated_text(agreed, new, file)
    if outdated and check:
        note(outdated)
    if check or is_refused:
        raise typer.Exit(int(found.verdict))
    # The same topology may have edited functions, which a later version is compared with.
    if made != agreed or outdated:
        write_lock(file, made)
        note(f"locked with topology epoch {made.epoch}: check {file} in")


def _agreed(file: Path, *, replaces_broken: bool) -> TopologyOutline | None:
    """What is locked; None where nothing is, or where a file that can't be read is to be replaced: its epoch is lost with
    it, and the group refuses any other, so nothing is guessed."""
    try:
        return read_lock(file)
    except ConfigError:
        if not replaces_broken:
            raise
        return None


@app.command("graph")
def graph(application: Application) -> None:
    """The topology as a Mermaid diagram."""
    sys.stdout.write(load_described(application).topology.mermaid())
