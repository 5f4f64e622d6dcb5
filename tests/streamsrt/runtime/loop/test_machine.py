"""What the processing loop does next, decided by a pure machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.group.streams.heartbeat import INITIAL_DELAY_DETAIL, INTERVAL_DETAIL
from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import MissingTopicError, UserError
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    SourceTopicsMissing,
    Status,
    StatusChanged,
    Tasks,
    TasksLost,
)
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.runtime.loop import machine
from streamsrt.runtime.loop.machine import UNHEARD_TIMEOUT_MS, initial, may_be_drained, step
from streamsrt.runtime.loop.report import report
from streamsrt.runtime.loop.schedule import Deadline
from streamsrt.runtime.loop.values import (
    Action,
    Activity,
    AdvanceTasks,
    AnswerQueries,
    Assign,
    CheckVersion,
    CleanUp,
    CloseLostTasks,
    CommitAll,
    CommitBeforeClose,
    Committed,
    DrainChecked,
    InputTaken,
    IterationBegan,
    IterationEnded,
    LeaveGroup,
    Life,
    LoopEvent,
    LoopSettings,
    LoopState,
    MeasureMemory,
    Note,
    PollEnded,
    Processed,
    ProcessTasks,
    Publish,
    PurgeRepartitionTopics,
    ReleaseAll,
    Released,
    ReportOffsets,
    SendOutputs,
    ShowState,
    StopRequested,
    Wait,
    Warn,
)
from streamsrt.runtime.values import State

START_MS = 1_000_000
SETTINGS = LoopSettings(commit_interval_ms=1_000, poll_ms=100, linger_ms=10, purge_interval_ms=3_000)
TASKS = Tasks(active=frozenset({("s", 0)}))


class Loop:
    """The machine with a clock; actions are kept, not done."""

    def __init__(self, loop_settings: LoopSettings = SETTINGS) -> None:
        self.now_ms = START_MS
        self.state = initial(loop_settings, START_MS)

    def handle(self, event: LoopEvent, *, after_ms: int = 0) -> tuple[Action, ...]:
        self.now_ms += after_ms
        self.state, actions = step(self.state, event, self.now_ms)
        if any(isinstance(action, CommitAll) for action in actions):
            self.state, _ = step(self.state, Committed(), self.now_ms)
        return actions

    def iteration(
        self,
        records: int = 0,
        *,
        wait_ms: int = 0,
        process_ms: int = 0,
        news: Iterable[LoopEvent] = (),
        has_work: bool = False,
        requested: bool = False,
    ) -> list[Action]:
        actions = [*self.handle(IterationBegan(has_work)), *self.handle(PollEnded(), after_ms=wait_ms)]
        for event in news:
            actions += self.handle(event)
        actions += self.handle(InputTaken(is_paused=False))
        actions += self.handle(Processed(records, requested), after_ms=process_ms)
        return [*actions, *self.handle(IterationEnded(is_settled=True))]


def test_a_turn_without_input_waits_but_not_beyond_the_next_commit() -> None:
    loop = Loop()
    assert loop.handle(IterationBegan(has_work=False)) == (Wait(100),)
    assert loop.handle(IterationBegan(has_work=False), after_ms=930) == (Wait(70),)
    assert loop.handle(IterationBegan(has_work=False), after_ms=500) == (Wait(0),)


def test_an_iteration_waits_no_longer_than_its_tasks_let_it() -> None:
    loop = Loop()
    assert loop.handle(IterationBegan(has_work=False, wait_max_ms=10)) == (Wait(10),)
    assert loop.handle(IterationBegan(has_work=False, wait_max_ms=500)) == (Wait(100),)
    assert loop.handle(IterationBegan(has_work=False, wait_max_ms=10), after_ms=995) == (Wait(5),)


def test_while_fetched_input_is_processed_nothing_is_waited_for() -> None:
    loop = Loop()
    loop.iteration(records=5)
    assert loop.handle(IterationBegan(has_work=True)) == (AnswerQueries(),)
    assert "skipped" in report(loop.state, loop.now_ms).poll


def test_while_calls_are_under_way_only_they_are_waited_for() -> None:
    loop = Loop()
    loop.handle(Processed(0, commit_requested=False, is_calling=True))
    assert loop.handle(IterationBegan(has_work=True)) == (AnswerQueries(),)


def test_input_that_waits_for_other_partitions_is_no_reason_to_hurry() -> None:
    loop = Loop()
    loop.iteration(records=0)
    assert loop.handle(IterationBegan(has_work=True)) == (Wait(100),)


def test_outputs_are_sent_every_linger_time() -> None:
    loop = Loop()
    loop.iteration()
    assert SendOutputs() in loop.iteration(wait_ms=10)
    assert SendOutputs() not in loop.iteration(wait_ms=9)
    assert SendOutputs() in loop.iteration(wait_ms=1)


def test_outputs_that_wait_for_others_are_sent_in_time_if_nothing_else_comes() -> None:
    loop = Loop()
    assert SendOutputs() in loop.iteration(records=1, wait_ms=10)
    assert loop.handle(IterationBegan(has_work=False)) == (Wait(100),)
    assert SendOutputs() not in loop.iteration(records=1, wait_ms=4)
    assert loop.handle(IterationBegan(has_work=False)) == (Wait(6),)
    assert SendOutputs() in loop.iteration(wait_ms=6)
    assert loop.handle(IterationBegan(has_work=False)) == (Wait(100),)


def test_a_loop_that_is_paused_does_not_wake_for_outputs() -> None:
    loop = Loop()
    loop.iteration(records=1, wait_ms=4)
    loop.handle(InputTaken(is_paused=True))
    loop.handle(Processed(0, commit_requested=False), after_ms=50)
    assert loop.handle(IterationBegan(has_work=False)) == (Wait(100),)


def test_a_commit_sends_the_outputs_as_well() -> None:
    loop = Loop()
    assert CommitAll() in loop.iteration(records=1, requested=True)
    assert loop.handle(IterationBegan(has_work=False)) == (Wait(100),)


def test_commits_follow_the_interval_counted_from_the_end_of_the_last_one() -> None:
    loop = Loop()
    assert CommitAll() not in loop.iteration(wait_ms=999)
    assert CommitAll() in loop.iteration(wait_ms=11)
    assert CommitAll() not in loop.iteration(wait_ms=999)
    assert CommitAll() in loop.iteration(wait_ms=1)


def test_a_task_may_ask_for_a_commit_at_once() -> None:
    loop = Loop()
    assert CommitAll() in loop.iteration(requested=True)
    assert loop.state.schedule.at_ms(Deadline.COMMIT) == loop.now_ms + 1_000


def test_commits_that_compute_for_long_are_made_in_parts_where_there_is_time() -> None:
    loop = Loop()
    whole, part = Committed(tasks=4, committed=4, work_ms=7.9), Committed(tasks=4, committed=1, work_ms=1.9)
    loop.iteration()
    loop.handle(whole)
    assert loop.handle(IterationBegan(has_work=False), after_ms=200) == (Wait(50),)
    assert CommitAll(4) not in loop.iteration(wait_ms=49)
    assert CommitAll(4) in loop.iteration(wait_ms=1)
    loop.handle(part)
    assert CommitAll(4) not in loop.iteration(records=1, wait_ms=249)
    assert CommitAll(4) in loop.iteration(records=1, wait_ms=1)


def test_a_part_that_waits_for_long_is_followed_by_a_commit_of_all_tasks() -> None:
    """Else a loop would do nothing but wait for acknowledgements where these take long."""
    loop = Loop()
    loop.iteration()
    loop.handle(Committed(tasks=4, committed=4, work_ms=7.9))
    assert CommitAll(4) in loop.iteration(wait_ms=250)
    loop.handle(IterationBegan(has_work=False))
    loop.handle(Committed(tasks=4, committed=1, work_ms=1.9), after_ms=400)
    actions = loop.iteration(records=1, wait_ms=599)
    assert not [action for action in actions if isinstance(action, CommitAll)]
    assert CommitAll() in loop.iteration(records=1, wait_ms=1)
    assert CommitAll() not in loop.iteration(records=1, wait_ms=999)


def test_a_loop_that_does_not_come_to_wait_commits_all_tasks_when_the_interval_is_over() -> None:
    loop = Loop()
    loop.iteration(records=1)
    loop.handle(Committed(tasks=4, committed=4, work_ms=7.9))
    actions = loop.iteration(records=1, has_work=True, process_ms=900)
    assert not [action for action in actions if isinstance(action, CommitAll)]
    assert CommitAll() in loop.iteration(records=1, has_work=True, process_ms=100)
    # Behind a part, the tasks that are not in it are committed soon.
    loop.handle(Committed(tasks=4, committed=1, work_ms=1.9))
    assert CommitAll() not in loop.iteration(records=1, has_work=True, process_ms=374)
    assert CommitAll() in loop.iteration(records=1, has_work=True, process_ms=1)


@pytest.mark.parametrize(
    ("event", "interval_ms"),
    [
        (Committed(tasks=4, committed=4, work_ms=2.0), 1_000),
        (Committed(tasks=4, committed=4, work_ms=0.0), 1_000),
        (Committed(tasks=1, committed=1, work_ms=90.0), 1_000),
        (Committed(tasks=4, committed=4, work_ms=90.0), 199),
        (Committed(), 1_000),
        (Committed(tasks=4, committed=4, work_ms=4.0), 1_000),
    ],
    ids=["short", "atomic", "one task", "often", "nothing", "waits"],
)
def test_commits_are_whole(event: Committed, interval_ms: int) -> None:
    loop = Loop(replace(SETTINGS, commit_interval_ms=interval_ms))
    loop.iteration()
    loop.handle(Committed(tasks=4, committed=1, work_ms=90.0))
    loop.handle(event, after_ms=30)
    assert CommitAll() not in loop.iteration(wait_ms=interval_ms - 1)
    assert CommitAll() in loop.iteration(wait_ms=1)


def test_repartition_topics_are_purged_after_a_commit_only() -> None:
    loop = Loop()
    assert PurgeRepartitionTopics() not in loop.iteration(wait_ms=1_000)
    loop.now_ms += 1_999
    actions = loop.iteration(wait_ms=1)
    assert actions.index(CommitAll()) < actions.index(PurgeRepartitionTopics())
    assert PurgeRepartitionTopics() not in loop.iteration(requested=True)


def test_repartition_topics_are_purged_where_all_commits_are_parts() -> None:
    loop = Loop()
    loop.iteration()
    loop.handle(Committed(tasks=4, committed=4, work_ms=7.9))
    purges = []
    for _ in range(24):
        actions = loop.iteration(wait_ms=250)
        assert CommitAll(4) in actions
        purges.append(PurgeRepartitionTopics() in actions)
        loop.handle(Committed(tasks=4, committed=1, work_ms=1.9))
    assert purges.count(True) == 2


def test_nothing_is_processed_or_sent_while_it_is_paused() -> None:
    loop = Loop()
    loop.handle(IterationBegan(has_work=True))
    assert loop.handle(InputTaken(is_paused=True)) == (AdvanceTasks(),)
    assert loop.handle(Processed(0, commit_requested=False), after_ms=50) == ()
    assert "paused" in report(loop.state, loop.now_ms).poll


def test_housekeeping_has_its_own_intervals() -> None:
    loop = Loop()
    first = loop.iteration(news=[AssignmentChanged(TASKS, 1)])
    assert {ReportOffsets(), MeasureMemory(), Publish(), ShowState(State.RUNNING)} <= set(first)
    assert loop.iteration(wait_ms=50)[-2:] == [CleanUp(), ShowState(State.RUNNING)]
    then = loop.iteration(wait_ms=60)
    assert Publish() in then
    assert MeasureMemory() not in then


def test_what_looks_at_every_task_is_rarer_with_many_of_them() -> None:
    loop = Loop()
    many = Tasks(active=frozenset(("s", number) for number in range(1_000)))
    loop.iteration(news=[AssignmentChanged(many, 1)])
    seen = [action for _ in range(120) for action in loop.iteration(wait_ms=100)]
    assert seen.count(Publish()) == seen.count(ReportOffsets()) == 6
    assert seen.count(MeasureMemory()) == 2


DELAYED = Status(StatusCode.ASSIGNMENT_DELAYED, INITIAL_DELAY_DETAIL)
UNCREATED = Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: a-changelog")


LATER = Status(StatusCode.ASSIGNMENT_DELAYED, INTERVAL_DETAIL)


@pytest.mark.parametrize("statuses", [(DELAYED,), (LATER,), (UNCREATED,), (DELAYED, UNCREATED)])
def test_no_member_is_running_before_the_group_has_assigned_tasks(statuses: tuple[Status, ...]) -> None:
    loop = Loop()
    none_yet = loop.iteration(news=[StatusChanged(statuses), AssignmentChanged(NOTHING, 1)])
    assert ShowState(State.RUNNING) not in none_yet
    assert ShowState(State.RUNNING) not in loop.iteration(wait_ms=5_000)
    assert ShowState(State.RUNNING) in loop.iteration(news=[StatusChanged(()), AssignmentChanged(TASKS, 2)])


def test_a_member_that_gets_no_task_is_running() -> None:
    loop = Loop()
    loop.iteration(news=[StatusChanged((DELAYED,)), AssignmentChanged(NOTHING, 1)])
    assert ShowState(State.RUNNING) in loop.iteration(news=[StatusChanged(())])


@pytest.mark.parametrize(
    "status",
    [
        Status(StatusCode.ASSIGNMENT_DELAYED, "Records are in flight"),
        Status(StatusCode.STALE_TOPOLOGY, "epoch 1"),
        Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: a; Creation failed: a (no disk)."),
    ],
)
def test_other_statuses_leave_a_member_without_tasks_running(status: Status) -> None:
    assert ShowState(State.RUNNING) in Loop().iteration(news=[StatusChanged((status,)), AssignmentChanged(NOTHING, 1)])


@pytest.mark.parametrize("role", ["active", "standby", "warmup"])
def test_a_member_with_any_task_is_running_whatever_else_is_delayed(role: str) -> None:
    some = Tasks(**{role: frozenset({("a", 0)})})
    assert ShowState(State.RUNNING) in Loop().iteration(news=[StatusChanged((UNCREATED,)), AssignmentChanged(some, 1)])


def test_a_paused_loop_does_not_spin_while_calls_are_under_way() -> None:
    loop = Loop()
    loop.handle(IterationBegan(has_work=True))
    loop.handle(InputTaken(is_paused=True))
    loop.handle(Processed(0, commit_requested=False, is_calling=True))
    assert loop.handle(IterationBegan(has_work=True)) == (Wait(100),)


# ------------------------------------------------------------------------------------------------------- iterations in time


@given(st.integers(1, 20_000), st.integers(0, 100_000), st.integers(1, 10_000))
def test_iterations_get_as_long_as_they_may(limit_records: int, took_ms: int, iteration_max_ms: int) -> None:
    state = initial(replace(SETTINGS, iteration_max_ms=iteration_max_ms), 0)._replace(limit_records=limit_records)
    found = step(state, Processed(1, commit_requested=False), took_ms)[0].limit_records
    assert 1 <= found <= machine.RECORDS_PER_TASK_AND_ITERATION
    if took_ms > iteration_max_ms:
        assert found * took_ms <= max(limit_records * iteration_max_ms, took_ms)
    else:
        assert found >= limit_records


def test_a_few_records_do_not_raise_the_limit() -> None:
    """A backlog that arrives later would be one iteration of minutes."""
    loop = Loop(replace(SETTINGS, iteration_max_ms=1_000))
    for _ in range(30):
        loop.iteration(records=5, process_ms=125)
    assert loop.state.limit_records == machine.FIRST_RECORDS_PER_TASK_AND_ITERATION
    loop.iteration(records=64, process_ms=1_600)
    assert loop.state.limit_records == 40
    loop.iteration(records=2, process_ms=8_000)
    assert loop.state.limit_records == 1, "of what was processed, not of what might have been"


def test_quick_iterations_soon_take_all() -> None:
    loop = Loop(replace(SETTINGS, iteration_max_ms=1_000))
    for _ in range(9):
        loop.iteration(records=loop.state.limit_records, process_ms=20)
    assert loop.state.limit_records == machine.RECORDS_PER_TASK_AND_ITERATION


def test_without_a_limit_in_time_every_turn_may_process_as_many() -> None:
    loop = Loop()
    loop.iteration(records=20_000, process_ms=60_000)
    assert loop.state.limit_records == machine.RECORDS_PER_TASK_AND_ITERATION


# --------------------------------------------------------------------------------------------------------------- leaving


def test_who_stops_tells_the_group_and_processes_until_it_has_left() -> None:
    loop = Loop()
    loop.iteration(news=[AssignmentChanged(TASKS, 1)])
    actions = loop.handle(StopRequested())
    assert actions[1:] == (ShowState(State.PENDING_SHUTDOWN), LeaveGroup(remain=True))
    assert loop.handle(StopRequested()) == (), "it leaves once"
    assert ProcessTasks(20_000) in loop.handle(InputTaken(is_paused=False))
    assert loop.handle(ReleaseTasks()) == (ReleaseAll(),)
    loop.handle(LeftGroup())
    assert loop.state.life is Life.ENDED
    assert loop.handle(InputTaken(is_paused=False)) == ()


def test_a_group_that_does_not_answer_is_not_waited_for_longer_than_its_time() -> None:
    loop = Loop()
    loop.handle(StopRequested())
    assert ProcessTasks(20_000) in loop.handle(InputTaken(is_paused=False), after_ms=14_999)
    warning, commit = loop.handle(InputTaken(is_paused=False), after_ms=1)
    assert isinstance(warning, Warn)
    assert commit == CommitAll()
    assert loop.state.life is Life.ENDED


def test_the_group_has_its_time_after_the_tasks_were_released() -> None:
    """The last commit may wait for asynchronous calls, for longer than a group may take to answer."""
    loop = Loop()
    loop.iteration(news=[AssignmentChanged(TASKS, 1)])
    loop.handle(StopRequested())
    loop.handle(ReleaseTasks())
    loop.handle(Released(), after_ms=60_000)
    assert ProcessTasks(20_000) in loop.handle(InputTaken(is_paused=False), after_ms=14_999)
    assert loop.state.life is Life.LEAVING
    warning, _ = loop.handle(InputTaken(is_paused=False), after_ms=1)
    assert isinstance(warning, Warn)


def test_a_group_that_has_not_taken_the_last_commit_is_not_waited_for_as_long() -> None:
    loop = Loop()
    loop.iteration(news=[AssignmentChanged(TASKS, 1)])
    loop.handle(StopRequested())
    loop.handle(ReleaseTasks())
    loop.handle(Released(is_given_up=True), after_ms=20_000)
    assert ProcessTasks(20_000) in loop.handle(InputTaken(is_paused=False), after_ms=UNHEARD_TIMEOUT_MS - 1)
    warning, _ = loop.handle(InputTaken(is_paused=False), after_ms=1)
    assert isinstance(warning, Warn)
    assert loop.state.life is Life.ENDED


def test_tasks_that_are_released_for_another_reason_end_nothing() -> None:
    loop = Loop()
    before = loop.state
    assert loop.handle(Released()) == ()
    assert loop.state == before


@pytest.mark.parametrize(
    ("operation", "is_static", "last"),
    [
        (GroupMembershipOperation.DEFAULT, False, LeaveGroup(remain=True)),
        (GroupMembershipOperation.LEAVE_GROUP, True, LeaveGroup(remain=False)),
        (GroupMembershipOperation.REMAIN_IN_GROUP, True, LeaveGroup(remain=True)),
        (GroupMembershipOperation.REMAIN_IN_GROUP, False, CommitBeforeClose()),
    ],
)
def test_what_becomes_of_the_membership(operation: GroupMembershipOperation, is_static: bool, last: Action) -> None:
    loop = Loop(replace(SETTINGS, is_static=is_static))
    assert loop.handle(StopRequested(operation))[-1] == last
    assert (loop.state.life is Life.ENDED) is isinstance(last, CommitBeforeClose)


def test_who_leaves_because_of_a_failure_leaves_for_good() -> None:
    loop = Loop()
    loop.handle(SourceTopicsMissing("topic 'in' is missing."))
    assert isinstance(loop.state.failure, MissingTopicError)
    assert loop.state.life is Life.STOPPING
    assert loop.handle(StopRequested())[-1] == LeaveGroup(remain=False)


# ------------------------------------------------------------------------------------------------------------- the group


def test_an_assignment_shows_that_it_rebalances_before_it_is_done() -> None:
    loop = Loop()
    assert loop.handle(AssignmentChanged(TASKS, 3, "a member joined")) == (
        ShowState(State.REBALANCING),
        CheckVersion(),
        Assign(TASKS, 3, "a member joined"),
    )
    assert CheckVersion() not in loop.handle(AssignmentChanged(TASKS, 4)), "it is looked once in a membership"
    loop.handle(TasksLost("fenced"))
    assert CheckVersion() in loop.handle(AssignmentChanged(TASKS, 5))


def test_lost_tasks_are_given_up_and_nothing_is_wanted_any_more() -> None:
    loop = Loop()
    loop.handle(AssignmentChanged(TASKS, 3))
    assert loop.handle(TasksLost("fenced"))[0] == CloseLostTasks("fenced")
    assert loop.state.wanted is None
    assert report(loop.state, loop.now_ms).tasks == ("this member waits for its assignment",)


def test_a_final_refusal_ends_it_at_once() -> None:
    loop = Loop()
    error = UserError("no")
    loop.handle(MembershipFailed(error))
    assert (loop.state.life, loop.state.failure) == (Life.ENDED, error)


def test_a_shutdown_of_the_application_is_no_failure_of_this_member() -> None:
    loop = Loop()
    loop.handle(StatusChanged((Status(StatusCode.SHUTDOWN_APPLICATION, "m asked"),)))
    assert loop.state.was_shut_down
    assert loop.state.failure is None
    assert loop.state.life is Life.STOPPING


def test_topics_that_do_not_fit_end_it_with_their_reason() -> None:
    loop = Loop()
    loop.handle(StatusChanged((Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "a has 2, b has 3."),)))
    assert "a has 2, b has 3." in str(loop.state.failure)


def test_trouble_with_heartbeats_is_told_until_they_are_answered_again() -> None:
    loop = Loop()
    loop.handle(AssignmentChanged(TASKS, 1))
    loop.handle(HeartbeatTrouble("refused."))
    assert "refused. Retrying" in report(loop.state, loop.now_ms).tasks[0]
    loop.handle(HeartbeatRecovered(5_000))
    assert report(loop.state, loop.now_ms).tasks == ()


def test_the_wait_for_an_instance_id_is_told_until_there_is_an_assignment() -> None:
    loop = Loop()
    loop.handle(InstanceIdTaken(50_000))
    shown = report(loop.state, loop.now_ms).tasks[1]
    assert "group.instance.id" in shown
    assert "in 50 s at the latest" in shown
    loop.handle(AssignmentChanged(TASKS, 1))
    assert report(loop.state, loop.now_ms).tasks == ()


# ----------------------------------------------------------------------------------------------------------------- why


@pytest.mark.parametrize(
    ("wait_ms", "process_ms", "why"),
    [(10, 1_800, "processed 7 records for 1800 ms"), (1_800, 10, "waited for input and took it in for 1800 ms")],
)
def test_why_a_commit_was_late_can_be_read(wait_ms: int, process_ms: int, why: str) -> None:
    loop = Loop()
    actions = loop.iteration(records=7, wait_ms=wait_ms, process_ms=process_ms)
    text = f"the commit began 810 ms late: the iteration before it {why}"
    assert report(loop.state, loop.now_ms).commit == f"0 s ago {text}"
    assert Note(text) in actions
    assert Note(text) not in loop.iteration(records=7, wait_ms=wait_ms, process_ms=process_ms), "not again so soon"
    loop.now_ms += 990
    loop.iteration(wait_ms=10)
    assert report(loop.state, loop.now_ms + 8_000).commit.endswith(text), "a commit in time takes nothing back"
    assert "9 s ago" in report(loop.state, loop.now_ms + 8_000).commit


def test_commits_that_take_longer_than_their_interval_leave_as_much_time_to_records() -> None:
    """Else a busy machine would process a few records for each commit, and less and less."""
    loop = Loop(replace(SETTINGS, commit_interval_ms=100))
    loop.handle(IterationBegan(has_work=True))
    loop.handle(Committed(), after_ms=640)
    assert CommitAll() not in loop.iteration(records=9, process_ms=630)
    assert CommitAll() in loop.iteration(records=9, process_ms=20)
    loop.handle(Committed(), after_ms=5)
    assert CommitAll() in loop.iteration(records=9, process_ms=110), "a quick one makes it the interval again"


def test_a_commit_that_waited_for_the_cluster_is_soon_followed_by_the_next() -> None:
    """What was processed since is seen by nobody until then."""
    loop = Loop(replace(SETTINGS, commit_interval_ms=100))
    loop.handle(IterationBegan(has_work=True))
    loop.handle(Committed(), after_ms=60_000)
    assert CommitAll() in loop.iteration(records=9, process_ms=1_000)


def test_a_commit_that_takes_long_is_told_and_kept() -> None:
    loop = Loop()
    loop.handle(IterationBegan(has_work=True))
    text = "a commit took 9429 ms: it waits until the brokers have acknowledged everything"
    assert loop.handle(Committed(), after_ms=9_429) == (Note(text),)
    loop.now_ms += 3_000
    assert report(loop.state, loop.now_ms).commit == f"3 s ago {text}"


@pytest.mark.parametrize(
    ("action", "doing"),
    [
        (ProcessTasks(10), "it has been processing records for 12000 ms: orders-0@7 at app.py:3"),
        (
            CommitAll(),
            "it has been committing for 12000 ms; a commit waits until the brokers have acknowledged everything",
        ),
        (AdvanceTasks(), "it has been opening and closing tasks for 12000 ms"),
        (PurgeRepartitionTopics(), "it has been busy with PurgeRepartitionTopics for 12000 ms"),
    ],
)
def test_what_lasts_is_told_while_it_lasts(action: Action, doing: str) -> None:
    loop = Loop()
    loop.handle(AssignmentChanged(TASKS, 1))
    where = "orders-0@7 at app.py:3" if isinstance(action, ProcessTasks) else ""
    activity = Activity(action, loop.now_ms, where)
    shown = report(loop.state, loop.now_ms + 12_000, activity=activity)
    assert (shown.poll, shown.commit) == (f"skipped: {doing}", f"the commit is 11000 ms late: {doing}")
    assert report(loop.state, loop.now_ms + 100, activity=activity).commit == ""
    assert "waits" in report(loop.state, loop.now_ms + 100, activity=activity).poll


def test_a_wait_for_input_is_no_reason() -> None:
    loop = Loop()
    assert "waits" in report(loop.state, loop.now_ms + 12_000, activity=Activity(Wait(100), loop.now_ms)).poll


def test_a_commit_that_is_late_for_another_reason_blames_no_turn() -> None:
    loop = Loop()
    loop.now_ms += 5_000
    loop.iteration(wait_ms=100)
    assert "did not cause this" in report(loop.state, loop.now_ms).commit


# --------------------------------------------------------------------------------------------------------------- drained


def test_a_member_without_tasks_is_drained_when_it_has_had_none_for_a_while() -> None:
    loop = Loop()
    assert not may_be_drained(loop.state, loop.now_ms), "not before there is an assignment"
    loop.handle(AssignmentChanged(NOTHING, 1))
    assert not may_be_drained(loop.state, loop.now_ms + 14_999)
    assert may_be_drained(loop.state, loop.now_ms + 15_000)
    loop.handle(StatusChanged((Status(StatusCode.MISSING_SOURCE_TOPICS, "no topic"),)))
    assert not may_be_drained(loop.state, loop.now_ms + 15_000), "it has no tasks because something is wrong"


def test_it_is_looked_for_the_end_of_input_at_intervals() -> None:
    loop = Loop()
    loop.handle(AssignmentChanged(TASKS, 1))
    assert may_be_drained(loop.state, loop.now_ms)
    loop.handle(DrainChecked())
    assert not may_be_drained(loop.state, loop.now_ms + 99)
    assert may_be_drained(loop.state, loop.now_ms + 100)


# -------------------------------------------------------------------------------------------------------------- always

EVENTS: st.SearchStrategy[LoopEvent] = st.one_of(
    st.builds(IterationBegan, st.booleans()),
    st.just(PollEnded()),
    st.builds(InputTaken, st.booleans()),
    st.builds(Processed, st.integers(0, 30_000), st.booleans()),
    st.just(Committed()),
    st.builds(IterationEnded, st.booleans()),
    st.builds(StopRequested, st.sampled_from(GroupMembershipOperation)),
    st.just(DrainChecked()),
    st.just(Released()),
    st.builds(AssignmentChanged, st.sampled_from([NOTHING, TASKS]), st.integers(1, 9)),
    st.builds(TasksLost, st.just("fenced")),
    st.just(ReleaseTasks()),
    st.just(LeftGroup()),
    st.builds(
        lambda code: StatusChanged((Status(code, "why"),)),
        st.sampled_from(StatusCode),
    ),
)
LIVES = list(Life)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 5_000)), max_size=40))
def test_whatever_happens(events: list[tuple[LoopEvent, int]]) -> None:
    loop = Loop(replace(SETTINGS, iteration_max_ms=100))
    sent = 0
    for event, after_ms in events:
        before: LoopState = loop.state
        actions = loop.handle(event, after_ms=after_ms)
        assert LIVES.index(loop.state.life) >= LIVES.index(before.life), "it never comes back to life"
        times = [entry.at_ms for entry in loop.state.schedule.entries]
        assert times == sorted(times)
        assert len({entry.what for entry in loop.state.schedule.entries}) == len(times)
        assert 1 <= loop.state.limit_records <= machine.RECORDS_PER_TASK_AND_ITERATION
        sent += sum(isinstance(action, LeaveGroup) for action in actions)
        assert sent <= 1, "it leaves once"
        for action in actions:
            if isinstance(action, Wait):
                assert 0 <= action.timeout_ms <= SETTINGS.poll_ms
        assert step(before, event, loop.now_ms)[1] == actions, "the same state and event, the same actions"
        report(loop.state, loop.now_ms)
