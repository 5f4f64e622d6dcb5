"""``streamsrt state``: stores as tables, what lies in the state directory of this machine, how two states differ, and state
that follows its keys to more partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from streamsrt.backfill.repartition.job import StateRepartition
from streamsrt.backfill.repartition.survey import StateSurvey
from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import (
    COLUMNS,
    Exported,
    SkippedRows,
    StateFiles,
    StateLog,
    StateRow,
    StoreReading,
    export_parquet,
    has_store,
    other_exported,
)
from streamsrt.backfill.stopped_state import (
    Comparison,
    StoppedState,
    as_exported,
    compare_rows,
    exported_rows,
    is_export,
    is_typed,
)
from streamsrt.cli.arguments import ConfigOverModule
from streamsrt.cli.described_group import check_group
from streamsrt.cli.output import note, print_json, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, bootstrap, cluster
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError
from streamsrt.state.directory import StateDirectory
from streamsrt.wording import counted

app = typer.Typer(help="Export, inspect, compare, repartition and clean state stores.", no_args_is_help=True)


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
    """Delete the stores of an application that is not running on this machine. They are restored from their
    changelogs."""
    if not (state_dir / application_id).is_dir():
        # It would be made.
        note(f"{state_dir} has no state of {application_id}")
        return
    with StateDirectory(state_dir, application_id) as directory:
        stores = directory.list_stores()
        if not stores:
            note(f"{state_dir} has no stores of {application_id}")
        for each in stores:
            note(f"{'deletes' if execute else 'would delete'} store {each.store} of partition {each.partition}")
        if execute:
            directory.clean_up()
    if not execute:
        note("nothing is changed: use --execute to do it")


SKIPPED = 10

SkipUnreadable = Annotated[
    bool,
    typer.Option(
        "--skip-unreadable", help="leave out rows that the serdes can't read, and report their number and keys"
    ),
]


@app.command("export")
def export(
    store: Annotated[str, typer.Argument(help="name of the store")],
    application: Annotated[
        str, typer.Option("--application", help="MODULE:ATTRIBUTE of the topology that has the store")
    ],
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group")],
    folder: Annotated[Path, typer.Option("--parquet", help="directory to write to, one file per partition")],
    bootstrap_servers: BootstrapServers = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="read the files of a stopped instance instead of the cluster"),
    ] = None,
    typed: Annotated[
        bool,
        typer.Option("--typed", help="times as timestamps, keys and values with the types and fields of their serdes"),
    ] = False,
    skip_unreadable: SkipUnreadable = False,
    as_json: AsJson = False,
) -> None:
    """Export a store as Parquet: key, value, timestamp, window start and end, valid_to, partition.

    All partitions are read from the store's changelog, each up to the position that is printed, whether or not the
    application is running. With --state-dir, the files of the store in that directory are read instead. Files of other
    partitions that an earlier export has left in the directory are not deleted, and are named. Exit codes: 0 all rows are
    exported; 10 rows were skipped, with --skip-unreadable.
    """
    skipped = _to_skip(skip_unreadable)
    reading = StoreReading(application, application_id, store, typed=typed, skipped=skipped)
    if state_dir is not None:
        exported = export_parquet(StateFiles(reading, state_dir), folder)
    else:
        with bootstrap(bootstrap_servers, begins=True) as servers, connected(servers) as network:
            exported = export_parquet(StateLog(reading, network), folder)
    print_rows(["partition", "rows", "position"], [_row(each) for each in exported], as_json=as_json)
    note(f"wrote {counted(sum(each.rows for each in exported), 'row')} of store {store} to {folder}")
    if others := other_exported(folder, exported):
        note(
            f"{folder} also has {', '.join(path.name for path in others)} of an earlier export: who reads the directory "
            "reads their rows, too. Delete them, unless they are of another instance with other partitions of the store"
        )
    _end_with(skipped)


DIFFERENT = 10
_STORES = ("store", "partition", "kind", "rows", "size_bytes", "changelog", "position", "changed_at")
_COUNTS = ("store", "first_rows", "second_rows", "only_first", "only_second", "different")
_DIFFERENCES = ("store", "key", "window_start", "window_end", "first", "second")

OfApplication = Annotated[
    str | None,
    typer.Option("--application", help="MODULE:ATTRIBUTE of the topology, to decode keys and values with its serdes"),
]


@app.command("inspect")
def inspect(
    directory: Annotated[Path, typer.Argument(help="state directory of a stopped instance")],
    store: Annotated[str | None, typer.Option("--store", help="print the rows of this store")] = None,
    application: OfApplication = None,
    from_key: Annotated[str | None, typer.Option("--from", help="first key to print")] = None,
    to_key: Annotated[str | None, typer.Option("--to", help="last key to print")] = None,
    limit: Annotated[int, typer.Option("--limit", help="maximum number of rows", min=1)] = 20,
    skip_unreadable: SkipUnreadable = False,
    as_json: AsJson = False,
) -> None:
    """Show the stores of a stopped instance on disk, with kind, size and position, or the rows of a store.

    The number of rows is RocksDB's estimate. The position is the changelog offset from which the store would be
    restored. Without --application, keys and values are shown as bytes, also of expired windows that are not deleted yet.
    The stores are not changed. Exit codes: 0 all rows that were read are shown; 10 rows were skipped, with
    --skip-unreadable.
    """
    if skip_unreadable and (store is None or application is None):
        raise ConfigError(
            "--skip-unreadable is for rows that are read by serdes: name the store with --store, and give --application"
        )
    stopped = StoppedState(directory)
    if store is None:
        if application is not None or from_key is not None or to_key is not None:
            raise ConfigError("--application, --from and --to are for the rows of a store: name it with --store")
        unknown = None if as_json else "-"
        found = [
            {
                **{name: unknown if value is None else value for name, value in each._asdict().items()},
                "changed_at": datetime.fromtimestamp(each.changed_at_s, UTC).isoformat(timespec="seconds"),
            }
            for each in stopped.stores()
        ]
        print_rows(_STORES, found, as_json=as_json)
        return
    skipped = _to_skip(skip_unreadable)
    rows = stopped.rows(store, _reading(application, stopped, store, skipped=skipped))
    chosen = (row for row in rows if _is_within(row, from_key, to_key))
    print_rows(COLUMNS, [_shown(row) for row in islice(chosen, limit)], as_json=as_json)
    _end_with(skipped)


def _to_skip(wanted: bool) -> SkippedRows | None:
    return SkippedRows() if wanted else None


def _end_with(skipped: SkippedRows | None) -> None:
    """Says which rows were left out, and ends with the exit code for it."""
    if _say_skipped(skipped):
        raise typer.Exit(SKIPPED)


def _say_skipped(skipped: SkippedRows | None, where: str = "") -> bool:
    """Says which rows were left out; whether there are any."""
    if skipped is None or not skipped.count:
        return False
    listed = ", ".join(f"0x{key.hex()} of partition {partition}" for partition, key in skipped.first)
    more = ", ..." if skipped.count > len(skipped.first) else ""
    unfit = ", or that do not fit into their columns" if skipped.unfit else ""
    note(f"{where}skipped {counted(skipped.count, 'row')} that the serdes can't read{unfit}: key {listed}{more}")
    return True


@app.command("diff")
def diff(
    first: Annotated[Path, typer.Argument(help="an export, or the state directory of a stopped instance")],
    second: Annotated[Path, typer.Argument(help="the other one")],
    store: Annotated[str | None, typer.Option("--store", help="compare this store only")] = None,
    application: OfApplication = None,
    limit: Annotated[
        int, typer.Option("--limit", help="maximum number of differences to print for a store", min=0)
    ] = 20,
    skip_unreadable: SkipUnreadable = False,
    as_json: AsJson = False,
) -> None:
    """Compare two states row by row: exports, state directories, or one of each (with --application and --store).

    Rows are matched by key and window, regardless of their partitions, and compared by value. Without --application,
    the bytes of two state directories are compared, timestamps and expired windows that are not deleted yet included. The
    first state is held in memory. Exit codes: 0 the states are equal; 10 they differ, or rows were skipped, with
    --skip-unreadable.
    """
    if skip_unreadable and (application is None or (is_export(first) and is_export(second))):
        raise ConfigError(
            "--skip-unreadable is for rows that are read by serdes: compare state directories, and give --application"
        )
    if is_export(first) != is_export(second) and (store is None or application is None):
        raise ConfigError(
            "an export is compared with a state directory by the serdes of one store: give --application and --store"
        )
    kinds = {is_typed(directory) for directory in (first, second) if is_export(directory)}
    if len(kinds) > 1:
        raise ConfigError("one export was written with --typed and the other without: export one of them again")
    typed = True in kinds
    are_equal = True
    for name in _stores_of(first, second, store):
        decoded_by = application
        if store is None and application is not None and not is_export(first) and not has_store(application, name):
            note(f"store {name}: {application} has no such store; its rows are compared as bytes")
            decoded_by = None
        skipped = [_to_skip(skip_unreadable) for _ in (first, second)]
        kinds_of_store = (StoppedState(each).kind_of(name) for each in (first, second) if not is_export(each))
        kind = next(filter(None, kinds_of_store), None)
        left, right = (
            _rows_of(directory, name, decoded_by, typed=typed, skipped=of_side, kind=kind)
            for directory, of_side in zip((first, second), skipped, strict=True)
        )
        found = compare_rows(left, right, limit)
        _print_comparison(name, found, as_json=as_json)
        said = [
            _say_skipped(of_side, f"store {name} of {directory}: ")
            for directory, of_side in zip((first, second), skipped, strict=True)
        ]
        are_equal = are_equal and found.are_equal and not any(said)
    raise typer.Exit(0 if are_equal else DIFFERENT)


REFUSED = 12
_MOVED = ("store", "changelog", "partitions", "needed", "rows", "moves")


@app.command("repartition")
def repartition(
    application: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of the topology")],
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigOverModule = None,
    record_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--record-keys",
            help="store of a processor whose keys are those of its records, where the rows do not prove it; may be repeated",
        ),
    ] = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Move the state of a stopped application to where its keys belong after its source topics got more partitions.

    Changelogs and repartition topics get the partitions that they need. Each row that is in the wrong partition moves, in
    transactions. Until all have moved, the application does not start; after an interruption, run the command again. Exit
    codes: 0 it can be done, it is done, or there is nothing to do; 12 refused.
    """
    with (
        bootstrap(bootstrap_servers) as servers,
        StateRepartition(
            application,
            application_id,
            bootstrap_servers=servers,
            config=key_value_pairs(config or ()),
            record_keys=record_keys or (),
        ) as job,
    ):
        if execute:
            job.end_earlier_attempt()
        survey = job.survey()
        _show_survey(survey, as_json=as_json)
        if survey.blockers:
            raise typer.Exit(REFUSED)
        if execute and survey.shape.parts:
            job.execute(survey, note)
        if not survey.shape.parts:
            with cluster(servers) as network:
                check_group(network, application_id)
    if not survey.shape.parts:
        note("no changelog has fewer partitions than its tasks need: there is nothing to repartition")
    elif not execute:
        note("nothing is changed: use --execute to do it")


def _show_survey(survey: StateSurvey, *, as_json: bool) -> None:
    looked = {each.of.changelog: each for each in survey.stores}
    rows = []
    for store in survey.shape.stores:
        found = looked.get(store.changelog)
        unknown = None if as_json else "-"
        rows.append(
            {
                "store": store.store,
                "changelog": store.changelog,
                "partitions": store.existing,
                "needed": store.after,
                "rows": unknown if found is None else found.rows,
                "moves": unknown if found is None else found.moves,
            }
        )
    if rows:
        print_rows(_MOVED, rows, as_json=as_json)
    if as_json and survey.blockers:
        print_json({"refused": survey.blockers})
    for blocker in survey.blockers:
        note(f"refused: {blocker}")


def _reading(
    application: str | None,
    stopped: StoppedState,
    store: str,
    *,
    typed: bool = False,
    skipped: SkippedRows | None = None,
) -> StoreReading | None:
    if application is None:
        return None
    return StoreReading(application, stopped.application_id, store, typed=typed, skipped=skipped)


def _stores_of(first: Path, second: Path, store: str | None) -> list[str]:
    if store is not None or is_export(first):
        return [store or ""]
    names = [{each.store for each in StoppedState(directory).stores()} for directory in (first, second)]
    return sorted(set.union(*names))


def _rows_of(
    directory: Path,
    store: str,
    application: str | None,
    *,
    typed: bool,
    skipped: SkippedRows | None,
    kind: str | None = None,
) -> Iterator[StateRow]:
    if is_export(directory):
        return exported_rows(directory)
    stopped = StoppedState(directory)
    reading = _reading(application, stopped, store, typed=typed, skipped=skipped)
    if not stopped.has(store, reading):
        return iter(())
    rows = stopped.rows(store, reading, kind)
    return rows if reading is None or not typed else as_exported(rows, reading)


def _print_comparison(store: str, found: Comparison, *, as_json: bool) -> None:
    counts = {"store": store or "-", **{name: getattr(found, name) for name in _COUNTS[1:]}}
    print_rows(_COUNTS, [counts], as_json=as_json)
    rows = []
    for each in found.shown:
        key, window_start, window_end, _ = each.key
        sides = {"first": each.first and _text(each.first.value), "second": each.second and _text(each.second.value)}
        rows.append(
            {"store": store or "-", "key": _text(key), "window_start": window_start, "window_end": window_end, **sides}
        )
    if rows:
        print_rows(_DIFFERENCES, rows, as_json=as_json)


def _shown(row: StateRow) -> dict[str, object]:
    return {**row._asdict(), "key": _text(row.key), "value": _text(row.value)}


def _text(value: object) -> object:
    """Bytes as text where they are text that can be printed, else as digits behind ``0x``."""
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"


def _is_within(row: StateRow, first: str | None, last: str | None) -> bool:
    key = str(_text(row.key))
    return (first is None or _order(first, key) <= 0) and (last is None or _order(key, last) <= 0)


def _order(one: str, other: str) -> int:
    """-1, 0 or 1: as numbers where both are, else as texts."""
    try:
        left, right = float(one), float(other)
    except ValueError:
        return (one > other) - (one < other)
    return (left > right) - (left < right)


def _row(exported: Exported) -> dict[str, object]:
    positions = exported.positions.items()
    position = ", ".join(f"{topic}-{partition}:{offset}" for (topic, partition), offset in sorted(positions))
    return {"partition": exported.partition, "rows": exported.rows, "position": position or "unknown"}
