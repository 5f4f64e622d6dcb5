"""numpy, loaded when something is first asked of it: ``from streamsrt.wire.later_numpy import np``.

It takes 13 MB of a process, and time at its start. Everything that uses it is for many records at once, so commands, unit
tests and instances with few records do without. Nothing may ask for it while modules are imported: tables are made at first
use, and types of arrays are quoted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:

    class _LaterNumpy:
        def __getattr__(self, name: str) -> object:
            import numpy

            found = getattr(numpy, name)
            # The next look finds it here, without a call.
            setattr(self, name, found)
            return found

    np = _LaterNumpy()

__all__ = ["np"]
