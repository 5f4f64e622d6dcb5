"""``make demo-backfill``: eleven months of flights in Parquet become the state of the flights application, which goes
live.

    python -m examples.demo_backfill [--directory DIR] [--engine local|spark] [--workers N] [--master M]
                                     [--every N]

1. January to November are in Parquet files, and retention has deleted them from the topic.
2. The backfill computes the application's state from the files, in parallel, and hands it over: changelogs, outputs,
   state files, then the offsets.
3. December arrives. The application starts, restores nothing, and continues after November.
4. The final state is compared with a plain computation over the whole year.

Everything is in the directory, which is deleted and created again at each run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.backfill import Archive, Backfill
from streamsrt.backfill.archive import write_archive
from streamsrt.backfill.job import BackfillStatus
from streamsrt.backfill.sources import connected
from streamsrt.cli.demo.program import read_delays, show_tables
from streamsrt.cli.live_table import LiveTable
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic
from streamsrt.errors import StreamsError
from streamsrt.runtime.bundled_broker import BundledBroker
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import RecordColumns
from topology import Windowed, serdes

APPLICATION_ID = "flights"
DECEMBER_MS = round(datetime(2013, 12, 1, tzinfo=UTC).timestamp() * 1000)
FOREVER = {"retention.ms": "-1"}
_BATCH = 2_000
_BROKER_CONFIGS = ("group.streams.initial.rebalance.delay.ms=0", "group.streams.assignment.interval.ms=0")

console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        _demonstrate(options)
    except (StreamsError, FileNotFoundError, AssertionError) as error:
        console.print(f"[bold red]demo:[/] {error}")
        return error.exit_code if isinstance(error, StreamsError) else 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo_backfill", description="Computes state from history with a backfill."
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(".streamsrt/demo-backfill"), help="deleted and created again"
    )
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--workers", type=int, default=2, help="number of processes, for engine local")
    parser.add_argument("--master", help="Spark's master; by default a local one")
    parser.add_argument("--every", type=int, default=1, help="take only every N-th departure")
    return parser


def _demonstrate(options: argparse.Namespace) -> None:
    directory: Path = options.directory
    shutil.rmtree(directory, ignore_errors=True)
    with BundledBroker(directory, configs=_BROKER_CONFIGS) as broker, connected(broker.address) as network:
        console.print(f"The bundled broker runs at [bold]{broker.address}[/], its log is in {directory}/broker.")
        rows = list(islice(flights.read_departures(), 0, None, options.every))
        history = [row for row in rows if row.timestamp_ms < DECEMBER_MS]
        december = [row for row in rows if row.timestamp_ms >= DECEMBER_MS]
        prepare(network, directory / "archive", history)
        compute(directory, broker.address, options)
        go_live(network, directory, broker.address, december)
        compare(network, history, december)


# ------------------------------------------------------------------------------------------------------------- history


def prepare(network: NetworkThread, archive: Path, history: Sequence[flights.Row]) -> None:
    """Topics in which the history has been, and an archive that has it still."""
    names = (flights.DEPARTURES, flights.AIRLINES, flights.DELAYS)
    wanted = [NewTopic(name=name, partitions=flights.PARTITIONS, configs=FOREVER) for name in names]
    for error in network.admin.create_topics(wanted).values():
        if error is not None:
            raise error
    airlines = list(flights.read_airlines())
    keys = [serdes.string.serialize(code) for code, _ in airlines]
    write(network, flights.AIRLINES, keys, [serdes.string.serialize(name) for _, name in airlines], [0] * len(airlines))
    write_departures(network, history)
    files = 0
    ends: dict[tuple[str, int], int] = {}
    for partition, columns in enumerate(by_partition(history)):
        files += len(write_archive(archive, partition, iter((columns,)), file_records=50_000))
        ends[flights.DEPARTURES, partition] = columns.next_offset
    network.admin.delete_records(ends)
    console.print(
        f"January to November: {len(history):,} departures are in {files} Parquet files of {archive}; retention has "
        "deleted them from the topic."
    )


def by_partition(rows: Iterable[flights.Row]) -> list[RecordColumns]:
    """What each partition of the topic holds."""
    parts = [RecordColumns([], [], [], 0, 0) for _ in range(flights.PARTITIONS)]
    for row in rows:
        key = serdes.string.serialize(row.key)
        part = parts[partition_for_key(key, flights.PARTITIONS)]
        part.keys.append(key)
        part.values.append(serdes.json.serialize(row.value))
        part.timestamps.append(row.timestamp_ms)
        part.next_offset += 1
    return parts


def write_departures(network: NetworkThread, rows: Iterable[flights.Row]) -> None:
    rest = iter(rows)
    while batch := list(islice(rest, _BATCH)):
        write(
            network,
            flights.DEPARTURES,
            [serdes.string.serialize(row.key) for row in batch],
            [serdes.json.serialize(row.value) for row in batch],
            [row.timestamp_ms for row in batch],
        )


def write(
    network: NetworkThread,
    topic: str,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
) -> None:
    collector = RecordCollector(network.producer.send, lambda _topic: flights.PARTITIONS)
    collector.add(topic, keys, values, timestamps)
    collector.flush()
    network.producer.flush()


# ------------------------------------------------------------------------------------------------------------ backfill


def compute(directory: Path, address: str, options: argparse.Namespace) -> None:
    """Plans, runs and hands over."""
    backfill = Backfill(directory / "plan", bootstrap_servers=address)
    plan = backfill.plan(
        "examples.flights:topology",
        application_id=APPLICATION_ID,
        sources={flights.DEPARTURES: Archive(directory / "archive")},
    )
    total = sum(source.end - source.start for source in plan.sources())
    console.print(f"Plan {plan.id}: {len(plan.tasks)} tasks, {total:,} records.")
    started = time.monotonic()
    with LiveTable(console, lambda: _tasks_table(backfill.status(), started), interval_s=0.5):
        manifests = backfill.run(options.engine, workers=options.workers, master=options.master)
    seconds = time.monotonic() - started
    console.print(
        f"Engine {options.engine}: {sum(task.records for task in manifests):,} records in {seconds:.1f} s, including "
        "the start of its processes."
    )
    backfill.commit(
        state_dir=directory / "state",
        on_step=lambda step, text: console.print(f"  [bold]{step}[/] {text}", highlight=False),
    )


def _tasks_table(status: BackfillStatus, started: float) -> Table:
    table = Table(title=f"backfill of flights, {time.monotonic() - started:.1f} s", title_justify="left")
    for column in ("task", "state", "records", "records/s"):
        table.add_column(column, justify="right" if column.startswith("records") else "left")
    for task in status.tasks:
        rate = f"{task.records / task.seconds:,.0f}" if task.seconds else ""
        table.add_row(task.task, task.state, f"{task.records:,}", rate)
    return table


# ---------------------------------------------------------------------------------------------------------------- live


def go_live(network: NetworkThread, directory: Path, address: str, december: Sequence[flights.Row]) -> None:
    write_departures(network, december)
    console.print(f"December: {len(december):,} departures arrive. The application starts.")
    streams = KafkaStreams(
        flights.topology,
        {
            "application.id": APPLICATION_ID,
            "bootstrap.servers": address,
            "state.dir": directory / "state",
            "commit.interval.ms": 500,
        },
    )
    done = streams.run(until="quiet")
    console.print(
        f"It processed {done.processed_records:,} records, only those of December, and restored "
        f"{done.restored_records} records from changelogs."
    )
    if done.processed_records != len(december) or done.restored_records:
        raise AssertionError("it should have processed only December, and restored nothing")


def plain_delays(rows: Iterable[flights.Row]) -> dict[tuple[str, int], flights.Delays]:
    """The result for each airline and hour (ms), by a loop over the rows: no late record is dropped in this data."""
    names = dict(flights.read_airlines())
    hour_ms = round(flights.HOUR.total_seconds() * 1000)
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        delay = row.value["delay"]
        if delay is not None:
            found.setdefault((row.key, row.timestamp_ms - row.timestamp_ms % hour_ms), []).append(delay)
    return {
        (code, start): flights.Delays(
            airline=names.get(code, "unknown"),
            departures=len(delays),
            late=sum(delay >= flights.LATE_FROM_MINUTES for delay in delays),
            total_delay=sum(delays),
            worst_delay=max(delays),
        )
        for (code, start), delays in found.items()
    }


def compare(network: NetworkThread, *parts: Sequence[flights.Row]) -> None:
    """Raises AssertionError where the application's results are not those of a plain computation."""
    expected = plain_delays(row for part in parts for row in part)
    delays = read_delays(network)
    got = {_place(key): value for key, value in delays.items()}
    wrong = [place for place in expected.keys() | got.keys() if expected.get(place) != got.get(place)]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(expected)} results are wrong, e.g. {min(wrong)}")
    show_tables(delays, "Departures from New York City, 2013")
    console.print(
        f"[bold green]Equal:[/] all {len(expected):,} results of the year, per airline and hour, are those of a "
        "plain computation."
    )


def _place(key: Windowed[str]) -> tuple[str, int]:
    return key.key, key.start_ms


if __name__ == "__main__":
    sys.exit(main())
