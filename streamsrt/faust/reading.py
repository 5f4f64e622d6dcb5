"""What an application declares, and what of it is not supported here.

Nothing unsupported is passed over: it is one error at the start, which names the line.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mode.utils.times import want_seconds

from streamsrt.errors import UserError
from streamsrt.faust.places import declared_at, line_of
from streamsrt.faust.timers import Timer, timers_of

if TYPE_CHECKING:
    import faust


class Declared(NamedTuple):
    """What there is, in the order in which it was declared."""

    agents: tuple[faust.Agent, ...]
    tables: tuple[faust.Table, ...]
    timers: list[Timer]
    tasks: list[Callable[[], Awaitable[object]]]


def declared(app: faust.App) -> Declared:
    """What an application declares. Raises UserError for what is not supported."""
    import faust as package

    if not isinstance(app, package.App):
        raise UserError(f"streamsrt.faust runs a faust.App, not {app!r}")
    app.finalize()
    found = Declared(tuple(app.agents.values()), tuple(app.tables.values()), *timers_of(app))
    unsupported = next(_unsupported(app, found), None)
    if unsupported is not None:
        raise UserError(f"{unsupported} is not supported by streamsrt.faust. See docs/faust.md for what is")
    if not found.agents:
        raise UserError(f"the application {app.conf.id} has no agent: import the modules that declare them first")
    return found


class DeclaredTopic(NamedTuple):
    """A topic that faust would create at the start."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


def topics_of(app: faust.App, derived: Iterable[faust.TopicT] = ()) -> list[DeclaredTopic]:
    """The topics that agents read, send their results to, or have among the names of their modules, and the ``derived``."""
    from faust.types import TopicT

    agents = list(app.agents.values())
    found = [*derived, *(agent.channel for agent in agents)]
    for agent in agents:
        found += agent._sinks
        found += inspect.unwrap(agent.fun).__globals__.values()
    own = {id(each): each for each in found if isinstance(each, TopicT) and each.app is app and not each.pattern}
    return [
        DeclaredTopic(
            name,
            topic.partitions or app.conf.topic_partitions,
            topic.replicas or app.conf.topic_replication_factor or 1,
            _configs(topic),
        )
        for topic in own.values()
        for name in topic.topics
    ]


def _configs(topic: faust.TopicT) -> dict[str, str]:
    policies = [name for name, wanted in (("compact", topic.compacting), ("delete", topic.deleting)) if wanted]
    configs = {"cleanup.policy": ",".join(policies)} if policies else {}
    if topic.retention:
        configs["retention.ms"] = str(round(want_seconds(topic.retention) * 1000))
    return {**configs, **{key: str(value) for key, value in (topic.config or {}).items()}}


def _unsupported(app: faust.App, found: Declared) -> Iterator[str]:
    if app._web_server_service is not None:
        yield f"@app.web_server of {app.conf.id}"
    for table in found.tables:
        for reason in _of_table(table):
            yield f"{reason} of table {table.name}{declared_at(table)}"
    for agent in found.agents:
        yield from _of_agent(agent)


def _of_table(table: faust.Table) -> Iterator[str]:
    from faust.tables.sets import SetGlobalTable

    if isinstance(table, SetGlobalTable):
        yield "the type SetGlobalTable"
    if table.use_partitioner and not table.is_global:
        # Faust has such rows in the partition of the key, and here they would be looked for in that of the record.
        yield "use_partitioner=True"
    if table._on_changelog_event is not None:
        yield "on_changelog_event="
    if _has_own_schema(table):
        yield f"the schema {table.schema!r}"


def _has_own_schema(table: faust.Table) -> bool:
    from faust.serializers.schemas import Schema

    return table.schema is not None and type(table.schema) is not Schema


def _of_agent(agent: faust.Agent) -> Iterator[str]:
    from faust.types import TopicT

    place = f"agent {agent.name} ({line_of(agent.fun)})"
    if not isinstance(agent.channel, TopicT):
        yield f"{place} over a channel, and not a topic,"


def called(function: Callable[..., object]) -> Iterator[tuple[str, int]]:
    """The methods that a function calls, each with its line."""
    line = 0
    for instruction in dis.get_instructions(inspect.unwrap(function)):
        line = instruction.starts_line or line
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and isinstance(instruction.argval, str):
            yield instruction.argval, line
