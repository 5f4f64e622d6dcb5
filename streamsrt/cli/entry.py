"""The entry point: collects the commands, and turns errors into one message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from streamsrt.cli import backfill, broker, groups, query, records, state, topics, topology
from streamsrt.cli.output import INTERRUPTED
from streamsrt.cli.run import run
from streamsrt.errors import StreamsError, UserError
from streamsrt.wire.primitives import EncodeError
from topology.spec.errors import TopologyError

app = typer.Typer(
    name="streamsrt",
    help="Runs stream applications on Kafka's streams protocol, and looks at what they run on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run)
app.command("broker")(broker.broker)
app.command("produce")(records.produce)
app.command("consume")(records.consume)
app.add_typer(topology.app, name="topology")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(backfill.app, name="backfill")
app.add_typer(state.app, name="state")
app.add_typer(query.app, name="query")


def run_command_line(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits. An expected error is one message on stderr, never a traceback."""
    try:
        app(list(arguments) if arguments is not None else None)
    except (StreamsError, TopologyError) as error:
        _tell(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except EncodeError as error:
        _tell(f"a number is too large for Kafka's protocol, or a text too long: {error}")
        sys.exit(UserError.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        _tell(f"{error.filename}: {error.strerror}")
        sys.exit(UserError.exit_code)
    finally:
        _give_up_on_a_full_log()


def _tell(message: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"streamsrt: {message}\n")


def _give_up_on_a_full_log() -> None:
    """Where stderr goes to a disk that is full, Python would try again at its end, and exit with a code of its own."""
    try:
        if not sys.stderr.closed:
            sys.stderr.flush()
    except OSError:
        sys.stderr = None
