"""From an application to a topology.

1. Every agent is one processor behind one source of its topic.
2. Agents of an application with tables share one subtopology: any of them may use any table, for the partition that it
   reads. Without tables each agent has its own.
3. Records are read as bytes; the agent decodes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamsrt.faust.agents import AgentNode
from streamsrt.faust.reading import declared
from streamsrt.faust.running import RunningApplication
from streamsrt.faust.tables import store_of
from topology.dsl.builder import StreamsBuilder
from topology.graph.topology import Topology
from topology.spec import serdes

if TYPE_CHECKING:
    import faust

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


def topology(app: faust.App) -> Topology:
    """What an application of faust's computes, as a topology: its agents and tables, under the names that faust gives them.

    Run it with :func:`streamsrt.faust.config` as its configuration. Raises UserError for what is not supported.
    """
    found = declared(app)
    running = RunningApplication(app, found.tables)
    builder = StreamsBuilder()
    for table in found.tables:
        builder.add_state_store(store_of(table))
    stores = [table.name for table in found.tables]
    for agent in found.agents:
        topic = agent.channel
        stream = builder.stream(topic.pattern or topic.topics, key=serdes.bytes, value=serdes.bytes)
        stream.process(_supplier(running, agent), stores=stores, name=_ILLEGAL.sub("-", agent.name))
    return builder.build()


def _supplier(running: RunningApplication, agent: faust.Agent) -> Callable[[], AgentNode]:
    def supply() -> AgentNode:
        return AgentNode(running, agent)

    return supply
