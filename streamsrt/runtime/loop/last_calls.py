"""How long a last commit waits for asynchronous calls, and what the log says about it.

1. A stop waits :data:`CALLS_TIMEOUT_MS` for them: what is not done by then can't be committed, because its results are
   missing. Calls that can be left to the next start (:mod:`streamsrt.operators.kinds.left_calls`) are not waited for.
2. A store that holds back its changes may forward thousands of them with the last commit, each of which is a call. If it
   shows after :data:`MEASURED_MS` that they are too many, it does not wait any longer: their results would be dropped.
3. A run that ends because all input is processed waits without a limit: nobody has asked it to be quick.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamsrt.tasks.error_policy import CallsGivenUpError

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS = 10_000
CALLS_TIMEOUT_MS = 15_000
"""Leaves a few seconds for the commit itself (``STOP_TIMEOUT_S`` of the thread)."""
MEASURED_MS = 2_000


class _Queued(NamedTuple):
    """How many calls of a task waited for their turn, and when."""

    task: str
    calls: int
    at_ms: int


class LastCalls:
    """The calls that an ending stream thread waits for. ``now_ms`` is the clock of the thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._until_ms: int | None = None
        self._logged_ms: int | None = None
        self._queued = _Queued("", 0, 0)
        self._has_given_up = False

    @property
    def is_limited(self) -> bool:
        """Whether the time is limited, since the instance was asked to end."""
        return self._until_ms is not None

    def limit(self) -> None:
        """Limits the time from now on. Further calls have no effect."""
        if self._until_ms is None:
            self._until_ms = self._now_ms() + CALLS_TIMEOUT_MS

    def watch(self, task: str, queued_calls: int, under_way: Sequence[str]) -> None:
        """Logs now and then which calls of a task are waited for. Raises CallsGivenUpError.

        ``queued_calls``: how many of them wait for their turn. ``under_way``: all of them in words, by operator.
        """
        now_ms = self._now_ms()
        needed_ms = self._needed_ms(task, queued_calls, now_ms)
        if self._until_ms is None or (not self._has_given_up and self._until_ms - now_ms > needed_ms):
            if self._logged_ms is None or now_ms - self._logged_ms >= LOG_INTERVAL_MS:
                self._logged_ms = now_ms
                self._log(task, under_way, now_ms)
            return
        self._has_given_up = True
        about = f", which would take about {needed_ms / 1000:.0f} s more" if needed_ms else ""
        raise CallsGivenUpError(
            f"task {task} ends without a last commit: it does not wait any longer for {' and '.join(under_way)}{about}"
        )

    def _log(self, task: str, under_way: Sequence[str], now_ms: int) -> None:
        again = "the records of these calls are then processed again at the next start"
        limit = "A second Ctrl-C ends it at once"
        if self._until_ms is not None:
            left_s = -((now_ms - self._until_ms) // 1000)
            limit = f"After another {left_s} s at most it ends without them, with a second Ctrl-C at once"
        for text in under_way:
            logger.warning("before it ends, task %s waits for %s. %s; %s", task, text, limit, again)

    def _needed_ms(self, task: str, calls: int, now_ms: int) -> int:
        """How long the queued calls will take at the pace of those before them; 0 if there are none, or it is not known."""
        first = self._queued
        if task != first.task or calls > first.calls:
            self._queued = _Queued(task, calls, now_ms)
            return 0
        done, took_ms = first.calls - calls, now_ms - first.at_ms
        return calls * took_ms // done if done and took_ms >= MEASURED_MS else 0
