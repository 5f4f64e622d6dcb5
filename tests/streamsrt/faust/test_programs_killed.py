"""Each of a dozen applications is killed (kill -9) in the middle of its work, twice, and gives what plain Python works out.

They run on the bundled broker, exactly once: two of them always, all with ``--full``, and then on Apache Kafka, too.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import KafkaServer
from tests.streamsrt.faust.expected import Result, expected, seen
from tests.streamsrt.faust.needed import require_faust
from tests.streamsrt.faust.sides import CASES, COUNT, EXACT, PATIENCE_S, Side
from tests.warm_processes import Started

require_faust()

pytestmark = [pytest.mark.system, pytest.mark.slow]

ALWAYS = ("visitors", "pipes")
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full) for name in CASES if name != "asks"]
PARTS = 3
KILL_PATIENCE_S = 120
LOOK_S = 0.02


@contextmanager
def running(side: Side, name: str, *settings: str) -> Iterator[Started]:
    """The program, killed at the end of the block."""
    process = side.start(name, *EXACT, *settings)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(side: Side, name: str, process: Started, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + KILL_PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, side.log(name)
        try:
            process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(side.log(name))


def results(side: Side, name: str) -> dict[str, list[Result]]:
    """What is committed of each output, partition after partition."""
    topics = (*CASES[name].per_key, *CASES[name].outputs)
    return {topic: [seen(name, row) for rows in side.rows(topic) for row in rows] for topic in topics}


def grouped(rows: list[Result]) -> dict[str | None, list[object]]:
    found: dict[str | None, list[object]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_killed_in_the_middle_each_result_counts_once(name: str, bundled_broker: BundledBroker, tmp_path: Path) -> None:
    kill_in_the_middle(name, bundled_broker.bootstrap_servers, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if name != "asks"])
def test_killed_on_apache_kafka_each_result_counts_once(name: str, apache_kafka: KafkaServer, tmp_path: Path) -> None:
    # A killed member of a classic group stays in it for as long as its session.
    kill_in_the_middle(name, apache_kafka.bootstrap_servers, tmp_path, "-c", "session.timeout.ms=6000")


def kill_in_the_middle(name: str, servers: str, folder: Path, *settings: str) -> None:
    """Kills the program twice while it has work, and compares what it has made of its input."""
    side, case = Side("killed", servers, folder), CASES[name]
    side.create(name)
    part = COUNT // PARTS
    for first in range(0, COUNT - part, part):
        written, committed = side.written(name), sum(map(len, results(side, name).values()))
        side.produce(name, first, part)
        with running(side, name, *settings) as process:
            if not first:
                # Results are under way, and their transaction is not known to be over.
                wait_until(side, name, process, lambda before=written: side.written(name) > before)
            else:
                wait_until(
                    side,
                    name,
                    process,
                    lambda before=committed: sum(map(len, results(side, name).values())) > before,
                )
    side.produce(name, COUNT - part, part)
    with running(side, name, *settings, "--until", "quiet") as process:
        assert process.wait(PATIENCE_S) == 0, side.log(name)
    wanted, found = expected(name, COUNT), results(side, name)
    assert set(wanted) == {*case.per_key, *case.outputs}
    for topic in case.per_key:
        assert grouped(found[topic]) == grouped(wanted[topic]), topic
    for topic in case.outputs:
        assert counted(found[topic]) == counted(wanted[topic]), topic


def counted(rows: list[Result]) -> Counter[str]:
    return Counter(
        map(repr, ((key, sorted(value.items()) if isinstance(value, dict) else value) for key, value in rows))
    )


@pytest.mark.full
def test_a_task_that_asks_begins_anew_after_a_kill(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    """What a task has sent belongs to no record: the answers come again, all of them, and none is wrong."""
    side = Side("killed", bundled_broker.bootstrap_servers, tmp_path)
    side.create("asks")
    with running(side, "asks") as process:
        wait_until(side, "asks", process, lambda: side.written("asks") > 0)
    wanted = grouped(expected("asks", 0)["asks-out"])

    def found() -> dict[str | None, list[object]]:
        return grouped(results(side, "asks")["asks-out"])

    with running(side, "asks") as process:
        wait_until(side, "asks", process, lambda: found().get("many", [])[-20:] == wanted["many"])
    values = found()
    assert set(values["one"]) == {42}
    assert 1 <= len(values["one"]) <= 2
    assert values["many"][-20:] == wanted["many"]
    assert values["many"][:-20] == wanted["many"][: len(values["many"]) - 20]
