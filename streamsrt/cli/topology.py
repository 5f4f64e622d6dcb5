"""``streamsrt topology``: what an application computes, without running it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from streamsrt.cli.application import load_application
from streamsrt.cli.output import print_json
from streamsrt.cli.session import AsJson
from topology.describe import describe as describe_topology
from topology.describe import mermaid

app = typer.Typer(help="What an application computes.", no_args_is_help=True)

Application = Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of a topology, e.g. examples.flights:topology")]


@app.command("describe")
def describe(application: Application, as_json: AsJson = False) -> None:
    """Subtopologies with their nodes, stores and topics, as Kafka Streams' describe() prints them."""
    topology = load_application(application).topology
    if not as_json:
        sys.stdout.write(describe_topology(topology))
        return
    print_json(
        {
            "digest": topology.digest,
            "epoch": topology.epoch,
            "subtopologies": [
                {
                    "id": subtopology.id,
                    "number": subtopology.number,
                    "digest": subtopology.digest,
                    "nodes": [node.name for node in subtopology.nodes],
                    "stores": [store.name for store in subtopology.stores],
                    "source_topics": subtopology.source_topics,
                    "repartition_source_topics": [topic.name for topic in subtopology.repartition_source_topics],
                    "repartition_sink_topics": subtopology.repartition_sink_topics,
                    "changelog_topics": [topic.name for topic in subtopology.changelog_topics],
                }
                for subtopology in topology.subtopologies
            ],
        }
    )


@app.command("graph")
def graph(application: Application) -> None:
    """The topology as a Mermaid diagram."""
    sys.stdout.write(mermaid(load_application(application).topology))
