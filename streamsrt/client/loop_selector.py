"""How the network thread's loop looks at its sockets.

A look costs a call of the system, and the interpreter's lock is released for it: while the processing thread computes, it
takes up to a millisecond to get it back. asyncio looks before each round of callbacks, also if callbacks are ready, of which
a response has two or three rounds. Nothing is gained by these looks: the loop goes on without most of them.
"""

from __future__ import annotations

import selectors

LEFT_OUT_MAX = 3
"""So many looks in a row are left out, so that callbacks which call callbacks for ever don't keep the sockets waiting."""


class LoopSelector(selectors.DefaultSelector):
    """The platform's selector, which is not asked while the loop has something else to do."""

    def __init__(self) -> None:
        super().__init__()
        self._left_out = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See :meth:`selectors.BaseSelector.select`. With a timeout of 0, mostly nothing."""
        if timeout == 0 and self._left_out < LEFT_OUT_MAX:
            self._left_out += 1
            return []
        self._left_out = 0
        return super().select(timeout)
