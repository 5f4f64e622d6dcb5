"""``streamsrt state``: what lies in the state directory of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamsrt.backfill.state_reading import LocalState, export_parquet
from streamsrt.cli.output import note
from streamsrt.cli.session import Execute
from streamsrt.state.directory import StateDirectory

app = typer.Typer(help="State stores on this machine.", no_args_is_help=True)


@app.callback()
def state() -> None:
    """State stores on this machine."""


@app.command("clean")
def clean(
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group")],
    state_dir: Annotated[Path, typer.Option("--state-dir", help="where the instance keeps its state")] = Path(
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
        note("nothing is changed: say --execute to do it")


@app.command("export")
def export(
    store: Annotated[str, typer.Argument(help="name of the store")],
    application: Annotated[str, typer.Option("--application", help="MODULE:ATTRIBUTE of the topology that has it")],
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group")],
    folder: Annotated[Path, typer.Option("--parquet", help="directory to write to, a file for each partition")],
    state_dir: Annotated[Path, typer.Option("--state-dir", help="where the instance keeps its state")] = Path(
        ".streamsrt/state"
    ),
) -> None:
    """Write a store as Parquet: key, value, timestamp, window start, partition. An instance may run meanwhile."""
    local = LocalState(application, application_id, state_dir, store)
    count = export_parquet(local, folder)
    note(f"{count} rows of store {store}, partitions {local.partitions()}, are in {folder}")
