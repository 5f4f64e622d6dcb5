"""Windows, suppression, joins, processors and a word count, end to end: beside Java's Kafka Streams and quixstreams.

    python -m tests.bench.bench_operators_end_to_end [--quick] [--peers ours,bundled,java,quix] [--operators hopping,...]
                                                     [--records N] [--rounds 3] [--cache-max-bytes 67108864]

As :mod:`tests.bench.bench_end_to_end`: on one Apache Kafka (``bundled``: on the bundled broker), CPU time of the client's
process, peers that take turns, outputs read by another client and compared with an independent computation. Java runs the
same topologies with the same settings, one thread, and record caches of the same size (:data:`CACHE_MAX_BYTES`). It is
compared by the second half of the records (``warm``), which ends with the last commit and the closing of the client. Rates
count input records, those of both sides of a join, but not those of a global table; for the word count these are lines.
Java has neither as-of joins nor rows that expire.

A program with internal topics reads its input first and the internal topics later, so its halves are not alike. It runs
twice, with half of the records and with all of them; the difference is taken for the second half. While Java waits for more
records of a foreign-key join, its CPU time does not count.

Each operator has a default number of records that keeps Java busy for a quarter of a minute. With fewer, Java's figure
measures its compiler, and this runtime's mostly the last commit. ``outputs / record`` depends on the wall clock where caches
forward a row once per commit.

quixstreams has only some of the operators; its joins are ``join_asof`` and ``join_interval``. It gets a fifth of the
records. Its sliding windows are defined differently, so they are not compared.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamsrt.wire.records import encode_batch
from tests.bench.bench_end_to_end import LOAD_BATCH_RECORDS, SHARES, Cluster, Result, clusters, median, table
from tests.bench.peer_programs import Mark, PeerProgram, UnfinishedError, file_name, prepare, say
from tests.bench.peers import operator_data
from tests.bench.peers.data import Columns, difference

TITLES = {
    "stream-stream": "Join of two streams, 200 ms apart at most",
    "sliding": "Sliding count, 2 s",
    "session": "Session count, gap of 2 s",
    "suppress": "Tumbling count, 5 s, suppressed until windows close",
    "words": "Word count, lines of 12 words",
    "hopping": "Hopping count, 60 s every 15 s",
    "stream-table": "Join of a stream with a table of 10,000 rows",
    "foreign-key": "Join of two tables on a foreign key",
    "table-table": "Join of two tables",
    "global": "Join of a stream with a global table of 10,000 rows",
    "versioned": "Join of a stream with a versioned table that changes all the time",
    "grace": "The same with a grace period of 1 s",
    "processor": "Processor with a store: get, put and forward for each record",
    "as-of": "As-of join of two streams, 10 s apart at most",
    "ttl": "Count per key, whose rows expire after 5 s",
}
RECORDS = {
    "stream-stream": 400_000,
    "sliding": 200_000,
    "session": 400_000,
    "suppress": 1_000_000,
    "words": 80_000,
    "hopping": 400_000,
    "stream-table": 1_000_000,
    "foreign-key": 400_000,
    "table-table": 1_000_000,
    "global": 1_000_000,
    "versioned": 400_000,
    "grace": 300_000,
    "processor": 1_000_000,
    "as-of": 300_000,
    "ttl": 400_000,
}
"""Of each stream."""
RECORDS_MIN = 40_000
"""Ten seconds in each partition."""
LINES_MIN = 2_000
WITH_INTERNAL_TOPICS = {"words", "foreign-key"}
JAVA_HAS = TITLES.keys() - {"as-of", "ttl"}
QUIX_HAS = {"hopping", "session", "suppress", "stream-table", "stream-stream"}
CACHE_MAX_BYTES = 64 << 20
"""This runtime's default; Java's is 10 MiB."""
END_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Pass:
    """A program from its start to its end. ``warm_per_cpu_s``: None where nothing tells the halves apart."""

    records: int
    cpu_s: float
    wall_s: float
    warm_per_cpu_s: float | None
    outputs: int
    wrong: str
    peak_bytes: int

    def result(self, warm_per_cpu_s: float | None, wrong: str) -> Result:
        return Result(self.records / self.cpu_s, warm_per_cpu_s, self.wall_s, self.outputs, wrong, self.peak_bytes)


def second_half(seen: Sequence[Mark], end: Mark) -> float | None:
    """Records per CPU second from the first look behind half of them; None where no look was in time."""
    for look in seen:
        if end.records <= 2 * look.records < 2 * end.records:
            return (end.records - look.records) / max(1e-3, end.cpu_s - look.cpu_s)
    return None


def beyond(whole: Pass, half: Pass) -> float:
    """Records per CPU second of the records that only the longer run had; not a number where it took no longer."""
    more_s = whole.cpu_s - half.cpu_s
    return (whole.records - half.records) / more_s if more_s > 0 else math.nan


class Site:
    """A broker with its inputs, and a folder for the state of programs."""

    def __init__(self, cluster: Cluster, folder: Path, cache_max_bytes: int) -> None:
        self.cluster = cluster
        self._folder = folder
        self._cache_max_bytes = cache_max_bytes
        self._loaded: set[str] = set()

    def measure(self, peer: str, operator: str, records: int, name: str) -> Result:
        """One run, checked; with internal topics, two."""
        try:
            if operator not in WITH_INTERNAL_TOPICS:
                only = self._run(peer, operator, records, name)
                return only.result(only.warm_per_cpu_s, only.wrong)
            half = self._run(peer, operator, records // 2, f"{name}-half")
            whole = self._run(peer, operator, records, name)
        except UnfinishedError as error:
            return Result(math.nan, None, math.nan, 0, str(error))
        return whole.result(beyond(whole, half), whole.wrong or half.wrong)

    def _run(self, peer: str, operator: str, records: int, name: str) -> Pass:
        application = f"{name}-{operator}-{file_name(peer)}"
        sink, state = f"out-{application}", self._folder / application
        topics = operator_data.inputs(operator, records)
        for topic, columns in topics.items():
            self._load(topic, columns)
        total = sum(len(keys) for columns in topics.values() for keys, _, _ in columns)
        if operator == "global":
            # Which is read before the first record is processed.
            total = records
        # Each word goes through a topic in between.
        awaited = total * (1 + operator_data.LINE_WORDS) if operator == "words" else total
        arguments = [self.cluster.address, operator, ",".join(topics), sink, application, str(awaited), str(state)]
        if peer != "quix":
            arguments.append(f"statestore.cache.max.bytes={self._cache_max_bytes}")
        self.cluster.make_topic(sink)
        state.mkdir()
        try:
            with PeerProgram(peer, arguments, self._folder / "program.log") as program:
                program.wait_for("END", END_TIMEOUT_S)
            outputs, got = operator_data.summarised(peer, operator, self.cluster.read(sink))
        finally:
            self.cluster.delete_topics(application)
            shutil.rmtree(state, ignore_errors=True)
        start, end, quiet = program.marks["START"], program.marks["END"], program.marks.get("QUIET")
        waited_s = quiet.cpu_s - program.seen[-1].cpu_s if quiet is not None and program.seen else 0.0
        return Pass(
            records=total,
            cpu_s=end.cpu_s - start.cpu_s - waited_s,
            wall_s=end.at_s - start.at_s,
            warm_per_cpu_s=second_half(program.seen, end),
            outputs=outputs,
            wrong=difference(operator_data.expected(operator, records), got),
            peak_bytes=program.peak_bytes,
        )

    def _load(self, topic: str, columns: tuple[Columns, ...]) -> None:
        """Writes an input, the first time."""
        if topic in self._loaded:
            return
        self.cluster.make_topic(topic)
        for partition, (keys, values, timestamps) in enumerate(columns):
            for start in range(0, len(keys), LOAD_BATCH_RECORDS):
                some = slice(start, start + LOAD_BATCH_RECORDS)
                batch = encode_batch(keys[some], values[some], timestamps[some])
                self.cluster.send(topic, partition, batch, len(keys[some]))
        self.cluster.flush()
        self._loaded.add(topic)


def records_of(peer: str, operator: str, given: argparse.Namespace) -> int:
    """How many records each stream has."""
    wanted = given.records or RECORDS[operator]
    if operator == "words":
        return max(LINES_MIN, wanted // 5 if given.records else wanted)
    return max(RECORDS_MIN, int(wanted * SHARES["quix"]) if peer == "quix" else wanted)


def beside_java(results: dict[str, dict[str, list[Result]]]) -> str:
    """Markdown: this runtime's second halves over Java's."""
    lines = [
        "| operator, second half | streamsrt, records / CPU s | Java | x Java | streamsrt, peak MB | Java | outputs |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for operator, of_peers in results.items():
        if "java" not in of_peers:
            continue
        runs = [of_peers["ours"], of_peers["java"]]
        warm = [median(run.warm_per_cpu_s or math.nan for run in of_peer) for of_peer in runs]
        peaks = [max(run.peak_bytes for run in of_peer) for of_peer in runs]
        correct = not any(run.wrong for of_peer in runs for run in of_peer)
        cells = [
            TITLES[operator],
            *(f"{rate:,.0f}" for rate in warm),
            f"{warm[0] / warm[1]:.2f}",
            *(f"{peak / 1e6:,.0f}" for peak in peaks),
            "correct" if correct else "WRONG",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_operators_end_to_end")
    parser.add_argument("--peers", default="ours,bundled,java,quix", help="of ours, bundled, native, java, quix")
    parser.add_argument("--operators", default=",".join(TITLES), help=f"of {', '.join(TITLES)}")
    parser.add_argument("--records", type=int, help="of each stream, instead of 200000 to 1000000; of lines a fifth")
    parser.add_argument("--rounds", type=int, help="how often (3)")
    parser.add_argument("--quick", action="store_true", help="100000 records, one round")
    parser.add_argument(
        "--cache-max-bytes",
        type=int,
        default=CACHE_MAX_BYTES,
        help="statestore.cache.max.bytes (67108864; not of quix)",
    )
    given = parser.parse_args(arguments)
    given.records = given.records or (100_000 if given.quick else None)
    given.rounds = given.rounds or (1 if given.quick else 3)
    for option, names, known in (
        ("--peers", given.peers, ("ours", "bundled", "native", "java", "quix")),
        ("--operators", given.operators, tuple(TITLES)),
    ):
        unknown = {name.partition("@")[0] for name in names.split(",")}.difference(known)
        if unknown:
            parser.error(f"{option}: {', '.join(sorted(unknown))} is none of {', '.join(known)}")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Prints a table per operator; the result is the number of runs whose outputs were wrong."""
    given = options(arguments)
    peers, operators = given.peers.split(","), given.operators.split(",")
    lacks = {"java": TITLES.keys() - JAVA_HAS, "quix": TITLES.keys() - QUIX_HAS}
    compared = {name: [peer for peer in peers if name not in lacks.get(peer, ())] for name in operators}
    records = {name: {peer: records_of(peer, name, given) for peer in compared[name]} for name in operators}
    results: dict[str, dict[str, list[Result]]] = {name: {peer: [] for peer in compared[name]} for name in operators}
    for peer in peers:
        prepare(peer)
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(peers, folder) as where:
            sites = {cluster: Site(cluster, folder, given.cache_max_bytes) for cluster in set(where.values())}
            for number in range(given.rounds):
                for operator in operators:
                    for peer in compared[operator]:
                        site = sites[where[peer]]
                        run = site.measure(peer, operator, records[operator][peer], f"run{number}")
                        results[operator][peer].append(run)
                        warm = "" if run.warm_per_cpu_s is None else f"warm {run.warm_per_cpu_s:,.0f}, "
                        say(
                            f"round {number + 1} {operator} {peer}: {run.per_cpu_s:,.0f} records per CPU second, "
                            f"{warm}{run.wall_s:.1f} s {run.wrong}"
                        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(name, results[name], records[name], TITLES[name]) for name in operators))
    if {"ours", "java"} <= set(peers):
        print("\n" + beside_java(results))
    return sum(bool(run.wrong) for runs in results.values() for each in runs.values() for run in each)


if __name__ == "__main__":
    sys.exit(main())
