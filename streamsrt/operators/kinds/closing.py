"""Results that are emitted once, when their window closes: which windows are open, and at which stream time they close.

1. Open windows are known here by their end; each is emitted with the record that closes it, before that record is put and
   its rows can expire. So none is lost when stream time jumps, or when a step behind fails, and none waits for a clock.
2. Windows are emitted by start, then by the key's bytes; sessions by end, start and key.
3. If no more records come, :meth:`ClosingWindows.closed_by_ms` is the stream time at which all open windows are closed
   (:mod:`streamsrt.operators.kinds.idle`).
4. A window that ends after the last timestamp that there is never closes.
5. Windows that were open when the task stopped are found in the store. :attr:`StreamTime.closed_ms`, which survives a
   restart, says which of them were emitted.

Source: the order is that of AbstractKStreamTimeWindowAggregateProcessor and KStreamSessionWindowAggregate.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import StreamTime
from streamsrt.state.cache import Entry, KeyValueCache
from streamsrt.state.kinds import cache_of
from streamsrt.state.session_cache import SessionCache, SessionEntry
from streamsrt.state.window_cache import WindowCache
from topology.spec.windows import END_OF_TIME_MS


class ClosedMark:
    """The stream time up to which windows were closed by the wall clock, in a store of its own."""

    _KEY = b"closed"

    def __init__(self, env: Environment, store: str) -> None:
        self._cache = cache_of(KeyValueCache, env.caches, store)
        self._env = env
        plan = env.plan
        self._serialize = plan.value_serde(plan.specs[store]).serialize
        self._topic = plan.changelog_topic(store) if plan.writes_changelog(store) else None

    @property
    def ms(self) -> int:
        """The stream time up to which windows were closed by the wall clock, in milliseconds; -1 if none was."""
        found = self._cache[self._KEY].value
        return -1 if found is None else int(found)

    def move(self, to_ms: int) -> None:
        """Stores and logs that windows were closed by the wall clock up to the stream time ``to_ms``."""
        env = self._env
        # Windows with a long grace close at a time that is still to come. Brokers refuse records from that far ahead.
        at_ms = min(to_ms, env.program_time_ms)
        self._cache.put(self._KEY, to_ms, at_ms, (), next(env.sequence))
        if self._topic is not None:
            raw = self._serialize(to_ms)
            env.collect(self._topic, [self._KEY], [raw], [at_ms], None, env.task_partition)


def closing_windows(cache: WindowCache, lasts_ms: int, time: StreamTime) -> ClosingWindows:
    """The open windows of the operator whose stream time is ``time``: made by the first call, then always the same object.

    ``lasts_ms``: how long after its start a window is closed, in stream time.
    """
    if time.closing is None:
        time.closing = ClosingWindows(cache, lasts_ms, time)
    assert isinstance(time.closing, ClosingWindows)
    return time.closing


def closing_sessions(cache: SessionCache, lasts_ms: int, time: StreamTime) -> ClosingSessions:
    """The open sessions of the operator whose stream time is ``time``: made by the first call, then always the same object.

    ``lasts_ms``: how long after its end a session stays open, in stream time.
    """
    if time.closing is None:
        time.closing = ClosingSessions(cache, lasts_ms, time)
    assert isinstance(time.closing, ClosingSessions)
    return time.closing


class ClosingWindows:
    """The open windows of a store. A window is closed once stream time is ``lasts_ms`` or more behind its start.

    ``next_ms``: the stream time at which the next window closes, in milliseconds; -1 until the store has been read.
    """

    __slots__ = ("_cache", "_lasts_ms", "_open", "_starts", "_time", "next_ms")

    def __init__(self, cache: WindowCache, lasts_ms: int, time: StreamTime) -> None:
        self._cache = cache
        self._lasts_ms = lasts_ms
        self._time = time
        self._starts: list[int] = []
        self._open: set[int] = set()
        self.next_ms = -1

    def note(self, start: int) -> None:
        """Adds the window that starts at ``start``, in milliseconds, to the open ones, unless it is one of them."""
        if start not in self._open:
            self._open.add(start)
            heappush(self._starts, start)
            if self.next_ms >= 0:
                self.next_ms = self._starts[0] + self._lasts_ms

    def _load(self) -> None:
        if self.next_ms < 0:
            for start in self._cache.starts(max(0, self._time.closed_ms - self._lasts_ms + 1)):
                self.note(start)

    def closed_by_ms(self) -> int | None:
        """The stream time, in milliseconds, at which all that can close is closed; None if nothing that is open can."""
        self._load()
        times = (start + self._lasts_ms for start in self._starts)
        return max((time for time in times if time <= END_OF_TIME_MS), default=None)

    def close(self, now_ms: int) -> Iterator[Entry]:
        """Yields the rows of the windows that are closed at the stream time ``now_ms``, and removes these windows."""
        self._load()
        starts, lasts_ms = self._starts, self._lasts_ms
        self._time.lets_go = True
        while starts and starts[0] + lasts_ms <= now_ms:
            start = heappop(starts)
            self._open.discard(start)
            yield from self._cache.rows_at(start)
        self._time.lets_go = False
        self._time.closed_ms = max(self._time.closed_ms, now_ms)
        self.next_ms = starts[0] + lasts_ms if starts else END_OF_TIME_MS


class ClosingSessions:
    """The open sessions of a store. A session is closed once stream time is more than ``lasts_ms`` behind its end."""

    __slots__ = ("_cache", "_ends", "_lasts_ms", "_time", "next_ms")

    def __init__(self, cache: SessionCache, lasts_ms: int, time: StreamTime) -> None:
        self._cache = cache
        self._lasts_ms = lasts_ms
        self._time = time
        self._ends: list[tuple[int, int, bytes]] = []
        self.next_ms = -1

    def note(self, key: bytes, start: int, end: int) -> None:
        """Adds the session with this key and these bounds, in milliseconds, to the open ones."""
        heappush(self._ends, (end, start, key))
        if self.next_ms >= 0:
            self.next_ms = self._ends[0][0] + self._lasts_ms + 1

    def _load(self) -> None:
        if self.next_ms < 0:
            for entry in self._cache.unexpired(self._time.closed_ms - self._lasts_ms):
                heappush(self._ends, (entry.end, entry.start, entry.key))

    def closed_by_ms(self) -> int | None:
        """The stream time, in milliseconds, at which all that can close is closed; None if nothing that is open can."""
        self._load()
        times = (end + self._lasts_ms + 1 for end, _, _ in self._ends)
        return max((time for time in times if time <= END_OF_TIME_MS), default=None)

    def close(self, now_ms: int) -> Iterator[SessionEntry]:
        """Yields the sessions that are closed at the stream time ``now_ms``, and removes them."""
        self._load()
        ends, lasts_ms = self._ends, self._lasts_ms
        self._time.lets_go = True
        last: tuple[int, int, bytes] | None = None
        while ends and ends[0][0] + lasts_ms < now_ms:
            session = heappop(ends)
            if session != last:
                last = session
                found = self._cache.session(session[2], session[1], session[0])
                if found is not None:
                    yield found
        self._time.lets_go = False
        self._time.closed_ms = max(self._time.closed_ms, now_ms)
        self.next_ms = ends[0][0] + lasts_ms + 1 if ends else END_OF_TIME_MS
