"""Records that the broker does not take: exactly they are missing, everything else is there once and in order."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.client.network import NetworkThread
from streamsrt.client.refused_batches import can_not_start, refusal_text
from streamsrt.client.values import (
    ClientConfig,
    DeliveryTimeoutError,
    ProducerConfig,
    RecordRefusedError,
    RefusalAnswer,
    RefusedRecord,
)
from streamsrt.errors import RequestFailedError
from streamsrt.wire import types
from streamsrt.wire.compression import Compression
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import decode_batches, encode_batch
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import DROP, ScriptedBroker, failing, produce_error

pytestmark = pytest.mark.waits

LARGE = 4_000
LIMIT = 2_000


def batch(values: Collection[int], large: Collection[int] = (), compression: Compression = Compression.NONE) -> bytes:
    """Values are decimal numbers, padded to about 50 bytes, or to more than the broker's limit."""
    texts = [str(value).encode().ljust(LARGE if value in large else 50, b".") for value in values]
    headers = [(("number", str(value).encode()),) for value in values]
    return encode_batch([b"k"] * len(texts), texts, list(values), headers=headers, compression=compression)


def numbers(batch: bytes) -> list[int]:
    return [int((value or b"").rstrip(b".")) for columns in decode_batches(batch) for value in columns.values]


def written(broker: ScriptedBroker, partition: int = 0) -> list[int]:
    return [number for stored in broker.log("t", partition).batches for number in numbers(stored)]


def too_large(batch: bytes) -> tuple[int, list[int]] | None:
    return (ErrorCode.MESSAGE_TOO_LARGE, []) if len(batch) > LIMIT else None


class Dropping:
    """Drops everything that is refused, and remembers it."""

    def __init__(self) -> None:
        self.records: list[RefusedRecord] = []

    def __call__(self, record: RefusedRecord) -> RefusalAnswer:
        self.records.append(record)
        return RefusalAnswer.DROP

    @property
    def numbers(self) -> list[int]:
        return [int((record.value or b"").rstrip(b".")) for record in self.records]


def send_all(network: NetworkThread, total: int, size: int, bad: Collection[int] = ()) -> None:
    for first in range(0, total, size):
        values = range(first, min(first + size, total))
        network.producer.send("t", 0, batch(values, bad), len(values))


@pytest.mark.parametrize("named", [True, False], ids=["named by the broker", "found by halving"])
@settings(max_examples=6, deadline=None)
@given(bad=st.sets(st.integers(0, 99), max_size=8), size=st.integers(1, 30))
def test_what_is_invalid_is_dropped_and_nothing_else(named: bool, bad: set[int], size: int) -> None:
    broker = ScriptedBroker({"t": 3}).start()
    network = NetworkThread(ClientConfig(bootstrap_servers=broker.address))
    try:
        network.start(20.0)

        def refuse(data: bytes) -> tuple[int, list[int]] | None:
            found = [index for index, number in enumerate(numbers(data)) if number in bad]
            return (ErrorCode.INVALID_RECORD, found if named else []) if found else None

        broker.refuse = refuse
        network.producer.on_refused = dropped = Dropping()
        send_all(network, 100, size)
        acked = network.producer.flush(30.0)
        assert written(broker) == [number for number in range(100) if number not in bad]
        assert dropped.numbers == sorted(bad)
        assert acked == {("t", 0): 100 - len(bad)}
    finally:
        network.stop()
        broker.stop()


@pytest.mark.parametrize("named", [True, False], ids=["named by the broker", "found by halving"])
def test_what_is_refused_first_is_shown_in_its_place(broker: ScriptedBroker, connect: Connect, named: bool) -> None:
    """A batch of one record is refused at once, while an earlier one has to be halved, or has a rest to be tried."""
    network = connect(broker.address)

    def refuse(data: bytes) -> tuple[int, list[int]] | None:
        found = [index for index, number in enumerate(numbers(data)) if number in {16, 17, 18}]
        # The broker names one record at a time.
        return (ErrorCode.INVALID_RECORD, found[:1] if named else []) if found else None

    network.producer.on_refused = dropped = Dropping()
    network.producer.send("t", 0, batch(range(10)), 10)
    network.producer.flush(30.0)
    arrived = threading.Event()
    broker.refuse = lambda data: refuse(data) if arrived.wait(10) else None
    # The first one keeps the connection busy, so that the others are in flight behind it together.
    for values in ([10], [11, 16, 17], [18], [19]):
        network.producer.send("t", 0, batch(values), len(values))
    arrived.set()
    network.producer.flush(30.0)
    assert dropped.numbers == [16, 17, 18]
    assert written(broker) == [*range(10), 10, 11, 19]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_batch_that_is_too_large_is_split(broker: ScriptedBroker, connect: Connect, compression: Compression) -> None:
    network = connect(broker.address)
    broker.refuse = lambda data: (ErrorCode.MESSAGE_TOO_LARGE, []) if len(numbers(data)) > 3 else None
    network.producer.on_refused = dropped = Dropping()
    network.producer.send("t", 0, batch(range(100), compression=compression), 100)
    assert network.producer.flush(30.0) == {("t", 0): 100}
    assert written(broker) == list(range(100))
    assert dropped.records == []


def test_a_record_that_is_too_large_comes_with_all_that_is_known(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    broker.refuse = too_large
    network.producer.on_refused = dropped = Dropping()
    send_all(network, 60, 20, bad={7, 33})
    network.producer.flush(30.0)
    assert written(broker) == [number for number in range(60) if number not in {7, 33}]
    first = dropped.records[0]
    assert (first.topic, first.partition, first.key, first.timestamp) == ("t", 0, b"k", 7)
    assert first.headers == (("number", b"7"),)
    assert first.error.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not first.error.is_retriable
    assert "Raise max.message.bytes of the topic" in str(first.error)


def test_answers_that_get_lost_meanwhile_lose_and_double_nothing(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    broker.refuse = too_large
    drops = iter([False, True] * 4)
    broker.after[ApiKey.PRODUCE] = lambda _: DROP if next(drops, False) else None
    network.producer.on_refused = Dropping()
    send_all(network, 20, 5)
    network.producer.flush(30.0)
    send_all(network, 60, 5, bad={50})
    network.producer.flush(30.0)
    assert written(broker) == [*range(20), *(number for number in range(60) if number != 50)]


def test_a_failing_answer_raises_the_records_error(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    broker.refuse = too_large
    network.producer.on_refused = lambda _: RefusalAnswer.FAIL
    network.producer.send("t", 0, batch(range(60), {33}), 60)
    with pytest.raises(RecordRefusedError, match="refuses a record for t-0") as caught:
        network.producer.flush(30.0)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, -1)
    # The producer starts anew.
    broker.log("t", 0).batches.clear()
    network.producer.send("t", 0, batch(range(5)), 5)
    network.producer.flush(30.0)
    assert written(broker) == list(range(5))


def test_what_is_sent_while_it_is_decided_is_sent_too(broker: ScriptedBroker, connect: Connect) -> None:
    """A dead letter, for one."""
    network = connect(broker.address, producer=ProducerConfig(buffer_memory=LARGE + 1_000))
    broker.refuse = too_large

    def bury(record: RefusedRecord) -> RefusalAnswer:
        network.producer.send("t", 2, batch([record.timestamp]), 1)
        return RefusalAnswer.DROP

    network.producer.on_refused = bury
    send_all(network, 60, 3, bad=range(0, 60, 7))
    network.producer.flush(30.0)
    assert written(broker, 2) == list(range(0, 60, 7))
    assert written(broker) == [number for number in range(60) if number % 7]


def test_a_topic_that_goes_missing_is_told_after_the_delivery_timeout(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address, producer=ProducerConfig(delivery_timeout_ms=300))
    network.producer.on_refused = dropped = Dropping()
    broker.hooks[ApiKey.PRODUCE] = produce_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    network.producer.send("t", 0, batch(range(3)), 3)
    network.producer.flush(30.0)
    assert dropped.numbers == [0, 1, 2]
    assert all(record.error.is_retriable for record in dropped.records)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(dropped.records[0].error)
    assert "delivery.timeout.ms" in str(dropped.records[0].error)
    broker.hooks.clear()
    network.producer.send("t", 0, batch(range(3, 6)), 3)
    network.producer.flush(30.0)
    assert written(broker) == [3, 4, 5]


def test_starting_over_is_asked_for_with_a_delivery_timeout(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address, producer=ProducerConfig(delivery_timeout_ms=300))
    network.producer.on_refused = lambda record: RefusalAnswer.START_OVER
    broker.hooks[ApiKey.PRODUCE] = produce_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    network.producer.send("t", 0, batch(range(3)), 3)
    with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
        network.producer.flush(30.0)


def test_what_may_have_been_written_is_never_dropped(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address, producer=ProducerConfig(delivery_timeout_ms=300))
    network.producer.on_refused = dropped = Dropping()
    broker.hooks[ApiKey.PRODUCE] = lambda _: DROP
    network.producer.send("t", 0, batch(range(3)), 3)
    with pytest.raises(DeliveryTimeoutError):
        network.producer.flush(30.0)
    broker.hooks[ApiKey.PRODUCE] = failing(1, lambda _: DROP)
    broker.refuse = too_large
    network.producer.send("t", 0, batch([1], large=[1]), 1)
    with pytest.raises(DeliveryTimeoutError):
        network.producer.flush(30.0)
    assert dropped.records == []


def test_what_was_to_be_judged_when_everything_failed_is_not_judged_later(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """Two partitions are late at the same time: one may have been written, which ends it all; the other was never sent."""
    network = connect(broker.address, producer=ProducerConfig(delivery_timeout_ms=500))
    network.producer.on_refused = dropped = Dropping()
    broker.hooks[ApiKey.PRODUCE] = lambda _: DROP
    network.producer.send("t", 0, batch([0]), 1)
    network.producer.send("absent", 0, batch([1]), 1)
    with pytest.raises(DeliveryTimeoutError):
        network.producer.flush(30.0)
    assert dropped.records == []
    broker.hooks.clear()
    network.producer.send("t", 1, batch([2]), 1)
    assert network.producer.flush(30.0) == {("t", 1): 1}
    assert dropped.records == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_no_record_is_dropped_since_the_broker_has_forgotten_the_producer(
    broker: ScriptedBroker, connect: Connect, code: ErrorCode
) -> None:
    """It lost the end of its log, for one, and with it the last sequence numbers."""
    network = connect(broker.address)
    network.producer.on_refused = dropped = Dropping()
    network.producer.send("t", 0, batch([0]), 1)
    network.producer.flush(30.0)
    broker.hooks[ApiKey.PRODUCE] = failing(1, produce_error(code))
    network.producer.send("t", 0, batch([1]), 1)
    with pytest.raises(DeliveryTimeoutError, match=code.name):
        network.producer.flush(30.0)
    assert dropped.records == []
    network.producer.send("t", 0, batch([1]), 1)
    network.producer.flush(30.0)
    assert written(broker) == [0, 1]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_what_is_not_the_records_fault_fails_at_once(broker: ScriptedBroker, connect: Connect, code: ErrorCode) -> None:
    network = connect(broker.address)
    network.producer.on_refused = dropped = Dropping()
    broker.hooks[ApiKey.PRODUCE] = produce_error(code)
    network.producer.send("t", 0, batch(range(3)), 3)
    with pytest.raises(RecordRefusedError) as caught:
        network.producer.flush(30.0)
    assert caught.value.error_code == code
    assert dropped.records == []
    assert broker.count(types.ProduceRequest) == 1


def test_of_a_refused_timestamp_the_settings_of_the_topic_are_named() -> None:
    text = refusal_text(("out", 1), ErrorCode.INVALID_TIMESTAMP, None)
    assert text.startswith("The broker refuses a batch for out-1 (INVALID_TIMESTAMP). ")
    assert "message.timestamp.after.max.ms after the broker's clock" in text
    assert text.endswith("Correct the timestamps, or raise these settings of the topic.")


def test_a_producer_without_an_id_names_the_right_on_topics() -> None:
    refused = RequestFailedError("No producer id: CLUSTER_AUTHORIZATION_FAILED", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    error = can_not_start(refused, [("out", 0), ("out", 1), ("a", 0)], "User:shop")
    assert "User:shop lacks WRITE on topic 'a', 'out'. Grant it: kafka-acls" in str(error)
    assert "before, it also took IDEMPOTENT_WRITE on the cluster" in str(error)
    assert error.exit_code == 3
