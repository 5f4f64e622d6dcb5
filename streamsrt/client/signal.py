"""How the network thread wakes the processing thread."""

from __future__ import annotations

from streamsrt.client.blocking import THREADS, Blocking


class Signal:
    """One bit that is set by many and waited for by one. Setting it twice is setting it once."""

    def __init__(self, blocking: Blocking = THREADS) -> None:
        self._event = blocking.flag()

    def set(self) -> None:
        """End the wait; also the next one, if nobody is waiting."""
        if not self._event.is_set():
            self._event.set()

    def clear(self) -> None:
        """To be called *before* looking whether there is something, so that nothing gets lost in between."""
        self._event.clear()

    def wait(self, timeout_s: float | None) -> bool:
        return self._event.wait(timeout_s)
