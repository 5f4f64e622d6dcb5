"""Restores stores and follows changelogs on its own thread, beside the running tasks.

1. A store is used by one thread at a time. This thread uses the store of a followed changelog during a step; between
   two steps, while it is paused, the thread that paused it may use the store. After the changelog is released, the
   store belongs to the processing thread.
2. The processing thread waits for this one only when it takes over a store that is followed, and at most for one step;
   a store that is restored, or has failed, has already been released.
3. Every result, including errors, is a report in :class:`~streamsrt.tasks.restore.changelog_work.Reports`: the
   processing thread calls listeners and handles failures, and is woken if it has something to do.
4. The restore fetcher limits what is fetched and not applied yet: it stops fetching. What is passed on to the
   processing thread (global topics) is limited here: its partitions are paused until it is taken.
5. If the thread dies, taking the reports raises. If a step does not end, the thread that waits for it logs the step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType

from streamsrt.client.interface import Fetching
from streamsrt.client.signal import Signal
from streamsrt.client.values import TopicPartition
from streamsrt.errors import StateError
from streamsrt.tasks.restore.changelog_work import (
    STEP_RECORDS,
    Applied,
    ChangelogWork,
    Followed,
    Report,
    StepMeter,
    add_followed,
)
from streamsrt.wording import error_text

logger = logging.getLogger(__name__)

FETCHES_AT_ONCE = 8
PASSED_BYTES = 16 << 20
PATIENCE_S = 10.0


class HandoverLock:
    """Decides who may use the followed stores: the restore thread, step by step, or a thread that pauses it.

    Those who want it to stand still come first, and there may be several of them.
    """

    def __init__(self, doing: Callable[[], str], patience_s: float = PATIENCE_S) -> None:
        self._changed = threading.Condition()
        self._is_working = False
        self._stops = 0
        self._doing = doing
        self._patience_s = patience_s

    def begin(self) -> None:
        """Called by the restore thread: begins a step as soon as no thread pauses it."""
        with self._changed:
            while self._stops:
                self._changed.wait()
            self._is_working = True

    def end(self) -> None:
        """Called by the restore thread: ends its step."""
        with self._changed:
            self._is_working = False
            if self._stops:
                self._changed.notify_all()

    def __enter__(self) -> None:
        with self._changed:
            self._stops += 1
            try:
                self._wait_for_the_step()
            except BaseException:
                self._stops -= 1
                self._changed.notify_all()
                raise

    def _wait_for_the_step(self) -> None:
        while self._is_working:
            if not self._changed.wait(self._patience_s):
                logger.warning(
                    "the restore thread has not finished a step for more than %g s, and its stores are needed: %s",
                    self._patience_s,
                    self._doing(),
                )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stops -= 1
            self._changed.notify_all()


class RestoreThread:
    """Implements :class:`~streamsrt.tasks.restore.changelog_work.Restoring` on a thread.

    ``arrived`` is set when the fetcher has something; ``wake`` lets the processing thread come around.
    """

    def __init__(
        self,
        fetcher: Fetching,
        arrived: Signal,
        wake: Callable[[], None],
        *,
        patience_s: float = PATIENCE_S,
        step_records: int = STEP_RECORDS,
    ) -> None:
        self.standing_still = HandoverLock(self.doing, patience_s)
        self.meter = StepMeter(is_timed=True)
        self._fetcher = fetcher
        self._arrived = arrived
        self._wake = wake
        self._work = ChangelogWork(step_records)
        self._new: deque[Followed] = deque()
        self._followed: set[TopicPartition] = set()
        self._released_changelogs: set[TopicPartition] = set()
        """What came to its end, or failed, and is touched no more by this thread, nor is its fetching."""
        self._thread = threading.Thread(target=self._run, name="streamsrt-restore", daemon=True)
        self._is_over = False
        self._died_of: BaseException | None = None
        self._passing = threading.Lock()
        self._paused: set[TopicPartition] = set()

    # ---------------------------------------------------------------------------------------------- processing thread

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def follow(self, changelogs: Iterable[Followed]) -> None:
        wanted = list(changelogs)
        if not wanted:
            return
        # This order ensures that a polled changelog is already known as new.
        self._new.extend(wanted)
        add_followed(self._fetcher, wanted)
        self._followed.update(each.changelog for each in wanted)
        self.start()

    def release(self, changelogs: Iterable[TopicPartition]) -> list[Applied]:
        partitions = [tp for tp in changelogs if tp in self._followed]
        if not partitions:
            return []
        self._followed.difference_update(partitions)
        self._fetcher.remove_partitions(partitions)
        if not self._released_changelogs.issuperset(partitions):
            with self.standing_still:
                self._begin_new()
                return self._released(partitions)
        return self._released(partitions)

    def _released(self, partitions: list[TopicPartition]) -> list[Applied]:
        self._released_changelogs.difference_update(partitions)
        return [left for tp in partitions if (left := self._work.release(tp)) is not None]

    def position(self, changelog: TopicPartition) -> int | None:
        return self._work.position(changelog)

    def reports(self) -> list[Report]:
        """See ``Restoring.reports``. Raises StateError if the thread has died."""
        if self._died_of is not None:
            error = self._died_of
            raise StateError(
                f"the restore thread ended with {error_text(error)}. Restoring has stopped: restart the "
                "application, and report this with the log"
            ) from error
        if not self._work.reports:
            return []
        with self._passing:
            taken = self._work.reports.take()
            if self._paused:
                self._fetcher.resume(self._paused)
                self._paused = set()
                self._arrived.set()
        return taken

    def doing(self) -> str:
        """Describes what the thread is doing."""
        tp = self._work.working_on
        return "it is between two changelogs" if tp is None else f"it applies the changelog {tp[0]}-{tp[1]}"

    def close(self) -> None:
        self._is_over = True
        self._arrived.set()
        if self._thread.ident is not None:
            self._thread.join()

    # ------------------------------------------------------------------------------------------------- restore thread

    def _run(self) -> None:
        try:
            while True:
                # Cleared before the check: anything that arrives meanwhile ends the wait.
                self._arrived.clear()
                while not self._is_over and self._step():
                    pass
                if self._is_over:
                    return
                self._arrived.wait(None)
        except BaseException as error:  # noqa: BLE001  # raised by the processing thread, in reports()
            self._died_of = error
            self._wake()

    def _step(self) -> bool:
        """Does one step; returns whether there was anything to do."""
        work, lock = self._work, self.standing_still
        passed: set[TopicPartition] = set()
        is_over = False
        lock.begin()
        began_ns = time.monotonic_ns()
        try:
            if not work.has_work:
                taken = self._fetcher.poll(0.0, FETCHES_AT_ONCE)
                self._begin_new()
                if not taken:
                    return False
                passed = work.take(taken)
            step = work.step()
            if step is not None:
                self.meter.add(step, began_ns, time.monotonic_ns())
                is_over = step.is_over
                if is_over:
                    self._fetcher.remove_partitions([step.changelog])
                    self._released_changelogs.add(step.changelog)
        finally:
            lock.end()
        if passed:
            self._hold_back(passed)
        if passed or is_over:
            self._wake()
        return True

    def _begin_new(self) -> None:
        while self._new:
            self._work.follow(self._new.popleft())

    def _hold_back(self, passed: set[TopicPartition]) -> None:
        """Pauses partitions whose records the processing thread takes too slowly."""
        with self._passing:
            if self._work.reports.passed_bytes > PASSED_BYTES:
                self._fetcher.pause(passed)
                self._paused |= passed
