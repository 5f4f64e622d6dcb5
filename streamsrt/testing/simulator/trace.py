"""Records what happens in a simulation, line by line: as text, and as a digest that two runs of a seed share."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, deque
from collections.abc import Callable

from streamsrt.testing.simulator.hosts import HOST

_KEPT_LINES = 2_000
_LOGGERS = ("streamsrt", "coordinator")
_GOES_ON = frozenset({"coordinator.groups", "coordinator.transactions", "coordinator.broker"})
"""The broker goes on after an unexpected exception and logs it here; a simulation does not."""


class Trace(logging.Handler):
    """Collects notes and the log of the simulated programs. A context manager: inside, their log goes only here."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None
        """The first unexpected exception that the broker has logged."""
        self._time_s = time_s
        self.unspoken = ""
        """A path that differs from run to run, and is left out."""
        self._digest = hashlib.blake2b(digest_size=16)
        self._before: list[tuple[logging.Logger, int, bool]] = []

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def note(self, host: str, text: str) -> None:
        if self.unspoken and self.unspoken in text:
            text = text.replace(self.unspoken, "DATA")
        line = f"{self._time_s():11.6f} {host:<8} {text}"
        self._digest.update(line.encode())
        self.lines.append(line)

    def emit(self, record: logging.LogRecord) -> None:
        host = HOST.get()
        if host is not None and not host.is_dead:
            self.note(host.name, record.getMessage())
            if record.exc_info and record.name in _GOES_ON:
                self.failure = self.failure or record.exc_info[1]

    def __enter__(self) -> Trace:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            self._before.append((logger, logger.level, logger.propagate))
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        for logger, level, propagate in self._before:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate
        self._before.clear()
