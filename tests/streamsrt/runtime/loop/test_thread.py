"""The loop: what is committed when, and what becomes of results, tasks and offsets when something fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from coordinator.group.streams.heartbeat import INITIAL_DELAY_DETAIL
from streamsrt.assignment.status_code import StatusCode
from streamsrt.client.blocking import THREADS
from streamsrt.client.values import DeliveryTimeoutError, FetchError, StaleMemberEpochError, UnknownMemberError
from streamsrt.errors import (
    BrokerUnreachableError,
    DeserializationError,
    MissingTopicError,
    ProcessingError,
    ProductionError,
    StreamsError,
    TopologyMismatchError,
    UserError,
)
from streamsrt.membership.statuses import ADVICE
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    HeartbeatRecovered,
    HeartbeatTrouble,
    Leave,
    LeftGroup,
    ReleaseTasks,
    ReportOwned,
    SourceTopicsMissing,
    Status,
    StatusChanged,
    Tasks,
    TasksLost,
)
from streamsrt.runtime.failures import NotCommittedError
from streamsrt.runtime.loop.last_calls import CALLS_TIMEOUT_MS
from streamsrt.runtime.loop.thread import STOP_TIMEOUT_S
from streamsrt.runtime.loop.values import SendOutputs
from streamsrt.runtime.values import State
from streamsrt.tasks.restore.listeners import RestoreListener
from tests.streamsrt.in_process_network import InProcessAdmin, InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, MakeRig, Rig, number, two_sources
from topology import Processor, ProcessorContext, PunctuationType, Record, Store, StreamsBuilder, serdes
from topology.graph.topology import Topology


class NeverWaits(type(THREADS)):  # type: ignore[misc]  # its class is private
    def pause(self, timeout_s: float) -> None:
        raise AssertionError("nothing is to be waited for")


def keys(*names: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), number(1)) for name in names]


def began(rig: Rig, *partitions: int) -> Rig:
    """Tasks run and have processed what is there."""
    rig.give(Tasks(active=rig.tasks(*partitions)))
    rig.iterate(4)
    return rig


def committed(rig: Rig, partition: int = 0) -> int | None:
    found = rig.network.admin.offsets.get(("in", partition))
    return None if found is None else found.offset


# ----------------------------------------------------------------------------------------------------------- commits


def test_work_is_committed_when_the_interval_is_over(make_rig: MakeRig) -> None:
    rig = make_rig(commit_interval_ms=500)
    rig.network.write(("in", 0), keys("a", "b", "a"))
    began(rig, 0)
    assert (rig.thread.processed_records, committed(rig)) == (3, None)
    rig.clock_ms += 500
    rig.iterate()
    assert committed(rig) == 3
    assert rig.counts() == {"a": 2, "b": 1}
    assert list(dict.fromkeys(rig.states)) == [State.REBALANCING, State.RUNNING]


def test_where_a_commit_computes_for_long_each_task_is_committed_at_a_time_of_its_own(make_rig: MakeRig) -> None:
    rig = make_rig(commit_interval_ms=500)
    rig.work.commit_ms = 3
    for partition in (0, 1):
        rig.network.write(("in", partition), keys("a", "b"))
    began(rig, 0, 1)
    rig.clock_ms += 500
    rig.iterate()
    seen = [[committed(rig, partition) for partition in (0, 1)]]
    for partition in (0, 1):
        rig.network.write(("in", partition), keys("c"))
    for wait_ms in (249, 1, 249, 1):
        rig.clock_ms += wait_ms
        rig.iterate(2)
        seen.append([committed(rig, partition) for partition in (0, 1)])
    assert sorted(seen[2]) == [2, 3]
    assert seen == [[2, 2], [2, 2], seen[2], seen[2], [3, 3]]
    assert [key for key, _ in rig.network.read(CHANGELOG)].count(b"c") == 2


def test_tasks_that_are_committed_together_share_batches(rig: Rig) -> None:
    for partition in (0, 1):
        rig.network.write(("in", partition), keys(*(f"{partition}-{number}" for number in range(20))))
    began(rig, 0, 1)
    rig.thread._commit_all()
    assert {tp: len(log.batches) for tp, log in rig.network.logs.items() if tp[0] == "out"} == {
        ("out", 0): 1,
        ("out", 1): 1,
    }
    assert sum(log.end for tp, log in rig.network.logs.items() if tp[0] == "out") == 40


def test_a_first_assignment_that_is_delayed_is_waited_for(rig: Rig) -> None:
    delayed = Status(StatusCode.ASSIGNMENT_DELAYED, INITIAL_DELAY_DETAIL)
    rig.member.waiting.extend([StatusChanged((delayed,)), AssignmentChanged(Tasks(), 1)])
    rig.iterate(6)
    assert set(rig.states) == {State.REBALANCING}
    rig.member.waiting.extend([StatusChanged(()), AssignmentChanged(Tasks(active=rig.tasks(0)), 2)])
    rig.iterate(6)
    assert rig.states[-1] is State.RUNNING
    assert len(rig.manager) == 1
    assert [state for state, _ in groupby(rig.states)] == [State.REBALANCING, State.RUNNING]


def test_offsets_come_after_the_results(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.network.is_away = True
    rig.thread._commit_all()
    assert rig.counts() == {"a": 1}
    assert rig.committer.is_pending
    rig.network.is_away = False
    rig.thread._commit_all()
    assert committed(rig) == 1
    assert not rig.committer.is_pending


@pytest.mark.parametrize(("logging", "before", "after"), [(True, False, True), (False, True, True)])
def test_stores_are_written_while_offsets_are_committed_unless_nothing_else_has_what_is_in_them(
    make_rig: MakeRig, logging: bool, before: bool, after: bool
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long)
    stream.group_by_key().count(store=Store("counts", logging=logging))
    rig = make_rig(topology=builder.build())
    rig.network.write(("in", 0), keys("a", "b"))
    began(rig, 0)
    (owned,) = rig.manager.running()
    written: list[bool] = []

    def look() -> None:
        written.append(not owned.task.caches["counts"].pending)

    class Watching(InProcessAdmin):
        def begin_commit(self, *arguments: Any, **settings: Any) -> Callable[[], None]:
            look()
            end = super().begin_commit(*arguments, **settings)

            def ends() -> None:
                look()
                end()

            return ends

    rig.network.admin = Watching(rig.network)
    rig.thread._commit_all()
    assert written == [before, after]
    assert committed(rig) == 2


@pytest.mark.requirement("SG-423")
def test_a_commit_of_an_old_epoch_is_repeated_before_a_task_goes(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    stale = StaleMemberEpochError("the epoch moved on", 113, {})
    rig.network.admin.refusals = [stale, stale]
    rig.give(NOTHING)
    rig.iterate()
    assert committed(rig) == 1
    assert rig.member.told[-1] == ReportOwned(NOTHING)


def test_tasks_with_nothing_to_commit_do_not_wait_for_an_epoch_that_an_earlier_commit_was_refused_for(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.network.admin.refusals = [StaleMemberEpochError("the epoch moved on", 113, {})]
    rig.thread._commit_all()
    rig.member.waiting.append(TasksLost("its session ended"))
    rig.iterate()
    rig.give(Tasks(active=rig.tasks(1)))
    rig.iterate()
    rig.give(NOTHING)
    # Without a thread of the client, nothing would end the wait before it gives up.
    rig.thread._blocking = NeverWaits()
    rig.iterate()
    assert rig.member.told[-1] == ReportOwned(NOTHING)


def test_offsets_of_tasks_that_went_are_not_committed_later(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    rig.network.write(("in", 1), keys("b"))
    began(rig, 0, 1)
    rig.network.admin.refusals = [UnknownMemberError("who?", 25, {}), UnknownMemberError("who?", 25, {})]
    rig.network.is_away = True
    rig.thread._commit_all()
    rig.give(Tasks(active=rig.tasks(1)))
    rig.iterate()
    rig.network.is_away, rig.network.admin.refusals = False, []
    rig.thread._commit_all()
    assert (committed(rig, 0), committed(rig, 1)) == (None, 1)


# ------------------------------------------------------------------------------------------------- other versions


def test_a_member_beside_another_version_leaves_before_it_opens_a_task(rig: Rig) -> None:
    def look() -> None:
        raise TopologyMismatchError("another version runs")

    rig.thread._check_version = look
    rig.network.write(("in", 0), keys("a"))
    rig.give(Tasks(active=rig.tasks(0, 1)))
    with pytest.raises(TopologyMismatchError):
        rig.thread.run()
    assert (rig.thread.processed_records, rig.manager.opened, rig.counts()) == (0, 0, {})
    assert Leave() in rig.member.told


def test_who_else_runs_is_asked_each_time_it_has_joined_and_a_silent_broker_is_no_reason_to_end(rig: Rig) -> None:
    asked: list[int] = []

    def look() -> None:
        asked.append(rig.clock_ms)
        raise BrokerUnreachableError("nobody answers")

    rig.thread._check_version = look
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(2)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(2)
    assert len(asked) == 1
    rig.member.waiting.append(TasksLost("fenced"))
    rig.iterate()
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(2)
    assert len(asked) == 2


# ------------------------------------------------------------------------------------------- results that got lost


def test_results_that_were_not_acknowledged_are_made_again(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b", "a"))
    began(rig, 0)
    rig.network.producer.fails_with = [DeliveryTimeoutError("nobody answers", "out", 0)]
    rig.thread._commit_all()
    assert committed(rig) is None
    rig.iterate(4)
    rig.thread._commit_all()
    assert committed(rig) == 3
    assert rig.counts() == {"a": 2, "b": 1}


class Careless(Processor[str, int, str, int]):
    """Catches whatever comes."""

    seen = caught = 0

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, int]) -> None:
        Careless.seen += 1
        try:
            self.context.forward(record)
        except StreamsError:
            Careless.caught += 1


def test_a_lost_result_is_computed_again_and_no_processor_can_catch_the_error(make_rig: MakeRig) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).process(Careless).to(
        "out", key=serdes.string, value=serdes.integer
    )
    rig = make_rig(topology=builder.build())
    many = [(b"k", number(index)) for index in range(1_100)]
    rig.network.write(("in", 0), many)
    rig.network.producer.fail(DeliveryTimeoutError("nobody answers", "out", 0))
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(7)
    rig.thread._commit_all()
    assert Careless.seen > len(many), "a full batch was sent"
    assert Careless.caught == 0
    assert committed(rig) == 1_100
    assert rig.network.read("out") == many


def test_results_that_are_lost_when_more_are_sent_are_computed_again(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.network.producer.fail(DeliveryTimeoutError("nobody answers", "out", 0))
    rig.thread._do(SendOutputs())
    rig.collector.add("out", [b"k"], [number(1)], [0], partition=0)
    rig.thread._do(SendOutputs())
    rig.iterate(4)
    rig.thread._commit_all()
    assert committed(rig) == 1
    assert rig.counts() == {"a": 1}


def test_results_that_were_refused_are_not_committed_over(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b", "a"))
    began(rig, 0)
    refused = ProductionError("the broker refuses a batch for out-0 (MESSAGE_TOO_LARGE)", "out", 0)
    rig.network.producer.fails_with = [refused]
    rig.clock_ms += 2_000_000
    with pytest.raises(ProductionError, match="MESSAGE_TOO_LARGE"):
        rig.thread.run()
    # The producer dropped what it had: a commit now would lose those results.
    assert committed(rig) is None
    assert rig.counts() == {}
    assert len(rig.manager) == 0
    assert Leave() in rig.member.told


class BrokenListener(RestoreListener):
    def on_restore_start(self, *_news: object) -> None:
        raise KeyError("first")

    def on_restore_suspended(self, *_news: object) -> None:
        raise KeyError("second")


def test_a_member_leaves_whatever_else_fails_at_the_end(make_rig: MakeRig) -> None:
    """Else its tasks would wait for the end of its session."""
    rig = make_rig(on_restore=BrokenListener())
    rig.network.write((CHANGELOG, 0), [(b"a", number(1))])
    rig.give(Tasks(active=rig.tasks(0)))
    with pytest.raises(UserError, match="on_restore_start raised KeyError: 'first'"):
        rig.thread.run()
    assert Leave() in rig.member.told
    assert len(rig.manager) == 0
    assert not rig.directory.is_open("counts", 0)


def test_a_delivery_that_fails_while_tasks_go_does_not_confuse_who_has_what(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0, 1)
    rig.network.producer.fails_with = [DeliveryTimeoutError("nobody answers", "out", 0)]
    rig.give(Tasks(active=rig.tasks(1)))
    rig.iterate(2)
    assert rig.member.told[-1] == ReportOwned(Tasks(active=rig.tasks(1)))
    assert rig.phases() == {1: "active running"}
    assert committed(rig) is None


def test_what_lost_tasks_had_not_sent_is_thrown_away(make_rig: MakeRig) -> None:
    rig = make_rig(cache_max_bytes=0)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(2)
    rig.network.write(("in", 0), keys("a"))
    rig.manager.add_input(rig.network.fetcher.poll()[0], rig.clock_ms)
    rig.manager.process(10, rig.clock_ms)
    rig.member.waiting.append(TasksLost("fenced"))
    rig.iterate()
    assert rig.member.told[-1] == ReportOwned(NOTHING)
    rig.collector.flush()
    rig.network.producer.flush()
    # Its next owner has written to the changelog by now: an old value behind that would undo its work.
    assert rig.network.read(CHANGELOG) == []
    assert rig.network.read("out") == []
    assert committed(rig) is None


# ------------------------------------------------------------------------------------------------------------ records


def passing() -> Topology:
    """Halves numbers; 0 fails."""
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).map_values(lambda n: 100 // n).to("out")
    return builder.build()


@pytest.mark.parametrize(("bad", "error"), [(b"xyz", DeserializationError), ((0).to_bytes(4, "big"), ProcessingError)])
def test_a_bad_record_ends_it_after_all_before_it_was_committed(
    make_rig: MakeRig, bad: bytes, error: type[Exception]
) -> None:
    rig = make_rig(topology=passing())
    rows = [(b"k", number(n)) for n in (1, 2)] + [(b"k", bad), (b"k", number(4))]
    rig.network.write(("in", 0), rows)
    rig.give(Tasks(active=rig.tasks(0)))
    with pytest.raises(error) as raised:
        rig.thread.run()
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 2)  # type: ignore[attr-defined]
    assert "in-0" in str(raised.value)
    assert "offset 2" in str(raised.value)
    assert committed(rig) == 2
    assert [value for _, value in rig.network.read("out")] == [number(100), number(50)]
    assert len(rig.manager) == 0


def test_a_source_that_can_not_be_read_ends_it_and_what_was_done_is_committed(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0, 1)
    rig.network.fetcher.errors["in", 1] = FetchError("in-1 can't be read at offset 0 (TOPIC_AUTHORIZATION_FAILED).", 29)
    with pytest.raises(FetchError, match="TOPIC_AUTHORIZATION_FAILED"):
        rig.thread.run()
    assert committed(rig) == 1
    assert Leave() in rig.member.told


# ----------------------------------------------------------------------------------------------------------- the group


def test_it_stops_when_asked(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.thread.stop(wake=False)
    rig.iterate()
    assert rig.member.told[-1] == Leave(remain=True)
    rig.member.waiting.append(ReleaseTasks())
    rig.member.waiting.append(LeftGroup())
    rig.thread.run()
    assert committed(rig) == 1
    assert rig.member.told[-1] == ReportOwned(NOTHING)
    assert State.PENDING_SHUTDOWN in rig.states


@pytest.mark.parametrize(
    ("error", "is_away", "why"),
    [
        (DeliveryTimeoutError("2 batches were not acknowledged in time."), False, "2 batches were not acknowledged"),
        (None, True, "the group coordinator did not take the offsets"),
    ],
    ids=["results", "offsets"],
)
def test_a_stop_whose_last_commit_fails_says_so(
    rig: Rig, error: DeliveryTimeoutError | None, is_away: bool, why: str
) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.network.producer.fails_with = [error] if error else []
    rig.network.is_away = is_away
    rig.thread.stop(wake=False)
    assert rig.network.producer.gives_up_after_s == STOP_TIMEOUT_S
    rig.iterate()
    rig.member.waiting.extend([ReleaseTasks(), LeftGroup()])
    with pytest.raises(NotCommittedError, match=f"stopped without a last commit: .*{why}") as raised:
        rig.thread.run()
    assert raised.value.exit_code == 3
    assert committed(rig) is None
    assert len(rig.manager) == 0


def test_it_stops_by_itself_when_the_coordinator_does_not_let_it_go(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.thread.stop()
    rig.iterate()
    rig.clock_ms += 16_000
    rig.thread.run()
    assert committed(rig) == 1
    assert len(rig.manager) == 0


def test_a_task_of_another_version_is_not_held(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.give(Tasks(active=rig.tasks(0) | {("another", 1)}, standby=frozenset({("other", 2)})))
    with pytest.raises(TopologyMismatchError, match=r"gave task another_1 .*belongs to no subtopology of its version"):
        rig.thread.run()
    assert committed(rig) == 1
    assert Leave() in rig.member.told


def test_missing_source_topics_are_an_error(rig: Rig) -> None:
    rig.member.waiting.extend([SourceTopicsMissing("Source topics in are missing."), LeftGroup()])
    with pytest.raises(
        MissingTopicError, match=r"Source topics in are missing\. Create them \(streamsrt topics create"
    ):
        rig.thread.run()


def test_topics_that_do_not_fit_together_are_an_error(rig: Rig) -> None:
    status = Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "Topics have different partitions: a=2, b=3.")
    rig.member.waiting.extend([StatusChanged((status,)), LeftGroup()])
    with pytest.raises(UserError, match=r"a=2, b=3.*same number of partitions"):
        rig.thread.run()


def test_a_restore_that_takes_long_is_told_of(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for name in "abcd":
        rig.network.write((CHANGELOG, 0), [(name.encode(), number(0) * 2)] * 5)
    rig.give(Tasks(active=rig.tasks(0)))
    for _ in range(3):
        rig.clock_ms += 10_000
        rig.iterate()
    (restoring,) = [each for task in rig.thread.progress.tasks for each in task.restoring]
    assert (restoring.restored_records, restoring.remaining_records, restoring.eta_s) == (10, 10, 20.0)
    assert rig.thread.progress.restore_eta_s == 20.0
    assert "restoring 1 tasks: 10 records (0 MB) done, 10 left, about 20 s" in caplog.text


def test_progress_names_a_topic_that_results_wait_for(rig: Rig) -> None:
    began(rig, 0)
    rig.network.producer.absent_topics = ("gone",)
    text = "results wait to be written to topic gone, which does not exist: nothing can be committed until it is there"
    assert rig.thread.progress.statuses == (text,)
    assert rig.thread.progress.loops[0].tasks == (text,)


def test_progress_says_that_the_thread_hangs_and_its_figures_are_old(rig: Rig) -> None:
    began(rig, 0)
    rig.thread.poll_limit_s = 10.0
    assert rig.thread.progress.statuses == ()
    rig.thread.meter.iterated_ns -= 17_000_000_000
    (status,) = rig.thread.progress.statuses
    assert status.startswith("the processing thread has not polled for 17 s, longer than max.poll.interval.ms (10 s): ")
    assert "The group has assigned its tasks to other members" in status


def test_progress_says_why_nothing_happens(rig: Rig) -> None:
    status = Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: x.")
    rig.member.waiting.extend([StatusChanged((status,)), HeartbeatTrouble("no route to host")])
    for _ in range(2):
        rig.clock_ms += 1_000
        rig.iterate()
    assert rig.thread.progress.statuses == (
        f"MISSING_INTERNAL_TOPICS: Internal topics are missing: x. {ADVICE[StatusCode.MISSING_INTERNAL_TOPICS]}",
        "the group coordinator does not answer: no route to host. Retrying; the tasks continue as long as the "
        "session lasts. Check that the broker runs",
    )
    rig.member.waiting.extend([StatusChanged(()), HeartbeatRecovered(1_000)])
    for _ in range(2):
        rig.clock_ms += 1_000
        rig.iterate()
    assert rig.thread.progress.statuses == ()


# --------------------------------------------------------------------------------------------------------------- quiet


def test_quiet_is_when_all_input_is_processed_and_committed(rig: Rig) -> None:
    assert not rig.thread.commit_if_drained(), "not before there is an assignment"
    rig.network.write(("in", 0), keys("a", "b"))
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate()
    seen = []
    for _ in range(6):
        rig.clock_ms += 1_000
        seen.append(rig.thread.commit_if_drained())
        rig.iterate()
    assert seen[-1]
    assert committed(rig) == 2
    rig.network.write(("in", 1), keys("c"))
    rig.clock_ms += 1_000
    assert not rig.thread.commit_if_drained()


def test_the_lag_is_known_when_it_is_quiet_even_if_nothing_was_fetched(rig: Rig) -> None:
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate()
    for owned in rig.manager.running():
        for buffer in owned.inputs.values():
            buffer.high_watermark = -1
    rig.clock_ms += 1_000
    assert rig.thread.commit_if_drained()
    assert [(owned.lag_is_known, owned.lag_records) for owned in rig.manager.running()] == [(True, 0)] * 2


def test_a_member_without_tasks_is_quiet_after_a_while(rig: Rig) -> None:
    rig.give(NOTHING)
    rig.iterate()
    rig.clock_ms += 1_000
    assert not rig.thread.commit_if_drained()
    rig.clock_ms += 15_000
    assert rig.thread.commit_if_drained()
    missing = Status(
        StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: x. Creation failed: x (no disk)."
    )
    rig.member.waiting.append(StatusChanged((missing,)))
    rig.iterate()
    rig.clock_ms += 15_000
    assert not rig.thread.commit_if_drained(), "it has no tasks because something is wrong"


def test_it_is_not_quiet_while_a_position_is_beyond_the_end_of_its_log(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b"))
    began(rig, 0)
    log = rig.network.logs["in", 0] = type(rig.network.logs["in", 0])()
    rig.network.write(("in", 0), keys("c"))
    rig.clock_ms += 1_000
    assert not rig.thread.commit_if_drained()
    rig.iterate(3)
    rig.clock_ms += 1_000
    assert rig.thread.commit_if_drained()
    assert (rig.thread.processed_records, committed(rig)) == (3, log.end)


@pytest.mark.parametrize("ahead_ms", [3_600_000, -86_400_000])
def test_only_programs_see_that_the_clock_is_set(make_rig: MakeRig, ahead_ms: int) -> None:
    seen: list[int] = []

    class Clock(Processor[bytes, bytes, bytes, bytes]):
        def init(self, context: ProcessorContext[bytes, bytes]) -> None:
            context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, seen.append)

        def process(self, record: Record[bytes, bytes]) -> None:
            raise AssertionError

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    stream.process(Clock).to("out", key=serdes.bytes, value=serdes.bytes)
    rig = began(make_rig(topology=builder.build(), partitions=1, commit_interval_ms=10_000), 0)
    rig.clock_ms += 1_000
    rig.iterate()
    before = rig.thread.state.schedule
    rig.clock_ahead_ms = ahead_ms
    rig.iterate()
    assert rig.thread.state.schedule == before, "nothing internal is due earlier or later"
    rig.clock_ms += 1_000
    rig.iterate()
    assert seen == [rig.clock_ms - 1_000, rig.clock_ms + ahead_ms]


def test_it_is_not_quiet_while_the_cluster_does_not_tell_where_its_logs_end(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0, 1)
    log = rig.network.logs.pop(("in", 0))
    rig.clock_ms += 1_000
    assert not rig.thread.commit_if_drained()
    rig.network.logs["in", 0] = log
    rig.clock_ms += 1_000
    assert rig.thread.commit_if_drained()


@pytest.mark.requirement("SG-423")
def test_it_is_not_quiet_while_offsets_wait_to_be_committed(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    began(rig, 0)
    rig.network.admin.refusals = [StaleMemberEpochError("the epoch moved on", 113, {})]
    rig.clock_ms += 1_000
    assert not rig.thread.commit_if_drained()
    rig.clock_ms += 1_000
    assert rig.thread.commit_if_drained()


def test_tasks_that_wait_for_other_partitions_do_not_spin(make_rig: MakeRig) -> None:
    network = InProcessNetwork({"wide": 1, "narrow": 1, "out": 1})
    rig = make_rig(topology=two_sources(), network=network, max_task_idle_ms=60_000)
    rig.network.write(("wide", 0), [(b"k", b"v")])
    began(rig, 0)
    assert rig.manager.has_work()
    before = rig.network.waits
    rig.iterate(10)
    assert rig.network.waits == before + 10


def test_why_tasks_came_and_went_is_told(make_rig: MakeRig) -> None:
    rig = began(make_rig(), 0, 1)
    rig.give(Tasks(active=rig.tasks(1)))
    rig.iterate(2)
    rig.member.waiting.append(TasksLost("fenced"))
    rig.iterate(2)
    latest = rig.manager.assignment_changes.latest()
    told = [(each.task_id[-1], each.change, each.why.partition(" (")[0]) for each in latest]
    assert told == [
        ("0", "opened as active", "the group gave it to this member after it joined"),
        ("1", "opened as active", "the group gave it to this member after it joined"),
        ("0", "closed", "the group no longer assigns it to this member"),
        ("1", "closed", "this member lost its membership: fenced"),
    ]
    rig.clock_ms += 1_000
    rig.iterate()
    assert rig.thread.progress.assignment_changes == rig.manager.assignment_changes.latest()


def test_tasks_that_are_lost_before_they_run_say_once_what_helps(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = began(make_rig(), 0)
    rig.member.waiting.append(TasksLost("fenced"))
    rig.iterate()
    assert "happens repeatedly" not in caplog.text, "the task ran"
    for _ in range(2):
        rig.network.is_away = True
        rig.give(Tasks(active=rig.tasks(0, 1)))
        rig.iterate()
        rig.member.waiting.append(TasksLost("fenced"))
        rig.network.is_away = False
        rig.iterate()
    (told,) = [text for text in caplog.messages if "happens repeatedly" in text]
    assert told.startswith("2 tasks were lost while they were opened or restored")
    assert "session.timeout.ms" in told


# ------------------------------------------------------------------------------------------------------------------ ends


class Slow:
    """A function whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.opened: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.under_way = threading.Event()

    async def map(self, value: str) -> str:
        self.loop, self.opened = asyncio.get_running_loop(), self.opened or asyncio.Event()
        self.under_way.set()
        await self.opened.wait()
        return value

    def let_go(self) -> None:
        assert self.loop is not None
        assert self.opened is not None
        self.loop.call_soon_threadsafe(self.opened.set)


def test_an_end_that_waits_for_asynchronous_calls_says_so(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).map_async(slow.map).to("out")
    rig = make_rig(topology=builder.build())
    rig.network.write(("in", 0), [(b"k", b"v")])
    began(rig, 0)
    assert slow.under_way.wait(30)
    rig.clock_ms += 1_000
    rig.iterate()
    assert (rig.thread.progress.processed_records, rig.thread.progress.pending_calls) == (1, 1)
    rig.thread.stop()
    rig.iterate()
    rig.member.waiting += [ReleaseTasks(), LeftGroup()]

    class LetGo(logging.Handler):
        """Lets the call end when it is told that it is waited for."""

        def emit(self, record: logging.LogRecord) -> None:
            if "asynchronous call" in record.getMessage():
                slow.let_go()

    handler, log = LetGo(), logging.getLogger("streamsrt.runtime.loop.last_calls")
    log.addHandler(handler)
    try:
        rig.iterate()
    finally:
        log.removeHandler(handler)
    (told,) = [text for text in caplog.messages if "asynchronous call" in text]
    assert told.startswith("before it ends, task ")
    assert " waits for 1 asynchronous call of KSTREAM-MAPASYNC-0000000001 (" in told
    assert "After another 15 s at most it ends without them, with a second Ctrl-C at once" in told
    rig.thread._publish()
    assert (rig.thread.progress.processed_records, rig.thread.progress.pending_calls) == (1, 0)
    assert rig.network.read("out") == [(b"k", b"v")]


def test_a_stop_does_not_finish_all_calls_that_a_store_brings(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow()
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.string, value=serdes.integer).group_by_key().count(store="counts")
    counts.to_stream().map_async(slow.map, concurrency=2).to("out", key=serdes.string, value=serdes.long)
    builder.stream("wide", key=serdes.string, value=serdes.string).to("narrow")
    topics = dict.fromkeys(("in", "out", "wide", "narrow", CHANGELOG), 1)
    rig = make_rig(topology=builder.build(), network=InProcessNetwork(topics))
    rig.network.write(("in", 0), keys(*"abcde"))
    rig.network.write(("wide", 0), [(b"k", b"v")])
    rig.give(Tasks(active=frozenset((each.id, 0) for each in rig.topology.subtopologies)))
    rig.iterate(4)
    assert rig.thread.progress.pending_calls == 0, "the store's cache holds the counts back"
    rig.thread.stop()
    rig.iterate()
    rig.member.waiting += [ReleaseTasks(), LeftGroup()]

    class TimePasses(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waits for 5 asynchronous calls" in record.getMessage():
                rig.clock_ms += CALLS_TIMEOUT_MS

    handler, log = TimePasses(), logging.getLogger("streamsrt.runtime.loop.last_calls")
    log.addHandler(handler)
    try:
        rig.thread.run()
    finally:
        log.removeHandler(handler)
    (told,) = [text for text in caplog.messages if "without a last commit" in text]
    assert "it does not wait any longer for 5 asynchronous calls of KSTREAM-MAPASYNC-" in told
    assert told.endswith("is processed again, by other instances or at the next start")
    assert committed(rig) is None
    assert rig.network.read("out") == rig.network.read(CHANGELOG) == []
    assert rig.network.admin.offsets["wide", 0].offset == 1, "what another task did is committed"
    assert rig.network.read("narrow") == [(b"k", b"v")]
    assert len(rig.manager) == 0
