"""What an application declares, and what of it is not supported here.

Nothing unsupported is passed over: it is one error at the start, which names the line.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from mode.supervisors import ForfeitOneForAllSupervisor, ForfeitOneForOneSupervisor
from mode.utils.times import want_seconds

from streamsrt.errors import UserError
from streamsrt.faust.codecs import Named, of_application, of_topic, require_codecs
from streamsrt.faust.decoding import unreadable_types
from streamsrt.faust.discovery import discover
from streamsrt.faust.lifecycle import uncalled_hooks
from streamsrt.faust.locations import declared_at, line_of, written
from streamsrt.faust.monitoring import uncalled_methods
from streamsrt.faust.names import reachable, refused_in, scope_of
from streamsrt.faust.options import STORES, check_options
from streamsrt.faust.recovery import hears_of_changes
from streamsrt.faust.tables import changelog_of, is_global, is_of_sets, kept_as, schema_of
from streamsrt.faust.timers import Timer, timers_of

if TYPE_CHECKING:
    import faust

_FORFEITING = (ForfeitOneForOneSupervisor, ForfeitOneForAllSupervisor)
_MANAGER = "faust.SetTable.manager"


class Declared(NamedTuple):
    """What there is, in the order in which it was declared."""

    agents: tuple[faust.Agent, ...]
    """Over topics."""
    of_channels: tuple[faust.Agent, ...]
    """Over channels in memory."""
    tables: tuple[faust.Table, ...]
    timers: list[Timer]
    tasks: list[Callable[[], Awaitable[object]]]


def declared(app: faust.App) -> Declared:
    """What an application declares. Raises UserError for what is not supported."""
    import faust as package

    if not isinstance(app, package.App):
        raise UserError(f"streamsrt.faust runs a faust.App, not {app!r}")
    discover(app)
    check_options(app)
    _name_managers(app)
    _refuse_replaced(app)
    agents, rest = over_topics(app), [each for each in app.agents.values() if not _reads_topic(each)]
    found = Declared(tuple(agents), tuple(rest), tuple(app.tables.values()), *timers_of(app))
    unsupported = next(_unsupported(app, found), None)
    if unsupported is not None:
        what, instead = unsupported
        raise UserError(f"{what} is not supported by streamsrt.faust: {instead}. docs/faust.md lists what is supported")
    if rest and not agents:
        raise UserError(
            f"all agents of the application {app.conf.id} are over channels, as agent {rest[0].name} "
            f"({line_of(rest[0].fun)}), and none over a topic. Partitions of topics decide which process works: give the "
            "agent that comes first a topic, app.agent(app.topic(name)), and let what sends to its channel send there"
        )
    if not found.agents:
        raise UserError(
            f"the application {app.conf.id} has no agent: import the modules that declare them, or name them with "
            "autodiscover= of the application"
        )
    require_codecs(_codecs(app, found))
    return found


def _name_managers(app: faust.App) -> None:
    """Gives the agents of several managers of sets names of their own: Faust gives them one, and forgets all but one."""
    managed = [table for table in app.tables.values() if is_of_sets(table) and table.start_manager]
    if len(managed) > 1:
        app.agents.pop(_MANAGER, None)
        for table in managed:
            agent = table.manager.agent
            agent.name = f"{_MANAGER}.{table.name}"
            app.agents[agent.name] = agent


def _refuse_replaced(app: faust.App) -> None:
    """Finds agents that Faust forgets because a later one has their name. Raises UserError."""
    for agent in app.topics.beacon.children:
        last = app.agents.get(getattr(agent, "name", None))
        # A module that is imported again declares the same agents again.
        if last is not None and last is not agent and _stands(last) != _stands(agent):
            raise UserError(
                f"two agents are called {agent.name} ({line_of(agent.fun)}, {line_of(last.fun)}): Faust would only run the "
                "second one. Give one of them another name, @app.agent(topic, name='...')"
            )


def _stands(agent: faust.Agent) -> tuple[str, object]:
    """Its line, and what it reads: a function that makes agents has one line for all of them."""
    return line_of(agent.fun), getattr(agent.channel, "topics", None)


def over_topics(app: faust.App) -> list[faust.Agent]:
    """The agents that read topics."""
    return [agent for agent in app.agents.values() if _reads_topic(agent)]


def _reads_topic(agent: faust.Agent) -> bool:
    from faust.types import TopicT

    return isinstance(agent.channel, TopicT)


class DeclaredTopic(NamedTuple):
    """A topic that faust would create at the start."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


def topics_of(app: faust.App, derived: Iterable[faust.TopicT] = ()) -> list[DeclaredTopic]:
    """The topics that agents read, send their results to, or have among the names of their modules, and the ``derived``."""
    found = [*derived, *topics_known(app)]
    own = {id(each): each for each in found if not each.pattern}
    return [
        DeclaredTopic(
            name,
            topic.partitions or app.conf.topic_partitions,
            topic.replicas or app.conf.topic_replication_factor or 1,
            topic_configs(topic.config, topic.retention, compacting=topic.compacting, deleting=topic.deleting),
        )
        for topic in own.values()
        for name in topic.topics
    ]


def topics_known(app: faust.App) -> list[faust.TopicT]:
    """Those of the application that agents read, send their results to, or have among the names of their modules."""
    from faust.types import TopicT

    return [each for each in _known_to_agents(app) if isinstance(each, TopicT) and each.app is app]


def _known_to_agents(app: faust.App) -> list[object]:
    """What agents read and send their results to, and what has a name in their modules."""
    agents = list(app.agents.values())
    found: list[object] = [agent.channel for agent in agents]
    for agent in agents:
        found += agent._sinks
        found += written(agent.fun).__globals__.values()
    return found


def _codecs(app: faust.App, found: Declared) -> Iterator[Named]:
    """Those that the start can see, each once."""
    from faust.types import TopicT

    known = {id(each): each for each in _known_to_agents(app)}.values()
    readers = {id(agent.channel): agent for agent in found.agents}
    yield from of_application(app, found.tables)
    for each in known:
        if isinstance(each, TopicT) and each.app is app:
            yield from of_topic(app, each, readers.get(id(each)))


def topic_configs(
    config: Mapping[str, object] | None,
    retention: float | timedelta | None,
    *,
    compacting: bool | None,
    deleting: bool | None,
) -> dict[str, str]:
    """The settings that faust gives a topic, as Kafka names them."""
    policies = [name for name, wanted in (("compact", compacting), ("delete", deleting)) if wanted]
    configs = {"cleanup.policy": ",".join(policies)} if policies else {}
    if retention:
        configs["retention.ms"] = str(round(want_seconds(retention) * 1000))
    return {**configs, **{key: str(value) for key, value in (config or {}).items()}}


def _unsupported(app: faust.App, found: Declared) -> Iterator[tuple[str, str]]:
    """What is not supported, and what to do instead."""
    yield from _of_application(app)
    yield from uncalled_hooks(app)
    yield from uncalled_methods(app)
    if app._web_server_service is not None:
        server = app._web_server_service
        location = f" ({line_of(server)})" if inspect.isfunction(server) else declared_at(server)
        yield f"@app.web_server of {app.conf.id}{location}", "write pages with @app.page, or run the server separately"
    for table in found.tables:
        for reason, instead in _of_table(table):
            yield f"{reason} of table {table.name}{declared_at(table)}", instead
    for agent in (*found.agents, *found.of_channels):
        yield from _of_agent(agent)
        yield from _asks(agent)
    for agent in found.of_channels:
        yield from _of_agent_over_channel(agent)
    for what, functions, of_stream in (
        ("agent", [each.fun for each in app.agents.values()], True),
        ("the timer", [each.function for each in found.timers], False),
        ("the task", found.tasks, False),
    ):
        for function in functions:
            for number, each in enumerate(reachable(function)):
                through = f"{each.__name__}, which is called by " if number else ""
                for use in refused_in(each, of_stream=of_stream and not number):
                    yield f"{use.what} ({use.location}) in {through}{what} {written(function).__name__}", use.instead


def _of_application(app: faust.App) -> Iterator[tuple[str, str]]:
    if app.client_only or app.producer_only:
        name = "client_only" if app.client_only else "producer_only"
        yield f"{name} of {app.conf.id}", "send from a plain producer: what runs here reads the topics of its agents"
    if app.tracer is not None:
        yield f"the tracer {app.tracer!r} of {app.conf.id}", "the metrics of the runtime: docs/running.md"
    sensors = [each for each in app.sensors if each is not app.monitor]
    if sensors:
        yield f"the sensor {sensors[0]!r} of {app.conf.id}", "the metrics of the runtime: docs/running.md"


def _of_table(table: faust.Table) -> Iterator[tuple[str, str]]:
    if table.use_partitioner and not table.is_global:
        # Faust has such rows in the partition of the key, and here they would be looked for in that of the record.
        yield (
            "use_partitioner=True",
            "send to a topic by the key of the row, and change the table in an agent of that topic",
        )
    if hears_of_changes(table) and (is_global(table) or is_of_sets(table)):
        # The changes of other processes are applied as bytes, and those of sets are no sets.
        yield "on_changelog_event=", "do that in the agent that changes the table, or when on_recover comes"
    if table._store is not None and table._store.scheme not in STORES:
        yield (
            f"store={str(table._store)!r}",
            "tables are kept by the runtime. Give memory:// or rocksdb://, or leave it out",
        )
    if kept_as(table) is None:
        conf = table.app.conf
        yield (
            f"changelog_topic={changelog_of(table)!r}",
            f"changelogs here are named {conf.id}-NAME-changelog. Leave it out, or give such a topic. To take over "
            f"{changelog_of(table)}, copy its records to {conf.id}-{table.name}-changelog first, each to the same partition",
        )
    for what, kind in unreadable_types(table.app, schema_of(table)):
        if not is_of_sets(table):
            yield f"{what}={kind!r}", _NO_TYPE
    if _has_own_schema(table):
        yield f"the schema {table.schema!r}", "give key_type= and value_type=, with codecs as their serializers"


_NO_TYPE = (
    "Faust reads int, float, Decimal, str, bytes and models of your own, so nothing of this type could be read back. "
    "Leave it out: codecs such as json give back what was written"
)


def _has_own_schema(table: faust.Table) -> bool:
    from faust.serializers.schemas import Schema

    return table.schema is not None and type(table.schema) is not Schema


def _of_agent(agent: faust.Agent) -> Iterator[tuple[str, str]]:
    from faust.types import TopicT

    location = f"of agent {agent.name} ({line_of(agent.fun)})"
    if agent._sinks and inspect.iscoroutinefunction(written(agent.fun)):
        yield f"sink= {location}, which does not yield,", "yield what the sinks are to get; Faust rejects it, too"
    if isinstance(agent.channel, TopicT):
        for what, kind in unreadable_types(agent.app, agent.channel.schema):
            yield f"{what}={kind!r} of topic {agent.channel} {location}", _NO_TYPE
        if not agent.channel.acks:
            yield f"acks=False of topic {agent.channel} {location}", "iterate over stream.noack() in the agent"
    strategy = agent._get_supervisor_strategy()
    if issubclass(strategy, _FORFEITING):
        yield (
            f"the supervisor {strategy.__name__} {location}",
            "it would leave records unread. mode.OneForOneSupervisor goes on behind the record, and mode.CrashingSupervisor "
            "stops the application",
        )


_ASKING = frozenset(("ask", "map", "kvmap", "join", "kvjoin"))
_WHY_NOT_ASK = (
    "a commit waits for the record that the agent works on, and the answer for that commit. Send with cast() or "
    "send(reply_to=topic), and read the topic in another agent; tasks, services and timers may ask"
)


def _asks(agent: faust.Agent) -> Iterator[tuple[str, str]]:
    """Whether an agent, or a function that it calls, asks an agent that is known by a name."""
    from faust.types import AgentT

    own = written(agent.fun)
    for function in reachable(agent.fun):
        scope = scope_of(function)
        before = None
        for instruction in dis.get_instructions(function):
            if (
                before is not None
                and instruction.argval in _ASKING
                and instruction.opname in ("LOAD_METHOD", "LOAD_ATTR")
            ):
                line = instruction.positions.lineno if instruction.positions else function.__code__.co_firstlineno
                through = "" if function is own else f"{function.__name__}, which is called by "
                location = f"{function.__code__.co_filename}:{line}"
                yield f"{before}.{instruction.argval} ({location}) in {through}agent {agent.name}", _WHY_NOT_ASK
            is_agent = instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and isinstance(
                scope.get(instruction.argval), AgentT
            )
            before = instruction.argval if is_agent else None


_BY_HAND = frozenset(("noack", "noack_take"))
_OF_TOPICS = _BY_HAND | {"group_by", "through"}


def _of_agent_over_channel(agent: faust.Agent) -> Iterator[tuple[str, str]]:
    own = written(agent.fun)
    found = ((each, *call) for each in reachable(agent.fun) for call in called(each))
    for function, name, line in found:
        # Other objects have a group_by, too.
        if name in (_OF_TOPICS if function is own else _BY_HAND):
            location = f"{function.__code__.co_filename}:{line}"
            what = f"{name} ({location}) of agent {agent.name} over a channel, and not a topic,"
            yield what, "give the agent a topic, app.agent(app.topic(name)), and send to that"


def called(function: Callable[..., object]) -> Iterator[tuple[str, int]]:
    """The methods that a function calls, each with its line."""
    line = 0
    for instruction in dis.get_instructions(written(function)):
        line = (instruction.positions and instruction.positions.lineno) or line
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and isinstance(instruction.argval, str):
            yield instruction.argval, line
