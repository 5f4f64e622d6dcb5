"""Failures, pauses and leaving, as the application decides."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import ProcessingError, StreamsError
from streamsrt.http.answers import readiness
from streamsrt.http.instance import Instance
from streamsrt.membership.statuses import ADVICE, CLASSIC_ADVICE
from streamsrt.membership.values import Leave, ReleaseTasks, ReportOwned, RequestShutdown, Status, StatusChanged, Tasks
from streamsrt.runtime.health import SILENT_S, Readiness, why_not_alive, why_not_ready, why_task, with_silence
from streamsrt.runtime.lifecycle import GroupMembershipOperation, Response
from streamsrt.runtime.meter import ThreadMeter, Work
from streamsrt.runtime.metrics import Metric, prometheus_text
from streamsrt.runtime.values import Progress, RestoreProgress, State, TaskProgress
from streamsrt.runtime.watchdog import Watchdog
from tests.streamsrt.rig import MakeRig, Rig, number
from topology import Processor, ProcessorContext, Record, StreamsBuilder, serdes
from topology.graph.topology import Topology


def dividing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).map_values(lambda n: 100 // n).to("out")
    return builder.build()


def failing(make_rig: MakeRig, response: Response) -> tuple[Rig, list[StreamsError]]:
    rig = make_rig(topology=dividing())
    rig.network.write(("in", 0), [(b"k", number(0))])
    rig.give(Tasks(active=rig.tasks(0)))
    asked: list[StreamsError] = []

    def decide(error: StreamsError) -> Response:
        asked.append(error)
        return response

    rig.thread._on_failure = decide
    with pytest.raises(ProcessingError):
        rig.thread.run()
    return rig, asked


@pytest.mark.requirement("SG-026")
@pytest.mark.parametrize(
    ("response", "command", "is_error"),
    [
        (Response.SHUTDOWN_CLIENT, Leave(), True),
        (Response.SHUTDOWN_APPLICATION, RequestShutdown(), True),
        (Response.REPLACE_THREAD, Leave(), False),
    ],
)
def test_the_application_says_what_becomes_of_a_failure(
    make_rig: MakeRig, response: Response, command: object, is_error: bool
) -> None:
    rig, asked = failing(make_rig, response)
    assert [type(error) for error in asked] == [ProcessingError]
    assert rig.thread.response is response
    assert command in rig.member.told
    assert (State.PENDING_ERROR in rig.states) is is_error


def test_a_thread_that_hangs_is_named_before_what_it_said_earlier() -> None:
    before = ["the group gives this member no tasks", "ASSIGNMENT_DELAYED: no action is needed"]
    assert with_silence(before, SILENT_S / 2, 300.0, "it processes in-0 offset 0") == before
    silence = "the processing thread has not polled for 30 s: it processes in-0 offset 0 at hang.py:4 in f"
    doing = "it processes in-0 offset 0 at hang.py:4 in f"
    assert with_silence(before, 30.0, 300.0, doing) == [f"{silence}. Before that:", *before]
    assert with_silence([], 30.0, 300.0, doing) == [], "it is busy"
    assert with_silence([], 30.0, 6.0, doing) == [silence], "the group takes its tasks away"


def test_nothing_is_processed_while_it_is_paused(rig: Rig) -> None:
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(3)
    rig.thread.is_paused = True
    rig.network.write(("in", 0), [(b"a", number(1))])
    rig.iterate(4)
    assert rig.thread.processed_records == 0
    rig.thread.is_paused = False
    rig.iterate(3)
    assert rig.thread.processed_records == 1


def test_who_remains_in_the_group_tells_it_nothing(rig: Rig) -> None:
    rig.network.write(("in", 0), [(b"a", number(1))])
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(4)
    rig.member.told.clear()
    rig.thread.leaving = GroupMembershipOperation.REMAIN_IN_GROUP
    rig.thread.stop()
    rig.thread.run()
    assert not [each for each in rig.member.told if isinstance(each, Leave | ReportOwned)]
    assert rig.network.admin.offsets["in", 0].offset == 1
    assert len(rig.manager) == 0


def test_a_static_member_may_leave_for_good(rig: Rig) -> None:
    rig.thread.leaving = GroupMembershipOperation.LEAVE_GROUP
    rig.thread.stop()
    rig.iterate()
    assert Leave(remain=False) in rig.member.told
    rig.member.waiting.append(ReleaseTasks())
    rig.iterate()


@pytest.mark.requirement("SG-074")
def test_it_is_known_that_the_application_was_shut_down(rig: Rig) -> None:
    rig.member.waiting.append(StatusChanged((Status(StatusCode.SHUTDOWN_APPLICATION, "Member m requested it."),)))
    rig.iterate()
    assert rig.thread.was_shut_down


class Impatient(Processor[str, int, str, int]):
    """Asks for a commit with every record whose value is 2."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, int]) -> None:
        if record.value == 2:
            self.context.commit()
        self.context.forward(record)


def test_a_processor_may_ask_for_a_commit(make_rig: MakeRig) -> None:
    """It does not wait for ``commit.interval.ms``, and comes with the turn."""
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).process(Impatient).to(
        "out", key=serdes.string, value=serdes.integer
    )
    rig = make_rig(topology=builder.build(), commit_interval_ms=1_000_000)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.network.write(("in", 0), [(b"k", number(1))])
    rig.iterate(4)
    assert rig.network.admin.offsets == {}
    rig.network.write(("in", 0), [(b"k", number(2)), (b"k", number(3))])
    rig.iterate(2)
    assert rig.network.admin.offsets["in", 0].offset >= 2


# -------------------------------------------------------------------------------------------------------------- health


def task(phase: str, *, role: str = "active", lag: int = 0, left: int = 0) -> TaskProgress:
    restoring = (RestoreProgress("counts", 1, 1, left, 1),) if left else ()
    return TaskProgress("a_0", role, phase, lag, 0, {}, restoring)


def test_why_a_task_waits() -> None:
    assert (
        why_task(task("restoring", left=7))
        == "task a_0 (active) is restoring: 7 changelog records left to restore (counts)"
    )
    known = replace(task("restoring", left=7), restoring=(RestoreProgress("counts", 1, 1, 7, 1, 2.0, 3.5),))
    assert why_task(known).endswith("7 changelog records left to restore (counts), about 4 s"), (
        "where its speed is known"
    )
    assert why_task(task("standby", role="standby", left=3)).endswith("3 changelog records behind")
    assert why_task(task("running", lag=5)).endswith("5 records of input waiting")
    assert why_task(task("running")).endswith("no input is waiting")
    assert "it waits for its offsets" in why_task(task("created"))


def test_why_an_instance_is_not_ready() -> None:
    assert why_not_ready(State.RUNNING, Progress(tasks=(task("running"),))) == []
    waiting = Progress(tasks=(task("restoring", left=2),), statuses=("MISSING_INTERNAL_TOPICS: x",))
    assert why_not_ready(State.REBALANCING, waiting) == [
        "the application is REBALANCING",
        "task a_0 (active) is restoring: 2 changelog records left to restore (counts)",
        "MISSING_INTERNAL_TOPICS: x",
    ]
    assert why_not_ready(State.RUNNING, waiting)[0] == "not all tasks run"


def test_an_instance_without_tasks_is_ready_where_others_are_known_to_have_them() -> None:
    assert why_not_ready(State.RUNNING, Progress()) == [
        "no partition is on this instance or known to be on another one"
    ]
    assert why_not_ready(State.RUNNING, Progress(), others_have_tasks=True) == []


def test_an_old_instance_without_tasks_stays_ready_in_an_upgrade() -> None:
    behind = Progress(statuses=("STALE_TOPOLOGY: x",))
    assert why_not_ready(State.RUNNING, behind) == []
    assert why_not_ready(State.RUNNING, Progress(statuses=("MISSING_SOURCE_TOPICS: x",)), others_have_tasks=True)


def test_a_new_instance_is_ready_when_it_is_warm_and_stays_so() -> None:
    readiness = Readiness()

    def why(*roles: str) -> list[str]:
        phases = {"active": "running", "warmup": "standby", "standby": "standby"}
        tasks = tuple(replace(task(phases[role], left=3), role=role) for role in roles)
        return readiness.why_not(State.RUNNING, Progress(tasks=tasks), others_have_tasks=True)

    assert why("warmup", "standby") == [
        "it has just started, and its state is not warm yet",
        "task a_0 (warmup) is standby: 3 changelog records behind",
    ]
    assert why("active", "warmup"), "a part of its share is not enough"
    assert why("active", "standby") == []
    assert why("active", "warmup") == [], "it runs: more state on its way takes nothing out"


def test_the_readiness_probe_says_how_long_restoring_takes() -> None:
    store = RestoreProgress("counts", 10, 100, 20, 10, 2.0, 10.0)
    progress = Progress(tasks=(replace(task("restoring"), restoring=(store,)),))
    why = why_not_ready(State.REBALANCING, progress)
    instance = SimpleNamespace(progress=progress, state=State.REBALANCING, why_not_ready=lambda: why)
    status, body = readiness(cast(Instance, instance))
    assert (status, body["ready"], body["restore_eta_s"]) == (503, False, 10.0)
    assert "20 changelog records left to restore (counts), about 10 s" in body["why"][1]


@pytest.mark.parametrize("code", StatusCode)
@pytest.mark.parametrize(("is_classic", "advice"), [(False, ADVICE), (True, CLASSIC_ADVICE)])
def test_every_status_is_told_with_what_to_do(
    rig: Rig, code: StatusCode, is_classic: bool, advice: Mapping[StatusCode, str]
) -> None:
    """In the progress of the command line, over HTTP, and why an instance without tasks is not ready."""
    rig.member.waiting.append(StatusChanged((Status(code, "Something is so."),), is_classic))
    for _ in range(2):
        rig.clock_ms += 1_000
        rig.iterate()
    (told,) = rig.thread.progress.statuses
    assert told == f"{code.name}: Something is so. {advice[code]}"
    ready = (StatusCode.SHUTDOWN_APPLICATION, StatusCode.MISSING_CLIENT_TAGS, StatusCode.STALE_TOPOLOGY)
    has_none_by_it = code not in ready
    now = rig.thread.progress
    assert (told in why_not_ready(State.RUNNING, now, others_have_tasks=True)) is has_none_by_it
    assert told in why_not_ready(State.REBALANCING, rig.thread.progress)
    with_tasks = replace(rig.thread.progress, tasks=(task("running"),))
    assert why_not_ready(State.RUNNING, with_tasks) == []


def test_why_an_instance_is_not_alive() -> None:
    assert why_not_alive(State.RUNNING, 1.0, 2.0, "") == []
    (why,) = why_not_alive(State.RUNNING, 5.0, 2.0, "it processes in-0 offset 7")
    assert why.endswith("max.poll.interval.ms (2 s): it processes in-0 offset 7")
    assert why_not_alive(State.ERROR, 0.0, 2.0, "") == ["the application is ERROR"]


# ------------------------------------------------------------------------------------------------------------- metrics


def test_longest_of_a_window() -> None:
    work = Work()
    work.add(0, 50, 3)
    work.add(100, 110, 2)
    assert (work.count, work.items, work.time_ns, work.longest_ns) == (2, 5, 60, 50)
    minute = 60_000_000_000
    work.add(2 * minute, 2 * minute + 20, 1)
    assert work.longest_ns == 50
    work.add(4 * minute, 4 * minute + 10, 1)
    assert work.longest_ns == 20


def test_rates_are_of_what_was_done() -> None:
    meter = ThreadMeter()
    meter.process.add(0, 1_000, 100)
    rates = meter.rates()
    assert rates["process"][1] == pytest.approx(100 * rates["process"][0])
    assert rates["commit"] == (0.0, 0.0, 0.0)


def test_prometheus_text() -> None:
    tags = {"client-id": 'a"b'}
    text = prometheus_text(
        [
            Metric("process-total", "stream-thread-metrics", 3, tags, "records"),
            Metric("client-state", "stream-metrics", 2, {}),
        ]
    )
    assert text == (
        "# HELP kafka_streams_stream_thread_metrics_process_total records\n"
        "# TYPE kafka_streams_stream_thread_metrics_process_total counter\n"
        'kafka_streams_stream_thread_metrics_process_total{client_id="a\\"b"} 3\n'
        "# HELP kafka_streams_stream_metrics_client_state \n"
        "# TYPE kafka_streams_stream_metrics_client_state gauge\n"
        "kafka_streams_stream_metrics_client_state{} 2\n"
    )


# ------------------------------------------------------------------------------------------------------------ watchdog


def test_what_keeps_it_is_named(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    """The user's function blocks: the batch and the line are in the log, and whoever is to be told is told."""
    released = threading.Event()

    def slow(value: int) -> int:
        released.wait(60)
        return value

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).map_values(slow).to("out")
    rig = make_rig(topology=builder.build())
    rig.network.write(("in", 0), [(b"k", number(n)) for n in range(3)])
    rig.give(Tasks(active=rig.tasks(0)))
    told: list[str] = []

    def on_stuck(what: str) -> None:
        told.append(what)
        if "in slow" in what:
            released.set()

    with caplog.at_level(logging.ERROR), Watchdog(rig.thread, 0.1, on_stuck, grace_s=0.0):
        rig.thread._thread_id = threading.get_ident()
        rig.iterate(6)
    assert rig.thread.processed_records == 3
    what = next(each for each in told if "in slow" in each)
    assert "longer than max.poll.interval.ms (0.1 s): it processes in-0 offset 0 (of a batch of 0 to 2) at " in what
    assert "test_lifecycle.py" in what
    assert "longer than max.poll.interval.ms" in caplog.text


def test_what_a_stop_waits_for_is_named(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    class Released(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            released.set()

    def slow(value: int) -> int:
        rig.thread.stop()
        released.wait(60)
        return value

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).map_values(slow).to("out")
    rig = make_rig(topology=builder.build())
    rig.network.write(("in", 0), [(b"k", number(0))])
    rig.give(Tasks(active=rig.tasks(0)))
    log, handler = logging.getLogger("streamsrt.runtime.watchdog"), Released()
    log.addHandler(handler)
    try:
        with Watchdog(rig.thread, 60.0, stop_patience_s=0.0):
            rig.thread._thread_id = threading.get_ident()
            rig.iterate(6)
    finally:
        log.removeHandler(handler)
    assert rig.thread.processed_records == 1
    (told,) = caplog.messages
    assert told.startswith(
        "the instance is asked to stop, and waits for its processing thread, which has been busy for "
    )
    assert "it processes in-0 offset 0 (of a batch of 0 to 0) at " in told
    assert "test_lifecycle.py" in told
