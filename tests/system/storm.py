"""Instances and brokers that are killed at random moments while input comes in; and what must have come out.

1. The seed decides what is killed and after how long. Where exactly that hits is the machine's choice: a run that went wrong
   is repeated by its seed, not record for record.
2. A killed instance starts again at once on its own state, or only after the next blow, so that the other one takes over.
   Some are stopped instead, so that they hand their tasks over in good order.
3. A killed broker starts again at once, with its data. Apache Kafka is stopped, not killed: a single node that was killed is
   fenced by its own controller while it starts, has no leaders then, and skips the markers of the transactions that it ends
   in that time ("these partitions are likely deleted already"): they hang for ever, whoever the client is.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from streamsrt.errors import StreamsError
from tests.kafka_server import KafkaServer
from tests.system import expected
from tests.system.cluster import Cluster, Record, Row, connected
from tests.system.processes import AppProcess

K = TypeVar("K")

PARTITIONS = 4
EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    "transaction.timeout.ms": 4_000,
    # Results are written at once and committed much later: a blow seldom finds nothing that is undecided.
    "linger.ms": 0,
    "commit.interval.ms": 400,
    "statestore.cache.max.bytes": 0,
    "repartition.purge.interval.ms": 3_600_000,
}
PATIENCE_S = 120.0
CHUNK, PAUSE_S = 50, 0.1
LONGEST_S = 1.0
BLOWS = ("instance", "instance", "takeover", "broker", "stop")


class Feeder:
    """Writes rows in small pieces on a thread of its own, over a connection of its own, until it is told to stop.
    ``written`` of them are acknowledged; no other was sent."""

    def __init__(self, cluster: Cluster, topic: str, rows: Sequence[Row]) -> None:
        self.written = 0
        self._cluster = cluster
        self._topic = topic
        self._rows = rows
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with connected(self._cluster.server) as cluster:
                while self.written < len(self._rows) and not self._stop.wait(PAUSE_S):
                    part = self._rows[self.written : self.written + CHUNK]
                    cluster.write(self._topic, part, PARTITIONS)
                    self.written += len(part)
        except (StreamsError, AssertionError) as error:
            self._failure = error

    def finish(self) -> int:
        """Stops; how many rows are written."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.written


class Storm:
    """Blows on two instances and the broker. Each comes at a random moment while what it hits is at work."""

    def __init__(self, seed: int, cluster: Cluster, instances: Sequence[AppProcess]) -> None:
        self._random = random.Random(seed)
        self._cluster = cluster
        self._instances = instances
        self._down: AppProcess | None = None
        self.blows: Counter[str] = Counter()
        self.rows = 0

    def strike(self) -> None:
        """Waits for a random moment and kills something."""
        blow = self._random.choice(BLOWS)
        self.blows[blow] += 1
        was_down = self.calm_down()
        victim = self._random.choice([each for each in self._instances if each is not was_down])
        self._wait_for_work(victim)
        if blow == "broker":
            server = self._cluster.server
            if isinstance(server, KafkaServer):
                server.stop()
            else:
                server.kill()
            server.start()
        elif blow == "stop":
            assert victim.terminate() == 0, victim.stderr[-4000:]
            victim.start()
        else:
            victim.kill()
            if blow == "takeover":
                self._down = victim
            else:
                victim.start()

    def _wait_for_work(self, victim: AppProcess) -> None:
        before = victim.progress.get("processed_records", 0)
        victim.wait_for(lambda line: line["processed_records"] > before, "it works")
        threading.Event().wait(self._random.uniform(0.0, LONGEST_S))

    def calm_down(self) -> AppProcess | None:
        """Starts what is down; which instance that was."""
        was_down, self._down = self._down, None
        if was_down is not None:
            was_down.start()
        return was_down


def weather(
    seed: int,
    blows: int,
    cluster: Cluster,
    folder: Path,
    application: str,
    application_id: str,
    feed: tuple[str, Sequence[Row]],
    inputs: Sequence[str],
) -> Storm:
    """Runs two instances of an application through a storm, until all input is committed and both have stopped cleanly.
    With an even seed their tasks have standbys."""
    topic, rows = feed
    settings = {**EXACTLY_ONCE, "num.standby.replicas": 1 - seed % 2}
    with ExitStack() as stack:
        instances = [
            stack.enter_context(AppProcess(folder / name, application, application_id, cluster.address, settings))
            for name in ("a", "b")
        ]
        storm = Storm(seed, cluster, instances)
        with Feeder(cluster, topic, rows) as feeder:
            for _ in range(blows):
                storm.strike()
            storm.calm_down()
            storm.rows = feeder.finish()
        cluster.wait_all_committed(application_id, *inputs, timeout_s=PATIENCE_S)
        for each in instances:
            # One that was started by the last blow may not even have its signal handlers yet.
            each.wait_running(tasks=0)
        codes = [each.terminate() for each in instances]
        assert codes == [0, 0], f"exit codes {codes}\n" + "\n".join(each.stderr[-2000:] for each in instances)
        wiped = [line for each in instances for line in each.stderr.splitlines() if "wiped" in line]
        assert not wiped, "state was thrown away:\n" + "\n".join(wiped[:10])
    return storm


def word_counts_in_a_storm(seed: int, blows: int, cluster: Cluster, folder: Path, application_id: str) -> Storm:
    """Each word's counts are 1, 2, 3 and so on up to how often it occurs, each once and in this order."""
    lines = expected.text_lines() * 8
    repartition = f"{application_id}-counts-repartition"
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    feed = ("lines", expected.line_rows(lines))
    storm = weather(seed, blows, cluster, folder, "examples.wordcount", application_id, feed, ("lines", repartition))
    lines = lines[: storm.rows]
    exact = expected.count_words(lines)
    assert Counter(record.value for record in cluster.read("lines")) == Counter(line.encode() for line in lines)
    repartitioned = Counter(key.decode() for key in _keys(cluster.read(repartition)))
    assert repartitioned == exact, (
        f"{(repartitioned - exact).total()} words too many, {(exact - repartitioned).total()} lost"
    )
    updates: dict[str, list[int]] = defaultdict(list)
    for record in cluster.read("word-counts"):
        assert record.key is not None
        assert record.value is not None
        updates[record.key.decode()].append(int.from_bytes(record.value, "big"))
    assert_counted_once(updates, exact)
    return storm


def flights_in_a_storm(seed: int, blows: int, cluster: Cluster, folder: Path, application_id: str) -> Storm:
    """Each hour's departures are counted 1, 2, 3 and so on, each once and in this order, and the last sums are exact."""
    rows = expected.departures(60_000)
    cluster.make_topics(PARTITIONS, "departures", "airlines", "delays")
    cluster.write("airlines", expected.airline_rows(), PARTITIONS)
    feed = ("departures", expected.departure_rows(rows))
    storm = weather(seed, blows, cluster, folder, "examples.flights", application_id, feed, ("departures", "airlines"))
    exact = expected.delays_by_hour(rows[: storm.rows])
    last: dict[tuple[str, int], dict[str, object]] = {}
    updates: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in cluster.read("delays"):
        assert record.key is not None
        assert record.value is not None
        place, delays = expected.windowed_key(record.key), json.loads(record.value)
        updates[place].append(delays["departures"])
        last[place] = delays
    assert_counted_once(updates, {place: int(str(sums["departures"])) for place, sums in exact.items()})
    assert last == exact
    return storm


def assert_counted_once(updates: Mapping[K, list[int]], exact: Mapping[K, int]) -> None:
    """The updates of every key are exactly 1 to n."""
    wrong = {key: found for key, found in updates.items() if found != list(range(1, exact.get(key, 0) + 1))}
    assert not wrong, f"{len(wrong)} of {len(exact)} keys are wrong, for example {list(wrong.items())[:3]}"
    missing = exact.keys() - updates.keys()
    assert not missing, f"{len(missing)} keys never came out, for example {list(missing)[:5]}"


def _keys(records: Iterable[Record]) -> list[bytes]:
    return [record.key for record in records if record.key is not None]
