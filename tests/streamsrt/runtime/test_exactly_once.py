"""Exactly once, as the loop does it: all or nothing, with the member's epoch, and over again after whatever went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import pytest

from streamsrt.client.values import (
    DeliveryTimeoutError,
    OffsetAndMetadata,
    ProducerFencedError,
    StaleMemberEpochError,
    TopicPartition,
    TransactionLostError,
    UnknownMemberError,
)
from streamsrt.errors import ConfigError, ProcessingError, ProductionError, StreamsError
from streamsrt.membership.values import NOTHING, LeftGroup, ReleaseTasks, ReportOwned, Tasks, TasksLost
from streamsrt.runtime.exactly_once import ExactlyOnceCommitter, transactional_sink
from streamsrt.runtime.loop.last_calls import CALLS_TIMEOUT_MS
from tests.streamsrt.in_process_network import InProcessMember, InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, MakeRig, Rig, number
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology


class InProcessTransactions:
    """What was sent lies with the producer until the commit appends it, with its offsets, or it is undone."""

    def __init__(self, network: InProcessNetwork, member: InProcessMember) -> None:
        self._network = network
        self._member = member
        self.is_ready = False
        self.initialized = 0
        self.commits: list[tuple[int, dict[TopicPartition, int]]] = []
        self.refusals: list[StreamsError] = []
        """What the next commits raise."""
        self.hindrances: list[StreamsError] = []
        """What the next initializations raise."""
        self.on_refusal: Callable[[], None] = lambda: None
        self.failure: StreamsError | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._network.producer.sent)

    def fail(self, error: StreamsError) -> None:
        """What was sent is dropped, on another thread."""
        self._network.producer.sent.clear()
        self.is_ready, self.failure = False, error

    def check_ready(self) -> None:
        if not self.is_ready:
            failure, self.failure = self.failure, None
            raise failure or TransactionLostError("The producer must be initialized before it can be used again.")

    def initialize(self, timeout_s: float) -> None:
        self.is_ready, self.failure = False, None
        if self.hindrances:
            raise self.hindrances.pop(0)
        self._network.producer.sent.clear()
        self.is_ready = True
        self.initialized += 1

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str,
        member_epoch: int,
        timeout_s: float,
    ) -> dict[TopicPartition, int]:
        self.check_ready()
        if self.refusals:
            self.is_ready = isinstance(self.refusals[0], StaleMemberEpochError | UnknownMemberError)
            self.on_refusal()
            raise self.refusals.pop(0)
        ends = self._network.producer.flush(timeout_s)
        self._network.admin.offsets.update(offsets)
        self.commits.append((member_epoch, {tp: at.offset for tp, at in offsets.items()}))
        return ends

    def abort(self, timeout_s: float) -> None:
        self._network.producer.sent.clear()

    def give_up_after(self, timeout_s: float) -> None:
        self._network.producer.give_up_after(timeout_s)


class ExactlyOnceRig:
    """A member that commits in transactions."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.network = rig.network
        self.transactions = InProcessTransactions(rig.network, rig.member)
        rig.collector._sink = transactional_sink(rig.network.producer)
        rig.thread._committer = ExactlyOnceCommitter("app", self.transactions, rig.collector, rig.member, timeout_s=1.0)

    def began(self, *partitions: int) -> ExactlyOnceRig:
        self.rig.give(Tasks(active=self.rig.tasks(*partitions)))
        self.rig.iterate(4)
        return self

    def commit(self) -> None:
        self.rig.clock_ms += 1_000_000
        self.rig.iterate()

    def committed(self) -> dict[TopicPartition, int]:
        return {tp: at.offset for tp, at in self.network.admin.offsets.items()}


@pytest.fixture
def make_member(make_rig: MakeRig) -> Callable[..., ExactlyOnceRig]:
    return lambda **settings: ExactlyOnceRig(make_rig(**settings))


MakeMember = Callable[..., ExactlyOnceRig]


def keys(*names: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), number(1)) for name in names]


def test_results_changelog_and_offsets_come_together(make_member: MakeMember) -> None:
    member = make_member(cache_max_bytes=0)
    member.network.write(("in", 0), keys("a", "b", "a"))
    member.began(0)
    assert member.rig.thread.processed_records == 3
    assert member.transactions.is_open
    assert (member.network.read("out"), member.network.read(CHANGELOG), member.committed()) == ([], [], {})
    member.commit()
    assert member.committed() == {("in", 0): 3}
    assert [key for key, _ in member.network.read("out")] == [b"a", b"b", b"a"]
    assert [key for key, _ in member.network.read(CHANGELOG)] == [b"a", b"b", b"a"]
    assert member.transactions.commits == [(1, {("in", 0): 3})]


def test_all_tasks_are_committed_when_one_goes(make_member: MakeMember) -> None:
    member = make_member()
    member.network.write(("in", 0), keys("a"))
    member.network.write(("in", 1), keys("b", "b"))
    member.began(0, 1)
    member.rig.give(Tasks(active=member.rig.tasks(1)))
    member.rig.iterate()
    assert member.transactions.commits == [(1, {("in", 0): 1, ("in", 1): 2})]
    assert member.rig.phases() == {1: "active running"}


def test_no_task_starts_before_the_transactional_id_is_initialized(make_member: MakeMember) -> None:
    member = make_member()
    member.transactions.hindrances = [TransactionLostError("not yet"), TransactionLostError("not yet")]
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    assert member.rig.phases() == {0: "active created"}
    # It is tried again every half second, not in every turn.
    assert len(member.transactions.hindrances) == 1
    for _ in range(2):
        member.rig.clock_ms += 500
        member.rig.iterate(3)
    assert member.rig.phases() == {0: "active running"}
    assert member.transactions.initialized == 1


def test_a_timeout_that_the_broker_refuses_ends_the_application(make_member: MakeMember) -> None:
    member = make_member()
    member.transactions.hindrances = [ConfigError("transaction.timeout.ms")]
    member.rig.give(Tasks(active=member.rig.tasks(0)))
    with pytest.raises(ConfigError):
        member.rig.iterate()


@pytest.mark.parametrize(
    "error",
    [
        TransactionLostError("aborted"),
        ProducerFencedError("fenced"),
        DeliveryTimeoutError("nobody answers"),
        UnknownMemberError("not a member", 25, {}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_was_not_committed_is_done_again(make_member: MakeMember, error: StreamsError) -> None:
    member = make_member(cache_max_bytes=0)
    member.network.write(("in", 0), keys("a", "a"))
    member.began(0)
    member.commit()
    member.network.write(("in", 0), keys("a", "b"))
    member.rig.iterate(3)
    member.transactions.refusals = [error]
    before = member.transactions.initialized
    member.commit()
    assert member.transactions.initialized == before + 1
    assert len(member.network.read("out")) == 2
    member.rig.iterate(4)
    member.commit()
    counts = [(key, int.from_bytes(value or b"", "big")) for key, value in member.network.read("out")]
    assert counts == [(b"a", 1), (b"a", 2), (b"a", 3), (b"b", 1)]
    assert member.committed() == {("in", 0): 4}


def test_an_epoch_that_has_moved_on_is_waited_for(make_member: MakeMember) -> None:
    member = make_member()
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    stale = StaleMemberEpochError("epoch 1", 113, {})
    member.transactions.refusals = [stale, stale]

    def on_refusal() -> None:
        # The second heartbeat brings it.
        if len(member.transactions.refusals) == 1:
            member.rig.member.member_epoch = 2

    member.transactions.on_refusal = on_refusal
    member.commit()
    assert member.transactions.commits == [(2, {("in", 0): 1})]
    assert member.transactions.initialized == 1


def test_a_member_without_an_epoch_commits_nothing(make_member: MakeMember) -> None:
    member = make_member()
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    member.rig.member.member_epoch = -1
    member.commit()
    assert member.transactions.commits == []
    assert member.network.read("out") == []


def test_lost_tasks_take_their_work_with_them(make_member: MakeMember) -> None:
    member = make_member(cache_max_bytes=0)
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    member.rig.member.waiting.append(TasksLost("fenced"))
    member.rig.iterate()
    assert not member.transactions.is_open
    assert (member.network.read("out"), member.committed()) == ([], {})
    assert ReportOwned(NOTHING) in member.rig.member.told


def failing_at_zero() -> Topology:
    """Counts, then divides by the value: a failure after the count was taken."""
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.string, value=serdes.integer).group_by_key().count(store="counts")
    counts.to_stream().map_values(lambda count: 6 // (3 - count)).to("out", value=serdes.integer)
    return builder.build()


def test_a_record_that_fails_undoes_the_open_transaction(make_member: MakeMember) -> None:
    member = make_member(topology=failing_at_zero(), cache_max_bytes=0)
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    member.commit()
    member.network.write(("in", 0), keys("a", "a"))
    with pytest.raises(ProcessingError) as failed:
        member.rig.thread.run()
    assert failed.value.offset == 2
    # The count of the failing record had been taken already: nothing of its transaction may count.
    assert member.committed() == {("in", 0): 1}
    assert len(member.network.read("out")) == len(member.network.read(CHANGELOG)) == 1
    assert not member.transactions.is_open


def test_what_fails_between_two_commits_ends_the_application(make_member: MakeMember) -> None:
    """The next look at the transaction is not for a commit, but whether tasks may start."""
    member = make_member(cache_max_bytes=0)
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    member.transactions.fail(ProductionError("not authorized", "out", 0))
    with pytest.raises(ProductionError, match="not authorized"):
        member.rig.thread.run()
    assert (member.committed(), member.network.read("out")) == ({}, [])


@pytest.mark.parametrize("said", [True, False], ids=["its error is raised", "its error was raised before"])
def test_what_is_lost_between_two_commits_is_done_again(make_member: MakeMember, said: bool) -> None:
    member = make_member(cache_max_bytes=0)
    member.network.write(("in", 0), keys("a"))
    member.began(0)
    member.transactions.fail(TransactionLostError("aborted"))
    if not said:
        member.transactions.failure = None
    member.rig.iterate(4)
    member.commit()
    assert [key for key, _ in member.network.read("out")] == [b"a"]
    assert member.committed() == {("in", 0): 1}
    assert member.transactions.initialized == 2


def test_a_batch_of_a_lost_transaction_is_dropped() -> None:
    class Lost:
        def send(self, *_batch: object) -> None:
            raise TransactionLostError("fenced")

        def flush(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
            return {}

        def give_up_after(self, timeout_s: float) -> None:
            pass

    transactional_sink(Lost())("out", 0, b"", 1)


def test_a_stop_that_does_not_wait_for_calls_any_longer_aborts_the_transaction(make_member: MakeMember) -> None:
    async def never(value: int) -> int:
        await asyncio.Event().wait()
        return value

    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.string, value=serdes.integer).group_by_key().count(store="counts")
    counts.to_stream().map_async(never, concurrency=1).to("out", key=serdes.string, value=serdes.long)
    member = make_member(topology=builder.build(), cache_max_bytes=0)
    member.network.write(("in", 0), keys("a", "b", "c"))
    member.began(0)
    rig, initialized = member.rig, member.transactions.initialized
    assert member.transactions.is_open, "the changelog was sent"

    class TimePasses(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            rig.clock_ms += CALLS_TIMEOUT_MS

    handler, log = TimePasses(), logging.getLogger("streamsrt.runtime.loop.last_calls")
    log.addHandler(handler)
    try:
        rig.thread.stop(wake=False)
        rig.iterate()
        rig.member.waiting += [ReleaseTasks(), LeftGroup()]
        rig.thread.run()
    finally:
        log.removeHandler(handler)
    assert (member.transactions.commits, member.committed(), member.network.producer.sent) == ([], {}, [])
    assert member.transactions.initialized == initialized + 1, "which aborts what was sent"
    assert len(rig.manager) == 0
