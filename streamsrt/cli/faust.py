"""``streamsrt faust``: applications of faust-streaming, run as they are."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from streamsrt.application import load_object
from streamsrt.cli.application import Application
from streamsrt.cli.arguments import (
    Config,
    ConfigFile,
    Http,
    LogLevel,
    ProgressAsJson,
    ProgressInterval,
    Threads,
    Until,
    until_of,
)
from streamsrt.cli.run import run_application, set_up_logging, settings_of
from streamsrt.cli.session import BootstrapServers
from streamsrt.errors import ConfigError

if TYPE_CHECKING:
    from faust import App

_WORKERS = ("worker", "livecheck")

app = typer.Typer(help="Run faust-streaming applications unchanged.", no_args_is_help=True)


@app.callback()
def faust() -> None:
    """Run faust-streaming applications unchanged."""


@app.command("run")
def run(
    application: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of a faust.App, e.g. shop.app:app")],
    bootstrap_servers: BootstrapServers = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="directory of the tables' stores, one per process")
    ] = None,
    config: Config = None,
    config_file: ConfigFile = None,
    threads: Threads = None,
    http: Http = None,
    until: Until = "stopped",
    log_level: LogLevel = "info",
    progress_interval_s: ProgressInterval = 10.0,
    as_json: ProgressAsJson = False,
) -> None:
    """Run an instance of a faust.App. Its settings, topics and tables keep the names that Faust gives them."""
    set_up_logging(log_level)
    how_long = until_of(until)
    _require_faust()
    from streamsrt.faust import config as own_settings
    from streamsrt.faust import topology
    from streamsrt.faust.creation import create_topics

    found = cast("App", load_object(application, "app"))
    loaded = Application(topology(found), own_settings(found))
    values = settings_of(loaded.config, config_file, config)
    options = {"num.stream.threads": threads, "http.listen": http}
    values.update({key: value for key, value in options.items() if value is not None})
    run_application(
        loaded,
        values,
        bootstrap_servers,
        state_dir=state_dir,
        until=how_long,
        progress_interval_s=progress_interval_s,
        as_json=as_json,
        before=lambda settings: create_topics(found, settings),
    )


@app.command("command", context_settings={"allow_interspersed_args": False})
def command(
    application: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of a faust.App, e.g. shop.app:app")],
    arguments: Annotated[
        list[str], typer.Argument(metavar="COMMAND [OPTIONS]", help="the command with its own options")
    ],
) -> None:
    """Run a command of a faust.App: one of its @app.command functions, or Faust's send, agents, tables, models."""
    _require_faust()
    name = arguments[0]
    if name in _WORKERS:
        raise ConfigError(
            f"faust command {application} {name}: this would run a worker of faust-streaming, which "
            "cannot be in the group together with instances of streamsrt. Run streamsrt faust run "
            f"{application}"
        )
    found = cast("App", load_object(application, "app"))
    # Faust's command line reads it, wherever it is called from.
    sys.argv = ["streamsrt faust command", *arguments]
    found.main()


def _require_faust() -> None:
    try:
        importlib.import_module("faust")
    except ImportError:
        raise ConfigError("faust-streaming is not installed: pip install 'streamsrt[faust]'") from None
