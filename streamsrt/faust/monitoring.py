"""``app.monitor``: Faust's own Monitor, filled with the figures of the agents that run here.

1. Nothing is done per record. Agents count per batch (:class:`AgentFlow`), tables and sends by what they do anyway. The
   monitor gets the differences when the program reads ``app.monitor``, once a second, and when an agent ends.
2. What happens per commit, per change of partitions and per request of a page is told by the methods that Faust calls.
3. If the monitor's class overrides methods that Faust calls for each message, event, row or send, they are called here, too,
   and its figures are what they make them. Only such an application pays for it.
4. Methods for what never happens here are refused at the start.
"""

from __future__ import annotations

import inspect
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from faust import App
from faust.sensors.monitor import Monitor, TableState
from faust.types.tuples import TP, PendingMessage, RecordMetadata

from streamsrt.faust.locations import NOT_OF_PROGRAM, line_of
from streamsrt.operators.engine.environment import Environment

if TYPE_CHECKING:
    import faust

    from streamsrt.faust.decoding import Row

_OF_EVENTS = ("on_message_in", "on_message_out", "on_stream_event_in", "on_stream_event_out")
_OF_SENDS = ("on_send_initiated", "on_send_completed")
CALLED = (
    *(*_OF_EVENTS, *_OF_SENDS, "on_table_get", "on_table_set", "on_table_del"),
    *("on_commit_initiated", "on_commit_completed", "on_tp_commit"),
    *("track_tp_end_offset", "on_rebalance_start", "on_rebalance_return", "on_rebalance_end"),
    *("on_web_request_start", "on_web_request_end", "count", "asdict"),
)
"""The methods of a monitor that are called here, or by the program."""
_RECENT = 100


def uncalled_methods(app: faust.App) -> Iterator[tuple[str, str]]:
    """What the class of the application's monitor overrides that nobody would call, and what to do instead."""
    kind = type(app.monitor)
    for owner in kind.__mro__:
        if f"{owner.__module__}.".startswith(NOT_OF_PROGRAM):
            continue
        for name, function in vars(owner).items():
            if name in CALLED or not callable(getattr(function, "fun", function)):
                continue
            if name.startswith("on_") or name in ("start", "stop", "restart", "crash") or _is_task(function):
                location = line_of(getattr(function, "fun", function))
                yield (
                    f"method {name} of {owner.__name__} ({location}), the monitor of {app.conf.id},",
                    f"nobody would call it. These are called: {', '.join(CALLED)}. Run what needs a loop in an @app.task",
                )


def _is_task(function: object) -> bool:
    from mode.services import ServiceTask

    return isinstance(function, ServiceTask)


class Tally:
    """Counts the calls of :attr:`add`, which takes one argument, and costs less than a function."""

    def __init__(self) -> None:
        self._numbers = count()
        self._looks = 0
        self.add: Callable[[object], object] = partial(next, self._numbers)

    def value(self) -> int:
        """How many calls there were."""
        found = next(self._numbers) - self._looks
        self._looks += 1
        return found


class TableUse:
    """How often the rows of a table were read, written and deleted."""

    def __init__(self) -> None:
        self.reads, self.writes, self.deletes = Tally(), Tally(), Tally()
        self._told = (0, 0, 0)

    def new(self) -> tuple[int, int, int]:
        """The same since the last call."""
        now = (self.reads.value(), self.writes.value(), self.deletes.value())
        before, self._told = self._told, now
        return now[0] - before[0], now[1] - before[1], now[2] - before[2]


class Worked(Protocol):
    """The part of an agent's calls that is asked for figures."""

    @property
    def waiting(self) -> int:
        """How many records it has been given and has not taken."""

    @property
    def in_work(self) -> int:
        """How many it works on, or has not acknowledged."""


class AgentFlow:
    """What one agent was given in one task. ``topic``: the only one that it reads; None: there are several, or a pattern.

    ``group``: the same for the agents of the task that read the same records; one of them ``counts_messages``. ``calls``:
    how many calls of its function there are.
    """

    def __init__(
        self, stream: str, agent: str, topic: str | None, group: object, *, counts_messages: bool, calls: int
    ) -> None:
        self.stream, self.agent, self.group = stream, agent, group
        self.counts_messages = counts_messages
        self.given = self.undecodable = 0
        self.by_topic: Counter[str] = Counter()
        self.read: dict[tuple[str, int], int] = {}
        self.told = 0
        self.runtimes: deque[float] = deque(maxlen=_RECENT)
        self._topic = topic
        self._calls = calls
        self._since_s = self._spent_s = 0.0
        self._active = 0

    def gave(self, rows: Sequence[Row]) -> None:
        """A batch."""
        number = len(rows)
        self.given += number
        if self._topic is None:
            origins = [row.metadata for row in rows]
            self.by_topic.update([topic for topic, _, _ in origins])
            self.read.update({(topic, partition): offset for topic, partition, offset in origins})
        else:
            self.by_topic[self._topic] += number
            _, partition, offset = rows[-1].metadata
            self.read[self._topic, partition] = offset

    def skipped(self, topic: str) -> None:
        """One of them can't be decoded: for Faust it has not come."""
        self.undecodable += 1
        self.by_topic[topic] -= 1

    def worked(self, began_s: float, done: int, unfinished: int) -> None:
        """An iteration is over, and so many records were ``done``: the time of each is that of all, by their number."""
        now_s = monotonic()
        active = min(unfinished, self._calls)
        self._spent_s += (began_s - self._since_s) * self._active + (now_s - began_s) * (active or 1)
        self._since_s, self._active = now_s, active
        if done:
            self.runtimes.append(self._spent_s / done)
            self._spent_s = 0.0

    def taken(self, waiting: int) -> int:
        """How many the agent has taken since the last call, and could decode."""
        now = self.given - waiting - self.undecodable
        new, self.told = now - self.told, now
        return new


class SendFigures:
    """What the agents of a process have sent. ``hears``: of each record and its commit, where the monitor wants it."""

    def __init__(self, app: faust.App, *, hears: bool) -> None:
        self._app = app
        self._hears = hears
        self.by_topic: Counter[str] = Counter()
        self.latencies: deque[float] = deque(maxlen=_RECENT)

    def handed_over(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> list[tuple[object, RecordMetadata]]:
        """Records of one topic. Returns what :meth:`committed` gets."""
        if not self._hears:
            self.by_topic[topic] += len(keys)
            return []
        begin, tp = monitor_of(self._app).on_send_initiated, TP(topic, -1)
        pending: list[tuple[object, RecordMetadata]] = []
        for key, value, at_ms in zip(keys, values, timestamps, strict=True):
            message = PendingMessage(topic, key, value, None, at_ms / 1000, None, None, None, None, topic)
            state = begin(self._app.producer, topic, message, len(key or b""), len(value or b""))
            pending.append((state, RecordMetadata(topic, -1, tp, -1, at_ms / 1000, 0)))
        return pending

    def committed(self, since_s: float, pending: Sequence[tuple[object, RecordMetadata]]) -> None:
        """A commit has what was sent ``since`` then."""
        if not self._hears:
            self.latencies.append(monotonic() - since_s)
        for state, metadata in pending:
            monitor_of(self._app).on_send_completed(self._app.producer, state, metadata)


class Figures:
    """The figures of one application in this process."""

    def __init__(self, app: faust.App) -> None:
        kind = type(app.monitor)
        self._app = app
        self._plain = {name for name in CALLED if getattr(kind, name) is getattr(Monitor, name)}
        self.hears_events = not self._plain.issuperset(_OF_EVENTS)
        """Whether each message and event is told."""
        self.is_stale = True
        """Whether something has happened since the last :meth:`refresh`."""
        self.sends = SendFigures(app, hears=not self._plain.issuperset(_OF_SENDS))
        self._flows: dict[Worked, AgentFlow] = {}
        self._tables: dict[str, TableUse] = {}
        self._envs: dict[int, tuple[Environment, int]] = {}
        self._rebalance: object = None
        self._sampled = (0, 0)
        self._commits: dict[int, object] = {}

    @property
    def monitor(self) -> faust.Monitor:
        """The application's, as it is."""
        return monitor_of(self._app)

    # --------------------------------------------------------------------------------------------------------- sources

    def of_table(
        self, table: faust.Table
    ) -> tuple[Callable[..., object], Callable[..., object], Callable[..., object]]:
        """What is called when a row is read, written and deleted."""
        use = self._tables.setdefault(table.name, TableUse())
        add = use.writes.add

        def written(key: object, value: object) -> None:
            add(key)

        hooks: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
            "on_table_get": (use.reads.add, table._sensor_on_get),
            "on_table_set": (written, table._sensor_on_set),
            "on_table_del": (use.deletes.add, table._sensor_on_del),
        }
        get, put, delete = (
            plain if name in self._plain else partial(heard, table) for name, (plain, heard) in hooks.items()
        )
        return get, put, delete

    def add_agent(self, node: Worked, flow: AgentFlow) -> None:
        """An agent begins."""
        self._flows[node] = flow

    def remove_agent(self, node: Worked) -> None:
        """It ends."""
        if node in self._flows:
            self.refresh()
            del self._flows[node]

    def add_task(self, env: Environment) -> None:
        """A task begins: partitions have come."""
        self._envs[id(env)] = env, 0
        env.observed.commit_beginnings.append(lambda: self._commit_begins(env))
        env.committed.append(lambda: self._committed(env))
        self._partitions_change()

    def remove_task(self, env: Environment) -> None:
        """It ends."""
        self.refresh()
        self._envs.pop(id(env), None)
        self._commits.pop(id(env), None)
        self._partitions_change()

    # -------------------------------------------------------------------------------------------- commits, partitions

    def _commit_begins(self, env: Environment) -> None:
        self._commits[id(env)] = self.monitor.on_commit_initiated(self._app._consumer)

    def _committed(self, env: Environment) -> None:
        monitor = self.monitor
        monitor.on_commit_completed(self._app._consumer, self._commits.pop(id(env), monitor.time()))
        if env.observed.committing:
            monitor.on_tp_commit({TP(*tp): offset for tp, offset in env.observed.committing.items()})
        self.is_stale = True

    def _partitions_change(self) -> None:
        if self._rebalance is None:
            self._app.rebalancing_count += 1
            self._rebalance = self.monitor.on_rebalance_start(self._app)

    @property
    def is_rebalancing(self) -> bool:
        """Whether partitions have come or gone since the last record."""
        return self._rebalance is not None

    def rebalanced(self) -> None:
        """They have all come, as there are records."""
        monitor, state = self.monitor, self._rebalance
        if state is not None:
            self._rebalance = None
            monitor.on_rebalance_return(self._app, state)
            monitor.on_rebalance_end(self._app, state)
            monitor.assignments_completed += 1

    # ------------------------------------------------------------------------------------------------------- the monitor

    def tick(self) -> None:
        """A second is over."""
        self.rebalanced()
        self.refresh()
        self._sampled = self.monitor._sample(*self._sampled)

    def refresh(self) -> None:
        """Gives the monitor what is new."""
        self.is_stale = False
        monitor = self.monitor
        if not self.hears_events:
            self._tell_flows(monitor)
        self._tell_tables(monitor)
        monitor.messages_sent += self.sends.by_topic.total()
        monitor.messages_sent_by_topic.update(self.sends.by_topic)
        self.sends.by_topic.clear()
        monitor.send_latency.extend(self.sends.latencies)
        self.sends.latencies.clear()
        for number, (env, told) in self._envs.items():
            failed = env.counters.failed_production
            monitor.send_errors += failed - told
            self._envs[number] = env, failed
            for end in env.observed.readable_ends():
                monitor.track_tp_end_offset(TP(end[0], end[1]), end[2])

    def _tell_flows(self, monitor: faust.Monitor) -> None:
        active = 0
        messages: dict[object, int] = {}
        for node, flow in self._flows.items():
            new, in_work = flow.taken(node.waiting), node.in_work
            active += in_work
            messages[flow.group] = max(in_work + node.waiting, messages.get(flow.group, 0))
            if new:
                monitor.events_total += new
                monitor.events_by_stream[flow.stream] += new
                monitor.events_by_task[flow.agent] += new
            monitor.events_runtime.extend(flow.runtimes)
            flow.runtimes.clear()
            if flow.counts_messages:
                monitor.messages_received_total += flow.by_topic.total()
                monitor.messages_received_by_topic.update(flow.by_topic)
                flow.by_topic.clear()
                monitor.tp_read_offsets.update({TP(*tp): offset for tp, offset in flow.read.items()})
        monitor.events_active, monitor.messages_active = active, sum(messages.values())

    def _tell_tables(self, monitor: faust.Monitor) -> None:
        for name, use in self._tables.items():
            reads, writes, deletes = use.new()
            if reads or writes or deletes:
                state = monitor.tables.get(name)
                if state is None:
                    state = monitor.tables[name] = TableState(self._app.tables[name])
                state.keys_retrieved += reads
                state.keys_updated += writes
                state.keys_deleted += deletes


# ------------------------------------------------------------------------------------------------------------ app.monitor

_bound: dict[int, tuple[Figures, Callable[[], bool], Callable[[], None]]] = {}
_PLAIN = inspect.getattr_static(App, "monitor")


def monitor_of(app: faust.App) -> faust.Monitor:
    """The monitor of an application, whatever is new."""
    return _PLAIN.fget(app)


def _read(app: faust.App) -> faust.Monitor:
    if id(app) in _bound:
        figures, is_in_agent, _ = _bound[id(app)]
        # An agent may read it for each event.
        if figures.is_stale or not is_in_agent():
            figures.refresh()
    return monitor_of(app)


def _write(app: faust.App, monitor: faust.Monitor) -> None:
    if id(app) in _bound:
        _bound[id(app)][2]()
    _PLAIN.fset(app, monitor)


def bind_monitor(figures: Figures, app: faust.App, is_in_agent: Callable[[], bool], refuse: Callable[[], None]) -> None:
    """Gives what reads ``app.monitor`` the figures of the moment. ``refuse``: called where somebody replaces it."""
    _bound[id(app)] = figures, is_in_agent, refuse
    app.sensors.add(monitor_of(app))
    App.monitor = property(_read, _write)


def unbind_monitor(app: faust.App) -> None:
    """Gives the class back as it was, when the last of these applications ends."""
    del _bound[id(app)]
    app.sensors.remove(monitor_of(app))
    if not _bound:
        App.monitor = _PLAIN
