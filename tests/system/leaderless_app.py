"""The word count, whose instance dies by SIGKILL when it leads a classic group of ``DIES_LEADING`` members: its JoinGroup is
answered, and its SyncGroup not sent."""

from __future__ import annotations

import os
import signal
from typing import Any

from examples.wordcount import topology
from streamsrt.membership.classic import leading

__all__ = ["topology"]

_begin = leading.begin
_fatal_size = int(os.environ.get("DIES_LEADING", "0"))


def _dies(generation: int, joined: Any, **known: Any) -> leading.LeadingStep:
    if len(joined) == _fatal_size:
        os.kill(os.getpid(), signal.SIGKILL)
    return _begin(generation, joined, **known)


if _fatal_size:
    leading.begin = _dies
