"""Instances and brokers that are killed at random moments while input comes in; and what must have come out.

1. The seed decides what is killed and after how long. Where exactly that hits is the machine's choice: a run that went wrong
   is repeated by its seed, not record for record.
2. A killed instance starts again at once on its own state, or only after the next blow, so that the other one takes over.
   Some are stopped instead, so that they hand their tasks over in good order.
3. A killed broker starts again at once, with its data.
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
from tests.system import expected
from tests.system.cluster import Cluster, Record, Row, connected
from tests.system.processes import AppProcess

K = TypeVar("K")

PARTITIONS = 4
EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    "transaction.timeout.ms": 4_000,
    "statestore.cache.max.bytes": 0,
    "repartition.purge.interval.ms": 3_600_000,
}
PATIENCE_S = 120.0
CHUNK = 100
SHORTEST_S, LONGEST_S = 0.1, 2.5
BLOWS = ("instance", "instance", "takeover", "broker", "stop")


class Feeder:
    """Writes rows in small pieces on a thread of its own, over a connection of its own, until all are written."""

    def __init__(self, cluster: Cluster, topic: str, rows: Sequence[Row], pause_s: float) -> None:
        self.written = 0
        self._cluster = cluster
        self._topic = topic
        self._rows = rows
        self._pause_s = pause_s
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        pause = threading.Event()
        try:
            with connected(self._cluster.server) as cluster:
                for start in range(0, len(self._rows), CHUNK):
                    part = self._rows[start : start + CHUNK]
                    cluster.write(self._topic, part, PARTITIONS)
                    self.written += len(part)
                    pause.wait(self._pause_s)
        except (StreamsError, AssertionError) as error:
            self._failure = error

    def finish(self) -> None:
        """Wait until everything is written."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class Storm:
    """Blows on two instances and the broker."""

    def __init__(self, seed: int, cluster: Cluster, instances: Sequence[AppProcess]) -> None:
        self._random = random.Random(seed)
        self._cluster = cluster
        self._instances = instances
        self._down: AppProcess | None = None
        self.blows: Counter[str] = Counter()

    def strike(self) -> None:
        """Waits for a random moment and kills something."""
        threading.Event().wait(self._random.uniform(SHORTEST_S, LONGEST_S))
        blow = self._random.choice(BLOWS)
        self.blows[blow] += 1
        if blow == "broker":
            self._cluster.server.kill()
            self._cluster.server.start()
            return
        was_down = self.calm_down()
        victim = self._random.choice([each for each in self._instances if each is not was_down])
        if blow == "stop" and victim.progress.get("state") == "RUNNING":
            assert victim.terminate() == 0, victim.stderr[-4000:]
        victim.kill()
        if blow == "takeover":
            self._down = victim
        else:
            victim.start()

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
    feed: tuple[str, Sequence[Row], float],
    inputs: Sequence[str],
) -> Storm:
    """Runs two instances of an application through a storm, until all input is committed and both have stopped cleanly.
    With an even seed their tasks have standbys."""
    topic, rows, pause_s = feed
    settings = {**EXACTLY_ONCE, "num.standby.replicas": 1 - seed % 2}
    with ExitStack() as stack:
        instances = [
            stack.enter_context(AppProcess(folder / name, application, application_id, cluster.address, settings))
            for name in ("a", "b")
        ]
        storm = Storm(seed, cluster, instances)
        with Feeder(cluster, topic, rows, pause_s) as feeder:
            instances[0].wait_running()
            for _ in range(blows):
                storm.strike()
            storm.calm_down()
            feeder.finish()
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
    lines = expected.text_lines()[: 1_500 + 1_000 * blows]
    repartition = f"{application_id}-counts-repartition"
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    feed = ("lines", expected.line_rows(lines), 0.1)
    storm = weather(seed, blows, cluster, folder, "examples.wordcount", application_id, feed, ("lines", repartition))
    exact = expected.count_words(lines)
    assert Counter(record.value for record in cluster.read("lines")) == Counter(line.encode() for line in lines)
    assert Counter(key.decode() for key in _keys(cluster.read(repartition))) == exact
    updates: dict[str, list[int]] = defaultdict(list)
    for record in cluster.read("word-counts"):
        assert record.key is not None
        assert record.value is not None
        updates[record.key.decode()].append(int.from_bytes(record.value, "big"))
    assert_counted_once(updates, exact)
    return storm


def flights_in_a_storm(seed: int, blows: int, cluster: Cluster, folder: Path, application_id: str) -> Storm:
    """Each hour's departures are counted 1, 2, 3 and so on, each once and in this order, and the last sums are exact."""
    rows = expected.departures(1_500 + 1_000 * blows)
    cluster.make_topics(PARTITIONS, "departures", "airlines", "delays")
    cluster.write("airlines", expected.airline_rows(), PARTITIONS)
    feed = ("departures", expected.departure_rows(rows), 0.1)
    storm = weather(seed, blows, cluster, folder, "examples.flights", application_id, feed, ("departures", "airlines"))
    exact = expected.delays_by_hour(rows)
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
