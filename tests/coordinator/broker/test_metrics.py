"""The group coordinator's metrics, as Prometheus gets them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker.metrics import CLEANER, Idleness
from coordinator.server.metrics_endpoint import MetricsEndpoint
from streamsrt.wire import types
from tests.coordinator.broker.in_process import InProcessBroker
from tests.coordinator.broker.test_groups import heartbeat

PREFIX = "kafka_server_group_coordinator_metrics_"
STREAMS_STATES = ("empty", "not_ready", "assigning", "reconciling", "stable", "dead")
CONSUMER_STATES = ("empty", "assigning", "reconciling", "stable", "dead")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    settings = {
        "offsets.topic.num.partitions": "3",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.streams.assignment.interval.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
    }
    made = InProcessBroker(tmp_path / "data", settings)
    made.create("t", 2)
    yield made
    made.close()


def metrics(broker: InProcessBroker) -> dict[str, float]:
    lines = [line for line in broker.broker.metrics_text().splitlines() if not line.startswith("#")]
    lines = [line for line in lines if not line.startswith(CLEANER)]
    assert all(line.startswith(PREFIX) for line in lines)
    found = dict(line.removeprefix(PREFIX).rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines)
    return {name: float(value) for name, value in found.items()}


def by_state(broker: InProcessBroker, kind: str) -> dict[str, float]:
    head = f'{kind}_group_count{{state="'
    found = metrics(broker)
    states = {name.removeprefix(head).removesuffix('"}'): found[name] for name in found if name.startswith(head)}
    assert set(states) == set(STREAMS_STATES if kind == "streams" else CONSUMER_STATES)
    assert sum(states.values()) == found[f'group_count{{protocol="{kind}"}}'], "the states sum up to the groups"
    return {state: count for state, count in states.items() if count}


def consumer(broker: InProcessBroker, group: str, member: str, epoch: int = 0) -> Any:
    joins = epoch == 0
    return broker.ask(
        types.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=1000 if joins else -1,
            subscribed_topic_names=["t"] if joins else None,
            topic_partitions=[] if joins else None,
        )
    )


@pytest.mark.requirement("SG-415", "SG-416", "SG-419", "CG-227", "CG-230")
def test_groups_by_protocol_and_state(broker: InProcessBroker) -> None:
    assert by_state(broker, "streams") == by_state(broker, "consumer") == {}
    for name in ("a", "b", "c"):
        assert broker.ask(heartbeat(name)).error_code == 0
    missing = heartbeat("d")
    missing.topology.subtopologies[0].source_topics = ["absent"]
    assert broker.ask(missing).error_code == 0
    left = broker.ask(types.StreamsGroupHeartbeatRequest(group_id="c", member_id="m", member_epoch=-1))
    assert left.error_code == 0
    assert by_state(broker, "streams") == {"stable": 2, "empty": 1, "not_ready": 1}
    assert consumer(broker, "e", "m").error_code == 0
    assert by_state(broker, "consumer") == {"stable": 1}
    consumer(broker, "e", "n")
    assert by_state(broker, "consumer") == {"reconciling": 1}
    join = types.JoinGroupRequest(group_id="f", session_timeout_ms=10_000, protocol_type="consumer")
    join.protocols.append(join.JoinGroupRequestProtocol(name="range", metadata=b""))
    assert broker.ask(join, 9).error_code == 79
    found = metrics(broker)
    assert [found[f'group_count{{protocol="{kind}"}}'] for kind in ("classic", "consumer", "streams")] == [1, 1, 4]
    broker.ask(types.DeleteGroupsRequest(groups_names=["c"]))
    assert by_state(broker, "streams") == {"stable": 2, "not_ready": 1}


@pytest.mark.requirement("SG-417", "SG-418", "CG-231")
def test_rebalances(broker: InProcessBroker) -> None:
    def rebalances(kind: str) -> tuple[float, float]:
        found = metrics(broker)
        return found[f"{kind}_group_rebalance_count"], found[f"{kind}_group_rebalance_rate"]

    assert rebalances("streams") == rebalances("consumer") == (0, 0)
    epoch = consumer(broker, "g", "m").member_epoch
    for _ in range(5):
        consumer(broker, "g", "m", epoch)
    assert rebalances("consumer") == (1, pytest.approx(1 / 60))
    consumer(broker, "g", "n")
    assert rebalances("consumer") == (2, pytest.approx(2 / 60))
    broker.ask(heartbeat("s"))
    assert rebalances("streams") == (1, pytest.approx(1 / 60))
    broker.now_ms += 59_999
    assert rebalances("consumer") == (2, pytest.approx(2 / 60))
    broker.now_ms += 1
    assert rebalances("consumer") == (2, 0)


@pytest.mark.requirement("CG-228", "CG-229", "CG-232")
def test_partitions_and_how_long_they_took_to_load(broker: InProcessBroker) -> None:
    broker.restart()
    found = metrics(broker)
    assert [found[f'num_partitions{{state="{state}"}}'] for state in ("loading", "active", "failed")] == [0, 3, 0]
    assert 0 < found["partition_load_time_avg"] <= found["partition_load_time_max"]
    assert found["event_queue_size"] == 0


@pytest.mark.requirement("CG-233")
def test_how_idle_the_thread_is(broker: InProcessBroker) -> None:
    found = metrics(broker)
    assert 0 <= found["thread_idle_ratio_min"] == found["thread_idle_ratio_avg"] <= 1
    idleness = Idleness()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    assert idleness.ratio() < 1


def test_each_metric_is_explained_once(broker: InProcessBroker) -> None:
    lines = broker.broker.metrics_text().splitlines()
    helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert helped == typed == list(dict.fromkeys(line.split("{")[0].split()[0] for line in lines if line[0] != "#"))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"\x00\xff\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics HTTP/1.1\r\n" + b"x" * 100_000, b""),
        (b"GET /met", b""),
    ],
    ids=["get", "query", "head", "post", "other", "nonsense", "endless", "cut off"],
)
def test_over_http(request_: bytes, status: bytes) -> None:
    async def scenario() -> bytes:
        endpoint = MetricsEndpoint(lambda: "one 1\n")
        address = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[2].split("/")[0]))
        writer.write(request_)
        if not status:
            writer.write_eof()
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        writer.close()
        endpoint.close()
        return answer

    answer = asyncio.run(scenario())
    assert answer.split(b"\r\n")[0].removeprefix(b"HTTP/1.1 ") == status
    assert (b"one 1\n" in answer) == (status == b"200 OK" and not request_.startswith(b"HEAD"))
