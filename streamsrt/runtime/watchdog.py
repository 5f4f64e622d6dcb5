"""Detects a processing thread that is stuck, and reports the record and the line of code that block it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from streamsrt.runtime.meter import ThreadMeter

logger = logging.getLogger(__name__)

_STOP_PATIENCE_S = 3.0


class Watched(Protocol):
    """A watched processing thread."""

    meter: ThreadMeter
    poll_limit_s: float
    stop_requested: bool

    def doing(self) -> str: ...


def stuck_text(silent_s: float, limit_s: float, doing: str) -> str:
    """Describes for people a thread that has not polled for longer than ``limit_s``; empty if it has."""
    if silent_s <= limit_s:
        return ""
    return (
        f"the processing thread has not polled for {silent_s:.0f} s, longer than max.poll.interval.ms ({limit_s:g} s): "
        f"{doing or 'it is busy with its tasks'}. The group has assigned its tasks to other members; its other figures "
        "are from before that"
    )


class Watchdog:
    """Logs once per iteration that takes longer than ``limit_s`` (``max.poll.interval.ms``) what blocks it.

    By then the group has taken the tasks away. ``on_stuck`` is called ``grace_s`` later, if it still has not come around,
    and again every now and then. Of an instance that is asked to stop it logs after ``stop_patience_s`` what the stop waits
    for.
    """

    def __init__(
        self,
        loop: Watched,
        limit_s: float,
        on_stuck: Callable[[str], None] | None = None,
        *,
        grace_s: float = 5.0,
        stop_patience_s: float = _STOP_PATIENCE_S,
    ) -> None:
        self._grace_s = grace_s
        self._stop_patience_s = stop_patience_s
        self._loop = loop
        self._limit_s = loop.poll_limit_s = limit_s
        self._on_stuck = on_stuck
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="streamsrt-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        logged_ns = told_ns = 0
        while not self._over.wait(min(1.0, self._limit_s / 4)):
            iterated_ns = self._loop.meter.iterated_ns
            silent_s = (time.monotonic_ns() - iterated_ns) / 1e9
            if silent_s <= self._limit_s:
                if self._loop.stop_requested and silent_s > self._stop_patience_s and told_ns != iterated_ns:
                    told_ns = iterated_ns
                    self._tell_stop(silent_s)
                continue
            what = (
                f"the processing thread has not polled for {silent_s:.1f} s, longer than max.poll.interval.ms "
                f"({self._limit_s:g} s): {self._loop.doing() or 'it is busy with its tasks'}. The group assigns its "
                "tasks to other members. Make the function faster, process fewer records at a time, or raise "
                "max.poll.interval.ms"
            )
            if logged_ns != iterated_ns:
                logged_ns = iterated_ns
                logger.error("%s", what)
            if self._on_stuck is not None and silent_s > self._limit_s + self._grace_s:
                self._on_stuck(what)

    def _tell_stop(self, silent_s: float) -> None:
        logger.warning(
            "the instance is asked to stop, and waits for its processing thread, which has been busy for %.0f s: %s",
            silent_s,
            self._loop.doing() or "it is busy with its tasks",
        )
