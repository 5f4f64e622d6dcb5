"""Finds the task to which a damaged store belongs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from streamsrt.errors import StoreCorruptedError
from streamsrt.tasks.manager.owned_task import OwnedTask


def damaged_store(tasks: Iterable[OwnedTask], error: StoreCorruptedError) -> tuple[OwnedTask, str] | None:
    """Returns the task and the name of its store; None if it belongs to no task. The path of a store is
    ``stores/NAME/PARTITION``."""
    path = Path(error.path)
    name, partition = path.parent.name, path.name
    return next(((owned, name) for owned in tasks if name in owned.stores and str(owned.key[1]) == partition), None)
