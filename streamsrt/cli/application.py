"""Finding the application that a command names: ``MODULE:ATTRIBUTE``."""

from __future__ import annotations

import sys

from streamsrt.application import Application, load_application
from streamsrt.errors import ConfigError

__all__ = ["Application", "load_application", "load_described", "load_topology"]


def load_topology(name: str) -> Application:
    """The application of that name, to be run. Raises ConfigError, which says how a ``faust.App`` is run."""

    def refuse(found: object) -> Application | None:
        if _is_of_faust(found):
            raise ConfigError(f"{name} is a faust.App: run it with `streamsrt faust run {name}`")
        return None

    return load_application(name, refuse)


def load_described(name: str) -> Application:
    """The application of that name, to be looked at and compared: a topology, or a ``faust.App``. Raises ConfigError."""
    return load_application(name, _of_faust)


def _is_of_faust(found: object) -> bool:
    # Whoever has an application of Faust has imported it.
    package = sys.modules.get("faust")
    return package is not None and isinstance(found, package.App)


def _of_faust(found: object) -> Application | None:
    if not _is_of_faust(found):
        return None
    from streamsrt.faust import config, topology

    return Application(topology(found), config(found))
