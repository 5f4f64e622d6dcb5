"""What runs in the storms, what it is fed, and what must have come out of it.

1. Exactly once: the outputs read committed are the expected ones, each once, and those of a key in the expected order.
2. At least once: every expected output is there; some may be there twice.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from examples.wordcount import words_of
from tests.system import expected, joins_app
from tests.system.cluster import Cluster, Record, Row, last_values

K = TypeVar("K")

PARTITIONS = 4
AUTHORS = 20
Feed = Sequence[tuple[str, Row]]
Updates = dict[K, list[int]]


class Verdict(NamedTuple):
    """What to look at the outputs with: ``application_id``, and what was written."""

    cluster: Cluster
    application_id: str
    fed: Feed
    exactly_once: bool


class Program(NamedTuple):
    """``module`` reads ``inputs`` and the topics ``internal``, before which its application id stands, and writes
    ``outputs``. ``prepare`` fills what must be there before."""

    name: str
    module: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    internal: Sequence[str]
    feed: Callable[[int], Feed]
    prepare: Callable[[Cluster], None]
    check: Callable[[Verdict], None]


def values_of(fed: Feed, topic: str) -> list[Row]:
    return [row for name, row in fed if name == topic]


def _text(data: bytes | None) -> str:
    assert data is not None
    return data.decode()


# -------------------------------------------------------------------------------------------------------------- words


def _lines(count: int) -> Feed:
    lines = itertools.islice(itertools.cycle(expected.text_lines()), count)
    return [("lines", row) for row in expected.line_rows(lines)]


def _check_words(verdict: Verdict) -> None:
    cluster = verdict.cluster
    lines = [_text(row.value) for _, row in verdict.fed]
    exact = Counter(word for line in lines for word in words_of(line))
    assert Counter(record.value for record in cluster.read("lines")) == Counter(line.encode() for line in lines)
    repartition = cluster.read(f"{verdict.application_id}-counts-repartition")
    repartitioned = Counter(_text(record.key) for record in repartition)
    too_many, lost = (repartitioned - exact).total(), (exact - repartitioned).total()
    assert not lost, f"{lost} words are lost"
    updates: Updates[str] = defaultdict(list)
    for record in cluster.read("word-counts"):
        assert record.value is not None
        updates[_text(record.key)].append(int.from_bytes(record.value, "big"))
    if verdict.exactly_once:
        assert not too_many, f"{too_many} words are there twice"
        assert_counted_once(updates, exact)
    else:
        assert_counted_at_least_once(updates, exact)


# ------------------------------------------------------------------------------------------------------------ windows


def _departures(count: int) -> Feed:
    return [("departures", row) for row in expected.departure_rows(expected.departures(count))]


def _departure(record: Record) -> expected.Departure:
    assert record.value is not None
    return expected.Departure(_text(record.key), json.loads(record.value)["delay"], record.timestamp, record.value)


def _check_windows(verdict: Verdict) -> None:
    """By what lies in the topic: of records as old as these Apache Kafka forgets in a restart who wrote them, and takes a
    batch that the feeder sends again for a new one."""
    written = verdict.cluster.read("departures")
    lost = Counter(row.value for _, row in verdict.fed) - Counter(record.value for record in written)
    assert not lost, f"{lost.total()} departures are lost"
    exact = expected.delays_by_hour([_departure(record) for record in written])
    last: dict[tuple[str, int], dict[str, object]] = {}
    updates: Updates[tuple[str, int]] = defaultdict(list)
    for record in verdict.cluster.read("delays"):
        assert record.key is not None
        assert record.value is not None
        place, delays = expected.windowed_key(record.key), json.loads(record.value)
        updates[place].append(delays["departures"])
        last[place] = delays
    counts = {place: int(str(sums["departures"])) for place, sums in exact.items()}
    if verdict.exactly_once:
        assert_counted_once(updates, counts)
        assert last == exact
    else:
        assert_counted_at_least_once(updates, counts)


# -------------------------------------------------------------------------------------------------------------- joins


def _sides(count: int) -> Feed:
    """Groups of six records of streams that share a key, and between them rows of tables that change often."""
    chance = random.Random(count)
    now_ms = time.time_ns() // 1_000_000
    feed: list[tuple[str, Row]] = []
    for number in range(count):
        if number % 8 < 6:
            topic, key = chance.choice((joins_app.LEFTS, joins_app.RIGHTS)), f"key-{number // 8}"
            value = f"{number}"
        elif number % 8 == 6:
            topic, key = joins_app.BOOKS, f"book-{chance.randrange(200)}"
            value = f"author-{chance.randrange(AUTHORS)}/{number}"
        else:
            topic, key, value = joins_app.AUTHORS, f"author-{chance.randrange(AUTHORS)}", f"name-{number}"
        feed.append((topic, Row(key.encode(), value.encode(), now_ms + number)))
    return feed


def _first_authors() -> list[Row]:
    """There is an author for each book, from the start. An inner join, as that of Kafka Streams, does not take a row back
    whose author was changed to one that there is not and which changes again before the answer to that has come."""
    return [Row(f"author-{number}".encode(), b"nobody", 1) for number in range(AUTHORS)]


def _write_authors(cluster: Cluster) -> None:
    cluster.write(joins_app.AUTHORS, _first_authors(), PARTITIONS)


def _check_joins(verdict: Verdict) -> None:
    rights: dict[str, list[str]] = defaultdict(list)
    for row in values_of(verdict.fed, joins_app.RIGHTS):
        rights[_text(row.key)].append(_text(row.value))
    exact = Counter(
        joins_app.pair(_text(row.value), right)
        for row in values_of(verdict.fed, joins_app.LEFTS)
        for right in rights[_text(row.key)]
    )
    pairs = Counter(_text(record.value) for record in verdict.cluster.read(joins_app.PAIRS))
    assert not exact - pairs, f"{(exact - pairs).total()} pairs are lost, for example {list(exact - pairs)[:3]}"
    if verdict.exactly_once:
        assert not pairs - exact, f"{(pairs - exact).total()} pairs too many, for example {list(pairs - exact)[:3]}"
    _check_shelf(verdict, verdict.cluster.read(joins_app.SHELF))


def _check_shelf(verdict: Verdict, found: Sequence[Record]) -> None:
    authors = {_text(row.key): _text(row.value) for row in _first_authors()}
    authors |= {_text(row.key): _text(row.value) for row in values_of(verdict.fed, joins_app.AUTHORS)}
    books = {_text(row.key): _text(row.value) for row in values_of(verdict.fed, joins_app.BOOKS)}
    exact = {key: joins_app.on_the_shelf(book, authors[joins_app.author_of(book)]) for key, book in books.items()}
    if verdict.exactly_once:
        last = {_text(key): value.decode() for key, value in last_values(found).items() if value is not None}
        wrong = {key: (last.get(key), exact.get(key)) for key in books if last.get(key) != exact.get(key)}
        assert not wrong, f"{len(wrong)} of {len(books)} books (found, expected): {dict(list(wrong.items())[:3])}"
    else:
        seen = {(_text(record.key), record.value) for record in found}
        lost = [key for key, value in exact.items() if (key, value.encode()) not in seen]
        assert not lost, f"{len(lost)} of {len(books)} books are not joined with their last author: {lost[:5]}"


# -------------------------------------------------------------------------------------------------------------- checks


def assert_counted_once(updates: Mapping[K, Iterable[int]], exact: Mapping[K, int]) -> None:
    """The updates of every key are exactly 1 to n."""
    wrong = {key: found for key, found in updates.items() if found != list(range(1, exact.get(key, 0) + 1))}
    assert not wrong, f"{len(wrong)} of {len(exact)} keys are wrong, for example {_steps(wrong)}"
    assert_none_missing(updates, exact)


def _steps(wrong: Mapping[K, Iterable[int]]) -> list[tuple[K, str]]:
    """Where the first of them leave the row."""
    found = []
    for key, values in itertools.islice(wrong.items(), 3):
        numbers = list(values)
        step = next((i for i, number in enumerate(numbers) if number != i + 1), len(numbers))
        found.append((key, f"{len(numbers)} updates, at {step}: {numbers[max(0, step - 2) : step + 5]}"))
    return found


def assert_counted_at_least_once(updates: Mapping[K, Iterable[int]], exact: Mapping[K, int]) -> None:
    """The updates of every key reach n."""
    assert_none_missing(updates, exact)
    short = {key: (max(updates[key]), count) for key, count in exact.items() if max(updates[key]) < count}
    assert not short, f"{len(short)} of {len(exact)} keys are counted short: {dict(list(short.items())[:3])}"


def assert_none_missing(updates: Mapping[K, Iterable[int]], exact: Mapping[K, int]) -> None:
    missing = exact.keys() - updates.keys()
    assert not missing, f"{len(missing)} of {len(exact)} keys never came out, for example {list(missing)[:5]}"


def _nothing(cluster: Cluster) -> None:
    pass


def _write_airlines(cluster: Cluster) -> None:
    cluster.write("airlines", expected.airline_rows(), PARTITIONS)


WORDS = Program(
    "words", "examples.wordcount", ("lines",), ("word-counts",), ("counts-repartition",), _lines, _nothing, _check_words
)
WINDOWS = Program(
    "windows",
    "examples.flights",
    ("departures", "airlines"),
    ("delays",),
    (),
    _departures,
    _write_airlines,
    _check_windows,
)
JOINS = Program(
    "joins",
    "tests.system.joins_app",
    (joins_app.LEFTS, joins_app.RIGHTS, joins_app.BOOKS, joins_app.AUTHORS),
    (joins_app.PAIRS, joins_app.SHELF),
    joins_app.INTERNAL,
    _sides,
    _write_authors,
    _check_joins,
)
PROGRAMS = {program.name: program for program in (WORDS, WINDOWS, JOINS)}
