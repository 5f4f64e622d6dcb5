"""Which task a damaged store belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from streamsrt.errors import StoreCorruptedError
from streamsrt.tasks.manager.owned_task import OwnedTask


def damaged_store(tasks: Iterable[OwnedTask], error: StoreCorruptedError) -> tuple[OwnedTask, str] | None:
    """The task and the name of its store; None where it is no task's. A store lies in ``stores/NAME/PARTITION``."""
    path = Path(error.path)
    name, partition = path.parent.name, path.name
    return next(((owned, name) for owned in tasks if name in owned.stores and str(owned.key[1]) == partition), None)
