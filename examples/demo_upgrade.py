"""``make demo-upgrade``: the next version of the flights application takes over from the running one, member by member.

    python -m examples.demo_upgrade [--order 3,1,2] [--kill] [--rate N] [--broker kafka] [--directory DIR]

Three members run ``examples.flights`` while departures keep coming in. The next version is refused while its topic is
missing. When the topic exists, a fourth member runs that version, warms up its share, and is rolled back. Then the
members are stopped one after the other and started again as ``examples.flights_v2``; with ``--kill``, SIGKILL stops
them. At the end all outputs and stores are compared with a plain computation in Python from the same input.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

from examples import flights, flights_charters, flights_v2
from examples.demo_broker import KINDS, DrillBroker, classic_line, open_broker
from examples.upgrade_members import COMMAND_LINE, MemberError, MemberProcess
from streamsrt.cli.live_table import LiveTable
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, ClientConfig, FetchConfig, NewTopic, TopicPartition
from streamsrt.errors import StreamsError
from streamsrt.state.directory import StateDirectory
from streamsrt.state.windowed import WindowBytesStore
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.records import iter_columns
from topology import serdes
from topology.graph.topology import Topology

APPLICATION_ID = "flights"
V1, V2 = "examples.flights:topology", "examples.flights_v2:topology"
CHARTERS = "examples.flights_charters:topology"
VERSIONS = {V1: "1", V2: "2", CHARTERS: "charters"}
MEMBERS = 3
REFUSED = 2
CHUNKS_PER_SECOND = 10
TIMESTAMP_BYTES = 8

Table2 = dict[tuple[str, int], Any]
"""Value by key and start of the window, in milliseconds."""

console = Console()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo_upgrade", description="A rolling upgrade under load."
    )
    parser.add_argument("--order", default="3,1,2", help="order in which the members are upgraded")
    parser.add_argument("--kill", action="store_true", help="stop the old members with SIGKILL")
    parser.add_argument("--rate", type=int, default=1_500, help="departures a second")
    parser.add_argument("--broker", choices=KINDS, default=KINDS[0], help="kafka: Apache Kafka, with Java 17 and Maven")
    parser.add_argument("--directory", type=Path, help="directory of all data; by default a temporary one")
    options = parser.parse_args(arguments)
    order = [int(word) for word in options.order.split(",")]
    if sorted(order) != list(range(1, MEMBERS + 1)):
        parser.error(f"--order {options.order}: name each of the members 1 to {MEMBERS} once")
    directory = options.directory or Path(tempfile.mkdtemp(prefix="streamsrt-upgrade-"))
    if directory.exists() and any(directory.iterdir()):
        parser.error(f"--directory {directory}: it is not empty")
    try:
        return _drill(directory, order, options.rate, options.broker, kill=options.kill)
    except (StreamsError, FileNotFoundError) as error:
        console.print(f"[bold red]demo:[/] {error}")
        return error.exit_code if isinstance(error, StreamsError) else 2
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)


class _Commands:
    """``streamsrt upgrade``, as an operator would type it; what it says is shown."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory

    def __call__(self, what: str, *arguments: str) -> int:
        words = ["upgrade", what, *arguments, "--group", APPLICATION_ID]
        console.print(f"$ streamsrt {' '.join(words)}", style="bold", soft_wrap=True, highlight=False)
        done = subprocess.run(
            [*COMMAND_LINE, *words, "-b", self._address], capture_output=True, text=True, timeout=60.0, check=False
        )
        console.print((done.stdout + done.stderr).rstrip(), soft_wrap=True, highlight=False, markup=False)
        return done.returncode

    def epoch(self, new: str) -> int | None:
        """The epoch that a version gets; None where the plan refuses it."""
        file = self._directory / "plan.json"
        self("plan", new, "--old", V1, "--out", str(file))
        plan = json.loads(file.read_bytes())
        return None if plan["refusals"] else int(plan["epoch_needed"])


def _drill(directory: Path, order: list[int], rate: int, kind: str, *, kill: bool) -> int:
    opened = open_broker(kind, directory, _broker_configs(kill=kill), _session_ms(kill=kill))
    with opened as broker, _connected(broker.address) as network:
        _make_topics(network)
        *members, guest = [_member(directory, broker, number, kill=kill) for number in range(1, MEMBERS + 2)]
        upgrade = _Commands(broker.address, directory)
        with _Load(broker.address, rate) as load:
            try:
                with _Screen(network, [*members, guest], load) as screen:
                    _start(screen, members)
                    _refuse(screen, guest, upgrade)
                    _send_back(screen, network, members, guest, upgrade)
                    _roll(screen, members, order, upgrade, kill=kill)
                    screen.note("the last records are written and processed")
                    load.finish()
                    _wait_all_committed(network)
                _tell_what_was_taken_over(network, members)
            finally:
                for member in (*members, guest):
                    member.stop()
        return _compare(network, members, load)


def _session_ms(*, kill: bool) -> int:
    """A static member that is stopped has this long to come back; one that was killed is missed after it."""
    return 3_000 if kill else 30_000


def _broker_configs(*, kill: bool) -> list[str]:
    return [
        "group.streams.initial.rebalance.delay.ms=0",
        "group.streams.assignment.interval.ms=0",
        "group.streams.min.heartbeat.interval.ms=200",
        "group.streams.heartbeat.interval.ms=200",
        "group.streams.min.session.timeout.ms=1000",
        f"group.streams.session.timeout.ms={_session_ms(kill=kill)}",
        # Less than the state of a task: a member that begins without it has to warm up.
        "group.streams.acceptable.recovery.lag=1000",
    ]


def _member(directory: Path, broker: DrillBroker, number: int, *, kill: bool) -> MemberProcess:
    settings = {
        **broker.settings,
        "application.id": APPLICATION_ID,
        "bootstrap.servers": broker.address,
        "commit.interval.ms": "500",
        "linger.ms": "20",
        # What was done and not committed when a member is killed, or is sent back, must not count.
        "processing.guarantee": "exactly_once_v2",
    }
    if not kill:
        settings["group.instance.id"] = f"member-{number}"
    return MemberProcess(f"member-{number}", directory / f"member-{number}", settings)


@contextmanager
def _connected(address: str) -> Generator[NetworkThread, None, None]:
    committed = FetchConfig(isolation_level="read_committed")
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="demo", fetch=committed))
    network.start()
    try:
        yield network
    finally:
        network.stop()


def _make_topics(network: NetworkThread) -> None:
    names = (flights.DEPARTURES, flights.AIRLINES, flights.DELAYS, flights_v2.WEATHER, flights_v2.WEATHER_DAYS)
    forever = {"retention.ms": "-1"}
    wanted = [NewTopic(name=name, partitions=flights.PARTITIONS, configs=forever) for name in names]
    for error in network.admin.create_topics(wanted).values():
        if error is not None:
            raise error
    collector = RecordCollector(network.producer.send, lambda _topic: flights.PARTITIONS)
    rows = list(flights.read_airlines())
    keys: list[bytes | None] = [serdes.string.serialize(code) for code, _ in rows]
    collector.add(flights.AIRLINES, keys, [serdes.string.serialize(name) for _, name in rows], [0] * len(rows))
    collector.flush()
    network.producer.flush()


# ---------------------------------------------------------------------------------------------------------------- load


class _Load:
    """Writes departures at a steady rate, and the weather up to their time, until it is told to finish."""

    def __init__(self, address: str, rate: int) -> None:
        self.departures: list[flights.Row] = []
        self.weather: list[flights_v2.Row] = []
        self._address = address
        self._chunk = max(1, rate // CHUNKS_PER_SECOND)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: StreamsError | None = None

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._enough.set()
        self._thread.join()

    def finish(self) -> None:
        """Returns when all that was begun is written. Raises what went wrong."""
        self._enough.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with _connected(self._address) as network:
                self._write(network)
        except StreamsError as error:
            self._failure = error

    def _write(self, network: NetworkThread) -> None:
        collector = RecordCollector(network.producer.send, lambda _topic: flights.PARTITIONS)
        rows, weather = flights.read_departures(), flights_v2.read_weather()
        held = next(weather)
        while not self._enough.wait(1 / CHUNKS_PER_SECOND) and (chunk := list(islice(rows, self._chunk))):
            self.departures += chunk
            observed: list[flights_v2.Row] = []
            while held.timestamp_ms < chunk[-1].timestamp_ms:
                observed.append(held)
                held = next(weather, held._replace(timestamp_ms=2**62))
            self.weather += observed
            for topic, part in ((flights.DEPARTURES, chunk), (flights_v2.WEATHER, observed)):
                keys: list[bytes | None] = [serdes.string.serialize(row.key) for row in part]
                collector.add(topic, keys, [serdes.json.serialize(row.value) for row in part], [row[2] for row in part])
            collector.flush()
            network.producer.flush()


# ---------------------------------------------------------------------------------------------------------------- roll


def _start(screen: _Screen, members: list[MemberProcess]) -> None:
    screen.note("three members of version 1 start")
    for member in members:
        member.start(V1)
    for member in members:
        member.wait(lambda line: line["state"] == "RUNNING" and bool(line["tasks"]), "it runs")
    # Something to carry over.
    for member in members:
        member.wait(lambda line: line["processed_records"] > 500 and line["commits"] > 2, "it has state")


def _refuse(screen: _Screen, guest: MemberProcess, upgrade: _Commands) -> None:
    screen.note(f"a version whose topic {flights_charters.CHARTERS} is missing is planned, and started anyway")
    if upgrade.epoch(CHARTERS) is not None:
        raise MemberError("the plan does not refuse a version whose topic is missing")
    guest.start(CHARTERS, epoch=1)
    if (code := guest.wait_end()) != REFUSED:
        raise MemberError(f"{guest.name} ends with code {code}; see {guest.directory}/log")
    console.print(f"{guest.name} ends: {guest.last_words}", soft_wrap=True, highlight=False, markup=False)


def _send_back(
    screen: _Screen, network: NetworkThread, members: list[MemberProcess], guest: MemberProcess, upgrade: _Commands
) -> None:
    screen.note(f"its topic is created: {guest.name} gets its tasks when they are warmed up")
    topic = NewTopic(name=flights_charters.CHARTERS, partitions=flights.PARTITIONS)
    for error in network.admin.create_topics([topic]).values():
        if error is not None:
            raise error
    epoch = upgrade.epoch(CHARTERS)
    if epoch is None:
        raise MemberError("the plan refuses a version that has all its topics")
    guest.start(CHARTERS, epoch)
    guest.wait(lambda line: "active running" in line["tasks"].values(), "it has its tasks")
    restored = int(guest.progress["restored_records"])
    console.print(f"{guest.name} restored {restored:,} records while the old members processed, then took over")
    upgrade("status", "--once")
    screen.note("that version is rolled back, and the old members have all tasks again")
    if upgrade("abort", V1, "--execute") != 0 or guest.wait_end() != REFUSED:
        raise MemberError(f"{guest.name} was not rolled back; see {guest.directory}/log")
    for member in members:
        member.wait(lambda line: "active restoring" not in line["tasks"].values(), "its tasks run")


def _roll(screen: _Screen, members: list[MemberProcess], order: list[int], upgrade: _Commands, *, kill: bool) -> None:
    screen.note("version 2 is planned")
    epoch = upgrade.epoch(V2)
    if epoch is None:
        raise MemberError("the plan refuses version 2")
    for number in order:
        member = members[number - 1]
        screen.note(f"{member.name} is {'killed' if kill else 'stopped'} and starts as version 2")
        member.replace_by(V2, epoch, kill=kill)
        for other in members:
            other.wait(lambda line: "active restoring" not in line["tasks"].values(), "its tasks run")
    upgrade("status", "--once")


def _wait_all_committed(network: NetworkThread) -> None:
    topics = (flights.DEPARTURES, flights.AIRLINES, flights_v2.WEATHER)
    places: dict[TopicPartition, int] = {(topic, index): LATEST for topic in topics for index in _PARTITIONS}
    deadline = time.monotonic() + 120.0
    pause = threading.Event()
    while time.monotonic() < deadline:
        committed = network.admin.committed(APPLICATION_ID)
        ends = network.admin.list_offsets(places)
        if all(place in committed and committed[place].offset >= at.offset for place, at in ends.items() if at.offset):
            return
        pause.wait(0.2)
    raise MemberError("the members did not finish their input within two minutes")


_PARTITIONS = range(flights.PARTITIONS)


class _Screen:
    """A table that follows the members and the group."""

    def __init__(self, network: NetworkThread, members: list[MemberProcess], load: _Load) -> None:
        self._network = network
        self._members = members
        self._load = load
        self._step = ""
        self._started = time.monotonic()
        self._live = LiveTable(console, self._table, interval_s=0.2)

    def __enter__(self) -> _Screen:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def note(self, step: str) -> None:
        """What happens now."""
        self._step = step
        console.print(f"{time.monotonic() - self._started:6.1f} s  {step}")

    def _table(self) -> Table:
        written = len(self._load.departures)
        table = Table(
            title=f"{self._step or 'flights'}: {written:,} departures written; {self._group()}", title_justify="left"
        )
        for column in ("member", "version", "state", "tasks", "lag", "processed", "restored"):
            table.add_column(column, justify="right" if column in {"lag", "processed", "restored"} else "left")
        for member in self._members:
            said = member.progress
            table.add_row(
                member.name,
                VERSIONS.get(member.application, ""),
                member.state,
                _listed(member.tasks) if member.is_alive else "",
                *(f"{said.get(key, 0):,}" for key in ("lag_records", "processed_records", "restored_records")),
            )
        return table

    def _group(self) -> str:
        try:
            (group,) = self._network.admin.describe_streams_groups([APPLICATION_ID], timeout_s=2.0)
            if group.error_code or group.topology is None:
                return classic_line(self._network, APPLICATION_ID)
        except StreamsError as error:
            return f"the group: {error}"
        epochs: dict[int, int] = defaultdict(int)
        for member in group.members:
            epochs[member.topology_epoch] += 1
        members = ", ".join(f"{count} at epoch {epoch}" for epoch, count in sorted(epochs.items()))
        return f"group {group.group_state}, topology epoch {group.topology.epoch}, members: {members or 'none'}"


# --------------------------------------------------------------------------------------------------------- what it gave


def _tell_what_was_taken_over(network: NetworkThread, members: list[MemberProcess]) -> None:
    ends = _changelog_ends(network)
    table = Table(title="What the new versions took over", title_justify="left")
    for column in ("member", "kept tasks", "in their changelogs", "new tasks", "in their changelogs", "restored"):
        table.add_column(column, justify="left" if "tasks" in column or column == "member" else "right")
    for member in members:
        if member.taken_over is not None:
            kept, gained, restored = member.taken_over
            logged = [f"{sum(ends.get(task, 0) for task in tasks):,}" for tasks in (kept, gained)]
            table.add_row(member.name, _listed(kept), logged[0], _listed(gained), logged[1], f"{restored:,}")
    console.print(table)


def _listed(tasks: frozenset[str]) -> str:
    return "\n".join(sorted(tasks))


def _changelog_ends(network: NetworkThread) -> dict[str, int]:
    """Records in the changelogs of each task."""
    found: dict[str, int] = defaultdict(int)
    for subtopology in flights_v2.topology.subtopologies:
        topics = [f"{APPLICATION_ID}-{topic.name}" for topic in subtopology.changelog_topics if not topic.is_source]
        places: dict[TopicPartition, int] = {(topic, index): LATEST for topic in topics for index in _PARTITIONS}
        for (_, index), at in network.admin.list_offsets(places).items():
            found[f"{subtopology.id}_{index}"] += at.offset
    return found


def _compare(network: NetworkThread, members: list[MemberProcess], load: _Load) -> int:
    delays, days = expected_delays(load.departures), expected_weather(load.weather)
    checks = {
        f"topic {flights.DELAYS}": (_last_values(network, flights.DELAYS), delays),
        f"topic {flights_v2.WEATHER_DAYS}": (_last_values(network, flights_v2.WEATHER_DAYS), days),
    }
    for store, whole in (("delays-per-hour", delays), ("weather-per-day", days)):
        rows, oldest_ms = read_store(members, flights_v2.topology, store)
        # A store keeps its rows for a while only; those that it keeps must be all that there are of that time.
        checks[f"store {store}"] = (rows, {place: whole[place] for place in rows.keys() | _since(whole, oldest_ms)})
    table = Table(title="Compared with plain Python over the same input", title_justify="left")
    for column in ("what", "rows", "equal"):
        table.add_column(column, justify="right" if column == "rows" else "left")
    for name, (found, wanted) in checks.items():
        table.add_row(name, f"{len(wanted):,}", "[green]yes[/]" if found == wanted else "[bold red]NO[/]")
    console.print(table)
    same = all(found == wanted for found, wanted in checks.values())
    console.print(
        f"{len(load.departures):,} departures and {len(load.weather):,} observations: "
        + ("nothing was lost and nothing was counted twice." if same else "[bold red]the results differ.[/]")
    )
    return 0 if same else 1


def _since(rows: Table2, oldest_ms: Mapping[str, int]) -> set[tuple[str, int]]:
    return {place for place in rows if place[0] in oldest_ms and place[1] >= oldest_ms[place[0]]}


def expected_delays(rows: list[flights.Row]) -> Table2:
    """What the application makes of these departures, without it."""
    names = dict(flights.read_airlines())
    hour_ms = 3_600_000
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        if row.value["delay"] is not None:
            found[row.key, row.timestamp_ms // hour_ms * hour_ms].append(row.value["delay"])
    return {
        place: {
            "airline": names[place[0]],
            "departures": len(delays),
            "late": sum(delay >= flights.LATE_FROM_MINUTES for delay in delays),
            "total_delay": sum(delays),
            "worst_delay": max(delays),
        }
        for place, delays in found.items()
    }


def expected_weather(rows: list[flights_v2.Row]) -> Table2:
    """What version 2 makes of these observations, without it."""
    day_ms = 86_400_000
    found: dict[tuple[str, int], list[flights_v2.Observation]] = defaultdict(list)
    for row in rows:
        found[row.key, row.timestamp_ms // day_ms * day_ms].append(row.value)
    return {
        place: {
            "hours": len(hours),
            "strongest_wind": max((hour["wind"] for hour in hours if hour["wind"] is not None), default=None),
            "lowest_visibility": min(
                (hour["visibility"] for hour in hours if hour["visibility"] is not None), default=None
            ),
        }
        for place, hours in found.items()
    }


def _last_values(network: NetworkThread, topic: str) -> Table2:
    places: dict[TopicPartition, int] = {(topic, index): EARLIEST for index in _PARTITIONS}
    starts = {place: at.offset for place, at in network.admin.list_offsets(places).items()}
    ends = {place: at.offset for place, at in network.admin.list_offsets(dict.fromkeys(places, LATEST)).items()}
    left = {place for place in places if starts[place] < ends[place]}
    network.fetcher.add_partitions({place: starts[place] for place in left})
    found: Table2 = {}
    while left:
        for fetched in network.fetcher.poll(1.0):
            for columns in iter_columns(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted):
                for key, value in zip(columns.keys, columns.values, strict=True):
                    assert key is not None
                    assert value is not None
                    found[key[:-8].decode(), int.from_bytes(key[-8:], "big")] = serdes.json.deserialize(value)
            place = (fetched.topic, fetched.partition)
            if fetched.next_offset >= ends[place]:
                left.discard(place)
                network.fetcher.remove_partitions([place])
    return found


def read_store(members: list[MemberProcess], topology: Topology, name: str) -> tuple[Table2, dict[str, int]]:
    """The rows of a window store where they are newest, and from when on each key's partition has all of them.

    Every member keeps what it once had; the one that ran a task last has written the most.
    """
    spec = next(spec for part in topology.subtopologies for spec in part.stores if spec.name == name)
    found: Table2 = {}
    oldest_ms: dict[str, int] = {}
    newest: dict[int, tuple[int, MemberProcess]] = {}
    for member in members:
        with StateDirectory(member.directory, APPLICATION_ID) as directory:
            for local in directory.list_stores():
                offset = local.changelog_offset or 0
                if local.store == name and offset >= newest.get(local.partition, (0, member))[0]:
                    newest[local.partition] = (offset, member)
    for partition, (_, member) in newest.items():
        with StateDirectory(member.directory, APPLICATION_ID) as directory:
            store = directory.open_store(spec, partition)
            assert isinstance(store, WindowBytesStore)
            kept_from_ms = store.stream_time_ms - store.retention_ms + 1
            for key, start_ms, value in store.fetch_all(0, store.stream_time_ms):
                found[key.decode(), start_ms] = serdes.json.deserialize(value[TIMESTAMP_BYTES:])
                oldest_ms[key.decode()] = kept_from_ms
            store.close()
    return found, oldest_ms


if __name__ == "__main__":
    sys.exit(main())
