"""Finding the application that a command names: ``MODULE:ATTRIBUTE``."""

from __future__ import annotations

from streamsrt.application import Application, load_application

__all__ = ["Application", "load_application"]
