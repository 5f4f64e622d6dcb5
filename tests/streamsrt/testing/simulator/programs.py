"""Applications that are simulated, and what goes into them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from streamsrt.testing.simulator import Faults, Input, Inputs, Output, Outputs, uninterrupted
from streamsrt.testing.simulator.invariants import compare
from topology import EmitStrategy, StreamsBuilder, Suppressed, TimeWindows, serdes
from topology.graph.topology import Topology

EXACTLY_ONCE: dict[str, Any] = {"processing.guarantee": "exactly_once_v2"}
AT_LEAST_ONCE: dict[str, Any] = {}

_WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "tis", "nobler", "in", "mind"]


def word_count() -> Topology:
    """Two subtopologies with a repartition topic between them, and a store with a changelog."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(lambda line: re.findall("[a-z]+", line))
        .group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
        .count(store="counts")
        .to_stream()
        .to("word-counts", key=serdes.string, value=serdes.long)
    )
    return builder.build()


LINES: Inputs = {
    "lines": [
        Input(b"%d" % (n % 7), f"{_WORDS[n % len(_WORDS)]} {_WORDS[n * 7 % len(_WORDS)]}", 1_000 + n * 10)
        for n in range(60)
    ]
}


@lru_cache
def counted(*, exactly_once: bool) -> Outputs:
    """What the word count gives when nothing goes wrong."""
    return uninterrupted(word_count(), inputs=LINES, config=EXACTLY_ONCE if exactly_once else AT_LEAST_ONCE)


def passed_on() -> Topology:
    """Stateless."""
    builder = StreamsBuilder()
    builder.stream("lines", value=serdes.string).map_values(str.upper).to("loud", value=serdes.string)
    return builder.build()


def joined() -> Topology:
    """A stream with a table, and what comes of it summed up: a store in each of two subtopologies."""
    builder = StreamsBuilder()
    users = builder.table("users", key=serdes.string, value=serdes.string, store="users")
    (
        builder.stream("clicks", key=serdes.string, value=serdes.long)
        .left_join(users, lambda amount, city: f"{city}:{amount}")
        .map(lambda _, text: (text.partition(":")[0], int(text.partition(":")[2])))
        .group_by_key(key=serdes.string, value=serdes.long)
        .aggregate(lambda: 0, lambda _, amount, total: total + amount, store="totals", value=serdes.long)
        .to_stream()
        .to("totals-by-city", key=serdes.string, value=serdes.long)
    )
    return builder.build()


def windowed(*, on_close: bool) -> Topology:
    """Windows whose result is given when they close: by the aggregation, or by a buffer with a changelog."""
    builder = StreamsBuilder()
    windows = builder.stream("lines", value=serdes.string).group_by_key().windowed_by(TimeWindows(100))
    if on_close:
        counts = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="per-window")
    else:
        counts = windows.count(store="per-window").suppress(Suppressed.until_window_closes(), name="held")
    (
        counts.to_stream()
        .map(lambda window, count: (f"{window.key.decode()}@{window.start_ms}", count))
        .to("window-counts", key=serdes.string, value=serdes.long)
    )
    return builder.build()


CLICKS: Inputs = {
    "users": [Input(f"user{n % 5}", f"city{n % 3}", 900 + n * 40) for n in range(12)],
    "clicks": [Input(f"user{n % 5}", n, 1_000 + n * 10) for n in range(40)],
}


def conserved(outputs: Outputs, expected: Outputs) -> str | None:
    """Whatever city a click was counted for, which depends on what came first: no click is lost, none counts twice."""
    found, wanted = (sum(_last(each).values()) for each in (outputs, expected))
    return None if found == wanted else f"the cities have {found} in total, instead of {wanted}"


def as_many(outputs: Outputs, expected: Outputs) -> str | None:
    """At least once: every click gives a total of some city."""
    found, wanted = (sum(map(len, each.values())) for each in (outputs, expected))
    return None if found >= wanted else f"{found} totals, expected {wanted} at least"


def all_there(outputs: Outputs, expected: Outputs) -> str | None:
    """At least once, of a program without state: each result is there, with its time. Numbers of results don't tell: another
    one may be there twice."""
    for topic, wanted in expected.items():
        lost = Counter(map(_timed, wanted)) - Counter(map(_timed, outputs[topic]))
        if lost:
            return f"{topic}: {min(lost)} is lost"
    return None


def as_high(outputs: Outputs, expected: Outputs) -> str | None:
    """The last count of each key is as high as it is to be, at least."""
    for topic, wanted in expected.items():
        last = {record.key: int.from_bytes(record.value or b"") for record in outputs[topic]}
        for record in wanted:
            if last.get(record.key, 0) < int.from_bytes(record.value or b""):
                return (
                    f"{topic}: the last count of {record.key!r} is {last.get(record.key)}, which has {record.value!r}"
                )
    return None


def same_times(outputs: Outputs, expected: Outputs) -> str | None:
    """The values of each key are those of the other run, and the time of the last one is. Those before depend on the order
    in which records of several partitions come, as the latest time so far."""
    for topic, wanted in expected.items():
        ours, theirs = ({record.key: _timed(record) for record in each} for each in (outputs[topic], wanted))
        if ours != theirs:
            return f"{topic}: {min(ours.items() ^ theirs.items())} differs"
    return compare("each", outputs, expected)


def _timed(record: Output) -> tuple[bytes, bytes, int]:
    return record.key or b"", record.value or b"", record.timestamp


def cached_counts() -> Topology:
    """Counts per key and per window, out of caches: what is shown is what there was at a commit."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(lambda line: re.findall("[a-z]+", line))
        .group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
        .windowed_by(TimeWindows(200, grace=10_000))
        .count(store="per-window")
        .to_stream()
        .map(lambda window, count: (f"{window.key}@{window.start_ms}", count))
        .to("window-counts", key=serdes.string, value=serdes.long)
    )
    builder.stream("numbers").group_by_key().count(store="counts").to_stream().to("counts", value=serdes.long)
    return builder.build()


COUNTED: Inputs = {**LINES, "numbers": [Input(b"%d" % (n % 11), b"", 1_000 + n) for n in range(80)]}


def same_in_the_end(outputs: Outputs, expected: Outputs) -> str | None:
    """The last result of each key is right, and no result of a key is below the one before it."""
    for topic, wanted in expected.items():
        last: dict[bytes | None, int] = {}
        for record in outputs[topic]:
            count = int.from_bytes(record.value or b"")
            if count < last.get(record.key, 0):
                return f"{topic}: {record.key!r} goes back from {last[record.key]} to {count}"
            last[record.key] = count
        right = {record.key: int.from_bytes(record.value or b"") for record in wanted}
        if last != right:
            return f"{topic}: {sorted(last.items() ^ right.items(), key=str)} differ"
    return None


def _last(outputs: Outputs) -> dict[bytes | None, int]:
    return {record.key: int.from_bytes(record.value or b"") for record in outputs["totals-by-city"]}


class Program(NamedTuple):
    """``exactly_once``, ``at_least_once``: what else a simulation of it is given under each guarantee."""

    topology: Callable[[], Topology]
    inputs: Inputs
    exactly_once: dict[str, Any]
    at_least_once: dict[str, Any]


PROGRAMS = {
    "word count": Program(word_count, LINES, {"check": same_times}, {}),
    "stateless": Program(
        passed_on,
        LINES,
        {"faults": Faults(growths=1.0), "check": same_times},
        {"faults": Faults(growths=1.0), "check": all_there},
    ),
    "join": Program(joined, CLICKS, {"check": conserved}, {"check": as_many}),
    "on close": Program(partial(windowed, on_close=True), LINES, {"check": same_times}, {}),
    "suppressed": Program(partial(windowed, on_close=False), LINES, {"check": same_times}, {}),
    "cached": Program(cached_counts, COUNTED, {"check": same_in_the_end}, {}),
}


def expected(name: str, config: Mapping[str, Any]) -> Outputs:
    """What a program gives when nothing goes wrong: found once for all parts of its seeds."""
    return _uninterrupted(name, tuple(sorted(config.items())))


@lru_cache
def _uninterrupted(name: str, settings: tuple[tuple[str, Any], ...]) -> Outputs:
    program = PROGRAMS[name]
    return uninterrupted(program.topology(), inputs=program.inputs, config=dict(settings))
