"""Options that several commands have, and arguments of the form ``KEY=VALUE``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from streamsrt.errors import ConfigError

Config = Annotated[list[str] | None, typer.Option("--config", "-c", help="KEY=VALUE with Kafka Streams' setting names")]
ConfigOverModule = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", help="KEY=VALUE with Kafka Streams' setting names; overrides the module's config"),
]
ConfigFile = Annotated[Path | None, typer.Option("--config-file", help="a Java properties file with settings")]
Threads = Annotated[
    int | None, typer.Option("--threads", help="processes that share the work (num.stream.threads)", min=1)
]
Http = Annotated[
    str | None, typer.Option("--http", help="HOST:PORT for queries, health and metrics over HTTP (http.listen)")
]
Until = Annotated[str, typer.Option("--until", help="stopped, or quiet (stop when all available input is processed)")]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error")]
ProgressInterval = Annotated[float, typer.Option("--progress-interval", help="seconds; 0: none")]
ProgressAsJson = Annotated[bool, typer.Option("--json", help="progress as JSON lines on stdout")]


def until_of(text: str) -> Literal["stopped", "quiet"]:
    """What ``--until`` says. Raises ConfigError."""
    match text:
        case "stopped":
            return "stopped"
        case "quiet":
            return "quiet"
    raise ConfigError(f"--until {text}: give stopped or quiet")


def utc_ms(text: str) -> int:
    """Epoch milliseconds of an ISO time, which is UTC where it does not say otherwise. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)
