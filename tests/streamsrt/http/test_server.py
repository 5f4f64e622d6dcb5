"""Two instances over HTTP, on both brokers: any of them answers for both, and says how it is."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.errors import ConfigError
from streamsrt.http.questions import Question
from streamsrt.http.server import bound_socket
from streamsrt.queries.errors import StreamsRebalancingError
from tests.streamsrt.queries.test_application import KEYS, PATIENCE_S, Scene, wait_until
from tests.system.processes import run_command

SECOND_ADDRESS = "[::1]:0" if socket.has_dualstack_ipv6() else "127.0.0.1:0"


@pytest.fixture
def scene(bootstrap_servers: str, tmp_path: Path) -> Iterator[Scene]:
    network = NetworkThread(ClientConfig(bootstrap_servers=bootstrap_servers))
    network.start()
    yield Scene(bootstrap_servers, network, tmp_path)
    network.stop()


def get(server: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(server, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    is_json = response.getheader("content-type") == "application/json"
    return response.status, orjson.loads(body) if is_json else body.decode()


def started(scene: Scene, name: str, **values: Any) -> KafkaStreams:
    streams = scene.instance(name, **{"http_listen": "127.0.0.1:0", **values})
    streams.start()
    return streams


def test_any_instance_answers_for_all(scene: Scene) -> None:
    scene.write(KEYS + KEYS)
    with contextlib.closing(started(scene, "one")) as one, contextlib.closing(started(scene, "two")) as two:
        servers = [each.config.application_server for each in (one, two)]
        assert len(set(servers)) == 2

        def all_answer() -> bool:
            found = [get(server, f"/stores/counts/keys/{key}") for server in servers for key in KEYS]
            return all(status == 200 and body["value"] == 2 for status, body in found)

        wait_until(all_answer, "each instance answers for every key")
        wait_until(
            lambda: all(get(server, "/readyz")[0] == 200 and get(server, "/tasks")[1]["tasks"] for server in servers),
            "both have tasks and are ready",
        )
        # A task that moves leaves its partition without an answer for a moment.
        wait_until(lambda: all(map(_ranges_are_whole, servers)), "ranges are answered")
        assert all(get(server, "/stores/counts/keys/nobody")[1]["error"] == "KeyNotFound" for server in servers)
        _check_the_position(servers[0])
        _check_mistakes(servers[0])
        _check_views(one, servers)


def test_any_instance_of_a_classic_group_answers_for_all(scene: Scene) -> None:
    scene.write(KEYS + KEYS)
    classic = {"group_protocol": "classic", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}
    with contextlib.closing(started(scene, "one", **classic)) as one:
        servers = [one.config.application_server]
        with contextlib.closing(started(scene, "two", http_listen=SECOND_ADDRESS, **classic)) as two:
            servers.append(two.config.application_server)
            wait_until(
                lambda: _owners(one) == _owners(two) == set(servers), "each has a part, and knows the other one's"
            )
            wait_until(lambda: all(map(_keys_are_answered, servers)), "each answers for every key")
            wait_until(lambda: all(map(_ranges_are_whole, servers)), "ranges are answered")
            assert {each["host"] for each in get(servers[0], "/metadata")[1]["instances"]} == set(servers)
        wait_until(lambda: _keys_are_answered(servers[0]), "the one that is left answers for every key")
        wait_until(
            lambda: [each["host"] for each in get(servers[0], "/metadata")[1]["instances"]] == servers[:1],
            "it knows that it is alone",
        )


def _owners(streams: KafkaStreams) -> set[str]:
    try:
        return {str(streams.query_metadata_for_key("counts", key).active_host) for key in KEYS}
    except StreamsRebalancingError:
        return set()


def _keys_are_answered(server: str) -> bool:
    found = [get(server, f"/stores/counts/keys/{key}") for key in KEYS]
    return all(status == 200 and body["value"] == 2 for status, body in found)


def _ranges_are_whole(server: str) -> bool:
    """False: a partition has no answer, and the server says so."""
    queries = ("limit=100", "limit=7", "from=key-10&to=key-19", "prefix=key-3")
    answers = [get(server, f"/stores/counts/range?{query}") for query in queries]
    if any(status != 200 for status, _ in answers):
        assert {status for status, _ in answers} <= {200, 503}, answers
        return False
    found, few, within, prefixed = (body["rows"] for _, body in answers)
    assert {row["key"]: row["value"] for row in found} == dict.fromkeys(KEYS, 2)
    assert found == sorted(found, key=lambda row: (row["partition"], row["key"]))
    assert {row["key"] for row in within} == {f"key-{n}" for n in range(10, 20)}
    truncated = [body["truncated"] for _, body in answers[:2]]
    assert (truncated, len(prefixed), len(few)) == ([False, True], 11, 7)
    return True


def _check_the_position(server: str) -> None:
    row = get(server, f"/stores/counts/keys/{KEYS[0]}")[1]
    (topic,) = row["position"]
    place = {topic: {str(row["partition"]): row["position"][topic][str(row["partition"])] + 1}}
    status, body = get(server, f"/stores/counts/keys/{KEYS[0]}?position={orjson.dumps(row['position']).decode()}")
    assert (status, body["value"]) == (200, 2)
    status, body = get(server, f"/stores/counts/keys/{KEYS[0]}?position={orjson.dumps(place).decode()}")
    assert (status, body["error"]) == (412, "NOT_UP_TO_BOUND")


def _check_mistakes(server: str) -> None:
    connection = http.client.HTTPConnection(server, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/stores/counts/range", headers={"Host": "evil.example"})
        response = connection.getresponse()
        assert (response.status, b"is not a name of this instance" in response.read()) == (403, True)
    assert get(server, "/stores/nothing/keys/a") == (
        404,
        {"error": "UnknownStateStore", "message": "the topology has no store 'nothing'; its stores: counts"},
    )
    assert get(server, "/stores/counts/windows/a")[0] == 400
    assert get(server, "/stores/counts/range?limit=many")[0] == 400
    assert get(server, "/stores/counts/range?stale=perhaps")[0] == 400
    assert get(server, "/stores/counts/keys/a?position=nowhere")[0] == 400
    assert get(server, "/stores/counts/keys/a?partition=99")[0] == 404
    assert get(server, "/nothing")[0] == 404


def _check_views(one: KafkaStreams, servers: list[str]) -> None:
    assert get(servers[0], "/healthz") == (200, {"alive": True, "state": "RUNNING", "why": []})
    assert {each["host"] for each in get(servers[0], "/metadata")[1]["instances"]} == set(servers)
    assert get(servers[0], "/stores")[1]["stores"][0]["key_serde"] == "string"
    assert "Sub-topology: 0" in get(servers[0], "/topology?format=text")[1]
    outlined = get(servers[0], "/topology")[1]
    assert (outlined["digest"], outlined["subtopologies_with_chosen_sinks"]) == (one.topology.digest, [])
    assert "/stores/{store}/keys/{key}" in get(servers[0], "/")[1]["paths"]
    status, text = get(servers[0], "/metrics")
    assert status == 200
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    mine = sum(n for name, n in values.items() if name.startswith("kafka_streams_stream_task_metrics_process_total"))
    assert mine == sum(task.counters["processed"] for task in one.progress.tasks)
    assert any("stream_thread_metrics_commit_latency_max" in name for name in values)
    consumed = [
        n for name, n in values.items() if name.startswith("kafka_streams_stream_topic_metrics_records_consumed")
    ]
    assert sum(consumed) == mine
    assert any("_bytes_consumed_total" in name and number > 0 for name, number in values.items())
    assert any("_record_e2e_latency_max" in name and 'processor_node_id="' in name for name in values)
    assert any("_thread_state{" in name and 'process_id="' in name and number == 4 for name, number in values.items())
    assert any("_idle_ratio" in name and 0 <= number <= 1 for name, number in values.items()), "the restore thread's"
    assert any("_num_live_versions" in name and 'rocksdb_state_id="counts"' in name for name in values)
    assert any("_topology_description" in name and "Sub-topology: 0" in name for name in values)
    found = run_command("query", "key", "counts", KEYS[0], "--server", servers[1], "--json")
    assert orjson.loads(found.stdout)["value"] == 2, found.stderr
    found = run_command("query", "range", "counts", "--server", servers[0], "--json")
    assert len(found.stdout.splitlines()) == len(KEYS), found.stderr
    found = run_command("query", "tasks", "--server", servers[0])
    assert "no input is waiting" in found.stdout
    found = run_command("query", "assignment-changes", "--server", servers[0])
    assert "the group gave it to this member after it joined" in found.stdout
    assert get(servers[0], "/tasks")[1]["assignment_changes"][0]["change"] == "opened as active"
    (loop,) = get(servers[0], "/tasks")[1]["loops"]
    assert (loop["life"], loop["tasks"]) == ("runs", [])
    assert loop["poll"]
    assert "runs" in run_command("query", "loops", "--server", servers[0]).stdout
    found = run_command("query", "key", "nothing", "a", "--server", servers[0])
    assert (found.returncode, found.stderr) == (
        2,
        "streamsrt: the topology has no store 'nothing'; its stores: counts\n",
    )
    assert run_command("query", "ready", "--server", servers[0]).returncode == 0


def test_before_it_runs_it_says_why(scene: Scene) -> None:
    scene.write(KEYS)
    streams = scene.instance("one")
    assert streams.why_not_ready() == ["the application is CREATED"]
    assert streams.why_not_alive() == []
    assert streams.metrics()[0].name == "client-state"
    with contextlib.closing(streams):
        streams.start()
        wait_until(lambda: not streams.why_not_ready(), "it is ready")
    assert streams.why_not_alive() == ["the application is NOT_RUNNING"]


def test_addresses_that_can_not_be_used(tmp_path: Path) -> None:
    with bound_socket("127.0.0.1:0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="Give another address, or stop the process that uses it"):
            bound_socket(f"127.0.0.1:{port}")
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        bound_socket("8080")
    with pytest.raises(ConfigError, match=r"http\.listen=127\.0\.0\.1:99999: port 99999 is out of range"):
        bound_socket("127.0.0.1:99999")


def test_questions_are_checked() -> None:
    question = Question.of({"stale": "1", "limit": "5", "partition": "0,2"}, forwarded=False, max_rows=10)
    assert (question.stale, question.limit, question.partitions) == (True, 5, (0, 2))
