"""Transactions against a broker that fails on command: what is asked twice is done once, what can't be known is said."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamsrt.client import transactions
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import (
    CallAbandonedError,
    CommitError,
    OffsetAndMetadata,
    ProducerConfig,
    ProducerFencedError,
    StaleMemberEpochError,
    TransactionLostError,
    UnknownMemberError,
)
from streamsrt.errors import ProductionError, RequestFailedError, StreamsError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import encode_batch, read_header
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.conftest import Connect, StandStill
from tests.streamsrt.client.scripted_broker import DROP, Hook, ScriptedBroker, failing, produce_error
from tests.system.processes import wait_until

pytestmark = pytest.mark.waits

WAIT_S = 10.0
BATCH = encode_batch([b"k"], [b"v"], [0], transactional=True)
APIS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 3),
    ApiKey.END_TXN: (0, 3),
    ApiKey.TXN_OFFSET_COMMIT: (0, 3),
}
OFFSETS = {("t", 0): OffsetAndMetadata(1)}
STEPS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: types.AddPartitionsToTxnRequest,
    ApiKey.ADD_OFFSETS_TO_TXN: types.AddOffsetsToTxnRequest,
    ApiKey.TXN_OFFSET_COMMIT: types.TxnOffsetCommitRequest,
    ApiKey.END_TXN: types.EndTxnRequest,
}


def answer(key: ApiKey, code: int) -> Hook:
    """A hook that answers every request of this API with a code."""

    def hook(request: Any) -> Any:
        if key == ApiKey.ADD_PARTITIONS_TO_TXN:
            make = types.AddPartitionsToTxnResponse
            return make(
                results_by_topic_v3_and_below=[
                    make.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            make.AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
                            for n in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        if key == ApiKey.TXN_OFFSET_COMMIT:
            response = types.TxnOffsetCommitResponse
            return response(
                topics=[
                    response.TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            response.TxnOffsetCommitResponsePartition(
                                partition_index=p.partition_index, error_code=code
                            )
                            for p in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        if key == ApiKey.INIT_PRODUCER_ID:
            return types.InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=3)
        kinds = {ApiKey.ADD_OFFSETS_TO_TXN: types.AddOffsetsToTxnResponse, ApiKey.END_TXN: types.EndTxnResponse}
        return kinds[key](error_code=code)

    return hook


@pytest.fixture
def coordinator(broker: ScriptedBroker) -> ScriptedBroker:
    """The scripted broker as a coordinator that agrees to everything."""
    broker.versions.update(APIS)
    broker.versions[ApiKey.PRODUCE] = (3, 13)
    for key in (*STEPS, ApiKey.INIT_PRODUCER_ID):
        broker.hooks[key] = answer(key, ErrorCode.NONE)
    return broker


def first(broker: ScriptedBroker, key: ApiKey, hook: Hook, times: int = 1) -> None:
    """Lets the first requests of an API be answered by ``hook``."""
    then, now = broker.hooks[key], failing(times, hook)
    broker.hooks[key] = lambda request: now(request) or then(request)


def begin(connect: Connect, broker: ScriptedBroker) -> NetworkThread:
    config = ProducerConfig(transactional_id="id", transaction_timeout_ms=5_000)
    network = connect(broker.address, producer=config, retry_backoff_ms=5, reconnect_backoff_ms=5)
    network.transactions.initialize(WAIT_S)
    return network


def send_and_commit(network: NetworkThread, timeout_s: float = WAIT_S) -> dict[tuple[str, int], int]:
    network.producer.send("t", 0, BATCH, 1)
    return network.transactions.commit("g", OFFSETS, member_id="m", member_epoch=4, timeout_s=timeout_s)


def asked(broker: ScriptedBroker) -> list[str]:
    names = [type(request).__name__.removesuffix("Request") for request in broker.requests]
    return [name for name in names if name not in {"ApiVersions", "Metadata", "FindCoordinator"}]


def test_the_steps_of_a_transaction(coordinator: ScriptedBroker, connect: Connect) -> None:
    network = begin(connect, coordinator)
    assert send_and_commit(network) == {("t", 0): 1}
    steps = asked(coordinator)
    assert steps[0] == "InitProducerId"
    assert sorted(steps[1:-1]) == ["AddOffsetsToTxn", "AddPartitionsToTxn", "Produce", "TxnOffsetCommit"]
    assert steps.index("AddPartitionsToTxn") < steps.index("Produce")
    assert steps.index("AddOffsetsToTxn") < steps.index("TxnOffsetCommit")
    assert steps[-1] == "EndTxn"

    (produce,) = [request for request in coordinator.requests if isinstance(request, types.ProduceRequest)]
    assert produce.transactional_id == "id"
    header = read_header(coordinator.log("t", 0).batches[0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    (offsets,) = [request for request in coordinator.requests if isinstance(request, types.TxnOffsetCommitRequest)]
    assert (offsets.group_id, offsets.member_id, offsets.generation_id_or_member_epoch) == ("g", "m", 4)
    (end,) = [request for request in coordinator.requests if isinstance(request, types.EndTxnRequest)]
    assert end.committed


def test_sequences_go_on_over_transactions(coordinator: ScriptedBroker, connect: Connect) -> None:
    network = begin(connect, coordinator)
    for _ in range(3):
        send_and_commit(network)
    assert [read_header(each).base_sequence for each in coordinator.log("t", 0).batches] == [0, 1, 2]
    assert coordinator.count(types.AddPartitionsToTxnRequest) == 3


def test_a_broker_asks_for_one_request_of_a_transaction_at_a_time(
    coordinator: ScriptedBroker, connect: Connect
) -> None:
    """Of several requests, Apache Kafka's brokers fail all but one while they ask whether partitions were added."""
    network = begin(connect, coordinator)
    send_and_commit(network)
    coordinator.requests.clear()
    missing = produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.hooks[ApiKey.PRODUCE] = failing(2, missing)
    for _ in range(3):
        network.producer.send("t", 0, BATCH, 1)
    send_and_commit(network)
    steps = asked(coordinator)
    assert steps.index("TxnOffsetCommit") > [at for at, step in enumerate(steps) if step == "Produce"][2]
    sent = [
        read_header(request.topic_data[0].partition_data[0].records).base_sequence
        for request in coordinator.requests
        if isinstance(request, types.ProduceRequest)
    ]
    assert sent == [1, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("key", STEPS, ids=lambda key: key.name)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        None,
    ],
    ids=lambda code: "DROP" if code is None else code.name,
)
def test_what_may_be_tried_again_is(
    coordinator: ScriptedBroker, connect: Connect, key: ApiKey, code: ErrorCode | None
) -> None:
    first(coordinator, key, (lambda _: DROP) if code is None else answer(key, code), times=2)
    network = begin(connect, coordinator)
    assert send_and_commit(network) == {("t", 0): 1}
    assert coordinator.count(STEPS[key]) == 3
    assert network.transactions.is_ready


def test_an_initialization_waits_for_the_transaction_before(coordinator: ScriptedBroker, connect: Connect) -> None:
    busy = answer(ApiKey.INIT_PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS)
    first(coordinator, ApiKey.INIT_PRODUCER_ID, busy, times=3)
    network = begin(connect, coordinator)
    assert coordinator.count(types.InitProducerIdRequest) == 4
    assert network.transactions.is_ready


@pytest.mark.parametrize("key", STEPS, ids=lambda key: key.name)
def test_a_fenced_producer_ends_its_transaction(coordinator: ScriptedBroker, connect: Connect, key: ApiKey) -> None:
    coordinator.hooks[key] = answer(key, ErrorCode.INVALID_PRODUCER_EPOCH)
    network = begin(connect, coordinator)
    with pytest.raises(ProducerFencedError, match=r"transaction\.timeout\.ms"):
        send_and_commit(network)
    assert not network.transactions.is_ready
    coordinator.hooks[key] = answer(key, ErrorCode.NONE)
    network.transactions.initialize(WAIT_S)
    coordinator.log("t", 0).recent.clear()
    send_and_commit(network)


def test_a_failure_that_is_found_by_the_next_commit_ends_the_transaction_too(
    coordinator: ScriptedBroker, connect: Connect
) -> None:
    coordinator.hooks[ApiKey.ADD_PARTITIONS_TO_TXN] = answer(
        ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_PRODUCER_EPOCH
    )
    network = begin(connect, coordinator)
    network.producer.send("t", 0, BATCH, 1)
    wait_until(lambda: not network.transactions.is_ready, "the producer has failed")
    for _ in range(2):
        with pytest.raises(StreamsError):
            network.transactions.commit("g", OFFSETS, member_id="m", member_epoch=4, timeout_s=WAIT_S)
        assert not network.transactions.is_ready


def test_a_failure_whose_error_was_raised_ends_the_transaction_too(
    coordinator: ScriptedBroker, connect: Connect
) -> None:
    """Whoever sends may have caught it: the offsets of what was not written must not be committed."""
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    coordinator.hooks[key] = answer(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    network = begin(connect, coordinator)
    network.producer.send("t", 0, BATCH, 1)
    wait_until(lambda: not network.transactions.is_ready, "the producer has failed")
    with pytest.raises(ProductionError, match=r"lacks WRITE on topic 't'\. Grant it: kafka-acls.*--topic t") as refused:
        network.producer.send("t", 0, BATCH, 1)
    assert refused.value.exit_code == 3, "any other record would be refused as well"
    assert not network.transactions.is_ready
    with pytest.raises(TransactionLostError, match=r"initialized.*TOPIC_AUTHORIZATION_FAILED"):
        network.transactions.commit("g", OFFSETS, member_id="m", member_epoch=4, timeout_s=WAIT_S)
    assert coordinator.count(types.EndTxnRequest) == 0
    network.transactions.initialize(WAIT_S)
    assert network.transactions.is_ready


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.ILLEGAL_GENERATION, StaleMemberEpochError),
        (ErrorCode.STALE_MEMBER_EPOCH, StaleMemberEpochError),
        (ErrorCode.UNKNOWN_MEMBER_ID, UnknownMemberError),
    ],
)
def test_refused_offsets_leave_the_transaction_open(
    coordinator: ScriptedBroker, connect: Connect, code: ErrorCode, kind: type[CommitError]
) -> None:
    key = ApiKey.TXN_OFFSET_COMMIT
    first(coordinator, key, answer(key, code))
    network = begin(connect, coordinator)
    with pytest.raises(kind):
        send_and_commit(network)
    assert network.transactions.is_ready
    assert network.transactions.is_open
    ends = network.transactions.commit("g", OFFSETS, member_id="m", member_epoch=5, timeout_s=WAIT_S)
    assert ends == {("t", 0): 1}
    assert coordinator.count(types.AddOffsetsToTxnRequest) == 1
    assert not network.transactions.is_open


def test_offsets_that_the_answer_leaves_out_are_sent_again(coordinator: ScriptedBroker, connect: Connect) -> None:
    key = ApiKey.TXN_OFFSET_COMMIT
    first(coordinator, key, lambda _: types.TxnOffsetCommitResponse(topics=[]))
    assert send_and_commit(begin(connect, coordinator)) == {("t", 0): 1}
    assert coordinator.count(types.TxnOffsetCommitRequest) == 2


def test_a_commit_without_an_answer_is_in_doubt(coordinator: ScriptedBroker, connect: Connect) -> None:
    key = ApiKey.END_TXN
    coordinator.hooks[key] = answer(key, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    network = begin(connect, coordinator)
    with pytest.raises(TransactionLostError, match="in time"):
        send_and_commit(network, timeout_s=0.3)
    with pytest.raises(TransactionLostError, match="initialized"):
        network.transactions.commit("g", {}, member_id="", member_epoch=-1, timeout_s=WAIT_S)
    network.transactions.initialize(WAIT_S)
    assert network.transactions.is_ready
    assert not network.transactions.is_open


def test_a_refused_batch_loses_the_transaction(coordinator: ScriptedBroker, connect: Connect) -> None:
    coordinator.hooks[ApiKey.PRODUCE] = failing(1, produce_error(ErrorCode.MESSAGE_TOO_LARGE))
    network = begin(connect, coordinator)
    with pytest.raises(ProductionError, match=r"max\.message\.bytes"):
        send_and_commit(network)
    assert not network.transactions.is_ready
    assert coordinator.count(types.EndTxnRequest) == 0


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE])
def test_a_batch_of_no_transaction_loses_it(coordinator: ScriptedBroker, connect: Connect, code: ErrorCode) -> None:
    coordinator.hooks[ApiKey.PRODUCE] = failing(1, produce_error(code))
    network = begin(connect, coordinator)
    with pytest.raises(TransactionLostError):
        send_and_commit(network)
    assert not network.transactions.is_ready


def test_a_partition_that_may_not_be_written_is_named(coordinator: ScriptedBroker, connect: Connect) -> None:
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    coordinator.hooks[key] = answer(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    network = begin(connect, coordinator)
    with pytest.raises(ProductionError, match="t-0"):
        send_and_commit(network)


def test_an_id_that_may_not_be_used_is_named(coordinator: ScriptedBroker, connect: Connect) -> None:
    key = ApiKey.INIT_PRODUCER_ID
    coordinator.hooks[key] = answer(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(RequestFailedError, match=r"lacks WRITE on transactional-id 'id'.*--operation WRITE") as failed:
        begin(connect, coordinator)
    assert not isinstance(failed.value, TransactionLostError)


def test_the_right_to_use_ids_is_asked_for_all_that_the_application_has(
    coordinator: ScriptedBroker, connect: Connect
) -> None:
    """Each instance and stream thread has its own: the right to use this one would help it alone."""
    key = ApiKey.INIT_PRODUCER_ID
    coordinator.hooks[key] = answer(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer = ProducerConfig(transactional_id="app-0-1", transactional_id_prefix="app-")
    network = connect(coordinator.address, producer=producer)
    with pytest.raises(
        RequestFailedError,
        match=r"on transactional-id 'app-0-1'.*--resource-pattern-type prefixed --transactional-id app-$",
    ):
        network.transactions.initialize(WAIT_S)


def test_the_right_to_read_the_group_is_named_where_its_offsets_are_refused(
    coordinator: ScriptedBroker, connect: Connect
) -> None:
    key = ApiKey.ADD_OFFSETS_TO_TXN
    coordinator.hooks[key] = answer(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    network = begin(connect, coordinator)
    with pytest.raises(RequestFailedError, match=r"lacks READ on group 'g'\. Grant it: kafka-acls.*--group g"):
        send_and_commit(network)


def test_an_abort_ends_the_transaction_and_gets_a_new_epoch(coordinator: ScriptedBroker, connect: Connect) -> None:
    network = begin(connect, coordinator)
    network.producer.send("t", 0, BATCH, 1)
    network.producer.flush(WAIT_S)
    network.transactions.abort(WAIT_S)
    ends = [request for request in coordinator.requests if isinstance(request, types.EndTxnRequest)]
    assert [end.committed for end in ends] == [False]
    again = [request for request in coordinator.requests if isinstance(request, types.InitProducerIdRequest)][-1]
    assert (again.producer_id, again.producer_epoch) == (7, 3)
    assert network.transactions.is_ready


@pytest.mark.parametrize("key", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN])
def test_a_coordinator_that_fails_unexpectedly_is_asked_again(
    coordinator: ScriptedBroker, connect: Connect, key: ApiKey
) -> None:
    """Kafka's coordinator does so where a request meets its own rollback of the transaction."""
    first(coordinator, key, answer(key, ErrorCode.UNKNOWN_SERVER_ERROR))
    network = begin(connect, coordinator)
    send_and_commit(network)
    assert network.transactions.is_ready


def test_a_coordinator_that_goes_on_failing_is_reported(coordinator: ScriptedBroker, connect: Connect) -> None:
    network = begin(connect, coordinator)
    first(coordinator, ApiKey.END_TXN, answer(ApiKey.END_TXN, ErrorCode.UNKNOWN_SERVER_ERROR), times=10_000)
    with pytest.raises(RequestFailedError, match=r"UNKNOWN_SERVER_ERROR.*its log has the details"):
        send_and_commit(network, timeout_s=1.0)


def test_who_waits_when_the_network_is_stopped_is_told(coordinator: ScriptedBroker, connect: Connect) -> None:
    network = begin(connect, coordinator)
    stopping = threading.Thread(target=network.stop)

    def stop_instead(_: Any) -> Any:
        stopping.start()
        return DROP

    coordinator.hooks[ApiKey.END_TXN] = stop_instead
    network.producer.send("t", 0, BATCH, 1)
    with pytest.raises(CallAbandonedError, match="closed meanwhile"):
        network.transactions.commit("g", {}, member_id="m", member_epoch=4, timeout_s=WAIT_S)
    stopping.join()
    with pytest.raises(CallAbandonedError, match="closed before"):
        network.transactions.initialize(WAIT_S)


def test_a_broker_that_does_not_answer_the_end_is_not_waited_for_any_longer(
    coordinator: ScriptedBroker, connect: Connect, stand_still: StandStill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over long before the request's: as often as it is looked at, it ends no later."""
    monkeypatch.setattr(transactions, "ANSWER_SLACK_S", 0.3)
    monkeypatch.setattr(transactions, "_LOOK_S", 0.05)
    network = begin(connect, coordinator)
    stand_still(ApiKey.END_TXN)
    network.producer.send("t", 0, BATCH, 1)
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(network.transactions.commit, "", {}, member_id="", member_epoch=-1, timeout_s=0.3)
        with pytest.raises(TransactionLostError):
            ended.result(5.0)
