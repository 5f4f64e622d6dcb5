"""The records of a slice, in the order of its task, and the times of the others.

1. Between two records of the slice, what the others did to a stream time shows only if the second one is older than one of
   them, by more than the operation's grace: else it moves the time on itself, or is in time anyway. So a run is cut there
   only, and times pass at the cuts and between runs.
2. Which of the other records come to an operation with a stream time is asked only of the latest of them: of as many as
   there are until one comes through.
3. Records without a key move no stream time on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from streamsrt.backfill.slices.eligibility import TimedNode
from streamsrt.backfill.slices.share import Slice, WrittenKeys
from streamsrt.errors import ProcessingError
from streamsrt.operators.key_slices import always
from streamsrt.tasks.input.partition_group import TopicPartition
from streamsrt.tasks.task import Task
from streamsrt.wire.records import RecordColumns
from streamsrt.wording import error_text

Runs = Iterable[tuple[TopicPartition, RecordColumns]]
_Times = NDArray[np.int64]
_Marks = NDArray[np.bool_]


def own_records(runs: Runs, share: Slice, task: Task, timed: Sequence[TimedNode]) -> Runs:
    """Yields the records of a slice out of all records of its ``task``, and lets times pass in between.

    Whoever takes them must let the task process each part before taking the next one. Raises RecordError.
    """
    clocks = [_Clock(each, task) for each in timed]
    written = WrittenKeys(task.plan.key_serde(task.subtopology.sources[0]))
    for tp, columns in runs:
        source = task.source_of(tp[0]).name
        run = _Run(tp, columns, share.has(written.of(columns.keys)))
        yield from run.parts([clock for clock in clocks if clock.is_reached_from(source)], source)


class _Clock:
    """The stream time of one operation, as far as records of other slices have moved it on. ``own_ms``: the latest time of
    the slice's own records, of which all come to it; -1 if that is not known."""

    def __init__(self, timed: TimedNode, task: Task) -> None:
        self._timed = timed
        self._task = task
        self._ms = -1
        self._told_ms = -1
        self.own_ms = -1
        self.slack_ms = timed.slack_ms

    def is_reached_from(self, source: str) -> bool:
        return source in self._timed.reaches

    def takes_all_of(self, source: str) -> bool:
        return self._timed.reaches[source] is always

    def look(self, tp: TopicPartition, source: str, columns: RecordColumns, times: _Times, others: _Times) -> None:
        """Takes records of other slices, given as the places of those that have a key."""
        later = others[times[others] > self._ms]
        if not len(later):
            return
        reach = self._timed.reaches[source]
        if reach is always:
            self._ms = int(times[later].max())
            return
        for place in later[np.argsort(-times[later], kind="stable")].tolist():
            try:
                comes = reach(*self._task.pair_of(tp[0], columns, place))
            except Exception as error:
                # The slice that it belongs to fails with it, too.
                raise ProcessingError(
                    f"the record at {tp[0]}-{tp[1]} offset {columns.offset_at(place)} can't be processed: "
                    f"{error_text(error)}. Its time is needed, so this slice of other keys fails, too",
                    *tp,
                    columns.offset_at(place),
                ) from error
            if comes:
                self._ms = int(times[place])
                return

    def is_due(self, own_ms: int, at_ms: int) -> bool:
        """Whether the time must pass before a record at ``at_ms``; ``own_ms``: how far the slice's own records have moved it
        on."""
        ms = self._ms
        return ms > max(self._told_ms, own_ms) and ms - self.slack_ms > at_ms

    def tell(self) -> None:
        """Lets the time pass, if it is not known yet."""
        if self._ms > self._told_ms:
            self._told_ms = self._ms
            self._task.pass_time(self._timed.node, self._ms)


class _Run:
    """Some records of one partition."""

    def __init__(self, tp: TopicPartition, columns: RecordColumns, mine: _Marks) -> None:
        self._tp = tp
        self._columns = columns
        self._mine = mine

    def parts(self, clocks: Sequence[_Clock], source: str) -> Iterator[tuple[TopicPartition, RecordColumns]]:
        """Yields the slice's own records, cut where a time must pass."""
        columns, count = self._columns, len(self._columns.keys)
        if not clocks or not count:
            yield from self._part(0, count)
            return
        times = np.array(columns.timestamps, np.int64)
        keyed = np.array([key is not None for key in columns.keys], np.bool_)
        own, others = self._mine & keyed, np.flatnonzero(keyed & ~self._mine)
        own_before = _latest_before(times, own)
        start = looked = 0
        for place in _suspects(times, own, keyed, own_before, clocks, source):
            end = int(np.searchsorted(others, place))
            due = []
            for clock in clocks:
                clock.look(self._tp, source, columns, times, others[looked:end])
                own_ms = max(clock.own_ms, int(own_before[place])) if clock.takes_all_of(source) else -1
                if clock.is_due(own_ms, int(times[place])):
                    due.append(clock)
            looked = end
            if due:
                yield from self._part(start, place)
                start = place
                for clock in due:
                    clock.tell()
        yield from self._part(start, count)
        own_ms = int(times[own].max(initial=-1))
        for clock in clocks:
            clock.look(self._tp, source, columns, times, others[looked:])
            clock.tell()
            if clock.takes_all_of(source):
                clock.own_ms = max(clock.own_ms, own_ms)

    def _part(self, start: int, end: int) -> Iterator[tuple[TopicPartition, RecordColumns]]:
        columns, mine = self._columns, self._mine[start:end]
        if not mine.any():
            return
        part = columns if (start, end) == (0, len(columns.keys)) else columns.cut(start, end)
        if mine.all():
            yield self._tp, part
            return
        chosen = mine.tolist()
        if part.offsets is None:
            offsets = (np.flatnonzero(mine) + part.base_offset).tolist()
        else:
            offsets = list(compress(part.offsets, chosen))
        yield (
            self._tp,
            RecordColumns(
                list(compress(part.keys, chosen)),
                list(compress(part.values, chosen)),
                list(compress(part.timestamps, chosen)),
                offsets[0],
                part.next_offset,
                offsets,
                None if part.headers is None else list(compress(part.headers, chosen)),
            ),
        )


def _suspects(
    times: _Times, own: _Marks, keyed: _Marks, own_before: _Times, clocks: Sequence[_Clock], source: str
) -> list[int]:
    """The places of own records that are so much older than one of the others before them that it may show."""
    before = _latest_before(times, keyed & ~own)
    older = before - min(clock.slack_ms for clock in clocks) > times
    if all(clock.takes_all_of(source) for clock in clocks):
        older &= before > np.maximum(own_before, min(clock.own_ms for clock in clocks))
    places: list[int] = np.flatnonzero(own & older).tolist()
    return places


def _latest_before(times: _Times, marks: _Marks) -> _Times:
    """For each place the latest time of the marked records before it; -1 if there is none."""
    latest = np.maximum.accumulate(np.where(marks, times, -1))
    return np.concatenate((np.array([-1], np.int64), latest[:-1]))
