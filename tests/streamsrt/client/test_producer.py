"""The idempotent producer against a broker that fails on command: everything arrives once, in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamsrt.client.values import DeliveryTimeoutError, ProducerConfig
from streamsrt.errors import ProductionError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import decode_batches, read_header
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.batches import batch
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import DROP, ScriptedBroker, failing, produce_error

pytestmark = pytest.mark.waits

BATCHES = 60
SIZE = 10


def written(broker: ScriptedBroker, partition: int) -> list[int]:
    values = [
        value
        for stored in broker.log("t", partition).batches
        for columns in decode_batches(stored)
        for value in columns.values
    ]
    return [int(value.rstrip(b".")) for value in values if value is not None]


def send_and_check(broker: ScriptedBroker, connect: Connect, **settings: Any) -> None:
    network = connect(broker.address, **settings)
    for index in range(BATCHES):
        for partition in range(3):
            network.producer.send("t", partition, batch(index * SIZE, SIZE, 3_000), SIZE)
    acked = network.producer.flush(30.0)
    assert acked == {("t", partition): BATCHES * SIZE for partition in range(3)}
    for partition in range(3):
        assert written(broker, partition) == list(range(BATCHES * SIZE))
    assert network.producer.flush(1.0) == {}


def test_everything_is_written_in_order(broker: ScriptedBroker, connect: Connect) -> None:
    send_and_check(broker, connect)


def test_partitions_share_requests_of_limited_size(broker: ScriptedBroker, connect: Connect) -> None:
    send_and_check(broker, connect, producer=ProducerConfig(max_request_size=100_000))
    requests = [request for request in broker.requests if isinstance(request, types.ProduceRequest)]
    sizes = [sum(len(d.records) for t in request.topic_data for d in t.partition_data) for request in requests]
    assert max(sizes) <= 100_000
    assert len(requests) < 3 * BATCHES
    for request in requests:
        asked = [data.index for topic in request.topic_data for data in topic.partition_data]
        assert len(asked) == len(set(asked)), "two batches of one partition in one request"


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
)
def test_what_fails_for_now_is_sent_again_in_order(broker: ScriptedBroker, connect: Connect, code: ErrorCode) -> None:
    broker.hooks[ApiKey.PRODUCE] = failing(3, produce_error(code))
    send_and_check(broker, connect)


def test_no_second_batch_is_sent_before_the_broker_knows_the_producer(broker: ScriptedBroker, connect: Connect) -> None:
    """A broker takes any sequence of a producer that it has not seen: the first batch must not be overtaken."""
    refusals = iter(range(3))

    def new_topic(request: Any) -> Any:
        return None if next(refusals, None) is None else produce_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)(request)

    broker.hooks[ApiKey.PRODUCE] = new_topic
    send_and_check(broker, connect)
    sequences: dict[int, list[int]] = {}
    for request in broker.requests:
        if isinstance(request, types.ProduceRequest):
            for data in request.topic_data[0].partition_data:
                sequences.setdefault(data.index, []).append(read_header(data.records).base_sequence)
    for sent in sequences.values():
        first_of_others = next(place for place, sequence in enumerate(sent) if sequence)
        assert sent[:first_of_others] == [0] * first_of_others
        assert 0 not in sent[first_of_others:]


def test_batches_behind_a_failed_one_are_put_in_order_again(broker: ScriptedBroker, connect: Connect) -> None:
    calls = [0]

    def every_fourth(request: Any) -> Any:
        calls[0] += 1
        return produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request) if calls[0] % 4 == 2 and calls[0] < 20 else None

    broker.hooks[ApiKey.PRODUCE] = every_fourth
    send_and_check(broker, connect)


def test_a_failed_batch_waits_for_the_answers_of_those_behind_it(broker: ScriptedBroker, connect: Connect) -> None:
    calls, slowness = [0], threading.Event()

    def fail_and_be_slow(request: Any) -> Any:
        calls[0] += 1
        if calls[0] % 5 == 2 and calls[0] < 30:
            return produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request)
        slowness.wait(0.01)
        return None

    broker.hooks[ApiKey.PRODUCE] = fail_and_be_slow
    send_and_check(broker, connect, retry_backoff_ms=1, retry_backoff_max_ms=1)


def test_a_lost_answer_does_not_write_twice(broker: ScriptedBroker, connect: Connect) -> None:
    calls = [0]

    def lose_some(_: Any) -> Any:
        calls[0] += 1
        return DROP if calls[0] in {2, 5, 6} else None

    broker.after[ApiKey.PRODUCE] = lose_some
    send_and_check(broker, connect)


def test_batches_wait_for_a_broker_that_is_down(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    network.producer.send("t", 0, batch(0, 5), 5)
    assert network.producer.flush(20.0) == {("t", 0): 5}
    broker.go_down()
    network.producer.send("t", 0, batch(5, 5), 5)
    with pytest.raises(DeliveryTimeoutError):
        network.producer.flush(0.3)
    broker.start()
    assert network.producer.flush(20.0) == {("t", 0): 10}
    assert written(broker, 0) == list(range(10))


def test_a_topic_that_appears_late_is_waited_for(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    network.producer.send("late", 0, batch(0, 5), 5)
    with pytest.raises(DeliveryTimeoutError):
        network.producer.flush(0.2)
    broker.topics["late"] = 1
    assert network.producer.flush(20.0) == {("late", 0): 5}


def test_a_final_refusal_names_topic_partition_and_remedy(broker: ScriptedBroker, connect: Connect) -> None:
    broker.hooks[ApiKey.PRODUCE] = failing(1, produce_error(ErrorCode.MESSAGE_TOO_LARGE))
    network = connect(broker.address)
    network.producer.send("t", 1, batch(0, 5), 5)
    with pytest.raises(ProductionError, match=r"t-1 \(MESSAGE_TOO_LARGE\).*max\.message\.bytes") as caught:
        network.producer.flush(20.0)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)


def test_after_a_failure_the_producer_starts_anew(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    network.producer.send("t", 0, batch(0, 5), 5)
    network.producer.flush(20.0)
    broker.hooks[ApiKey.PRODUCE] = failing(1, produce_error(ErrorCode.INVALID_RECORD))
    network.producer.send("t", 0, batch(5, 5), 5)
    with pytest.raises(ProductionError):
        network.producer.flush(20.0)
    network.producer.send("t", 0, batch(7, 5), 5)
    assert network.producer.flush(20.0) == {("t", 0): 10}
    headers = [read_header(stored) for stored in broker.log("t", 0).batches]
    assert headers[0].producer_id != headers[1].producer_id
    assert headers[1].base_sequence == 0


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_an_error_of_send_that_somebody_caught_comes_again(
    broker: ScriptedBroker, connect: Connect, is_forgotten: bool
) -> None:
    network = connect(broker.address)
    network.producer.send("t", 0, batch(0, 5), 5)
    network.producer.flush(20.0)
    broker.hooks[ApiKey.PRODUCE] = failing(1, produce_error(ErrorCode.INVALID_RECORD))
    network.producer.send("t", 0, batch(5, 5), 5)

    def caught() -> bool:
        try:
            network.producer.send("t", 1, batch(0, 5), 5)
        except ProductionError:
            return True
        return False

    assert any(caught() for _ in iter(lambda: broker.log("t", 1).end_offset > 10_000, True))
    assert caught(), "what is sent now would be behind a gap"
    if is_forgotten:
        network.producer.forget_failure()
    else:
        with pytest.raises(ProductionError):
            network.producer.flush(20.0)
    network.producer.send("t", 0, batch(7, 5), 5)
    assert network.producer.flush(20.0) == {("t", 0): 10}


def test_a_full_buffer_blocks_and_says_so_in_the_end(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address, producer=ProducerConfig(buffer_memory=50_000, max_block_ms=200))
    broker.go_down()
    for _ in range(4):
        network.producer.send("t", 0, batch(0, 10, 1_000), 10)
    with pytest.raises(DeliveryTimeoutError, match=r"buffer\.memory"):
        network.producer.send("t", 0, batch(0, 10, 1_000), 10)


def test_a_flush_that_waits_already_gives_up(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    broker.go_down()
    network.producer.send("t", 0, batch(0, 10), 10)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(network.producer.flush)
        network.producer.give_up_after(3_600.0)
        network.producer.give_up_after(0.2)
        with pytest.raises(DeliveryTimeoutError, match="1 batches were not acknowledged in time"):
            waiting.result(20.0)


def test_a_topic_that_does_not_exist_is_named_and_fails_long_before_the_delivery_timeout(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topics["other"] = 1
    network = connect(broker.address, producer=ProducerConfig(absent_topic_timeout_ms=400))
    for topic in ("t", "other"):
        network.producer.send(topic, 0, batch(0, 10), 10)
    network.producer.flush(20.0)
    del broker.topics["t"]
    broker.hooks[ApiKey.PRODUCE] = failing(1_000, produce_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    network.producer.send("t", 0, batch(10, 10), 10)
    with pytest.raises(DeliveryTimeoutError, match="topic t, which does not exist"):
        network.producer.flush(20.0)
    assert network.producer.absent_topics == ("t",)
    assert caplog.text.count("nothing can be committed until it is there") == 1

    broker.topics["t"] = 3
    broker.hooks.clear()
    network.producer.send("t", 0, batch(10, 10), 10)
    network.producer.flush(20.0)
    network.producer.send("t", 0, batch(20, 10), 10)
    network.producer.flush(20.0)
    assert network.producer.absent_topics == ()


def test_a_broker_that_knows_no_topic_yet_is_waited_for(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ProducerConfig(absent_topic_timeout_ms=30, delivery_timeout_ms=1_500)
    network = connect(broker.address, producer=settings)
    network.producer.send("t", 0, batch(0, 10), 10)
    network.producer.flush(20.0)
    broker.topics.clear()
    broker.hooks[ApiKey.PRODUCE] = failing(1_000, produce_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    network.producer.send("t", 0, batch(10, 10), 10)
    with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
        network.producer.flush(20.0)
    assert network.producer.absent_topics == ()
    assert "does not exist" not in caplog.text


def test_what_is_not_delivered_in_time_fails(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address, producer=ProducerConfig(delivery_timeout_ms=300))
    broker.go_down()
    network.producer.send("t", 2, batch(0, 10), 10)
    with pytest.raises(DeliveryTimeoutError, match=r"t-2 .*delivery\.timeout\.ms"):
        network.producer.flush(20.0)
