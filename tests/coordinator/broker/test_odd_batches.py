"""Every odd batch gets from this broker what Apache Kafka answered, and is kept as it is kept there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.log.validation import split_batches
from streamsrt.wire.records import decode_batches, read_header
from tests.coordinator.broker.in_process import START_MS, InProcessBroker, fetching
from tests.coordinator.broker.odd_batches import CASES, TOPICS, VERSION, expected, golden, opinion, partitions

GOLDEN = golden()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path_factory.mktemp("odd") / "data")
    for kind, names in partitions().items():
        made.create(kind, len(names), **TOPICS[kind])
    yield made
    made.close()


def test_apache_kafka_was_asked_about_all_of_them() -> None:
    assert list(GOLDEN) == [name for names in partitions().values() for name in names]


@pytest.mark.parametrize("name", CASES)
def test_as_apache_kafka_answers(broker: InProcessBroker, name: str) -> None:
    case = CASES[name]
    partition = partitions()[case.topic].index(name)
    found = opinion(broker.ask, case.topic, partition, case)
    if "error_message" not in GOLDEN[name]:
        said = found.pop("error_message", None)
        assert bool(said) == bool(found["error_code"] and case.version > 7), "a refusal without a reason"
    assert found == expected(name, GOLDEN[name])
    records = bytes(broker.ask(fetching(case.topic, {partition: 0}), VERSION).responses[0].partitions[0].records)
    assert bool(decode_batches(records)) == (found["error_code"] == 0), "what is acknowledged can be read"


@pytest.mark.parametrize("name", ["garbage", "count 2, one record", "broken gzip", "codec 5"])
def test_one_that_is_in_the_log_already_is_found_by_its_header(tmp_path: Path, name: str) -> None:
    """As a broker that looked at headers only took it."""
    broker = InProcessBroker(tmp_path / "data")
    broker.create("t")
    broker.produce("t", b"a", timestamp_ms=START_MS - 10)
    topic = broker.broker.topics.get("t")
    assert topic is not None
    log = topic.partitions[0]
    log.append_admitted(split_batches(CASES[name].records, log.config, from_coordinator=False), START_MS)
    end = log.log_end_offset
    broker.produce("t", b"b", timestamp_ms=START_MS + 5000)
    assert log.offset_for_timestamp(START_MS - 10) == (0, START_MS - 10)
    assert log.offset_for_timestamp(START_MS - 9) == (1, read_header(CASES[name].records).max_timestamp)
    assert log.offset_for_timestamp(START_MS + 4000) == (end, START_MS + 5000)
    broker.restart()
    assert broker.values("t", offset=end) == [b"b"]
    broker.close()
