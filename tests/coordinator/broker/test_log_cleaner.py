"""Compaction in the background, over all logs of a broker."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.log import PartitionLog
from coordinator.log.validation import split_batches
from streamsrt.wire import types
from streamsrt.wire.records import encode_batch
from tests.coordinator.broker.in_process import InProcessBroker, production
from tests.coordinator.broker.odd_batches import CASES
from tests.coordinator.broker.test_groups import codes, commit
from tests.coordinator.turns import turn

SMALL = {"cleanup_policy": "compact", "segment_bytes": "1048576", "max_message_bytes": "2000"}


def clean(broker: InProcessBroker) -> int:
    """One round, with everything on disk before it."""
    for log in broker.broker.compacted_logs():
        log.flush()
    return asyncio.run(broker.broker.cleaner.clean(1 << 20))


def put(broker: InProcessBroker, topic: str, key: bytes, value: bytes | None) -> int:
    batch = encode_batch([key], [value], [broker.now_ms])
    answer = broker.ask(production(topic, {0: batch}), 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def log_of(broker: InProcessBroker, topic: str) -> PartitionLog:
    found = broker.broker.topics.get(topic)
    assert found is not None
    return found.partitions[0]


def test_a_compacted_topic(broker: InProcessBroker) -> None:
    broker.create("t", **SMALL)
    broker.create("plain")
    for number in range(20):
        assert put(broker, "t", b"k", b"%d" % number) == 0
        assert put(broker, "plain", b"k", b"%d" % number) == 0
    for name in ("t", "plain"):
        log_of(broker, name).roll()
    assert clean(broker) == 1
    assert clean(broker) == 0
    assert broker.values("t") == [b"19"]
    assert len(broker.values("plain")) == 20


def test_committed_offsets_and_the_brokers_own_facts_survive(broker: InProcessBroker) -> None:
    for number in range(12):
        broker.create(f"t{number}")
        broker.ask(types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name=f"t{number}")]))
    broker.create("t", 2)
    for number in range(50):
        assert codes(broker.ask(commit("g", "t", {0: number, 1: 2 * number}), 9)) == {"t": [(0, 0), (1, 0)]}
    logs = list(broker.broker.compacted_logs())
    before = {log.directory.name: log.size_bytes for log in logs}
    for log in logs:
        log.roll()
    assert clean(broker) >= 2
    broker.now_ms += 48 * 3_600_000
    sizes = {log.directory.name: log.size_bytes for log in broker.broker.compacted_logs()}
    assert sizes["__consumer_offsets-0"] < before["__consumer_offsets-0"] / 10
    assert sizes["__cluster_metadata-0"] < before["__cluster_metadata-0"]
    topic_id, cluster_id = broker.topic_id("t"), broker.broker.cluster_id
    broker.restart()
    assert [topic.name for topic in broker.broker.topics] == ["__consumer_offsets", "t"]
    assert (broker.topic_id("t"), broker.broker.cluster_id) == (topic_id, cluster_id)
    group = types.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = broker.ask(types.OffsetFetchRequest(groups=[group]), 9)
    assert [(p.partition_index, p.committed_offset) for p in answer.groups[0].topics[0].partitions] == [
        (0, 49),
        (1, 98),
    ]


def test_a_log_that_can_not_be_read_does_not_stop_the_others(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("broken", "whole"):
        broker.create(name, **SMALL)
        for number in range(20):
            put(broker, name, b"k", b"%d" % number)
        log_of(broker, name).roll()
        log_of(broker, name).flush()
    path = log_of(broker, "broken").directory / "00000000000000000000.log"
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\x07")
    with caplog.at_level(logging.ERROR):
        assert clean(broker) == 2
    assert "uncleanable_partitions_count 1\n" in broker.broker.metrics_text()
    assert "broken-0 is no longer compacted: it has records that can't be read" in caplog.text
    assert broker.values("whole") == [b"19"]
    assert clean(broker) == 0


def test_a_batch_that_can_not_be_read_is_passed_and_told_once(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("t", **SMALL)
    log = log_of(broker, "t")
    for round_ in range(2):
        for number in range(20):
            put(broker, "t", b"k", b"%d" % number)
        if round_ == 0:
            log.append_admitted(split_batches(CASES["garbage"].records, log.config, from_coordinator=False), 0)
        log.roll()
        with caplog.at_level(logging.ERROR):
            assert clean(broker) == 1
    assert caplog.text.count("t-0: the batch at offset 20 can't be read and stays as it is") == 1
    assert log.size_bytes < 1000
    assert "log_cleaner_manager_unreadable_batches_count 1\n" in broker.broker.metrics_text()
    assert "log_cleaner_manager_uncleanable_partitions_count 0\n" in broker.broker.metrics_text()


def test_a_topic_that_is_deleted_meanwhile(broker: InProcessBroker) -> None:
    broker.create("t", **SMALL)
    for number in range(20):
        put(broker, "t", b"k", b"%d" % number)
    log_of(broker, "t").roll()
    log_of(broker, "t").flush()

    async def delete_while_it_runs() -> None:
        round_ = asyncio.create_task(broker.broker.cleaner.clean(1 << 20))
        await turn()
        broker.ask(types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="t")]))
        assert await round_ == 1

    asyncio.run(delete_while_it_runs())
    assert broker.broker.topics.get("t") is None
