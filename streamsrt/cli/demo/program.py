"""The demo: loads departures of airplanes, runs the application on them, shows its progress and its tables.

Everything is durable under the directory: stopped at any time, it resumes from there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from streamsrt.app import KafkaStreams
from streamsrt.cli.demo import flights
from streamsrt.cli.live_table import LiveTable
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, ClientConfig, NewTopic, TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.runtime.bundled_broker import BundledBroker
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import iter_columns
from topology import Windowed, serdes

APPLICATION_ID = "flights"
_BATCH = 2_000
_BROKER_CONFIGS = ("group.streams.initial.rebalance.delay.ms=0", "group.streams.assignment.interval.ms=0")

console = Console()


@dataclass(frozen=True)
class DemoInput:
    """What is loaded: code and name of each airline, departures by time, and what the table of all is called."""

    airlines: Callable[[], Iterator[tuple[str, str]]]
    departures: Callable[[], Iterator[flights.DepartureRow]]
    title: str


def run_demo(
    directory: Path, data: DemoInput, *, bootstrap_servers: str | None = None, limit: int | None = None
) -> bool:
    """Runs all of it; whether Ctrl-C stopped the application, of which the tables then show what it has done.

    ``bootstrap_servers``: instead of the bundled broker. ``limit``: load only so many departures. Raises the
    :class:`~streamsrt.errors.StreamsError` that ends the application or the broker.
    """
    with _cluster(directory, bootstrap_servers) as address:
        network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="demo"))
        network.start()
        try:
            load(network, data, limit)
            _tell_where_it_stands(network)
            interrupted = _run(address, directory / "state")
            delays = read_delays(network)
            show_tables(delays, data.title)
        finally:
            network.stop()
    return interrupted


@contextlib.contextmanager
def _cluster(directory: Path, servers: str | None) -> Generator[str, None, None]:
    if servers is not None:
        yield servers
        return
    with BundledBroker(directory, configs=_BROKER_CONFIGS) as broker:
        console.print(f"The bundled broker runs at [bold]{broker.address}[/], its log is in {directory}/broker.")
        yield broker.address


# ------------------------------------------------------------------------------------------------------------- loading


def load(network: NetworkThread, data: DemoInput, limit: int | None = None) -> int:
    """Writes the airlines and departures that are not in their topics yet; how many departures were written."""
    names = (flights.DEPARTURES, flights.AIRLINES, flights.DELAYS)
    present = network.admin.topics(names)
    # Retention goes by the records' own time, and these are from 2013: a topic with a limit would lose them at once.
    forever = {"retention.ms": "-1"}
    missing = [
        NewTopic(name=name, partitions=flights.PARTITIONS, configs=forever) for name in names if name not in present
    ]
    for error in network.admin.create_topics(missing).values() if missing else ():
        if error is not None:
            raise error
    collector = RecordCollector(network.producer.send, lambda _topic: flights.PARTITIONS)
    _load_airlines(network, collector, data)
    return _load_departures(network, collector, data, limit)


def _ends(network: NetworkThread, topic: str) -> dict[int, int]:
    partitions: dict[TopicPartition, int] = {(topic, index): LATEST for index in range(flights.PARTITIONS)}
    return {tp[1]: at.offset for tp, at in network.admin.list_offsets(partitions).items()}


def _load_airlines(network: NetworkThread, collector: RecordCollector, data: DemoInput) -> None:
    # A table holds the last row of each key, so writing rows again changes nothing.
    rows = list(data.airlines())
    if sum(_ends(network, flights.AIRLINES).values()) < len(rows):
        keys: list[bytes | None] = [serdes.string.serialize(code) for code, _ in rows]
        values: list[bytes | None] = [serdes.string.serialize(name) for _, name in rows]
        collector.add(flights.AIRLINES, keys, values, [0] * len(rows))
        collector.flush()
        network.producer.flush()


def _load_departures(network: NetworkThread, collector: RecordCollector, data: DemoInput, limit: int | None) -> int:
    loaded = _ends(network, flights.DEPARTURES)
    before = sum(loaded.values())
    if before:
        console.print(f"Resuming an earlier run: {before:,} departures are already loaded.")
    started = time.monotonic()
    rows = _rows_to_load(loaded, data, limit)
    written = 0
    while batch := list(islice(rows, _BATCH)):
        keys: list[bytes | None] = [serdes.string.serialize(row.key) for row in batch]
        values: list[bytes | None] = [serdes.json.serialize(row.value) for row in batch]
        collector.add(flights.DEPARTURES, keys, values, [row.timestamp_ms for row in batch])
        written += len(batch)
    collector.flush()
    network.producer.flush()
    if written:
        console.print(f"Loaded {written:,} departures in {time.monotonic() - started:.1f} s.")
    return written


def _rows_to_load(loaded: Mapping[int, int], data: DemoInput, limit: int | None) -> Iterator[flights.DepartureRow]:
    """The rows that are not in the topic: each partition holds a prefix of its rows, since they are written in order."""
    seen = dict.fromkeys(range(flights.PARTITIONS), 0)
    for row in islice(data.departures(), limit):
        partition = partition_for_key(serdes.string.serialize(row.key), flights.PARTITIONS)
        seen[partition] += 1
        if seen[partition] > loaded[partition]:
            yield row


def _tell_where_it_stands(network: NetworkThread) -> None:
    committed = network.admin.committed(APPLICATION_ID)
    done = sum(offset.offset for (topic, _), offset in committed.items() if topic == flights.DEPARTURES)
    if done:
        console.print(f"Resuming an earlier run: {done:,} departures are already processed.")


# ------------------------------------------------------------------------------------------------------------- running


def _run(address: str, state_dir: Path) -> bool:
    config = StreamsConfig.of(
        application_id=APPLICATION_ID, bootstrap_servers=address, state_dir=state_dir, commit_interval_ms=500
    )
    streams = KafkaStreams(flights.topology, config)
    started = time.monotonic()
    with LiveTable(console, lambda: _progress_table(streams, started), line=lambda: _progress_line(streams)):
        done = streams.run(until="quiet")
    seconds = time.monotonic() - started
    if done.processed_records:
        console.print(
            f"Processed {done.processed_records:,} records in {seconds:.1f} s, including the start of the application."
        )
    else:
        console.print("Nothing to process: an earlier run processed everything.")
    return streams.was_interrupted


def _progress_line(streams: KafkaStreams) -> str:
    progress = streams.progress
    return f"flights: {streams.state.value}, {progress.processed_records:,} records processed, lag {progress.lag_records:,}"


def _progress_table(streams: KafkaStreams, started: float) -> Table | None:
    progress = streams.progress
    if not progress.tasks:
        return None
    table = Table(title=f"flights: {streams.state.value}, {time.monotonic() - started:.1f} s", title_justify="left")
    for column in ("task", "role", "phase", "processed", "late or dropped", "lag", "event time"):
        table.add_column(column, justify="right" if column in {"processed", "late or dropped", "lag"} else "left")
    for task in progress.tasks:
        clock = (
            time.strftime("%Y-%m-%d %H:%M", time.gmtime(task.stream_time_ms / 1000)) if task.stream_time_ms > 0 else ""
        )
        table.add_row(
            task.task_id,
            task.role,
            task.phase,
            f"{task.counters['processed']:,}",
            f"{task.counters['dropped']:,}",
            f"{task.lag_records:,}",
            clock,
        )
    for status in progress.statuses:
        table.add_row("", "", status)
    return table


# -------------------------------------------------------------------------------------------------------------- tables


def read_delays(network: NetworkThread) -> dict[Windowed[str], flights.Delays]:
    """The last value of each airline and hour out of the result's topic."""
    key_serde = serdes.time_windowed(serdes.string, flights.HOUR)
    partitions: dict[TopicPartition, int] = {(flights.DELAYS, index): EARLIEST for index in range(flights.PARTITIONS)}
    starts = {tp: at.offset for tp, at in network.admin.list_offsets(partitions).items()}
    ends = {tp: at.offset for tp, at in network.admin.list_offsets(dict.fromkeys(partitions, LATEST)).items()}
    left = {tp for tp in partitions if starts[tp] < ends[tp]}
    network.fetcher.add_partitions({tp: starts[tp] for tp in left})
    found: dict[Windowed[str], flights.Delays] = {}
    while left:
        for fetched in network.fetcher.poll(1.0):
            for columns in iter_columns(fetched.buffer, from_offset=fetched.offset):
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key is not None and value is not None:
                        found[key_serde.deserialize(key)] = serdes.json.deserialize(value)
            if fetched.next_offset >= ends[fetched.topic, fetched.partition]:
                left.discard((fetched.topic, fetched.partition))
                network.fetcher.remove_partitions([(fetched.topic, fetched.partition)])
    return found


def show_tables(delays: Mapping[Windowed[str], flights.Delays], title: str) -> None:
    """Prints the departures by airline, and the worst hours."""
    _show_airlines(delays, title)
    _show_worst_hours(delays)


def _show_airlines(delays: Mapping[Windowed[str], flights.Delays], title: str) -> None:
    totals: dict[str, list[int]] = {}
    for row in delays.values():
        total = totals.setdefault(row["airline"], [0, 0, 0])
        total[0] += row["departures"]
        total[1] += row["late"]
        total[2] += row["total_delay"]
    table = Table(title=title, title_justify="left")
    table.add_column("airline", no_wrap=True)
    for column in ("departures", "15 min late or more", "mean delay, min"):
        table.add_column(column, justify="right")
    for airline, (count, late, delay) in sorted(totals.items(), key=lambda item: -item[1][0]):
        table.add_row(airline, f"{count:,}", f"{late / count:.1%}", f"{delay / count:.1f}")
    console.print(table)


def _show_worst_hours(delays: Mapping[Windowed[str], flights.Delays]) -> None:
    table = Table(title="The worst hours (5 flights or more), delays in minutes", title_justify="left")
    for column in ("hour, UTC", "airline", "flights", "mean", "worst"):
        table.add_column(column, justify="left" if column in {"hour, UTC", "airline"} else "right", no_wrap=True)
    busy = [(key, row) for key, row in delays.items() if row["departures"] >= 5]
    busy.sort(key=lambda item: -item[1]["total_delay"] / item[1]["departures"])
    for key, row in busy[:8]:
        table.add_row(
            time.strftime("%Y-%m-%d %H:00", time.gmtime(key.start_ms / 1000)),
            row["airline"],
            str(row["departures"]),
            f"{row['total_delay'] / row['departures']:.0f}",
            str(row["worst_delay"]),
        )
    console.print(table)
