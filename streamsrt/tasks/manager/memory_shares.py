"""How the active tasks of a process share the memory for record caches and uncommitted changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streamsrt.tasks.manager.owned_task import OwnedTask

LEAST_UNCOMMITTED_BYTES = 64 << 10
"""With less, a task would ask for a commit after every batch."""


def share_memory(tasks: Iterable[OwnedTask], cache_max_bytes: int, uncommitted_max_bytes: int) -> None:
    """Gives each active task with state an equal part. ``cache_max_bytes`` 0: caching is off."""
    stateful = [owned for owned in tasks if owned.is_active and owned.task.caches]
    count = max(1, len(stateful))
    share = max(1, cache_max_bytes // count) if cache_max_bytes else 0
    waiting = max(LEAST_UNCOMMITTED_BYTES, uncommitted_max_bytes // count)
    for owned in stateful:
        owned.task.config = replace(owned.task.config, cache_max_bytes=share, write_buffer_max_bytes=waiting)
