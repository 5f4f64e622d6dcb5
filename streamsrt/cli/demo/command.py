"""The command ``streamsrt demo``: in a temporary directory unless one is given."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from streamsrt.cli import INTERRUPTED
from streamsrt.cli.demo.flights import DepartureRow, airlines_of, departures_of
from streamsrt.cli.demo.program import DemoInput, console, run_demo
from streamsrt.errors import ConfigError

_DATA = files("streamsrt.cli.demo") / "data"


def read_airlines() -> Iterator[tuple[str, str]]:
    """Code and name of each airline."""
    yield from airlines_of(io.StringIO((_DATA / "airlines.csv").read_text(encoding="utf-8")))


def read_departures() -> Iterator[DepartureRow]:
    """The departures of two weeks, day by day."""
    yield from departures_of(io.StringIO(gzip.decompress((_DATA / "departures.csv.gz").read_bytes()).decode()))


TWO_WEEKS = DemoInput(
    airlines=read_airlines, departures=read_departures, title="Departures from New York City, 1 to 14 January 2013"
)


def demo(
    directory: Annotated[
        Path | None,
        typer.Option("--directory", help="keep all data there, and resume from it; without it, nothing remains"),
    ] = None,
) -> None:
    """Run a whole application on the bundled broker: 12,208 departures of airplanes in, tables of their delays out.

    It needs no cluster, no network and no other files. Ctrl-C ends it at any time.

    Exit codes: 0 done; 2 an option is wrong; 3 the broker failed; 4 the directory can't be used; 130 interrupted.
    """
    if directory is not None and directory.exists() and not directory.is_dir():
        raise ConfigError(f"--directory {directory} is a file: give a directory, new or of an earlier run")
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="streamsrt-demo-") as temporary:
            interrupted = run_demo(Path(temporary), TWO_WEEKS)
    else:
        interrupted = run_demo(directory, TWO_WEEKS)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    console.print("The tutorial writes an application like this one; `streamsrt init` begins a project of your own.")
