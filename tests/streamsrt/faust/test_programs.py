"""Applications, unchanged, by Faust and here on one Apache Kafka: the same results, record by record.

They run with ``--full``, and so does the storm: killed again and again, three of them give every result exactly once.
Faust's own workers take a minute or more on a busy machine.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka_server import KafkaServer
from tests.streamsrt.faust.committed import by_key
from tests.streamsrt.faust.needed import require_faust
from tests.streamsrt.faust.sides import CASES, COUNT, EXACT, PATIENCE_S, Side

require_faust()

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.kafka, pytest.mark.full]

ALWAYS = ("words", "asks")
STORM = ("payments", "views", "clicks")


def assert_same(ours: Side, theirs: Side, name: str) -> None:
    case = CASES[name]
    for topic in case.per_key:
        mine = by_key(ours.rows(topic))
        assert any(mine), topic
        assert mine == by_key(theirs.rows(topic)), topic
    for topic in case.outputs:
        counted = Counter(row for rows in ours.rows(topic) for row in rows)
        assert counted, topic
        assert counted == Counter(row for rows in theirs.rows(topic) for row in rows), topic


def run_all(side: Side, names: tuple[str, ...]) -> None:
    """Those programs at the same time, until each has done everything."""
    with ExitStack() as stack:
        running = {}
        for name in names:
            side.create(name)
            side.produce(name, 0, COUNT)
            running[name] = side.start(name)
            stack.callback(running[name].wait)
            stack.callback(running[name].kill)
        for name, process in running.items():
            side.wait(name, process)


def both(servers: str, folder: Path, names: tuple[str, ...]) -> tuple[Side, Side]:
    """What Faust makes of the programs, and what is made of them here."""
    theirs, ours = Side("faust", servers, folder), Side("ours", servers, folder)
    run_all(theirs, names)
    run_all(ours, names)
    return ours, theirs


def test_two_applications_run_here_as_with_faust(apache_kafka: KafkaServer, tmp_path: Path) -> None:
    ours, theirs = both(apache_kafka.bootstrap_servers, tmp_path, ALWAYS)
    for name in ALWAYS:
        assert_same(ours, theirs, name)


@pytest.fixture(scope="module")
def others(apache_kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    names = tuple(name for name in CASES if name not in ALWAYS)
    return both(apache_kafka.bootstrap_servers, tmp_path_factory.mktemp("programs"), names)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ALWAYS])
def test_the_others_do_as_well(others: tuple[Side, Side], name: str) -> None:
    assert_same(*others, name)


@pytest.mark.parametrize("name", STORM)
def test_killed_again_and_again_each_result_counts_once(
    apache_kafka: KafkaServer, others: tuple[Side, Side], tmp_path: Path, name: str
) -> None:
    killed = Side("killed", apache_kafka.bootstrap_servers, tmp_path)
    killed.create(name)
    process = killed.start(name, *EXACT)
    try:
        for first in range(0, COUNT, COUNT // 4):
            killed.produce(name, first, COUNT // 4)
            deadline = time.monotonic() + PATIENCE_S
            while (
                sum(len(rows) for rows in killed.rows(CASES[name].per_key[0])) <= first and time.monotonic() < deadline
            ):
                assert process.poll() is None, (killed.folder / f"{name}.log").read_text()[-3000:]
            process.kill()
            process.wait()
            process = killed.start(name, *EXACT)
        killed.wait(name, process)
    finally:
        process.kill()
        process.wait()
    assert_same(killed, others[1], name)
