"""The fetcher: partitions that come, go, pause and fail, without touching each other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.client.fetcher import LAG_S, SMALL_PIECE_BYTES, whole_batches
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import FETCHED_BYTES, FetchConfig, Fetched, FetchError, OffsetOutOfRangeError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import patch_base_offset
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.batches import batch, collect, numbers, wait_for
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import DROP, ScriptedBroker, failing, fetch_error

pytestmark = pytest.mark.waits


def fill(broker: ScriptedBroker, partition: int, batches: int, size: int = 10) -> None:
    log = broker.log("t", partition)
    for _ in range(batches):
        data = batch(log.end_offset, size)
        log.batches.append(patch_base_offset(data, log.end_offset, 0) + data[16:])
        log.end_offset += size


def one(network: NetworkThread, timeout_s: float = 10.0) -> Fetched:
    while True:
        items = network.fetcher.poll(timeout_s, 1)
        if items:
            return items[0]


# ------------------------------------------------------------------------------------------------------ whole batches


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 200))
def test_whole_batches_end_where_a_batch_ends(counts: list[int], cut: int) -> None:
    log, ends, offset = b"", [(0, -1, -1)], 0
    for epoch, count in enumerate(counts):
        data = batch(offset, count)
        log += patch_base_offset(data, offset, epoch) + data[16:]
        offset += count
        ends.append((len(log), offset, epoch))
    part = memoryview(log)[: max(0, len(log) - cut)]
    assert whole_batches(part) == max(end for end in ends if end[0] <= len(part))


@given(st.binary(max_size=100))
def test_whole_batches_of_garbage_stay_inside(data: bytes) -> None:
    size, _, _ = whole_batches(memoryview(data))
    assert 0 <= size <= len(data)


# ------------------------------------------------------------------------------------------------------------- buffers


def test_everything_is_delivered_in_order_and_without_gaps(broker: ScriptedBroker, connect: Connect) -> None:
    for partition in range(3):
        fill(broker, partition, 100)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=2_000, buffer_bytes=10_000))
    network.fetcher.add_partitions({("t", 0): 0, ("t", 1): 15, ("t", 2): 990})
    found = collect(network.fetcher, 1_000 + 985 + 10)
    assert found == {("t", 0): list(range(1_000)), ("t", 1): list(range(15, 1_000)), ("t", 2): list(range(990, 1_000))}
    assert network.fetcher.buffered_bytes == 0


def test_that_a_partition_has_nothing_is_told_once_to_whoever_wants_to_know(
    broker: ScriptedBroker, connect: Connect
) -> None:
    fill(broker, 0, 2)
    fill(broker, 1, 1)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0, ("t", 1): 10, ("t", 2): 0}, reports_empty=True)
    found = {item.partition: item for item in (one(network), one(network), one(network))}
    ends = {number: (len(item.buffer) > 0, item.next_offset, item.readable_end) for number, item in found.items()}
    assert ends == {0: (True, 20, 20), 1: (False, 10, 10), 2: (False, 0, 0)}
    fill(broker, 1, 1)
    assert (one(network).partition, network.fetcher.poll(0.0)) == (1, [])


def test_a_partition_is_added_without_touching_the_others(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 20)
    fill(broker, 1, 20)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=500))
    network.fetcher.add_partitions({("t", 0): 0})
    first = one(network)
    network.fetcher.add_partitions({("t", 1): 0})
    found = collect_with(network, first, 400)
    assert found == {("t", 0): list(range(200)), ("t", 1): list(range(200))}


def collect_with(network: NetworkThread, first: Fetched, count: int) -> dict[tuple[str, int], list[int]]:
    taken = numbers(first)
    rest = collect(network.fetcher, count - len(taken))
    tp = (first.topic, first.partition)
    return {**rest, tp: taken + rest.get(tp, [])}


def test_nothing_of_a_removed_partition_is_delivered(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 50)
    fill(broker, 1, 5)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=1_000))
    network.fetcher.add_partitions({("t", 0): 0, ("t", 1): 0})
    one(network)
    network.fetcher.remove_partitions([("t", 0), ("t", 7)])
    rest = [item for _ in range(20) for item in network.fetcher.poll(0.02)]
    assert {item.partition for item in rest} <= {1}


def test_a_moved_partition_starts_at_its_new_position(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 50)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=1_000))
    network.fetcher.add_partitions({("t", 0): 0})
    one(network)
    network.fetcher.add_partitions({("t", 0): 495})
    item = one(network)
    assert (item.offset, numbers(item)) == (495, [495, 496, 497, 498, 499])


def test_a_pause_keeps_the_buffer(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 3)
    fill(broker, 1, 3)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0})
    network.wait(10.0)
    assert network.fetcher.buffered_bytes > 0
    network.fetcher.pause([("t", 0)])
    network.fetcher.add_partitions({("t", 1): 0})
    assert collect(network.fetcher, 30) == {("t", 1): list(range(30))}
    fetches = broker.count(types.FetchRequest)
    network.fetcher.resume([("t", 0)])
    (kept,) = network.fetcher.poll(0.0)
    assert numbers(kept) == list(range(30))
    assert broker.count(types.FetchRequest) - fetches <= 1


def test_fetching_stops_while_the_buffers_are_full(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 500)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=4_000, buffer_bytes=8_000))
    network.fetcher.add_partitions({("t", 0): 0})
    wait_for_bytes(network, 4_000 - 500)
    assert network.fetcher.buffered_bytes <= 8_000
    assert collect(network.fetcher, 5_000) == {("t", 0): list(range(5_000))}


def test_what_paused_partitions_have_does_not_hold_up_others(broker: ScriptedBroker, connect: Connect) -> None:
    """A task that waits for one input takes nothing of another one, which is paused then."""
    fill(broker, 0, 500)
    fill(broker, 1, 1)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=4_000, buffer_bytes=4_000))
    network.fetcher.add_partitions({("t", 0): 0})
    wait_for_bytes(network, 4_000)
    network.fetcher.pause([("t", 0)])
    assert network.fetcher.buffered_bytes == 0
    network.fetcher.add_partitions({("t", 1): 0})
    assert numbers(one(network)) == list(range(10))
    network.fetcher.resume([("t", 0)])
    assert network.fetcher.buffered_bytes >= 4_000
    assert collect(network.fetcher, 5_000) == {("t", 0): list(range(5_000))}
    network.fetcher.pause([("t", 0)])
    network.fetcher.remove_partitions([("t", 0)])
    assert network.fetcher.buffered_bytes == 0


def test_beside_full_paused_partitions_others_are_fetched_in_small_pieces(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """Each of them may be paused with what it has: a thousand partitions would have a megabyte each."""
    for partition in range(2):
        fill(broker, partition, 2_000)
    large_bytes = 3 * SMALL_PIECE_BYTES
    network = connect(
        broker.address, fetch=FetchConfig(max_partition_bytes=large_bytes, buffer_bytes=2 * SMALL_PIECE_BYTES)
    )
    network.fetcher.add_partitions({("t", 0): 0})
    wait_for_bytes(network, 2 * SMALL_PIECE_BYTES)
    network.fetcher.pause([("t", 0)])
    before = len(broker.requests)
    network.fetcher.add_partitions({("t", 1): 0})
    first = one(network)
    assert len(first.buffer) <= SMALL_PIECE_BYTES
    network.fetcher.resume([("t", 0)])
    assert len(collect(network.fetcher, 40_000 - len(numbers(first)))[("t", 0)]) == 20_000
    requests = [request for request in broker.requests[before:] if isinstance(request, types.FetchRequest)]
    asked = [each.partition_max_bytes for request in requests for topic in request.topics for each in topic.partitions]
    assert (asked[0], asked[-1]) == (SMALL_PIECE_BYTES, large_bytes)


def test_fetches_of_a_few_records_count_with_what_they_take_beside_them(
    broker: ScriptedBroker, connect: Connect
) -> None:
    fill(broker, 0, 1)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0})
    wait_for_bytes(network, 1)
    before = network.fetcher.buffered_bytes
    (item,) = network.fetcher.poll(0.0)
    assert before == item.held_bytes == len(item.buffer) + FETCHED_BYTES


def test_a_few_records_do_not_keep_their_response_in_memory(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 500)
    fill(broker, 1, 1)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0, ("t", 1): 0})
    items = {item.partition: item for item in (one(network), one(network))}
    assert len(items[1].buffer.obj) == len(items[1].buffer)


def test_no_more_is_asked_for_than_there_is_room_for(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 50)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=4_000, buffer_bytes=30_000))
    network.fetcher.add_partitions({("t", 0): 0})
    assert collect(network.fetcher, 500) == {("t", 0): list(range(500))}
    asked = [request.max_bytes for request in broker.requests if isinstance(request, types.FetchRequest)]
    assert 4_000 <= min(asked) <= max(asked) == 30_000


def wait_for_bytes(network: NetworkThread, size: int) -> None:
    while network.fetcher.buffered_bytes < size:
        network.wait(0.02)


def test_an_idle_partition_does_not_hold_up_a_busy_one(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 300)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=1_000, max_wait_ms=5_000))
    network.fetcher.add_partitions({("t", 0): 0, ("t", 1): 0})
    assert collect(network.fetcher, 3_000, timeout_s=10.0) == {("t", 0): list(range(3_000))}


# -------------------------------------------------------------------------------------------------------------- errors


def test_a_position_outside_the_log_is_an_error_of_that_partition(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 1)
    fill(broker, 1, 1)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 5_000})
    item = one(network)
    assert isinstance(item.error, OffsetOutOfRangeError)
    assert "t-0: offset 5000 is not in the log, which begins at 0 and ends at 10" in str(item.error)
    network.fetcher.add_partitions({("t", 1): 0})
    assert collect(network.fetcher, 10) == {("t", 1): list(range(10))}
    network.fetcher.add_partitions({("t", 0): 0})
    assert collect(network.fetcher, 10) == {("t", 0): list(range(10))}


def test_a_leader_that_does_not_know_who_wrote_the_last_record_is_asked_for_the_offset_alone(
    broker: ScriptedBroker, connect: Connect
) -> None:
    fill(broker, 0, 100)
    refuse, refused = fetch_error(ErrorCode.OFFSET_OUT_OF_RANGE), []

    def hook(request: Any) -> Any:
        epochs = [each.last_fetched_epoch for topic in request.topics for each in topic.partitions]
        if max(epochs, default=-1) < 0:
            return None
        refused.append(epochs)
        return refuse(request)

    broker.hooks[ApiKey.FETCH] = hook
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=1_000))
    network.fetcher.add_partitions({("t", 0): 0})
    assert collect(network.fetcher, 1_000) == {("t", 0): list(range(1_000))}
    assert refused


def test_what_can_not_be_read_is_told_and_rests(broker: ScriptedBroker, connect: Connect) -> None:
    broker.hooks[ApiKey.FETCH] = failing(1, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0})
    error = one(network).error
    assert type(error) is FetchError
    assert error.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fill(broker, 0, 1)
    assert network.fetcher.poll(0.2) == []


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_moving_leader_is_followed(broker: ScriptedBroker, connect: Connect, code: ErrorCode) -> None:
    fill(broker, 0, 5)
    broker.hooks[ApiKey.FETCH] = failing(2, fetch_error(code))
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0})
    assert collect(network.fetcher, 50) == {("t", 0): list(range(50))}


def test_a_broken_connection_is_opened_again(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 100)
    calls = [0]

    def drop_some(_: object) -> object:
        calls[0] += 1
        return DROP if calls[0] in {2, 3, 7} else None

    broker.after[ApiKey.FETCH] = drop_some
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=1_000))
    network.fetcher.add_partitions({("t", 0): 0})
    assert collect(network.fetcher, 1_000) == {("t", 0): list(range(1_000))}


def test_fetching_goes_on_after_an_outage(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 0, 2)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0})
    assert collect(network.fetcher, 20) == {("t", 0): list(range(20))}
    broker.go_down()
    wait_for(lambda: "can't be reached, retrying" in caplog.text, network.fetcher)
    tries = broker.connections
    fill(broker, 0, 2)
    broker.start()
    assert collect(network.fetcher, 20) == {("t", 0): list(range(20, 40))}
    assert broker.connections > tries
    outages = [record for record in caplog.records if "can't be reached, retrying" in record.getMessage()]
    assert len(outages) == 1, "one line for an outage, whatever the number of tries"


def test_a_topic_that_appears_late_is_fetched(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    network.fetcher.add_partitions({("late", 0): 0})
    assert network.fetcher.poll(0.1) == []
    broker.topics["late"] = 1
    network.producer.send("late", 0, batch(0, 5), 5)
    network.producer.flush(20.0)
    assert collect(network.fetcher, 5) == {("late", 0): list(range(5))}


def test_the_restorer_is_a_fetcher_of_its_own(broker: ScriptedBroker, connect: Connect) -> None:
    fill(broker, 0, 2)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 10})
    network.restorer.add_partitions({("t", 0): 0})
    assert collect(network.restorer, 20) == {("t", 0): list(range(20))}
    assert collect(network.fetcher, 10) == {("t", 0): list(range(10, 20))}


def test_a_partition_that_may_lag_is_fetched_in_larger_pieces(broker: ScriptedBroker, connect: Connect) -> None:
    times: dict[str, list[float]] = {"asked": [], "answered": []}
    broker.hooks[ApiKey.FETCH] = lambda _: times["asked"].append(time.monotonic())
    broker.after[ApiKey.FETCH] = lambda _: times["answered"].append(time.monotonic())
    fill(broker, 0, 1)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0}, may_lag=True)
    assert collect(network.fetcher, 10) == {("t", 0): list(range(10))}
    fill(broker, 0, 2)
    assert collect(network.fetcher, 20) == {("t", 0): list(range(10, 30))}
    assert times["asked"][1] - times["answered"][0] >= LAG_S


def test_a_partition_that_may_not_lag_does_not_wait_for_one_that_may(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsrt.client.fetcher.LAG_S", 600.0)
    fill(broker, 0, 1)
    network = connect(broker.address)
    network.fetcher.add_partitions({("t", 0): 0}, may_lag=True)
    assert collect(network.fetcher, 10) == {("t", 0): list(range(10))}
    fill(broker, 1, 1)
    network.fetcher.add_partitions({("t", 1): 0})
    assert collect(network.fetcher, 10) == {("t", 1): list(range(10))}


def test_a_partition_that_is_behind_does_not_lag(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsrt.client.fetcher.LAG_S", 600.0)
    fill(broker, 0, 100)
    network = connect(broker.address, fetch=FetchConfig(max_partition_bytes=2_000, buffer_bytes=10_000))
    network.fetcher.add_partitions({("t", 0): 0}, may_lag=True)
    assert collect(network.fetcher, 1_000) == {("t", 0): list(range(1_000))}


def test_wake_ends_a_wait(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    threading.Timer(0.1, network.wake).start()
    assert network.wait(20.0) is True
    assert network.wait(0.01) is False
