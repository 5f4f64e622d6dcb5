"""``streamsrt run``: runs an application until it is stopped."""

from __future__ import annotations

import ipaddress
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from streamsrt.app import KafkaStreams
from streamsrt.cli import INTERRUPTED
from streamsrt.cli.application import Application, load_topology
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
from streamsrt.cli.early_stop import TERMINATED, stop_until
from streamsrt.cli.live_table import LiveTable
from streamsrt.cli.output import LINES, note, print_json
from streamsrt.cli.properties import read_properties
from streamsrt.cli.session import BootstrapServers, bootstrap
from streamsrt.client.cluster import parse_servers
from streamsrt.config import StreamsConfig, key_value_pairs
from streamsrt.errors import ConfigError
from streamsrt.runtime.drop_log import late_records_advice
from streamsrt.runtime.lifecycle import GroupMembershipOperation, Response
from streamsrt.runtime.memory import memory_text
from streamsrt.runtime.task_table import NUMBER_COLUMNS, TEXT_COLUMNS, task_table
from streamsrt.runtime.values import Progress, State
from streamsrt.wording import counted, printable
from topology.dsl.printing import draws_tables

logger = logging.getLogger(__name__)

_OPTIONS = {
    "application.id": "--application-id (-a)",
    "bootstrap.servers": "--bootstrap-servers (-b, or STREAMSRT_BOOTSTRAP_SERVERS)",
    "state.dir": "--state-dir",
    "num.stream.threads": "--threads",
    "http.listen": "--http",
    "topology.lock": "--lock",
    "upgrade.lose.in.flight": "--lose-in-flight",
}
"""Options that stand for a setting."""


def run(
    application: Annotated[
        str,
        typer.Argument(
            help="MODULE:ATTRIBUTE or FILE:ATTRIBUTE of a topology, e.g. examples.flights:topology or ./app.py:topology"
        ),
    ],
    application_id: Annotated[str | None, typer.Option("--application-id", "-a", help="name of the group")] = None,
    bootstrap_servers: BootstrapServers = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="directory of the state stores, one per process")
    ] = None,
    config: Config = None,
    config_file: ConfigFile = None,
    threads: Threads = None,
    http: Http = None,
    lock: Annotated[
        Path | None,
        typer.Option("--lock", help="lock file of `topology lock`; any other topology is refused (topology.lock)"),
    ] = None,
    lose_in_flight: Annotated[
        bool,
        typer.Option(
            "--lose-in-flight",
            help="start even if records are unread that only another version can read; they stay in their "
            "topics, and a version that has these topics reads them later (upgrade.lose.in.flight)",
        ),
    ] = False,
    until: Until = "stopped",
    on_failure: Annotated[
        str,
        typer.Option("--on-failure", help="what stops when processing fails: instance, or application (all instances)"),
    ] = "instance",
    leave: Annotated[
        bool,
        typer.Option(
            "--leave",
            help="leave the group when stopped, so that the tasks of a static member are reassigned immediately",
        ),
    ] = False,
    log_level: LogLevel = "info",
    progress_interval_s: ProgressInterval = 10.0,
    as_json: ProgressAsJson = False,
) -> None:
    """Run an instance of an application. Start it on several machines to distribute the work."""
    set_up_logging(log_level)
    if on_failure not in ("instance", "application"):
        raise ConfigError(f"--on-failure {on_failure}: give instance or application")
    response = Response.SHUTDOWN_APPLICATION if on_failure == "application" else Response.SHUTDOWN_CLIENT
    how_long = until_of(until)
    options = {
        "num.stream.threads": threads,
        "http.listen": http,
        "topology.lock": lock,
        "upgrade.lose.in.flight": lose_in_flight or None,
    }
    named = {"application.id": application_id, "bootstrap.servers": bootstrap_servers, "state.dir": state_dir}
    _refuse_two_values(key_value_pairs(config or []), {**named, **options})
    loaded = load_topology(application)
    values = settings_of(loaded.config, config_file, config)
    values.update({key: value for key, value in options.items() if value is not None})
    run_application(
        loaded,
        values,
        bootstrap_servers,
        application_id=application_id,
        state_dir=state_dir,
        until=how_long,
        response=response,
        leave=leave,
        progress_interval_s=progress_interval_s,
        as_json=as_json,
    )


def _refuse_two_values(given: Mapping[str, str], options: Mapping[str, object]) -> None:
    """Of two options of one command, neither wins silently."""
    for key, value in given.items():
        name = key.replace("_", ".")
        option = options.get(name)
        same = Path(value) == option if isinstance(option, Path) else value.lower() == str(option).lower()
        if option is not None and not same:
            raise ConfigError(
                f"{name} is given twice: {_OPTIONS[name]} says {option}, and --config says {value}. Leave one of them out"
            )


def settings_of(own: Mapping[str, object], config_file: Path | None, config: list[str] | None) -> dict[str, object]:
    """An application's own settings, then those of the file, then those of the command."""
    values = dict(own)
    if config_file is not None:
        values.update(_read_properties(config_file))
    values.update(key_value_pairs(config or []))
    return values


def run_application(
    loaded: Application,
    values: dict[str, object],
    bootstrap_servers: str | None,
    *,
    application_id: str | None = None,
    state_dir: Path | None = None,
    until: Literal["stopped", "quiet"] = "stopped",
    response: Response = Response.SHUTDOWN_CLIENT,
    leave: bool = False,
    progress_interval_s: float = 10.0,
    as_json: bool = False,
    before: Callable[[StreamsConfig], None] = lambda _settings: None,
) -> None:
    """Runs what was loaded with these settings, and exits. ``before`` gets the settings, with the cluster's address."""
    if bootstrap_servers is None:
        given = values.get("bootstrap.servers", values.get("bootstrap_servers"))
        if given is not None:
            bootstrap_servers = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
    # What can be refused without a cluster is refused before one is started.
    given_settings = StreamsConfig.of(values, application_id=application_id, state_dir=state_dir)
    door = open_door(given_settings.http_listen)
    if door is not None:
        logger.warning("%s", door)
    if bootstrap_servers is not None:
        parse_servers(bootstrap_servers)
    with bootstrap(bootstrap_servers, begins=True) as address:
        settings = StreamsConfig.of(given_settings, bootstrap_servers=address)
        before(settings)
        stop = threading.Event()
        # Several processes write to the terminal by themselves, and print_table draws there, too.
        draws = settings.num_stream_threads == 1 and not as_json and not draws_tables(loaded.topology)
        in_place = draws and progress_interval_s > 0 and sys.stderr.isatty()
        reporting: list[threading.Thread] = []

        def report(*change: State) -> None:
            if progress_interval_s > 0 and not reporting and not in_place:
                reporting.append(
                    threading.Thread(target=_report, args=(streams, progress_interval_s, as_json, stop), daemon=True)
                )
                reporting[0].start()

        streams = KafkaStreams(
            loaded.topology, settings, state_listener=report, uncaught_exception_handler=lambda _error: response
        )
        stop_until(lambda: streams.state is not State.CREATED)
        if settings.num_stream_threads == 1:
            # Otherwise when the processes are there: they are forked while this one has a single thread.
            report()
        shown = LiveTable(Console(stderr=True), lambda: progress_table(streams)) if in_place else nullcontext()
        try:
            with shown:
                done = streams.run(
                    until=until,
                    membership=GroupMembershipOperation.LEAVE_GROUP if leave else GroupMembershipOperation.DEFAULT,
                )
        finally:
            stop.set()
        _show(done, streams.state, as_json=as_json)
        if advice := late_records_advice(done.subtopology_counters):
            note(advice)
    raise typer.Exit(_exit_code(streams, until))


def _exit_code(streams: KafkaStreams, until: Literal["stopped", "quiet"]) -> int:
    if streams.was_interrupted:
        return INTERRUPTED
    if until == "quiet" and streams.was_terminated and not streams.was_quiet:
        note("stopped by SIGTERM before all available input was processed and committed")
        return TERMINATED
    return 0


def open_door(listen: str) -> str | None:
    """What is said of an address for HTTP that others on the network can reach."""
    host = listen.rpartition(":")[0].strip("[]")
    with suppress(ValueError):
        if not listen or host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return None
    return (
        f"http.listen={listen}: everyone who can reach this address can read all state, without a password. Listen "
        "on 127.0.0.1, or restrict access by a firewall"
    )


def set_up_logging(level: str) -> None:
    """Messages of at least that level go to standard error."""
    if level.lower() not in ("debug", "info", "warning", "error"):
        raise ConfigError(f"--log-level {level}: give debug, info, warning or error")
    # Standard error as it is at that time: a table that stays in place puts what is written to it above itself.
    handler = logging.StreamHandler(_StandardError())
    logging.basicConfig(
        level=level.upper(), handlers=[handler], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


class _StandardError:
    """Standard error as it is when something is written. Messages may have in them what records have."""

    def write(self, text: str) -> int:
        return sys.stderr.write(printable(text, kept=LINES))

    def flush(self) -> None:
        sys.stderr.flush()


def progress_table(streams: KafkaStreams) -> Table | None:
    """What each task is at; None while there is none."""
    shown = task_table(streams.state, streams.progress)
    if not shown.rows:
        return None
    table = Table(title=shown.title, title_justify="left", box=None, header_style="bold")
    for column in TEXT_COLUMNS:
        table.add_column(column)
    for column in NUMBER_COLUMNS:
        table.add_column(column, justify="right")
    for row in shown.rows:
        table.add_row(*row)
    return table


def _read_properties(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config-file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config-file {path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return read_properties(text, str(path))


def _report(streams: KafkaStreams, interval_s: float, as_json: bool, stop: threading.Event) -> None:
    while not stop.wait(interval_s):
        _show(streams.progress, streams.state, as_json=as_json)


def _show(progress: Progress, state: State, *, as_json: bool) -> None:
    restoring = sum(
        each.remaining_records for task in progress.tasks if task.role == "active" for each in task.restoring
    )
    if as_json:
        print_json(
            {
                "state": state.value,
                "processed_records": progress.processed_records,
                "pending_calls": progress.pending_calls,
                "restored_records": progress.restored_records,
                "lag_records": progress.lag_records,
                "restoring_records": restoring,
                "restore_eta_s": progress.restore_eta_s,
                "state_lag_records": progress.state_lag_records,
                "commits": progress.commits,
                "counters": dict(progress.counters),
                "positions": {
                    f"{task.task_id}/{each.store}": each.position for task in progress.tasks for each in task.restoring
                },
                "tasks": {task.task_id: f"{task.role} {task.phase}" for task in progress.tasks},
                "statuses": progress.statuses,
                "memory": {**asdict(progress.memory), "used_bytes": progress.memory.used_bytes},
            }
        )
        sys.stdout.flush()
        return
    parts = [f"{state.value}: {counted(len(progress.tasks), 'task')}, {progress.processed_text}"]
    if progress.restored_records or restoring:
        eta = progress.restore_eta_s
        parts.append(f"{progress.restored_records} restored, {restoring} to restore")
        parts += [f"about {eta:.0f} s left"] if restoring and eta is not None else []
    parts += [progress.lag_text] if progress.lag_text else []
    if any(task.role != "active" for task in progress.tasks):
        parts.append(f"standby state lag {progress.state_lag_records}")
    skipped = sum(count for name, count in progress.counters.items() if name.startswith("failed_"))
    if skipped:
        parts.append(f"{skipped} could not be handled and were skipped")
    if progress.tasks and progress.memory.limit_bytes:
        parts.append(memory_text(progress.memory))
    parts.extend(progress.statuses)
    note(", ".join(parts))
