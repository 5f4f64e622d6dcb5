"""Exactly once: whatever is killed, what is read committed holds every result once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fixtures_brokers import BundledBroker
from tests.system.cluster import Cluster, Row, Server, connected
from tests.system.expected import count_words, line_rows, text_lines
from tests.system.faults import FAULTS, KILL_BROKER, ROLL, SCALE_UP_AND_DOWN, Fault
from tests.system.processes import AppProcess
from tests.system.storm import EXACTLY_ONCE, weather
from tests.system.storm_programs import JOINS, PARTITIONS, WINDOWS, WORDS, Program
from tests.tcp_proxy import TcpProxy

BLOWS = 3
WITHOUT_ZOMBIES = tuple(fault for fault in FAULTS if not fault.name.endswith(("frozen", "held")))
"""Under at least once what was given up and comes back may overwrite newer rows of a changelog, as in Kafka Streams; then
whoever restores them next counts on from less. Only exactly once refuses such writes."""


@pytest.fixture(scope="module")
def stormy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BundledBroker]:
    """A bundled broker behind a proxy."""
    with TcpProxy() as proxy:
        broker = BundledBroker(tmp_path_factory.mktemp("stormy-broker"), proxy=proxy)
        broker.start()
        yield broker
        broker.kill()


@pytest.fixture(params=["bundled", pytest.param("kafka", marks=pytest.mark.kafka)])
def stormy(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that clients reach through a proxy."""
    server: Server = request.getfixturevalue("apache_kafka" if request.param == "kafka" else "stormy_broker")
    assert server.proxy is not None
    with connected(server, f"127.0.0.1:{server.proxy.port}") as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("program", "guarantee", "seed", "faults"),
    [
        pytest.param(WORDS, "exactly_once_v2", 7, (SCALE_UP_AND_DOWN, ROLL, KILL_BROKER), id="words"),
        pytest.param(WINDOWS, "exactly_once_v2", 23, FAULTS, id="windows"),
        pytest.param(JOINS, "exactly_once_v2", 13, FAULTS, id="joins"),
        pytest.param(WORDS, "at_least_once", 1, WITHOUT_ZOMBIES, id="words at least once"),
    ],
)
def test_results_are_right_after_a_storm(
    stormy: Cluster,
    tmp_path: Path,
    application_id: str,
    program: Program,
    guarantee: str,
    seed: int,
    faults: Sequence[Fault],
) -> None:
    struck = weather(program, guarantee, seed, BLOWS, stormy, tmp_path, application_id, faults)
    assert struck.total() == BLOWS


SLOW = """
import os
import time

from topology import StreamsBuilder, serdes

ALLOWED = os.path.exists({flag!r})


def passed_on(text: str) -> str:
    if text == "poison" and not ALLOWED:
        raise ValueError("poison")
    deadline = time.perf_counter() + {pause_s}
    while time.perf_counter() < deadline:
        pass
    return text.upper()


builder = StreamsBuilder()
builder.stream("texts", key=serdes.string, value=serdes.string).map_values(passed_on).to("upper")
topology = builder.build()
"""


def application(folder: Path, *, pause_s: float = 0.0) -> Path:
    """Passes texts on in capitals; one that is ``poison`` fails until a flag lies in the folder."""
    folder.mkdir()
    code = SLOW.format(flag=str(folder / "allowed"), pause_s=pause_s)
    (folder / "texts_app.py").write_text(code, encoding="utf-8")
    return folder


def texts(*values: str) -> list[Row]:
    return [Row(b"k", value.encode(), index) for index, value in enumerate(values)]


def test_a_failing_record_undoes_its_transaction_and_is_done_once_later(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    folder = application(tmp_path / "modules")
    cluster.make_topics(1, "texts", "upper")
    before = [str(index) for index in range(3_000)]
    cluster.write("texts", texts(*before, "poison", "after"), 1)
    app = AppProcess(tmp_path / "app", "texts_app", application_id, cluster.address, EXACTLY_ONCE, cwd=folder)
    with app:
        assert app.wait_end() == 5
        assert "offset 3000" in app.last_words
        done = cluster.committed(application_id).get(("texts", 0), 0)
        assert [record.value for record in cluster.read("upper")] == [text.encode() for text in before[:done]]
        (folder / "allowed").touch()
        app.start()
        app.wait_running()
        cluster.wait_all_committed(application_id, "texts")
        assert app.terminate() == 0
    expected = [text.upper().encode() for text in (*before, "poison", "after")]
    assert [record.value for record in cluster.read("upper")] == expected


@pytest.mark.slow
def test_slow_functions_get_through_with_short_transactions(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    folder = application(tmp_path / "modules", pause_s=0.003)
    cluster.make_topics(1, "texts", "upper")
    values = [str(index) for index in range(2_000)]
    cluster.write("texts", texts(*values), 1)
    # The first thousand records alone take three times as long as a transaction may.
    settings = {**EXACTLY_ONCE, "transaction.timeout.ms": 1_000, "linger.ms": 0}
    app = AppProcess(tmp_path / "app", "texts_app", application_id, cluster.address, settings, cwd=folder)
    with app:
        app.wait_running()
        cluster.wait_all_committed(application_id, "texts")
        assert app.terminate() == 0
        assert app.history[-1]["commits"] >= 4
    assert [record.value for record in cluster.read("upper")] == [value.encode() for value in values]


def test_uncommitted_results_are_not_read(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = text_lines()[:200]
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    settings = {**EXACTLY_ONCE, "commit.interval.ms": 20_000, "transaction.timeout.ms": 60_000}
    app = AppProcess(tmp_path / "app", "examples.wordcount", application_id, cluster.address, settings)
    with app:
        app.wait_running(tasks=PARTITIONS)
        cluster.write("lines", line_rows(lines), PARTITIONS)
        app.wait_for(lambda line: line["processed_records"] >= len(lines), "it has processed lines")
        assert cluster.read("word-counts") == []
        app.kill()
    with AppProcess(tmp_path / "app", "examples.wordcount", application_id, cluster.address, EXACTLY_ONCE) as again:
        again.wait_running(tasks=PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", f"{application_id}-counts-repartition")
        assert again.terminate() == 0
    counted = count_words(lines)
    assert len(cluster.read("word-counts")) == counted.total()


def test_topics_that_do_not_fit_together_are_named_with_their_counts(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster.make_topics(3, "airlines", "delays")
    cluster.make_topics(2, "departures")
    app = AppProcess(tmp_path / "app", "examples.flights", application_id, cluster.address)
    with app:
        assert app.wait_end() == 2
    assert "airlines=3" in app.last_words
    assert "departures=2" in app.last_words
    assert "repartition" in app.last_words
    assert cluster.members(application_id) == []
