"""Every odd batch gets from this broker what Apache Kafka answered, and is kept as it is kept there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamsrt.wire.records import decode_batches
from tests.coordinator.broker.in_process import InProcessBroker, fetching
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
