"""Finding the application that a name stands for: ``MODULE:ATTRIBUTE``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from streamsrt.errors import ConfigError
from topology.graph.topology import Topology


@dataclass(frozen=True, slots=True)
class Application:
    """A topology and the configuration that its module brings."""

    topology: Topology
    config: Mapping[str, Any]


def load_application(name: str) -> Application:
    """Imports the module and takes the topology out of it. Raises :class:`ConfigError` that says what is missing."""
    module_name, _, attribute = name.partition(":")
    attribute = attribute or "topology"
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"there is no module {module_name!r} (from {name!r}): give MODULE:ATTRIBUTE as Python imports it, "
                f"from {os.getcwd()} or the environment"
            ) from None
        raise ConfigError(f"module {module_name!r} can't be imported: {error}") from error
    topology = getattr(module, attribute, None)
    if callable(topology):
        topology = topology()
    if not isinstance(topology, Topology):
        found = sorted(key for key, value in vars(module).items() if isinstance(value, Topology))
        hint = f"; it has {', '.join(found)}" if found else "; build one with StreamsBuilder().build()"
        raise ConfigError(f"{module_name}:{attribute} is not a topology{hint}")
    return Application(topology, getattr(module, "config", {}))


def module_digest(name: str) -> str:
    """A hash of the source of an application's module, which must be importable; empty where it has no file."""
    module = importlib.import_module(name.partition(":")[0])
    path = getattr(module, "__file__", None)
    return "" if path is None else sha256(Path(path).read_bytes()).hexdigest()[:32]
