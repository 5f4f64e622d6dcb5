"""``streamsrt topics``: list, create, describe, add partitions, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from streamsrt.cli.output import note, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, cluster
from streamsrt.client.values import EARLIEST, LATEST, NewTopic
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError, MissingTopicError, StreamsError

app = typer.Typer(help="List, create and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(help="names of topics")]


@app.command("list")
def list_topics(
    bootstrap_servers: BootstrapServers = None,
    internal: Annotated[bool, typer.Option("--internal", help="include the brokers' own topics")] = False,
    as_json: AsJson = False,
) -> None:
    """List all topics with their partition counts."""
    with cluster(bootstrap_servers, begins=True) as network:
        topics = network.admin.topics()
    rows = [
        {"topic": topic.name, "partitions": topic.partitions}
        for topic in sorted(topics.values(), key=lambda topic: topic.name)
        if internal or not topic.is_internal
    ]
    print_rows(["topic", "partitions"], rows, as_json=as_json)


@app.command("create")
def create(
    names: Names,
    bootstrap_servers: BootstrapServers = None,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the broker's default")] = -1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", help="-1: the broker's default")] = -1,
    config: Annotated[list[str] | None, typer.Option("--config", help="KEY=VALUE; repeatable")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="ignore topics that already exist")] = False,
) -> None:
    """Create topics."""
    configs = key_value_pairs(config or ())
    with cluster(bootstrap_servers, begins=True) as network:
        present = network.admin.topics(names) if if_not_exists else {}
        wanted = [
            NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, configs=configs)
            for name in names
            if name not in present
        ]
        failed = _failures(network.admin.create_topics(wanted)) if wanted else {}
    if failed:
        raise ConfigError("; ".join(map(str, failed.values())))


@app.command("describe")
def describe(names: Names, bootstrap_servers: BootstrapServers = None, as_json: AsJson = False) -> None:
    """Show the partitions of topics with their offsets."""
    with cluster(bootstrap_servers, begins=True) as network:
        topics = network.admin.topics(names)
        missing = sorted(set(names) - set(topics))
        if missing:
            raise MissingTopicError(f"no such topic: {', '.join(missing)} (streamsrt topics list shows all topics)")
        partitions = [(topic.name, index) for topic in topics.values() for index in range(topic.partitions)]
        starts = network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    rows = [
        {
            "topic": name,
            "partition": index,
            "start_offset": starts[name, index].offset,
            "end_offset": ends[name, index].offset,
            "records": ends[name, index].offset - starts[name, index].offset,
        }
        for name, index in sorted(partitions)
    ]
    print_rows(["topic", "partition", "start_offset", "end_offset", "records"], rows, as_json=as_json)


@app.command("add-partitions")
def add_partitions(
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="partitions that the topics then have", min=1)],
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Give topics more partitions. Keys move to other partitions; this can't be undone.

    Applications that keep state by these keys must be stopped before, and repartitioned afterwards with `streamsrt state
    repartition`.
    """
    with cluster(bootstrap_servers, begins=True) as network:
        missing = sorted(set(names) - set(network.admin.topics(names)))
        if missing:
            raise MissingTopicError(f"no such topic: {', '.join(missing)} (streamsrt topics list shows all topics)")
        failed = _failures(network.admin.create_partitions(dict.fromkeys(names, partitions)))
    if failed:
        raise ConfigError("; ".join(map(str, failed.values())))


@app.command("delete")
def delete(names: Names, bootstrap_servers: BootstrapServers = None, execute: Execute = False) -> None:
    """Delete topics with all their records."""
    with cluster(bootstrap_servers, begins=True) as network:
        missing = sorted(set(names) - set(network.admin.topics(names)))
        if missing:
            raise MissingTopicError(f"no such topic: {', '.join(missing)} (streamsrt topics list shows all topics)")
        if not execute:
            note(f"would delete {', '.join(names)} with all records; use --execute to do it")
            return
        failed = _failures(network.admin.delete_topics(names))
    if failed:
        raise ConfigError("; ".join(str(error) for error in failed.values()))


def _failures(results: Mapping[str, StreamsError | None]) -> dict[str, StreamsError]:
    return {name: error for name, error in results.items() if error is not None}
