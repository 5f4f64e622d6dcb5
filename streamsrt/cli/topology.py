"""``streamsrt topology``: what an application computes, without running it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from streamsrt.cli.application import load_application
from streamsrt.cli.output import print_json, print_rows
from streamsrt.cli.session import AsJson
from streamsrt.errors import ConfigError
from topology.graph.diff import SubtopologyChange, TopologyDiff, Verdict
from topology.graph.diff import diff as compare
from topology.graph.outline import TopologyOutline, outline

app = typer.Typer(help="What an application computes.", no_args_is_help=True)

Application = Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of a topology, e.g. examples.flights:topology")]


@app.command("describe")
def describe(application: Application, as_json: AsJson = False) -> None:
    """Subtopologies with their nodes, stores and topics, as Kafka Streams' describe() prints them."""
    topology = load_application(application).topology
    if not as_json:
        sys.stdout.write(topology.describe())
        return
    print_json(outline(topology).to_json())


@app.command("diff")
def diff(
    old: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE, or a file of `topology describe --json`")],
    new: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE, or a file of `topology describe --json`")],
    as_json: AsJson = False,
) -> None:
    """What becomes of running state when NEW follows OLD, and the topology epoch that NEW needs.

    Exit codes: 0 the same topology; 10 all state is carried over; 11 some state starts empty or is left behind;
    12 incompatible.
    """
    found = compare(_outline_of(old), _outline_of(new))
    if as_json:
        print_json({**asdict(found), "verdict": found.verdict.name})
    else:
        _show(found)
    raise typer.Exit(int(found.verdict))


def _outline_of(name: str) -> TopologyOutline:
    path = Path(name)
    if not path.is_file() or path.suffix == ".py":
        return outline(load_application(name).topology)
    try:
        return TopologyOutline.from_json(orjson.loads(path.read_bytes()))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}; make one with `streamsrt topology describe APPLICATION --json`") from None


def _show(found: TopologyDiff) -> None:
    if found.verdict is Verdict.SAME:
        sys.stdout.write(f"the same topology: epoch {found.epoch_before} stays\n")
        return
    rows = [
        {"what": "subtopology", "name": each.id, "change": each.change, "why": _numbers(each)}
        for each in found.subtopologies
    ]
    rows += [{"what": each.kind, "name": each.name, "change": each.fate, "why": each.reason} for each in found.state]
    print_rows(["what", "name", "change", "why"], rows, as_json=False)
    if found.verdict is Verdict.INCOMPATIBLE:
        sys.stdout.write("incompatible: the new version must not run over this state as it is\n")
    else:
        sys.stdout.write(f"run the new version with topology.epoch={found.epoch_needed}\n")


def _numbers(change: SubtopologyChange) -> str:
    before, after = change.number_before, change.number_after
    return f"number {before} -> {after}" if None not in (before, after) and before != after else ""


@app.command("graph")
def graph(application: Application) -> None:
    """The topology as a Mermaid diagram."""
    sys.stdout.write(load_application(application).topology.mermaid())
