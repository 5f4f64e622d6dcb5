"""What Apache Kafka answers to each odd batch is what was recorded of it: the bundled broker is held against the record.

``STREAMSRT_RECORD=1`` writes the record anew.
"""

from __future__ import annotations

import json
import os
from threading import Event
from typing import Any

import pytest

from tests.coordinator.broker.in_process import creation, fetching
from tests.coordinator.broker.odd_batches import CASES, GOLDEN, TOPICS, VERSION, Ask, golden, opinion, partitions
from tests.coordinator.server.processes import Wire
from tests.kafka_server import KafkaServer, brokers_listed

pytestmark = [pytest.mark.system, pytest.mark.kafka]
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 3, 6


def opinions(ask: Ask, topics: dict[str, str]) -> dict[str, dict[str, Any]]:
    found = {}
    for kind, names in partitions().items():
        for partition, name in enumerate(names):
            wait_for_a_leader(ask, topics[kind], partition)
            found[name] = opinion(ask, topics[kind], partition, CASES[name])
    return found


def wait_for_a_leader(ask: Ask, topic: str, partition: int) -> None:
    pause = Event()
    for _ in range(600):
        answer = ask(fetching(topic, {partition: 0}), VERSION).responses[0].partitions[0]
        if answer.error_code not in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER):
            return
        pause.wait(0.1)
    raise AssertionError(f"{topic}-{partition} has no leader")


def test_apache_kafka_answers_as_recorded(apache_kafka: KafkaServer) -> None:
    assert brokers_listed(apache_kafka.port) == 1
    topics = {kind: f"odd-batches-{kind}" for kind in TOPICS}
    with Wire(apache_kafka.port) as wire:
        for kind, names in partitions().items():
            made = wire.ask(creation(topics[kind], len(names), TOPICS[kind]), 7)
            assert not made.topics[0].error_code, made
        found = opinions(wire.ask, topics)
    if os.environ.get("STREAMSRT_RECORD"):
        lines = [json.dumps({"name": name, **answer}, ensure_ascii=False) + "\n" for name, answer in found.items()]
        GOLDEN.write_text("".join(lines), encoding="utf-8")
    assert found == golden()
