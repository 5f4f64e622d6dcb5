"""How many records a second ``TopologyTestDriver`` takes: ``python -m tests.bench.bench_driver [--rounds 5] [name ...]``.

Scope: from ``pipe_input`` to the records of the output topic, strings as keys and values, a commit after each record as in
users' tests. ``begin`` is the making of a driver, in milliseconds. CPU time of this process, medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from streamsrt import TopologyTestDriver
from tests.bench.measure import compare
from topology import StreamsBuilder, TimeWindows, Topology, serdes

RECORDS = 2_000
KEYS = 100
TEXT = serdes.string
Partitions = int | dict[str, int]


def mapped(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.filter(lambda _, v: v != "x").map_values(lambda v: v.upper()).to("out", value=TEXT)


def counted(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.group_by_key().count(store="counts").to_stream().to("out", value=serdes.long)


def windowed(builder: StreamsBuilder) -> None:
    windows = TimeWindows(60_000, grace=30_000)
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(windows).count(store="counts")
    counts.to_stream().to("out", key=serdes.time_windowed(TEXT, 60_000), value=serdes.long)


def joined(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    table = builder.table("table", key=TEXT, value=TEXT, store="table")
    stream.left_join(table, lambda left, right: f"{left}{right}").to("out", value=TEXT)


def words(builder: StreamsBuilder) -> None:
    lines = builder.stream("in", key=TEXT, value=TEXT)
    grouped = lines.flat_map_values(lambda line: [line, line[:3]]).group_by(lambda _, word: word, key=TEXT)
    grouped.count(store="counts").to_stream().to("out", value=serdes.long)


PROGRAMS: dict[str, tuple[Callable[[StreamsBuilder], None], Partitions]] = {
    "map": (mapped, 1),
    "count": (counted, 1),
    "count, 4 partitions": (counted, 4),
    "tumbling count": (windowed, 1),
    "stream-table join": (joined, 1),
    "group by words, count": (words, 1),
}


def topology_of(name: str) -> Topology:
    builder = StreamsBuilder()
    PROGRAMS[name][0](builder)
    return builder.build()


def piped(name: str, records: int = RECORDS) -> Callable[[], int]:
    """A run with a driver of its own; it returns the number of outputs."""
    topology, partitions = topology_of(name), PROGRAMS[name][1]
    rows = [(f"key{number % KEYS}", f"value{number}") for number in range(records)]

    def run() -> int:
        with TopologyTestDriver(topology, partitions=partitions) as driver:
            topic = driver.create_input_topic("in", TEXT, TEXT, auto_advance_ms=1)
            for key, value in rows:
                topic.pipe_input(key, value)
            return len(driver.output_queue("out"))

    return run


def begun(name: str) -> Callable[[], None]:
    topology = topology_of(name)
    return lambda: TopologyTestDriver(topology, partitions=PROGRAMS[name][1]).close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_driver")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(PROGRAMS)}; all without")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    names = given.names or list(PROGRAMS)
    variants: dict[str, Callable[[], object]] = {}
    for name in names:
        variants |= {name: piped(name), f"{name}, begin": begun(name)}
    seconds = compare(variants, given.rounds, clock=time.process_time)
    print(f"{'':24}{'records / CPU s':>16}{'begin, ms':>12}")
    for name in names:
        print(f"{name:24}{RECORDS / seconds[name]:16,.0f}{seconds[f'{name}, begin'] * 1e3:12.2f}")


if __name__ == "__main__":
    main()
