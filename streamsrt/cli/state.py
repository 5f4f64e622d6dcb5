"""``streamsrt state``: stores as tables, and what lies in the state directory of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import Exported, StateFiles, StateLog, StoreReading, export_parquet
from streamsrt.cli.output import note, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, bootstrap
from streamsrt.state.directory import StateDirectory

app = typer.Typer(help="Export and clean state stores.", no_args_is_help=True)


@app.callback()
def state() -> None:
    """State stores."""


@app.command("clean")
def clean(
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group")],
    state_dir: Annotated[Path, typer.Option("--state-dir", help="state directory of the instance")] = Path(
        ".streamsrt/state"
    ),
    execute: Execute = False,
) -> None:
    """Delete the stores of an application that does not run on this machine; they are restored from their changelogs."""
    with StateDirectory(state_dir, application_id) as directory:
        stores = directory.list_stores()
        for each in stores:
            note(f"{'deletes' if execute else 'would delete'} store {each.store} of partition {each.partition}")
        if execute:
            directory.clean_up()
    if not execute:
        note("nothing is changed: use --execute to do it")


@app.command("export")
def export(
    store: Annotated[str, typer.Argument(help="name of the store")],
    application: Annotated[str, typer.Option("--application", help="MODULE:ATTRIBUTE of the topology that has it")],
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group")],
    folder: Annotated[Path, typer.Option("--parquet", help="directory to write to, a file for each partition")],
    bootstrap_servers: BootstrapServers = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="read the files of a stopped instance instead of the cluster"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a store as Parquet: key, value, timestamp, start and end of window, valid_to, partition.

    All partitions are read from the store's changelog, each up to the position that is printed, whether or not the
    application runs. With --state-dir: what lies there of the store.
    """
    reading = StoreReading(application, application_id, store)
    if state_dir is not None:
        exported = export_parquet(StateFiles(reading, state_dir), folder)
    else:
        with bootstrap(bootstrap_servers) as servers, connected(servers) as network:
            exported = export_parquet(StateLog(reading, network), folder)
    print_rows(["partition", "rows", "position"], [_row(each) for each in exported], as_json=as_json)
    note(f"{sum(each.rows for each in exported)} rows of store {store} are in {folder}")


def _row(exported: Exported) -> dict[str, object]:
    positions = exported.positions.items()
    position = ", ".join(f"{topic}-{partition}:{offset}" for (topic, partition), offset in sorted(positions))
    return {"partition": exported.partition, "rows": exported.rows, "position": position or "unknown"}
