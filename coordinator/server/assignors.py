"""Custom assignors of consumer groups: ``group.consumer.assignors=uniform,package.module:Class``.

The class is created without arguments and must implement ``coordinator.group.consumer.assignor.PartitionAssignor``. A
class that can't be imported, or is not an assignor, stops the broker before it starts.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from coordinator.group.consumer.assignor import PartitionAssignor
from coordinator.group.settings import InvalidConfigError

SETTING = "group.consumer.assignors"


def plugged_assignors(settings: Mapping[str, str]) -> dict[str, PartitionAssignor]:
    """Import path -> assignor, for each import path in the setting. Raises InvalidConfigError."""
    paths = [part.strip() for part in settings.get(SETTING, "").split(",") if ":" in part]
    return {path: _load(path) for path in paths}


def _load(path: str) -> PartitionAssignor:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidConfigError(f"{SETTING}: {path} cannot be loaded: {error}. Is it importable?") from None
    if not callable(getattr(found, "assign", None)) or not isinstance(getattr(found, "name", None), str):
        raise InvalidConfigError(f"{SETTING}: {path} is not an assignor: it needs a name and a method assign(spec).")
    assignor: PartitionAssignor = found
    return assignor
