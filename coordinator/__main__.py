"""``python -m coordinator``."""

from __future__ import annotations

import os
import signal
import sys

_INTERRUPTED = 130


def _run() -> int:
    """Runs the broker. Ctrl-C before it serves ends it at once, as does a second one while it closes its logs: they are
    checked at the next start."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(_INTERRUPTED))

    from coordinator.server.main import main

    try:
        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED


sys.exit(_run())
