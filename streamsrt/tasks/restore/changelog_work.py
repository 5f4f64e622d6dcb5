"""Applies fetched changelog data to the stores, step by step, on whichever thread runs it.

1. :class:`ChangelogWork` is a value machine: fetches in (:meth:`ChangelogWork.take`), reports out (:class:`Reports`).
   It has no thread, no clock and no network of its own.
2. A changelog is applied only between :meth:`ChangelogWork.follow` and :meth:`ChangelogWork.release`, and not after its
   end or an error. Data fetched before a release is never applied after the next ``follow``.
3. A step applies a few batches. Between two steps, every store is at one offset of its changelog, and whoever prevents
   further steps may do anything with the stores.
4. An error is a report about one changelog, which is not applied any more.
5. Reports take bounded memory, however late they are taken: the records applied to a changelog add up to one report.

A :class:`Restoring` combines this work with its driver: :class:`InlineRestoring` on the thread that takes the reports,
or :class:`streamsrt.runtime.restore_thread.RestoreThread`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamsrt.client.interface import Fetching
from streamsrt.client.values import Fetched, TopicPartition
from streamsrt.sensors import Work
from streamsrt.wire.records import RecordColumns, iter_columns

Apply = Callable[[RecordColumns], None]


class Restored(Protocol):
    """A store that prepares for what it gets: told before the first record, and where there are no more for now."""

    def begin_restoring(self, records: int) -> None:
        """About so many records follow."""

    def end_restoring(self) -> None:
        """Those are restored; what follows comes one by one. The store may be read from now on."""


STEP_RECORDS = 1_000
"""After so many records a step ends, with the batch that reaches it."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A changelog to apply from ``position`` on, to ``end_offset`` or (None) forever. ``store``: a store that wants to
    know of the beginning and the end of a long restore."""

    changelog: TopicPartition
    position: int
    end_offset: int | None
    apply: Apply
    store: Restored | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """Reports records applied since the last report of that changelog. ``fetched_bytes``: their compressed size."""

    changelog: TopicPartition
    position: int
    high_watermark: int
    records: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Reports that a changelog can't be applied any further. ``offset``: of the fetch."""

    changelog: TopicPartition
    offset: int
    error: Exception


Report = Applied | Failed | Fetched
"""A fetch is of a partition that nobody follows here: it is passed on as it came."""


class Reports:
    """Reports from the restoring thread to the processing thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._applied: dict[TopicPartition, Applied] = {}
        self._others: list[Failed | Fetched] = []
        self._passed_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._applied or self._others)

    @property
    def passed_bytes(self) -> int:
        """The size of fetched data that waits to be passed on."""
        return self._passed_bytes

    def add(self, report: Report) -> None:
        with self._lock:
            if isinstance(report, Applied):
                before = self._applied.get(report.changelog)
                self._applied[report.changelog] = report if before is None else _sum(before, report)
                return
            self._others.append(report)
            if isinstance(report, Fetched):
                self._passed_bytes += len(report.buffer)

    def take(self) -> list[Report]:
        """Removes and returns all reports; those of each changelog in their order."""
        if not self:
            return []
        with self._lock:
            taken: list[Report] = [*self._applied.values(), *self._others]
            self._applied, self._others, self._passed_bytes = {}, [], 0
        return taken

    def drop(self, changelog: TopicPartition) -> Applied | None:
        """Removes and returns the report of one changelog; its failures no longer matter."""
        with self._lock:
            self._others = [
                each for each in self._others if not (isinstance(each, Failed) and each.changelog == changelog)
            ]
            return self._applied.pop(changelog, None)


def _sum(before: Applied, later: Applied) -> Applied:
    return Applied(
        later.changelog,
        later.position,
        later.high_watermark,
        before.records + later.records,
        before.fetched_bytes + later.fetched_bytes,
    )


class _Life:
    """One changelog, from follow to release."""

    __slots__ = ("_is_begun", "_store", "apply", "changelog", "end_offset", "is_over", "position")

    def __init__(self, followed: Followed) -> None:
        self.changelog = followed.changelog
        self.apply = followed.apply
        self.position = followed.position
        self.end_offset = followed.end_offset
        self.is_over = self.is_at_end
        self._store = followed.store
        self._is_begun = False

    def begin(self, fetched: Fetched) -> None:
        """Called before records are applied."""
        if self._store is not None and not self._is_begun:
            self._is_begun = True
            self._store.begin_restoring((self.end_offset or fetched.readable_end) - self.position)

    def end(self, fetched: Fetched) -> None:
        """Called after all of a fetch was applied: at the end of the changelog, or where a standby has caught up."""
        if self._store is not None and (self.is_at_end or self.position >= fetched.readable_end):
            store, self._store = self._store, None
            store.end_restoring()

    @property
    def is_at_end(self) -> bool:
        return self.end_offset is not None and self.position >= self.end_offset


class RestoreStep(NamedTuple):
    """The result of a step. ``is_restoring``: for an active task, not for a standby."""

    changelog: TopicPartition
    is_restoring: bool
    records: int
    is_over: bool
    """Whether fetching of the changelog can stop: it is at its end, or has failed."""


@dataclass(slots=True)
class _Fetch:
    """A fetch that is being applied."""

    life: _Life
    fetched: Fetched
    batches: Iterator[RecordColumns]


class StepMeter:
    """Counts restore steps and their duration, by purpose. Written by the driver of the work.

    ``is_timed``: whether that has a thread of its own, whose time is told.
    """

    __slots__ = ("active", "is_timed", "standby")

    def __init__(self, *, is_timed: bool) -> None:
        self.is_timed = is_timed
        self.active = Work()
        """Restoring active tasks. Its items are records."""
        self.standby = Work()
        """Following changelogs for standbys."""

    def add(self, step: RestoreStep, began_ns: int, ended_ns: int) -> None:
        (self.active if step.is_restoring else self.standby).add(began_ns, ended_ns, step.records)


class ChangelogWork:
    """Applies changelogs by the rules in the module's docstring. Used by one thread at a time; only :attr:`reports` is
    for any thread."""

    def __init__(self, step_records: int = STEP_RECORDS) -> None:
        self.reports = Reports()
        self._step_records = step_records
        self._lives: dict[TopicPartition, _Life] = {}
        self._waiting: deque[tuple[_Life, Fetched]] = deque()
        self._current: _Fetch | None = None

    def follow(self, followed: Followed) -> None:
        """Starts to follow a changelog."""
        self.release(followed.changelog)
        self._lives[followed.changelog] = _Life(followed)

    def release(self, changelog: TopicPartition) -> Applied | None:
        """Stops following a changelog: nothing more is applied to it. Returns its last report."""
        life = self._lives.pop(changelog, None)
        if life is not None:
            life.is_over = True
        return self.reports.drop(changelog)

    def position(self, changelog: TopicPartition) -> int | None:
        """Returns the offset up to which the store contains the changelog; None if it is not followed."""
        life = self._lives.get(changelog)
        return None if life is None else life.position

    @property
    def has_work(self) -> bool:
        return self._current is not None or bool(self._waiting)

    @property
    def working_on(self) -> TopicPartition | None:
        """Returns the changelog of the present or last step. May be called from any thread."""
        current = self._current
        return None if current is None else current.life.changelog

    def take(self, fetched: Iterable[Fetched]) -> set[TopicPartition]:
        """Adds fetched data. Returns the partitions whose data is passed on."""
        passed = set()
        for each in fetched:
            tp = (each.topic, each.partition)
            life = self._lives.get(tp)
            if life is None:
                self.reports.add(each)
                passed.add(tp)
            else:
                self._waiting.append((life, each))
        return passed

    def step(self) -> RestoreStep | None:
        """Applies some of the data; returns None if there was nothing to apply."""
        current = self._current = self._current or self._next()
        if current is None:
            return None
        life, records = current.life, 0
        if life.is_over:
            self._current = None
            return None
        try:
            records = self._apply_some(current)
        except Exception as error:  # noqa: BLE001  # told to whoever takes the reports, who raises it
            self._current = None
            life.is_over = True
            self.reports.add(Failed(life.changelog, current.fetched.offset, error))
        return RestoreStep(life.changelog, life.end_offset is not None, records, life.is_over)

    def _next(self) -> _Fetch | None:
        if not self._waiting:
            return None
        life, fetched = self._waiting.popleft()
        batches = iter_columns(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted, as_tables=True)
        return _Fetch(life, fetched, batches)

    def _apply_some(self, current: _Fetch) -> int:
        life, fetched, records = current.life, current.fetched, 0
        if fetched.error is not None:
            raise fetched.error
        life.begin(fetched)
        try:
            for columns in current.batches:
                if life.end_offset is not None and columns.next_offset > life.end_offset:
                    # In a source topic used as changelog, records after the end are input.
                    columns = _before(columns, life.end_offset)
                life.apply(columns)
                life.position = columns.next_offset
                records += len(columns)
                if life.is_at_end:
                    break
                if records >= self._step_records:
                    self._report(current, records, 0)
                    return records
            if not life.is_at_end:
                # The last record may be followed by transaction markers and compacted offsets.
                life.position = max(life.position, fetched.next_offset)
            life.end(fetched)
        except BaseException:
            self._report(current, records, 0)
            raise
        self._current = None
        life.is_over = life.is_at_end
        self._report(current, records, len(fetched.buffer))
        return records

    def _report(self, current: _Fetch, records: int, fetched_bytes: int) -> None:
        life = current.life
        self.reports.add(Applied(life.changelog, life.position, current.fetched.readable_end, records, fetched_bytes))


def _before(columns: RecordColumns, end_offset: int) -> RecordColumns:
    """Returns the records below an offset at which restoring continues."""
    count = sum(columns.offset_at(index) < end_offset for index in range(len(columns.keys)))
    kept = columns.cut(0, count)
    kept.next_offset = end_offset
    return kept


class Restoring(Protocol):
    """Drives the work. Called by the processing thread, or by a thread that holds the lock
    (:mod:`streamsrt.queries.gate`)."""

    @property
    def meter(self) -> StepMeter:
        """Counts and durations of steps. May be read by any thread."""

    @property
    def standing_still(self) -> AbstractContextManager[None]:
        """No changelog is applied inside ``with restoring.standing_still:``, which may be nested. Enter it only to access
        a followed store: it waits until the present step is finished."""

    def start(self) -> None:
        """Starts to handle fetched data. May be called again."""

    def follow(self, changelogs: Iterable[Followed]) -> None:
        """Fetches and applies these changelogs from now on. No other thread may use their stores, except while the
        restore stands still."""

    def release(self, changelogs: Iterable[TopicPartition]) -> list[Applied]:
        """Stops following these changelogs. When it returns, nothing of them is being applied and they have no more
        reports; the result contains the unreported ones."""

    def position(self, changelog: TopicPartition) -> int | None:
        """Returns the offset up to which the store contains its changelog. Call it only while the restore stands still."""

    def reports(self) -> Iterable[Report]:
        """Yields the reports since the last call. The caller may use any method before it takes the next one."""

    def close(self) -> None:
        """Stops restoring. All changelogs are released."""


def add_followed(fetcher: Fetching, followed: Iterable[Followed]) -> None:
    """Begins to fetch changelogs. Those without an end, of tasks that do not run, may lag."""
    for may_lag in (False, True):
        positions = {each.changelog: each.position for each in followed if (each.end_offset is None) is may_lag}
        if positions:
            fetcher.add_partitions(positions, may_lag=may_lag)


class InlineRestoring:
    """Restores when reports are requested, on the requesting thread. Implements :class:`Restoring`."""

    def __init__(self, fetcher: Fetching) -> None:
        self.standing_still: AbstractContextManager[None] = nullcontext()
        self.meter = StepMeter(is_timed=False)
        self._fetcher = fetcher
        self._work = ChangelogWork()

    def start(self) -> None:
        """Does nothing: there is no thread to start."""

    def follow(self, changelogs: Iterable[Followed]) -> None:
        wanted = list(changelogs)
        for each in wanted:
            self._work.follow(each)
        add_followed(self._fetcher, wanted)

    def release(self, changelogs: Iterable[TopicPartition]) -> list[Applied]:
        partitions = list(changelogs)
        if partitions:
            self._fetcher.remove_partitions(partitions)
        return [left for tp in partitions if (left := self._work.release(tp)) is not None]

    def position(self, changelog: TopicPartition) -> int | None:
        return self._work.position(changelog)

    def reports(self) -> Iterator[Report]:
        for fetched in self._fetcher.poll(0.0):
            self._work.take([fetched])
            while self._work.has_work:
                step = self._work.step()
                if step is None:
                    continue
                self.meter.add(step, 0, 0)
                if step.is_over:
                    self._fetcher.remove_partitions([step.changelog])
            yield from self._work.reports.take()

    def close(self) -> None:
        """Does nothing: there is no thread to stop."""
