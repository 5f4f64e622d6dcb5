"""A rolling upgrade of the flights example with real processes: three members, one after the other replaced by version 2."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from examples import flights_v2
from tests.system import expected
from tests.system.cluster import Cluster, Row, last_values
from tests.system.processes import AppProcess, run_command, wait_until, with_protocol
from tests.system.test_results import final_delays

PARTITIONS = 4
DEPARTURES, OBSERVATIONS = 4_000, 300
V1, V2 = "examples.flights", "examples.flights_v2"
TOPICS = ("departures", "airlines", "delays", "weather", "weather-days")
DAY_MS = 86_400_000
LONG_MS = 100 * 365 * DAY_MS
NAMES = ("A", "B", "C")

Place = tuple[str, int]


class Drill:
    """Three members on their state directories, and an input that comes in parts: one before each step, one at the end."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        application_id: str,
        configs: Mapping[str, object],
        *,
        static: bool = False,
    ) -> None:
        self.cluster = cluster
        self.application_id = application_id
        self._folder = folder
        # The input is of 2013: a broker deletes by the times of records, and would delete windows that have not expired.
        kept = {"windowstore.changelog.additional.retention.ms": LONG_MS}
        self._configs = with_protocol({"commit.interval.ms": 100, **kept, **configs})
        self._is_classic = self._configs.get("group.protocol") == "classic"
        self._static = static
        self.members: dict[str, AppProcess] = {}
        self.departures = expected.departures(DEPARTURES)
        self.weather = observations(OBSERVATIONS)
        self._parts_left = list(parts(len(self.departures), len(self.weather), 5))
        cluster.make_topics(PARTITIONS, *TOPICS)
        cluster.write("airlines", expected.airline_rows(), PARTITIONS)
        if static:
            self.be_patient()

    def be_patient(self, session_timeout_ms: int = 60_000) -> None:
        """No member is taken for dead for so long: a static one has as long to come back, a busy one is not fenced."""
        if self._is_classic:
            self._configs["session.timeout.ms"] = session_timeout_ms
            return
        configs = {"streams.session.timeout.ms": str(session_timeout_ms)}
        self.cluster.network.admin.alter_group_configs(self.application_id, configs)

    def __enter__(self) -> Drill:
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self.members.values():
            member.kill()

    def start(self, name: str, version: str = V1, **configs: object) -> AppProcess:
        """A member, or another version of it, on its own state directory."""
        settings = {**self._configs, **{key.replace("_", "."): value for key, value in configs.items()}}
        if self._static:
            settings["group.instance.id"] = name
        if name in self.members:
            self.members[name].kill()
        process = AppProcess(self._folder / name, version, self.application_id, self.cluster.address, settings)
        self.members[name] = process
        return process.start()

    def start_all(self) -> None:
        """Three members of version 1 that have work behind them."""
        for name in NAMES:
            self.start(name)
        self.write_a_part()
        for member in self.members.values():
            member.wait_running()
        self.wait_all_committed()

    def write_a_part(self) -> None:
        departures, weather = self._parts_left.pop(0)
        self.cluster.write("departures", expected.departure_rows(self.departures[departures]), PARTITIONS)
        self.cluster.write("weather", self.weather[weather], PARTITIONS)

    def wait_all_committed(self, *, version: str = V1) -> None:
        inputs = ("departures", "airlines", "weather") if version == V2 else ("departures", "airlines")
        self.cluster.wait_all_committed(self.application_id, *inputs)

    def finish(self) -> None:
        """What is left of the input, to its end."""
        while self._parts_left:
            self.write_a_part()
        self.wait_all_committed(version=V2)
        for member in self.members.values():
            assert member.terminate() == 0

    def assert_exact(self) -> None:
        assert final_delays(self.cluster.read("delays")) == expected.delays_by_hour(self.departures)
        days = {
            expected.windowed_key(key): json.loads(value)
            for key, value in last_values(self.cluster.read("weather-days")).items()
            if key is not None and value is not None
        }
        assert days == weather_by_day(self.weather)

    def wait_settled(self) -> None:
        """Every member has what it should have, and runs it."""
        wait_until(lambda: self.described().group_state == "Stable", "the group is stable")
        for member in self.members.values():
            member.wait_running()

    # ------------------------------------------------------------------------------------------------------- looking

    def described(self) -> Any:
        (group,) = self.cluster.network.admin.describe_streams_groups([self.application_id])
        return group

    def epochs(self) -> list[int]:
        """The topology epoch of each member, as the command line shows it."""
        shown = (
            "groups",
            "describe",
            self.application_id,
            "-b",
            self.cluster.address,
            "--view",
            "members",
            "--verbose",
        )
        done = run_command(*shown, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["topology_epoch"] for line in done.stdout.splitlines()]

    def logged(self, task: str) -> int:
        """How many records the changelogs of an active task have."""
        name, _, partition = task.rpartition("_")
        stores = next(part.stores for part in flights_v2.topology.subtopologies if part.id == name)
        return sum(self.changelog_ends(store.name)[int(partition)] for store in stores)

    def changelog_ends(self, store: str) -> dict[int, int]:
        ends = self.cluster.ends(f"{self.application_id}-{store}-changelog")
        return {partition: end for (_, partition), end in ends.items()}


def parts(first: int, second: int, count: int) -> list[tuple[slice, slice]]:
    """Two inputs cut into the same number of parts."""
    cuts = [[size * index // count for index in range(count + 1)] for size in (first, second)]
    return [(slice(*one), slice(*two)) for one, two in zip(pairwise(cuts[0]), pairwise(cuts[1]), strict=True)]


def partitions_of(tasks: set[str], subtopology_id: str) -> set[int]:
    """The partitions of the tasks of one subtopology."""
    found = (task.rpartition("_") for task in tasks)
    return {int(partition) for name, _, partition in found if name == subtopology_id}


def observations(limit: int) -> list[Row]:
    """The first observations of 2013, airport by airport within the hour."""
    with (expected._data_folder() / "weather.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["time_hour"])[:limit]
    return [_observation(row) for row in rows]


def _observation(row: dict[str, str]) -> Row:
    hour = datetime.fromisoformat(row["time_hour"])
    value = {
        "wind": None if row["wind_speed"] == "NA" else float(row["wind_speed"]),
        "visibility": None if row["visib"] == "NA" else float(row["visib"]),
    }
    return Row(row["origin"].encode(), json.dumps(value).encode(), int(hour.timestamp()) * 1000)


def weather_by_day(rows: Sequence[Row]) -> dict[Place, dict[str, object]]:
    """For each airport and day what version 2 writes last."""
    found: dict[Place, list[dict[str, float | None]]] = {}
    for row in rows:
        assert row.key is not None
        assert row.value is not None
        found.setdefault((row.key.decode(), row.timestamp // DAY_MS * DAY_MS), []).append(json.loads(row.value))
    return {place: _day(hours) for place, hours in found.items()}


def _day(hours: list[dict[str, float | None]]) -> dict[str, object]:
    winds = [hour["wind"] for hour in hours if hour["wind"] is not None]
    sights = [hour["visibility"] for hour in hours if hour["visibility"] is not None]
    return {"hours": len(hours), "strongest_wind": max(winds), "lowest_visibility": min(sights)}
