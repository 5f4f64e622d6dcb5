"""The transaction machine over a log: who may do what in which state, and what stands in the log then."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.machine.values import ProducerIdAndEpoch
from coordinator.shard.journal import append_rows
from coordinator.shard.transaction_shard import TransactionOutcome, TransactionShard
from coordinator.txn.config import TransactionConfig
from coordinator.txn.machine import LAST_EPOCH, check_write, needs_producer_id
from coordinator.txn.state import Transaction, TransactionsState, TransactionState, record_of
from coordinator.txn.values import (
    NO_PRODUCER,
    AddPartitions,
    EndTransaction,
    Event,
    InitProducer,
    MarkersFailed,
    MarkersWritten,
    ProducerReply,
    TopicPartition,
    WriteMarkers,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import encode_record_key, encode_record_value
from tests.coordinator.group.memory_log import MemoryLog

CONFIG = TransactionConfig(max_timeout_ms=60_000, id_expiration_ms=1_000_000)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NONE = ErrorCode.NONE


class Coordinator:
    """A shard whose markers the test writes, by a clock that the test moves. Producer ids count from 100."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.shard = TransactionShard(self.log, CONFIG)
        self.shard.load(0)
        self.now_ms = 0
        self.ids = 100
        self.effects: list[WriteMarkers] = []

    def ask(self, event: Event) -> Any:
        outcome = self.shard.execute(event, self.now_ms)
        self.effects += outcome.effects
        return outcome.reply

    def init(
        self, name: str = "x", expected: ProducerIdAndEpoch = NO_PRODUCER, timeout_ms: int = 1000
    ) -> ProducerReply:
        event = InitProducer(name, timeout_ms, expected)
        if needs_producer_id(self.shard.state, event):
            event = InitProducer(name, timeout_ms, expected, self.ids)
            self.ids += 1
        reply: ProducerReply = self.ask(event)
        return reply

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, name: str = "x") -> ErrorCode:
        code: ErrorCode = self.ask(AddPartitions(name, producer, frozenset(partitions))).code
        return code

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool = True, name: str = "x") -> ErrorCode:
        code: ErrorCode = self.ask(EndTransaction(name, producer, committed)).code
        return code

    def finish(self) -> WriteMarkers:
        """Says that the markers of the one effect are written."""
        (effect,) = self.effects
        self.effects.clear()
        self.ask(MarkersWritten(effect.transactional_id))
        return effect

    def tick(self, now_ms: int) -> TransactionOutcome:
        self.now_ms = now_ms
        outcome = self.shard.tick(now_ms)
        self.effects += outcome.effects
        return outcome

    def jump_to(self, producer: ProducerIdAndEpoch) -> None:
        """A load of a log whose last record gives the id "x" to this producer."""
        key, value = record_of(Transaction("x", producer, 1000, TransactionState.EMPTY))
        assert value is not None
        append_rows(self.log, [encode_record_key(key)], [encode_record_value(value)], 0)
        self.reload()

    def reload(self) -> None:
        self.shard = TransactionShard(self.log, CONFIG)
        self.effects = list(self.shard.load(self.now_ms).effects)

    def transaction(self, name: str = "x") -> Transaction:
        return self.shard.state.transactions[name]

    @property
    def status(self) -> TransactionState:
        return self.transaction().status


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def ongoing(coordinator: Coordinator) -> ProducerIdAndEpoch:
    producer = coordinator.init().producer
    assert coordinator.add(producer, T0, U0) == NONE
    return producer


def prepared(coordinator: Coordinator, *, committed: bool = True) -> ProducerIdAndEpoch:
    producer = ongoing(coordinator)
    assert coordinator.end(producer, committed=committed) == NONE
    return producer


class TestInit:
    def test_a_new_id_has_epoch_0_and_each_later_init_the_next(self, coordinator: Coordinator) -> None:
        assert [coordinator.init().producer for _ in range(3)] == [(100, 0), (100, 1), (100, 2)]
        assert coordinator.init("y").producer == (101, 0)

    @pytest.mark.parametrize(
        ("event", "code"),
        [
            (InitProducer("", 1000), ErrorCode.INVALID_REQUEST),
            (InitProducer("x", 1000, ProducerIdAndEpoch(5, -1)), ErrorCode.INVALID_REQUEST),
            (InitProducer("x", 1000, ProducerIdAndEpoch(-1, 5)), ErrorCode.INVALID_REQUEST),
            (InitProducer("x", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            (InitProducer("x", 60_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ],
    )
    def test_what_is_refused(self, coordinator: Coordinator, event: InitProducer, code: ErrorCode) -> None:
        assert coordinator.ask(event) == ProducerReply(code)
        assert coordinator.log.batches == []

    def test_during_a_transaction_it_is_aborted_first(self, coordinator: Coordinator) -> None:
        producer = ongoing(coordinator)
        assert coordinator.init().code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert coordinator.status == TransactionState.PREPARE_ABORT
        assert coordinator.init().code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert coordinator.finish() == WriteMarkers("x", ProducerIdAndEpoch(100, 1), False, (T0, U0))
        assert coordinator.init() == ProducerReply(NONE, ProducerIdAndEpoch(100, 2))
        assert coordinator.add(producer, T0) == ErrorCode.PRODUCER_FENCED
        assert coordinator.end(producer) == ErrorCode.PRODUCER_FENCED

    def test_after_the_last_epoch_comes_another_producer_id(self, coordinator: Coordinator) -> None:
        coordinator.init()
        coordinator.jump_to(ProducerIdAndEpoch(100, LAST_EPOCH - 1))
        assert coordinator.init().producer == (100, LAST_EPOCH)
        last = ProducerIdAndEpoch(100, LAST_EPOCH)
        assert coordinator.init(expected=last).producer == (101, 0)
        assert coordinator.init(expected=last).producer == (101, 0), "asked again: the answer got lost"
        assert coordinator.add(last, T0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_fencing_at_the_last_epoch(self, coordinator: Coordinator) -> None:
        coordinator.init()
        last = ProducerIdAndEpoch(100, LAST_EPOCH)
        coordinator.jump_to(last)
        assert coordinator.add(last, T0) == NONE
        assert coordinator.init().code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert coordinator.finish().producer == (100, 32767)
        assert coordinator.init().producer == (101, 0)


class TestInitWithAKnownProducer:
    def test_the_current_epoch_is_raised(self, coordinator: Coordinator) -> None:
        first = coordinator.init().producer
        assert coordinator.init(expected=first).producer == (100, 1)

    def test_asked_again_it_is_answered_again(self, coordinator: Coordinator) -> None:
        first = coordinator.init().producer
        coordinator.init(expected=first)
        assert coordinator.init(expected=first) == ProducerReply(NONE, ProducerIdAndEpoch(100, 1))

    def test_but_not_once_the_answer_was_used(self, coordinator: Coordinator) -> None:
        first = coordinator.init().producer
        second = coordinator.init(expected=first).producer
        coordinator.add(second, T0)
        assert coordinator.init(expected=first).code == ErrorCode.PRODUCER_FENCED
        coordinator.end(second)
        coordinator.finish()
        assert coordinator.init(expected=first).code == ErrorCode.PRODUCER_FENCED

    def test_nor_when_another_producer_came(self, coordinator: Coordinator) -> None:
        first = coordinator.init().producer
        coordinator.init()
        assert coordinator.init(expected=first).code == ErrorCode.PRODUCER_FENCED
        assert coordinator.init(expected=ProducerIdAndEpoch(7, 0)).code == ErrorCode.PRODUCER_FENCED

    def test_its_own_transaction_is_aborted_and_it_goes_on(self, coordinator: Coordinator) -> None:
        producer = ongoing(coordinator)
        assert coordinator.init(expected=producer).code == ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.finish()
        assert coordinator.init(expected=producer).producer == (100, 2)

    def test_an_old_one_does_not_abort_the_transaction_of_the_new(self, coordinator: Coordinator) -> None:
        old = coordinator.init().producer
        ongoing(coordinator)
        assert coordinator.init(expected=old).code == ErrorCode.PRODUCER_FENCED
        assert coordinator.status == TransactionState.ONGOING

    def test_for_an_id_that_is_forgotten(self, coordinator: Coordinator) -> None:
        assert coordinator.init(expected=ProducerIdAndEpoch(7, 3)).producer == (100, 0)

    def test_after_a_restart_a_missed_answer_is_lost(self, coordinator: Coordinator) -> None:
        first = coordinator.init().producer
        coordinator.init(expected=first)
        coordinator.reload()
        assert coordinator.init(expected=first).code == ErrorCode.PRODUCER_FENCED


class TestTransaction:
    @pytest.mark.parametrize(
        ("committed", "states"),
        [
            (True, [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]),
            (False, [TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]),
        ],
    )
    def test_its_life(self, coordinator: Coordinator, committed: bool, states: list[TransactionState]) -> None:
        seen = []
        producer = ongoing(coordinator)
        seen.append(coordinator.status)
        assert coordinator.end(producer, committed=committed) == NONE
        seen.append(coordinator.status)
        assert coordinator.finish() == WriteMarkers("x", producer, committed, (T0, U0))
        seen.append(coordinator.status)
        assert seen == states
        assert coordinator.transaction().partitions == frozenset()

    def test_partitions_are_added_and_those_it_has_write_nothing(self, coordinator: Coordinator) -> None:
        producer = ongoing(coordinator)
        count = len(coordinator.log.batches)
        coordinator.now_ms = 500
        assert coordinator.add(producer, U0) == NONE
        assert len(coordinator.log.batches) == count
        assert coordinator.add(producer, T1) == NONE
        assert (coordinator.transaction().partitions, coordinator.transaction().start_ms) == ({T0, T1, U0}, 0)

    @pytest.mark.parametrize("committed", [True, False])
    def test_the_end_asked_for_again(self, coordinator: Coordinator, committed: bool) -> None:
        producer = prepared(coordinator, committed=committed)
        assert coordinator.end(producer, committed=committed) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert coordinator.end(producer, committed=not committed) == ErrorCode.INVALID_TXN_STATE
        coordinator.finish()
        count = len(coordinator.log.batches)
        assert coordinator.end(producer, committed=committed) == NONE
        assert coordinator.end(producer, committed=not committed) == ErrorCode.INVALID_TXN_STATE
        assert len(coordinator.log.batches) == count

    def test_without_a_transaction_there_is_no_end(self, coordinator: Coordinator) -> None:
        producer = coordinator.init().producer
        assert coordinator.end(producer) == ErrorCode.INVALID_TXN_STATE

    def test_the_next_one_waits_for_the_markers(self, coordinator: Coordinator) -> None:
        producer = prepared(coordinator)
        assert coordinator.add(producer, T1) == ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.finish()
        assert coordinator.add(producer, T1) == NONE
        assert coordinator.transaction().partitions == {T1}

    @pytest.mark.parametrize(
        ("name", "producer", "code"),
        [
            ("", ProducerIdAndEpoch(100, 0), ErrorCode.INVALID_REQUEST),
            ("y", ProducerIdAndEpoch(100, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            ("x", ProducerIdAndEpoch(99, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            ("x", ProducerIdAndEpoch(100, 1), ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_somebody_else(
        self, coordinator: Coordinator, name: str, producer: ProducerIdAndEpoch, code: ErrorCode
    ) -> None:
        ongoing(coordinator)
        assert coordinator.add(producer, T0, name=name) == code
        assert coordinator.end(producer, name=name) == code
        assert coordinator.status == TransactionState.ONGOING

    def test_who_may_write_where(self, coordinator: Coordinator) -> None:
        def code(producer: ProducerIdAndEpoch, partition: TopicPartition, name: str = "x") -> ErrorCode:
            return check_write(coordinator.shard.state, name, producer, partition)

        producer = coordinator.init().producer
        assert code(producer, T0) == ErrorCode.INVALID_TXN_STATE
        coordinator.add(producer, T0)
        assert code(producer, T0) == NONE
        assert code(producer, T1) == ErrorCode.INVALID_TXN_STATE
        assert code(producer._replace(epoch=1), T0) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert code(producer._replace(id=1), T0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code(producer, T0, "y") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        coordinator.end(producer)
        assert code(producer, T0) == ErrorCode.INVALID_TXN_STATE


class TestTime:
    def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(
        self, coordinator: Coordinator
    ) -> None:
        producer = ongoing(coordinator)
        coordinator.tick(999)
        assert coordinator.status == TransactionState.ONGOING
        coordinator.tick(1000)
        assert coordinator.finish() == WriteMarkers("x", ProducerIdAndEpoch(100, 1), False, (T0, U0))
        assert coordinator.status == TransactionState.COMPLETE_ABORT
        assert coordinator.end(producer) == ErrorCode.PRODUCER_FENCED

    def test_it_counts_from_the_first_partition(self, coordinator: Coordinator) -> None:
        producer = ongoing(coordinator)
        coordinator.now_ms = 900
        coordinator.add(producer, T1)
        coordinator.tick(1000)
        assert coordinator.status == TransactionState.PREPARE_ABORT

    def test_one_that_ended_in_time_is_left_alone(self, coordinator: Coordinator) -> None:
        prepared(coordinator)
        coordinator.finish()
        coordinator.tick(5000)
        assert coordinator.status == TransactionState.COMPLETE_COMMIT

    def test_markers_that_fail_are_tried_again(self, coordinator: Coordinator) -> None:
        prepared(coordinator)
        effect = coordinator.effects.pop()
        coordinator.ask(MarkersFailed("x"))
        coordinator.tick(999)
        assert coordinator.effects == []
        coordinator.tick(1000)
        assert coordinator.effects == [effect]
        coordinator.finish()
        coordinator.tick(10_000)
        assert coordinator.effects == []

    def test_an_id_that_nobody_uses_is_forgotten(self, coordinator: Coordinator) -> None:
        coordinator.init()
        coordinator.tick(999_999)
        coordinator.init()
        coordinator.tick(1_000_000)
        assert "x" in coordinator.shard.state.transactions
        coordinator.tick(1_999_999)
        assert coordinator.shard.state == TransactionsState()
        coordinator.reload()
        assert coordinator.shard.state == TransactionsState()

    def test_one_in_a_transaction_is_not(self, coordinator: Coordinator) -> None:
        producer = coordinator.init(timeout_ms=60_000).producer
        coordinator.tick(990_000)
        coordinator.add(producer, T0)
        coordinator.tick(1_000_000)
        assert coordinator.status == TransactionState.ONGOING


class TestFailedAppends:
    def test_nothing_changes_and_the_client_may_ask_again(self, coordinator: Coordinator) -> None:
        producer = ongoing(coordinator)
        state = coordinator.shard.state
        coordinator.log.fail_next = 2
        assert coordinator.add(producer, T1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert coordinator.end(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (coordinator.shard.state, coordinator.effects) == (state, [])
        assert coordinator.end(producer) == NONE

    def test_a_time_out_is_tried_again(self, coordinator: Coordinator) -> None:
        ongoing(coordinator)
        coordinator.log.fail_next = 1
        coordinator.tick(1000)
        assert (coordinator.status, coordinator.effects) == (TransactionState.ONGOING, [])
        coordinator.tick(2000)
        assert coordinator.status == TransactionState.PREPARE_ABORT

    def test_markers_that_could_not_be_noted_are_written_again(self, coordinator: Coordinator) -> None:
        prepared(coordinator)
        coordinator.log.fail_next = 1
        effect = coordinator.finish()
        assert coordinator.status == TransactionState.PREPARE_COMMIT
        coordinator.tick(1000)
        assert coordinator.effects == [effect]


class TestReload:
    def test_in_every_phase(self, coordinator: Coordinator) -> None:
        steps = [
            coordinator.init,
            lambda: coordinator.add(ProducerIdAndEpoch(100, 0), T0),
            lambda: coordinator.add(ProducerIdAndEpoch(100, 0), U0),
            lambda: coordinator.end(ProducerIdAndEpoch(100, 0), committed=False),
            coordinator.finish,
            lambda: coordinator.add(ProducerIdAndEpoch(100, 0), T1),
            coordinator.init,
            coordinator.finish,
            coordinator.init,
        ]
        for step in steps:
            step()
            state, deadline_ms = coordinator.shard.state, coordinator.shard.next_deadline_ms()
            effects = coordinator.effects
            coordinator.reload()
            assert coordinator.shard.state == state
            assert coordinator.shard.next_deadline_ms() == deadline_ms
            assert coordinator.effects == effects

    def test_what_ran_out_of_time_meanwhile_is_aborted_at_once(self, coordinator: Coordinator) -> None:
        ongoing(coordinator)
        coordinator.now_ms = 50_000
        coordinator.reload()
        coordinator.tick(50_000)
        assert coordinator.status == TransactionState.PREPARE_ABORT

    def test_the_records_are_kafkas(self, coordinator: Coordinator) -> None:
        coordinator.now_ms = 7
        producer = coordinator.init(timeout_ms=1000).producer
        empty = record_of(coordinator.transaction()).value
        assert empty is not None
        assert (empty.transaction_status, empty.transaction_partitions) == (0, None)
        coordinator.add(producer, U0, T1, T0)
        value = record_of(coordinator.transaction()).value
        assert value is not None
        assert (value.transaction_status, value.transaction_start_timestamp_ms) == (1, 7)
        assert value.transaction_partitions is not None
        assert [(e.topic, e.partition_ids) for e in value.transaction_partitions] == [("t", [0, 1]), ("u", [0])]
