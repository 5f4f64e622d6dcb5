"""The entry point: collects the commands, and turns errors into one message and an exit code.

Only the module of the command that is called is imported: help, completion and short commands don't wait for the runtime.
"""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple

import typer

from streamsrt.cli import INTERRUPTED
from streamsrt.cli.early_stop import StoppedEarlyError, early_stop, interruptible

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class _Command(NamedTuple):
    """Where a command is, and what the list of commands says of it: the first sentence of its own help."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "run": _Command(
        "run",
        "run",
        "Run an instance of an application. Start it on several machines to distribute the work.",
    ),
    "init": _Command(
        "init", "init", "Write a project: application, tests, Dockerfile, compose file with Apache Kafka, CI workflow."
    ),
    "demo": _Command(
        "demo.command",
        "demo",
        "Run a whole application on the bundled broker: 12,208 departures of airplanes in, tables of their delays out.",
    ),
    "faust": _Command("faust", "app", "Run faust-streaming applications unchanged."),
    "broker": _Command(
        "broker", "broker", "Run the bundled broker until it is stopped; its address is the first line on stdout."
    ),
    "produce": _Command("records", "produce", "Write each line of stdin as a record."),
    "consume": _Command(
        "records",
        "consume",
        "Print the records of a topic from its beginning, in the order in which the partitions deliver them.",
    ),
    "topology": _Command("topology", "app", "Describe, compare and lock topologies."),
    "upgrade": _Command("upgrade.command", "app", "Upgrade a running application: plan, start, follow, roll back."),
    "topics": _Command("topics", "app", "List, create and delete topics."),
    "groups": _Command("groups", "app", "Inspect and change streams groups, one per application."),
    "top": _Command(
        "top",
        "top",
        "Show the applications of a cluster: versions, tasks by role, lag, rate, restore progress. Ctrl-C stops it.",
    ),
    "console": _Command(
        "console.command",
        "console",
        "Show the applications of a cluster in a browser: topology, tasks, restore progress, "
        "upgrades. Ctrl-C stops it.",
    ),
    "backfill": _Command("backfill", "app", "Compute state from history: plan, run, hand over."),
    "dlq": _Command("dlq", "app", "Inspect, replay and drop dead letters."),
    "state": _Command("state", "app", "Export, inspect, compare, repartition and clean state stores."),
    "query": _Command("query", "app", "Query the state of a running application (started with --http)."),
}


def command_line(called: str | None = None) -> typer.Typer:
    """The command line, of which only the command ``called`` can be run: of the others it has the help. None: none can."""
    app = typer.Typer(
        name="streamsrt",
        help="Run stream applications on Kafka's streams protocol, and inspect topics, groups and state.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name, command in COMMANDS.items():
        if name != called:
            app.command(name, help=command.help)(_options)
            continue
        found = getattr(importlib.import_module(f"streamsrt.cli.{command.module}"), command.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # a sixth of what the help of the commands takes

        typer.echo(f"streamsrt {version('streamsrt')} (Python {'.'.join(map(str, sys.version_info[:3]))})")
        raise typer.Exit


def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version, and that of Python.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Run stream applications on Kafka's streams protocol, and inspect topics, groups and state."""


def run_command_line(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits. An expected error is one message on stderr, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with early_stop(given):
            app = command_line(next((each for each in given if not each.startswith("-")), None))
            with interruptible():
                app(given)
    except StoppedEarlyError as stopped:
        sys.exit(stopped.exit_code(given))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        from streamsrt.errors import UserError, message_and_exit_code
        from streamsrt.wording import printable

        message, code = message_and_exit_code(error)
        if message is None and isinstance(error, OSError):
            message, code = _unwritable(error), UserError.exit_code
        if message is None:
            raise
        with suppress(OSError):
            sys.stderr.write(printable(f"streamsrt: {message}\n", kept="\n\t"))
        sys.exit(code)
    finally:
        _discard_unwritten_log()


def _unwritable(error: OSError) -> str | None:
    """Returns what to say of an error that names no file, if something can't be written."""
    if error.errno not in _UNWRITABLE:
        return None
    # Python would try again at its end.
    sys.stdout = None
    return f"the output, or a file that the command makes, can't be written: {error.strerror}"


def _discard_unwritten_log() -> None:
    """Where stderr goes to a disk that is full, Python would try again at its end, and exit with a code of its own."""
    try:
        if not sys.stderr.closed:
            sys.stderr.flush()
    except OSError:
        sys.stderr = None
