"""How the network thread gets the processing thread's attention."""

from __future__ import annotations

import threading


class Signal:
    """One bit that is set by many and waited for by one. Setting it twice is setting it once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """End the wait; also the next one, if nobody is waiting."""
        if not self._event.is_set():
            self._event.set()

    def clear(self) -> None:
        """To be called *before* looking whether there is something, so that nothing gets lost in between."""
        self._event.clear()

    def wait(self, timeout_s: float) -> bool:
        return self._event.wait(timeout_s)
