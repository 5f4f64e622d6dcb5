"""The signal with which the network thread wakes the processing thread."""

from __future__ import annotations

from streamsrt.client.blocking import THREADS, Blocking


class Signal:
    """One bit that many threads set and one waits for. Setting it twice has the effect of setting it once."""

    def __init__(self, blocking: Blocking = THREADS) -> None:
        self._event = blocking.flag()

    def set(self) -> None:
        """Ends the wait; also the next one, if no thread is waiting."""
        if not self._event.is_set():
            self._event.set()

    def clear(self) -> None:
        """Resets the signal. Called *before* checking for work, so that nothing is missed in between."""
        self._event.clear()

    def wait(self, timeout_s: float | None) -> bool:
        return self._event.wait(timeout_s)
