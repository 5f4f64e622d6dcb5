"""From an application to a topology.

1. Every agent is one processor behind one source of its topic, and one more for each stream that it derives.
2. Agents of an application with tables share one subtopology: any of them may use any table, for the partition that it
   reads. Without tables each agent has its own.
3. Records are read as bytes; the agent decodes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from streamsrt.faust.agents import AgentNode
from streamsrt.faust.asking import BrokerAnswers, OpenAnswers
from streamsrt.faust.channels import open_channels
from streamsrt.faust.codecs import TABLES
from streamsrt.faust.json_form import use_form
from streamsrt.faust.locations import assigned_at, made_at, site_of
from streamsrt.faust.reading import DeclaredTopic, declared, over_topics, topics_of
from streamsrt.faust.running import RunningApplication
from streamsrt.faust.stages import channels_of
from streamsrt.faust.tables import changelog_of, is_global, shared_name, store_of
from topology.dsl.builder import StreamsBuilder
from topology.graph.topology import Topology
from topology.spec import serdes
from topology.spec.errors import CallSite, written_at

if TYPE_CHECKING:
    import faust

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


def topology(app: faust.App) -> Topology:
    """The topology of a Faust application: its agents and tables, with the names that Faust gives them.

    Run it with :func:`streamsrt.faust.config` as its configuration. Raises UserError for what is not supported.
    """
    return topology_with(app, BrokerAnswers)


def topology_with(
    app: faust.App, open_answers: OpenAnswers, *, serves: bool = True, says_init: bool = True
) -> Topology:
    """The same, with answers to what the application asks from somewhere else, its pages only if it ``serves`` them, and
    ``on_worker_init`` only if it ``says_init``."""
    use_form()
    found = declared(app)
    running = RunningApplication(
        app, found, open_answers, open_channels(found.of_channels), serves=serves, says_init=says_init
    )
    builder = StreamsBuilder()
    for table in found.tables:
        with written_at(_site_of_table(app, table)):
            builder.add_state_store(store_of(table, running.taken))
            if is_global(table):
                store = store_of(table)
                builder.global_table(changelog_of(table), key=store.key, value=store.value, store=shared_name(table))
    stores = [table.name for table in found.tables]
    for agent in found.agents:
        channels = channels_of(agent)
        for stage, topic in enumerate(channels):
            is_last = stage == len(channels) - 1
            name = agent.name if is_last else f"{agent.name}-{topic}"
            supplier = _supplier(running, agent, channels, stage)
            with written_at(site_of(agent.fun)):
                stream = builder.stream(topic.pattern or topic.topics, key=serdes.bytes, value=serdes.bytes)
                stream.process(supplier, stores=stores, name=_ILLEGAL.sub("-", name))
    return builder.build()


def _site_of_table(app: faust.App, table: faust.Table) -> CallSite | None:
    """Where it is made, or else the application that it is of."""
    return assigned_at(table) or made_at(app, table.name, TABLES) or assigned_at(app)


def declared_topics(app: faust.App) -> list[DeclaredTopic]:
    """The topics that faust would create at the start."""
    return topics_of(app, (channel for agent in over_topics(app) for channel in channels_of(agent)[1:]))


def declared_changelogs(app: faust.App, partitions: Mapping[str, int]) -> list[DeclaredTopic]:
    """The changelogs that must be there before the start, as every process reads them: those of global tables.

    ``partitions``: of the topics that there are.
    """
    read = {name for agent in over_topics(app) for topic in channels_of(agent) for name in topic.topics}
    count = max((partitions[name] for name in read if name in partitions), default=app.conf.topic_partitions)
    replicas = app.conf.topic_replication_factor or 1
    compact = {"cleanup.policy": "compact"}
    return [
        DeclaredTopic(changelog_of(table), count, replicas, compact | dict(store_of(table).changelog_config or {}))
        for table in app.tables.values()
        if is_global(table)
    ]


def _supplier(
    running: RunningApplication, agent: faust.Agent, channels: Sequence[faust.TopicT], stage: int
) -> Callable[[], AgentNode]:
    def supply() -> AgentNode:
        return AgentNode(running, agent, channels, stage)

    return supply
