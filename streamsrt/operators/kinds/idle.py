"""``idle_timeout``: closes windows and forwards suppressed changes when an input has no more records.

Without records, stream time does not advance, and nothing would close.

1. An operator is idle when none of its upstream sources has brought a record for its ``idle_timeout``, by the wall
   clock. The timeout starts when the task starts here, at the earliest: a restart or a rebalance starts it again. A
   record that a filter drops before it reaches the operator counts as a record.
2. Caches are flushed first: what was read is part of what is closed. Operators close parents first, so that the results
   of one are closed by the next.
3. Closing advances the operator's stream time to where all open windows are closed; for sessions, as far as they could
   have been extended. Records for them are late from then on.
4. The time up to which windows were closed is a row in a store of its own, logged with the results: whoever continues
   the task does not close them again and treats the same records as late, even if the input's offsets were not
   committed (:class:`streamsrt.operators.kinds.closing.ClosedMark`). A suppression by time needs no such row: its
   buffer is empty then.
"""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder
from streamsrt.operators.kinds.closing import ClosedMark, closing_sessions, closing_windows
from streamsrt.operators.kinds.suppress import Suppression, flowing
from streamsrt.state.cache import Entry
from streamsrt.state.kinds import cache_of
from streamsrt.state.session_cache import SessionCache, SessionEntry
from streamsrt.state.sessions import session_key
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import window_key
from topology.graph.nodes import ProcessorNode, SourceNode
from topology.graph.operations import Suppress
from topology.graph.operations.traits import closed_store, own_store
from topology.graph.row_windows import closes_after_ms
from topology.spec.windows import END_OF_TIME_MS, SessionWindows, SlidingWindows, TimeWindows, Windowed

Close = Callable[[], None]


class _Idle:
    """One operator. ``closed_at_ms``: it was closed, and no record has come since then."""

    def __init__(self, node: ProcessorNode, timeout_ms: int, sources: frozenset[str]) -> None:
        self.node = node
        self.timeout_ms = timeout_ms
        self.sources = sources
        self.is_closed = False
        self.close: Close | None = None


class IdleClosing:
    """The operators of one task that have an ``idle_timeout``. False if there are none."""

    def __init__(self, builder: PathBuilder) -> None:
        self._builder = builder
        self._env = builder.env
        self._arrived_ms: dict[str, int] = {}
        self._began_ms: int | None = None
        self._idle: list[_Idle] = []
        for node in builder.plan.subtopology.nodes:
            timeout_ms = getattr(node.operation, "idle_timeout_ms", None) if isinstance(node, ProcessorNode) else None
            if timeout_ms is not None:
                assert isinstance(node, ProcessorNode)
                self._idle.append(_Idle(node, timeout_ms, frozenset(_sources_of(builder, node))))

    def __bool__(self) -> bool:
        return bool(self._idle)

    def arrived(self, source: str) -> None:
        """Notes that a source has brought records: the operators behind it are not idle."""
        self._begin()
        self._arrived_ms[source] = self._env.system_time_ms
        for each in self._idle:
            if source in each.sources:
                each.is_closed = False

    def _begin(self) -> None:
        """Restores which windows were closed before the task started here."""
        if self._began_ms is not None:
            return
        self._began_ms = self._env.system_time_ms
        for each in self._idle:
            closed = closed_store(each.node.operation)
            if closed is not None:
                closed_ms = ClosedMark(self._env, closed).ms
                time = self._env.stream_times.setdefault(each.node.name, StreamTime())
                time.ms, time.closed_ms = max(time.ms, closed_ms), max(time.closed_ms, closed_ms)

    def is_due(self) -> bool:
        """Whether an operator is idle by the wall clock and not closed yet."""
        self._begin()
        return any(self._is_due(each) for each in self._idle)

    def _is_due(self, each: _Idle) -> bool:
        assert self._began_ms is not None
        if each.is_closed:
            return False
        last_ms = max((self._arrived_ms.get(source, self._began_ms) for source in each.sources), default=self._began_ms)
        return self._env.system_time_ms - last_ms >= each.timeout_ms

    def close(self) -> int:
        """Closes the operators that are idle. Returns their number."""
        due = [each for each in self._idle if self._is_due(each)]
        self._env.outside_of_records()
        for each in due:
            each.is_closed = True
            if each.close is None:
                each.close = self._closing(each.node)
            each.close()
        return len(due)

    def _closing(self, node: ProcessorNode) -> Close:
        made, op = self._builder.node(node.name), node.operation
        if isinstance(op, Suppress):
            suppression = Suppression(self._env, node.name, op)
            flow_on = flowing(self._builder, node, made)
            return lambda: flow_on(suppression.evict_all())
        closed = closed_store(op)
        assert closed is not None
        mark, emit = ClosedMark(self._env, closed), _emission(self._builder, node, made.forward)
        time = self._env.stream_times.setdefault(node.name, StreamTime())

        def close() -> None:
            closed_ms = emit()
            if closed_ms is not None:
                time.ms = time.closed_ms = max(time.ms, closed_ms)
                mark.move(time.ms)

        return close


def _emission(builder: PathBuilder, node: ProcessorNode, forward: Callable[..., None]) -> Callable[[], int | None]:
    """Forwards all open windows, and returns the stream time at which they are closed; None if none is open."""
    name, windows = own_store(node.operation), getattr(node.operation, "windows", None)
    assert name is not None
    spec, env = builder.plan.specs[name], builder.env
    deserialize, serialize = builder.plan.key_serde(spec).deserialize, builder.plan.value_serde(spec).serialize

    def be_at(entry: Entry | SessionEntry) -> None:
        """Sets the context of the next results to that row, as in its changelog."""
        at = entry.key, entry.start
        key = session_key(*at, entry.end) if isinstance(entry, SessionEntry) else window_key(*at)
        env.source = lambda: (key, serialize(entry.value), (), entry.timestamp)

    time = builder.env.stream_times.setdefault(node.name, StreamTime())
    if isinstance(windows, SessionWindows):
        store = cache_of(SessionCache, env.caches, name)
        sessions, gap_ms = closing_sessions(store, windows.retention_ms, time), windows.gap_ms

        def emit_sessions() -> int | None:
            closed_ms = sessions.closed_by_ms()
            if closed_ms is None:
                return None
            for entry in sessions.close(closed_ms):
                be_at(entry)
                forward(Windowed(deserialize(entry.key), entry.start, entry.end), entry.value, entry.end, ())
            return min(closed_ms + gap_ms, END_OF_TIME_MS)

        return emit_sessions
    assert isinstance(windows, TimeWindows | SlidingWindows), (
        "the topology allows idle_timeout= only for windows that close"
    )
    size_ms = windows.size_ms
    closing = closing_windows(cache_of(WindowCache, env.caches, name), closes_after_ms(windows), time)

    def emit_windows() -> int | None:
        closed_ms = closing.closed_by_ms()
        if closed_ms is not None:
            for entry in closing.close(closed_ms):
                be_at(entry)
                forward(
                    Windowed(deserialize(entry.key), entry.start, entry.start + size_ms),
                    entry.value,
                    entry.timestamp,
                    (),
                )
        return closed_ms

    return emit_windows


def _sources_of(builder: PathBuilder, node: ProcessorNode) -> set[str]:
    """The sources from which there is a way to the node."""
    found: set[str] = set()
    waiting, seen = [node.name], {node.name}
    while waiting:
        each = builder.plan.node(waiting.pop())
        if isinstance(each, SourceNode):
            found.add(each.name)
            continue
        waiting += [parent for parent in each.parents if parent not in seen]
        seen.update(each.parents)
    return found
