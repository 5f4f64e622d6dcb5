"""A supervisor and its workers as real processes, with work that is quickly done."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streamsrt.config import StreamsConfig
from streamsrt.errors import (
    ApplicationShutdownError,
    MissingTopicError,
    ProcessingError,
    StateDirectoryLockedError,
    StreamsError,
    UserError,
)
from streamsrt.runtime.failures import NotCommittedError
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.runtime.processes import StreamProcesses
from streamsrt.runtime.supervisor import Failure, Report, SetPaused, ShutDown, Stop, StreamThreadFailedError
from streamsrt.runtime.values import Progress, State, TaskProgress
from streamsrt.runtime.worker import run_worker, worker_config
from streamsrt.state.rocksdb import RocksDBStore

pytestmark = pytest.mark.system

PATIENCE_S = 60.0
DEFAULT = GroupMembershipOperation.DEFAULT


def wait_until(holds: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(round(PATIENCE_S / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


def report(index: int, state: State = State.RUNNING) -> Report:
    task = TaskProgress(f"a_{index}", "active", "running", os.getpid(), 0, {})
    return Report(state, Progress(state=state, tasks=(task,), processed_records=1), True)


def obedient(index: int, control: Connection) -> None:
    """Reports, and ends when it is told to."""
    state = State.RUNNING
    while True:
        control.send(report(index, state))
        if control.poll(0.02):
            command = control.recv()
            if isinstance(command, SetPaused):
                state = State.REBALANCING if command.paused else State.RUNNING
            if isinstance(command, Stop):
                return


def failing(index: int, control: Connection) -> None:
    if index == 2:
        control.send(Failure.of(MissingTopicError("no topic")))
        raise MissingTopicError("no topic")
    obedient(index, control)


def shut_down(index: int, control: Connection) -> None:
    if index == 1:
        control.send(report(index))
        control.send(ShutDown())
        return
    obedient(index, control)


def stopped_by_its_program(index: int, control: Connection) -> None:
    if index == 1:
        control.send(report(index))
        control.send(Stop(DEFAULT))
        return
    obedient(index, control)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StreamProcesses]]:
    # Whatever other tests did here: these workers open no stores.
    monkeypatch.setattr(RocksDBStore, "opened_by", 0)
    made: list[StreamProcesses] = []

    def start(
        work: Callable[[int, Connection], None], threads: int = 2, prepare: Callable[[], object] = object
    ) -> StreamProcesses:
        processes = StreamProcesses(work, threads, prepare=prepare, on_state=lambda state: None)
        made.append(processes)
        processes.start()
        return processes

    yield start
    for processes in made:
        processes.stop(DEFAULT)
        assert processes.join(PATIENCE_S)


def pids(processes: StreamProcesses) -> dict[str, int]:
    return {task.task_id: task.lag_records for task in processes.summary.progress.tasks}


@pytest.fixture
def begotten(tmp_path: Path) -> Iterator[Callable[[int, Connection], None]]:
    """What workers do that start a process which outlives them, as one of a pool does."""

    def work(index: int, control: Connection) -> None:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pause()
        (tmp_path / str(child)).touch()
        obedient(index, control)

    yield work
    for path in tmp_path.iterdir():
        os.kill(int(path.name), signal.SIGKILL)


def test_sigterm_waits_until_a_worker_has_a_handler_for_it(make: Callable[..., StreamProcesses]) -> None:
    def work(index: int, control: Connection) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if signal.SIGTERM not in signal.sigpending():
            raise MissingTopicError("it is lost")
        obedient(index, control)

    processes = make(work)
    wait_until(lambda: len(pids(processes)) == 2, "both workers run")


def test_a_process_that_a_worker_has_started_hides_no_end_of_a_worker(
    begotten: Callable[[int, Connection], None], make: Callable[..., StreamProcesses]
) -> None:
    processes = make(begotten, 2)
    wait_until(lambda: processes.summary.state is State.RUNNING, "both run")
    killed = pids(processes)["a_1"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: pids(processes).get("a_1", killed) != killed, "it is replaced")
    wait_until(lambda: processes.summary.state is State.RUNNING, "both run again")
    processes.stop(DEFAULT)
    assert processes.join(PATIENCE_S)


def test_workers_run_until_they_are_told_to_stop(make: Callable[..., StreamProcesses]) -> None:
    processes = make(obedient, 3)
    wait_until(lambda: processes.summary.state is State.RUNNING, "all three run")
    found = pids(processes)
    assert sorted(found) == ["a_1", "a_2", "a_3"]
    assert len({os.getpid(), *found.values()}) == 4
    assert (processes.summary.alive, processes.summary.failed, processes.summary.quiet) == (3, 0, True)
    processes.set_paused(True)
    wait_until(lambda: processes.summary.state is State.REBALANCING, "they have heard it")
    processes.set_paused(False)
    wait_until(lambda: processes.summary.state is State.RUNNING, "they go on")
    processes.stop(DEFAULT)
    assert processes.join(PATIENCE_S)
    processes.raise_failure()
    assert processes.summary.progress.processed_records == 3
    for pid in found.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_killed_worker_is_replaced(make: Callable[..., StreamProcesses]) -> None:
    processes = make(obedient)
    wait_until(lambda: len(pids(processes)) == 2, "both are there")
    before = pids(processes)
    os.kill(before["a_2"], signal.SIGKILL)
    wait_until(lambda: len(pids(processes)) == 2 and pids(processes) != before, "there is another one")
    after = pids(processes)
    assert after["a_1"] == before["a_1"]
    assert after["a_2"] != before["a_2"]
    assert processes.summary.failed == 1


class Unreported:
    """An instance that can tell once how far it is."""

    state, was_shut_down = State.RUNNING, False
    on_stuck: Callable[[str], None] | None = None

    def __init__(self, index: int) -> None:
        self.progresses = iter([report(index).progress])
        self.stopped = threading.Event()

    @property
    def progress(self) -> Progress:
        return next(self.progresses)

    def run_thread(self, is_over: Callable[[Any], bool]) -> None:
        self.stopped.wait()

    def stop(self, membership: GroupMembershipOperation | None = None) -> None:
        self.stopped.set()

    pause = resume = stop


def test_a_worker_that_can_not_report_any_more_is_replaced(
    make: Callable[..., StreamProcesses], capfd: pytest.CaptureFixture[str]
) -> None:
    def work(index: int, control: Connection) -> None:
        logging.basicConfig(force=True)
        run_worker(Unreported(index), control, stop_when_quiet=False)

    processes = make(work, 1)
    wait_until(lambda: processes.summary.failed > 0, "it has ended")
    processes.stop(DEFAULT)
    assert processes.join(PATIENCE_S)
    said = capfd.readouterr().err
    assert "StopIteration" in said
    assert "this process ends and is replaced: it neither reports nor takes commands any more" in said


def test_of_a_killed_supervisor_is_said_by_what_and_what_is_next(make: Callable[..., StreamProcesses]) -> None:
    processes = make(obedient)
    wait_until(lambda: len(pids(processes)) == 2, "both are there")
    supervisor = processes._pid
    os.kill(supervisor, signal.SIGKILL)
    assert processes.join(PATIENCE_S)
    with pytest.raises(StreamsError) as raised:
        processes.raise_failure()
    said = str(raised.value)
    assert f"the supervisor of the stream threads (process {supervisor}) was killed by SIGKILL" in said
    assert "memory was short" in said
    assert "Nothing is lost" in said
    assert said.endswith("Start this instance again")


def test_workers_are_added_and_removed(make: Callable[..., StreamProcesses]) -> None:
    processes = make(obedient)
    processes.set_threads(3)
    wait_until(lambda: sorted(pids(processes)) == ["a_1", "a_2", "a_3"], "one more")
    processes.set_threads(1)
    wait_until(lambda: sorted(pids(processes)) == ["a_1"] and processes.summary.alive == 1, "two less")


def silent(index: int, control: Connection) -> None:
    """Joins no group, and ends when it is told to."""
    while not isinstance(control.recv(), Stop):
        pass


class ToldWhileItForks(io.StringIO):
    """Standard output of a supervisor, which gets SIGTERM when it flushes it before its third fork."""

    def __init__(self) -> None:
        super().__init__()
        self._application, self._forks = os.getpid(), 0

    def flush(self) -> None:
        if os.getppid() == self._application:
            self._forks += 1
            if self._forks == 3:
                os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_between_two_forks_ends_all(
    make: Callable[..., StreamProcesses], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(index: int, control: Connection) -> None:
        (tmp_path / str(index)).touch()
        silent(index, control)

    monkeypatch.setattr(sys, "stdout", ToldWhileItForks())
    processes = make(work, 8)
    assert processes.join(PATIENCE_S)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1", "2", "3"]


def test_a_stop_before_any_worker_has_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RocksDBStore, "opened_by", 0)
    processes = StreamProcesses(silent, 2, prepare=object, on_state=lambda state: None)
    processes.start(lambda: True)
    processes.stop(DEFAULT)
    assert processes.join(PATIENCE_S)
    processes.raise_failure()


def test_one_that_says_why_it_failed_ends_all(make: Callable[..., StreamProcesses]) -> None:
    def run() -> None:
        processes = make(failing)
        assert processes.join(PATIENCE_S)
        processes.raise_failure()

    # At the start, where it is that quick.
    with pytest.raises(MissingTopicError, match="no topic"):
        run()


def test_the_group_may_shut_down_the_application(make: Callable[..., StreamProcesses]) -> None:
    def run() -> None:
        processes = make(shut_down)
        assert processes.join(PATIENCE_S)
        processes.raise_failure()

    with pytest.raises(ApplicationShutdownError, match="requested a shutdown for the entire application"):
        run()


def test_a_program_that_stops_one_process_stops_all(make: Callable[..., StreamProcesses]) -> None:
    processes = make(stopped_by_its_program)
    assert processes.join(PATIENCE_S)
    processes.raise_failure()
    assert processes.summary.failed == 0


def test_what_can_not_be_prepared_is_raised_at_the_start(make: Callable[..., StreamProcesses]) -> None:
    def locked() -> object:
        raise StateDirectoryLockedError("in use by pid 7")

    with pytest.raises(StateDirectoryLockedError, match="pid 7"):
        make(obedient, prepare=locked)


def test_a_process_with_threads_of_rocksdb_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RocksDBStore, "opened_by", os.getpid())
    processes = StreamProcesses(obedient, 2, prepare=object, on_state=lambda state: None)
    with pytest.raises(UserError, match="start the application in another process"):
        processes.start()


class Awkward(StreamsError):
    exit_code = 7

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_errors_pass_from_process_to_process() -> None:
    error = Failure.of(ProcessingError("bad", "t", 3, 17)).error()
    assert isinstance(error, ProcessingError)
    assert (str(error), error.topic, error.partition, error.offset) == ("bad", "t", 3, 17)
    awkward = Failure.of(Awkward(1, 2)).error()
    assert isinstance(awkward, StreamThreadFailedError)
    assert (str(awkward), awkward.exit_code) == ("1 and 2", 7)
    lost = NotCommittedError("the cluster does not answer")
    assert isinstance(Failure.of(lost).error(), NotCommittedError)
    assert str(Failure.of(lost).error()) == str(lost)
    assert str(Failure.of(ValueError("x")).error()) == "ValueError: x"


def of_its_own(index: int, control: Connection) -> None:
    """Fails with an error of a module that only its process has."""
    module = ModuleType("only_there")
    module.OwnError = type("OwnError", (StreamsError,), {"__module__": module.__name__, "exit_code": 7})  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    control.send(Failure.of(module.OwnError("something strange")))
    raise module.OwnError("something strange")


def test_an_error_that_only_its_process_can_read_is_not_lost(make: Callable[..., StreamProcesses]) -> None:
    def run() -> None:
        processes = make(of_its_own)
        assert processes.join(PATIENCE_S)
        processes.raise_failure()

    with pytest.raises(StreamThreadFailedError, match="something strange") as raised:
        run()
    assert raised.value.exit_code == 7


def test_each_worker_has_its_part(tmp_path: Path) -> None:
    config = StreamsConfig.of(
        {
            "application.id": "a",
            "num.stream.threads": 4,
            "statestore.cache.max.bytes": 4_000,
            "cache.max.bytes": 32 << 20,
            "http.listen": "127.0.0.1:8080",
            "group.instance.id": "static",
            "state.dir": tmp_path,
            "topic.segment.bytes": "77",
        }
    )
    third = worker_config(config, 3)
    assert (third.num_stream_threads, third.client_id) == (1, "streamsrt-a-StreamThread-3")
    assert (third.record_cache_bytes, third.rocksdb_bytes) == (1_000, (8 << 20) - 1_000)
    assert (third.http_listen, third.group_instance_id) == ("127.0.0.1:8082", "static-3")
    assert (third.state_dir, third.topic_configs) == (tmp_path, {"segment.bytes": "77"})
    assert worker_config(StreamsConfig.of(config, http_listen="h:0"), 2).http_listen == "h:0"
