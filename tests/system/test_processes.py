"""``num.stream.threads`` as real processes: killed ones, stuck ones, more and fewer of them, and queries across them."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.system.cluster import Cluster, Row, last_values
from tests.system.expected import count_words, line_rows, text_lines
from tests.system.processes import AppProcess, environment, wait_until
from tests.system.storm import EXACTLY_ONCE

PARTITIONS = 4
WORDCOUNT = "examples.wordcount"


def counted(values: dict[bytes | None, bytes | None]) -> dict[str, int]:
    return {(word or b"").decode(): int.from_bytes(count or b"", "big") for word, count in values.items()}


@pytest.mark.slow
def test_killed_processes_are_replaced_and_results_are_exact(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    lines = text_lines()[:8_000]
    rounds = [lines[start : start + 2_000] for start in range(0, len(lines), 2_000)]
    config = {**EXACTLY_ONCE, "num.stream.threads": 2}
    with AppProcess(tmp_path / "app", WORDCOUNT, application_id, cluster.address, config) as app:
        app.wait_running()
        wait_until(lambda: len(app.workers) == 2, "two workers run")
        for number, part in enumerate(rounds):
            cluster.write("lines", line_rows(part), PARTITIONS)
            if number:
                victim = app.workers[number % 2]
                os.kill(victim, signal.SIGKILL)
                wait_until(
                    lambda victim=victim: len(app.workers) == 2 and victim not in app.workers,  # type: ignore[misc]
                    "another one is in its place",
                )
        cluster.wait_all_committed(application_id, "lines", f"{application_id}-counts-repartition")
        assert app.stderr.count("was killed by SIGKILL: it is replaced") == len(rounds) - 1
        assert app.terminate() == 0
    assert counted(last_values(cluster.read("word-counts"))) == dict(count_words(lines))


STUCK = """
from topology import StreamsBuilder, serdes


def passed_on(text: str) -> str:
    if text != "slow":
        return text.upper()
    # To open a pipe waits for who writes to it: nobody does.
    with open({gate!r}) as gate:
        return gate.read()


builder = StreamsBuilder()
builder.stream("texts", key=serdes.string, value=serdes.string).map_values(passed_on).to("upper")
topology = builder.build()
"""


def test_a_process_that_a_record_keeps_is_replaced_and_the_record_named(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    folder, gate = tmp_path / "modules", tmp_path / "gate"
    folder.mkdir()
    os.mkfifo(gate)
    (folder / "stuck_app.py").write_text(STUCK.format(gate=str(gate)), encoding="utf-8")
    bundled.make_topics(1, "texts", "upper")
    rows = [Row(b"k", text.encode(), index) for index, text in enumerate(["a", "b", "slow", "c"])]
    bundled.write("texts", rows, 1)
    config = {"num.stream.threads": 2, "max.poll.interval.ms": 1_000, "commit.interval.ms": 100}
    with AppProcess(tmp_path / "app", "stuck_app", application_id, bundled.address, config, cwd=folder) as app:
        wait_until(lambda: "was stuck at a record for too long: it is replaced" in app.stderr, "it is replaced")
        said = app.stderr
        record = r"it processes texts-0 offset 2 \(of a batch of 0 to 3\)"
        assert re.search(record + r" at \S+stuck_app\.py:\d+ in passed_on", said), said
        opened = tmp_path / "opened"
        opened.write_text("SLOW", encoding="utf-8")
        opened.replace(gate)
        bundled.wait_all_committed(application_id, "texts")
        assert app.terminate() == 0
    assert {record.value for record in bundled.read("upper")} == {b"A", b"B", b"SLOW", b"C"}


CRASHING = """
import os

from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
builder.stream("texts", key=serdes.string, value=serdes.string).foreach(lambda key, value: os._exit(7))
topology = builder.build()
"""


def test_a_run_until_quiet_fails_when_a_process_crashes(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    """Its tasks are nobody's until its session ends: the other processes see no input that is left."""
    (tmp_path / "crashing_app.py").write_text(CRASHING, encoding="utf-8")
    bundled.make_topics(3, "texts")
    bundled.write("texts", [Row(b"k", b"v", 1)], 3)
    run = [sys.executable, "-m", "streamsrt", "run", "crashing_app", "-a", application_id, "-b", bundled.address]
    options = ["--until", "quiet", "--threads", "2", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(
        [*run, *options],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1
    assert "ended with exit code 7" in done.stderr
    assert "crashed before all input was processed" in done.stderr
    assert "Traceback" not in done.stderr


def get(address: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        return response.status, body.decode() if path == "/metrics" else orjson.loads(body)
    except OSError as error:
        return 0, {"message": str(error)}
    finally:
        connection.close()


def test_each_process_answers_for_all(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    bundled.make_topics(PARTITIONS, "lines", "word-counts")
    lines = text_lines()[:500]
    bundled.write("lines", line_rows(lines), PARTITIONS)
    config = {"num.stream.threads": 2, "commit.interval.ms": 100, "http.listen": "127.0.0.1:0"}
    expected = dict(count_words(lines))
    with AppProcess(tmp_path / "app", WORDCOUNT, application_id, bundled.address, config) as app:
        app.wait_running()
        wait_until(lambda: len(re.findall(r"HTTP at (\S+)", app.stderr)) == 2, "both serve HTTP")
        servers = re.findall(r"HTTP at (\S+)", app.stderr)

        def is_complete(server: str) -> bool:
            status, body = get(server, "/stores/counts/range?limit=1000000")
            return status == 200 and {row["key"]: row["value"] for row in body["rows"]} == expected

        for server in servers:
            wait_until(lambda server=server: is_complete(server), f"{server} has all counts")  # type: ignore[misc]
        words = sorted(expected)[:20]
        assert [[get(server, f"/stores/counts/keys/{word}")[1]["value"] for word in words] for server in servers] == [
            [expected[word] for word in words]
        ] * 2
        one, whole = sorted((_threads_of(get(server, "/metrics")[1]) for server in servers), key=len)
        client = f"streamsrt-{application_id}"
        names = [f"{client}-StreamThread-{number}" for number in (1, 2)]
        assert whole == {(client, each) for each in names}, "the first port has the numbers of all"
        assert one == {(client, names[1])}
        assert app.terminate() == 0


def _threads_of(metrics: str) -> set[tuple[str, str]]:
    """Client and stream thread of the numbers of polls."""
    found = re.findall(r'^kafka_stream\S*_poll_total{client_id="([^"]+)",thread_id="([^"]+)"}', metrics, re.MULTILINE)
    return set(found)


SCRIPT = """
import sys

from examples.wordcount import topology
from streamsrt import KafkaStreams, State
from streamsrt.errors import UserError
from streamsrt.queries.errors import InvalidStateStoreError, UnknownStateStoreError
from streamsrt.queries.values import KeyQuery
from tests.system.expected import count_words, text_lines
from tests.system.processes import wait_until
from topology import serdes

config = {
    "application.id": sys.argv[1], "bootstrap.servers": sys.argv[2], "state.dir": sys.argv[3],
    "num.stream.threads": 2, "commit.interval.ms": 100,
}


def alive() -> int:
    return next(int(m.value) for m in streams.metrics() if m.name == "alive-stream-threads")


def counts() -> dict:
    try:
        return dict(streams.store("counts").all())
    except InvalidStateStoreError as error:
        return {"error": f"{type(error).__name__}: {error}"}


# A task that moves to the process that has just started leaves its partition without an answer for a moment.
def soon(ask):
    found = []

    def is_answered() -> bool:
        try:
            found[:] = [ask()]
        except InvalidStateStoreError:
            return False
        return True

    wait_until(is_answered, "there is an answer")
    return found[0]


def check_queries() -> None:
    expected = dict(count_words(text_lines()[:500]))
    wait_until(lambda: counts() == expected, "all counts are found in both processes")
    store = streams.store("counts")
    some = sorted(expected.items())[:50]
    assert soon(lambda: all(store.get(word) == count for word, count in some))
    assert soon(lambda: store.get("no such word")) is None
    found = soon(lambda: {word for word, _ in store.prefix_scan("th", serdes.string)})
    assert found == {w for w in expected if w.startswith("th")}
    asked = lambda: streams.query("counts", KeyQuery("the"), partitions=range(4)).partition_results.values()
    wait_until(lambda: [each.result for each in asked()].count(expected["the"]) == 1, "one partition has it")
    missing = streams.query("counts", KeyQuery("the"), partitions=[9]).partition_results[9]
    assert missing.failure_reason.value == "DOES_NOT_EXIST"
    for asked, error in ((lambda: streams.store("nothing"), UnknownStateStoreError), (lambda: store.get(7), UserError)):
        try:
            asked()
        except error as raised:
            assert type(raised) is error
        else:
            raise AssertionError(f"{error} was not raised")
    per_thread = {m.tags.get("thread-id") for m in streams.metrics() if m.name == "poll-total"}
    assert len(per_thread) == 2, per_thread
    consuming = {m.tags["thread-id"] for m in streams.metrics() if m.name == "records-consumed-total" and m.value}
    # One of them may have processed everything before the other one got tasks.
    assert consuming and consuming <= per_thread, consuming
    assert sum(m.value for m in streams.metrics() if m.name == "estimate-num-keys") > 0


streams = KafkaStreams(topology, config)
with streams:
    wait_until(lambda: streams.state is State.RUNNING and len(streams.progress.tasks) == 8, "it runs")
    check_queries()
    assert streams.add_stream_thread() == 3
    wait_until(lambda: alive() == 3, "there are three")
    assert streams.remove_stream_thread() == 2
    assert streams.remove_stream_thread() == 1
    wait_until(lambda: alive() == 1 and len(streams.progress.tasks) == 8, "one has all tasks")
    try:
        streams.remove_stream_thread()
    except UserError as error:
        assert "last stream thread" in str(error)
    else:
        raise AssertionError("the last one was removed")
assert streams.state is State.NOT_RUNNING
print("done", streams.progress.processed_records)
"""


def test_processes_come_and_go_and_are_asked_for_their_state(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    bundled.make_topics(PARTITIONS, "lines", "word-counts")
    lines = text_lines()[:500]
    bundled.write("lines", line_rows(lines), PARTITIONS)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), application_id, bundled.address, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done ")
    bundled.wait_all_committed(application_id, "lines", f"{application_id}-counts-repartition")
    assert counted(last_values(bundled.read("word-counts"))) == dict(count_words(lines))
