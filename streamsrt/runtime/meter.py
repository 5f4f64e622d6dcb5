"""The processing thread's counters about itself: plain integers, updated once per iteration, never per record.

Rates, ratios and maxima cover the last half minute, as in Kafka (``metrics.sample.window.ms``); totals are since the
start. Another thread may read at any time: each number is consistent, two of them may be from adjacent iterations.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from streamsrt.sensors import WINDOW_NS, Work

_SAMPLE_NS = 1_000_000_000


class ThreadMeter:
    """The work of one processing thread."""

    KINDS = ("poll", "process", "punctuate", "commit")

    def __init__(self) -> None:
        self.started_ms = time.time_ns() // 1_000_000
        self.poll = Work()
        self.process = Work()
        self.punctuate = Work()
        self.commit = Work()
        self.assigned = Work()
        self.revoked = Work()
        self.lost = Work()
        """How long it took to do what the group said of tasks."""
        self.blocked_ns = 0
        """Waiting for input."""
        self.iterated_ns = time.monotonic_ns()
        """When the last iteration began (``time.monotonic_ns``)."""
        self._samples: deque[tuple[int, tuple[tuple[int, int, int], ...]]] = deque()
        self.sample(self.iterated_ns)

    def _numbers(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((work.count, work.items, work.time_ns) for work in self.works())

    def works(self) -> tuple[Work, ...]:
        """Returns the counters in the order of :data:`KINDS`."""
        return self.poll, self.process, self.punctuate, self.commit

    def sample(self, now_ns: int) -> None:
        """Keeps a sample from which the rates are computed. Called once per iteration."""
        self.iterated_ns = now_ns
        samples = self._samples
        if samples and now_ns - samples[-1][0] < _SAMPLE_NS:
            return
        samples.append((now_ns, self._numbers()))
        while len(samples) > 2 and now_ns - samples[1][0] >= WINDOW_NS:
            samples.popleft()

    @contextmanager
    def timing(self, work: Work) -> Iterator[None]:
        """Measures the time spent in the ``with`` block."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            work.add(began_ns, time.monotonic_ns(), 1)

    def rates(self) -> dict[str, tuple[float, float, float]]:
        """Returns by kind of work: calls per second, records per second, and the share of the time."""
        began_ns, before = self._samples[0]
        passed_ns = max(1, time.monotonic_ns() - began_ns)
        return {
            kind: (
                (now[0] - then[0]) * 1e9 / passed_ns,
                (now[1] - then[1]) * 1e9 / passed_ns,
                min(1.0, (now[2] - then[2]) / passed_ns),
            )
            for kind, now, then in zip(self.KINDS, self._numbers(), before, strict=True)
        }
