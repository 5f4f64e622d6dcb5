"""Seeds: each is a run of several instances through faults, always the same one; and wrong programs are found out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from coordinator.group import machine, transactional
from streamsrt.client.producer import Producer
from streamsrt.client.transaction_coordination import TransactionCoordination
from streamsrt.client.values import OffsetAndMetadata, StaleMemberEpochError, UnknownMemberError
from streamsrt.errors import UserError
from streamsrt.membership.values import ReportOwned, Tasks
from streamsrt.runtime.commit import Committer, check_all, prepare_all, write_all
from streamsrt.runtime.exactly_once import ExactlyOnceCommitter
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.task import Task
from streamsrt.testing.simulator import NO_FAULTS, Faults, Outputs, SimulationFailure, simulate, simulate_seeds
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.testing.simulator.programs import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    LINES,
    PROGRAMS,
    counted,
    expected,
    word_count,
)
from topology import StreamsBuilder

ROOT = Path(__file__).parents[4]


def run(seeds: Sequence[int], *, exactly_once: bool, faults: Faults | None = None, **arguments: Any) -> None:
    config = EXACTLY_ONCE if exactly_once else AT_LEAST_ONCE
    expected = counted(exactly_once=exactly_once)
    arguments = {"inputs": LINES, "config": config, "expected": expected, "faults": faults, **arguments}
    for _ in simulate_seeds(word_count(), seeds=seeds, **arguments):
        pass


# ------------------------------------------------------------------------------------------------------------ many seeds


@pytest.mark.parametrize("exactly_once", [True, False])
def test_seeds_pass(exactly_once: bool) -> None:
    run(range(5), exactly_once=exactly_once)


def test_without_faults_all_instances_settle() -> None:
    result = simulate(
        word_count(),
        inputs=LINES,
        faults=NO_FAULTS,
        config=EXACTLY_ONCE,
        expected=counted(exactly_once=True),
    )
    assert len(result.outputs["word-counts"]) == 120
    assert result.counts["broker starts"] == 1


def test_what_runs_on_threads_of_its_own_is_refused() -> None:
    async def later(value: bytes) -> bytes:
        return value

    builder = StreamsBuilder()
    builder.stream("lines").map_async(later).to("later")
    with pytest.raises(UserError, match="asynchronous functions"):
        simulate(builder.build(), inputs=LINES)


# --------------------------------------------------------------------------------------------------------------- the same


def digest(seed: int) -> str:
    return simulate(
        word_count(), inputs=LINES, seed=seed, config=EXACTLY_ONCE, expected=counted(exactly_once=True)
    ).digest


def test_a_seed_is_always_the_same_run_whatever_the_hash_seed() -> None:
    program = (
        "from tests.streamsrt.testing.simulator.test_simulator import digest\n"
        "print(digest(0), digest(7))"  # seeds with a crash of the broker, and with all instances coming and going
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert found == {f"{digest(0)} {digest(7)}\n"}


def test_other_seeds_are_other_runs() -> None:
    assert digest(1) != digest(2)


# --------------------------------------------------------------------------------------------------------- broken programs


@contextmanager
def broken(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    """The program with one rule of it broken."""
    right = owner.__dict__[name]
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)


def found_out(
    seeds: Sequence[int], *, exactly_once: bool, faults: Faults | None = None, **arguments: Any
) -> SimulationFailure:
    with pytest.raises(SimulationFailure) as caught:
        run(seeds, exactly_once=exactly_once, faults=faults, **arguments)
    return caught.value


def test_offsets_that_are_committed_before_the_results_are_acknowledged_lose_results() -> None:
    def commit_too_early(self: Any, tasks: Sequence[OwnedTask], member_id: str, member_epoch: int) -> None:
        busy = [owned for owned in tasks if owned.task.commit_needed]
        for _, state in prepare_all(busy, self._idle):
            for place, (offset, metadata) in state.offsets.items():
                self._pending[place] = OffsetAndMetadata(offset, metadata)
        self.commit_pending(member_id, member_epoch)
        self._collector.flush()
        write_all(check_all(busy, self._network.producer.flush()), self._idle)

    program = PROGRAMS["stateless"]
    known: dict[str, Any] = {"config": AT_LEAST_ONCE, "expected": expected("stateless", AT_LEAST_ONCE)}
    with broken(Committer, "commit", commit_too_early), pytest.raises(SimulationFailure, match="is lost"):
        list(
            simulate_seeds(program.topology(), seeds=range(50), inputs=program.inputs, **known, **program.at_least_once)
        )


def test_tasks_that_are_reported_as_closed_before_they_are_have_two_owners() -> None:
    right = StreamThread._assign

    def report_too_early(self: StreamThread, tasks: Tasks) -> None:
        self._member.send(ReportOwned(tasks))
        if any(owned.is_active and owned.key not in tasks.active for owned in self._manager):
            # Long enough for the group to give them to somebody else, who opens them.
            self._blocking.pause(5.0)
        right(self, tasks)

    with broken(StreamThread, "_assign", report_too_early):
        failure = found_out(range(60), exactly_once=False, faults=Faults(scalings=4, slow=0.3, varied=False))
    assert "owned twice" in failure.what


def test_tasks_that_are_reported_as_closed_while_their_commit_is_under_way_are_found_out() -> None:
    right = StreamThread._assign

    def report_first(self: StreamThread, tasks: Tasks) -> None:
        self._member.send(ReportOwned(tasks))
        right(self, tasks)

    with broken(StreamThread, "_assign", report_first):
        failure = found_out(
            range(40),
            exactly_once=False,
            faults=Faults(scalings=4, handovers=8, varied=False),
            # Rarely: most of what is given up has something to commit.
            config={"commit.interval.ms": 5_000},
        )
    assert "owned twice" in failure.what or "which the coordinator has taken back" in failure.what


def test_offsets_that_the_group_refused_and_an_instance_takes_as_committed_are_found_out() -> None:
    right = Committer._end

    def succeed(self: Committer, offsets: Any, wait: Any) -> None:
        def wait_anyway() -> None:
            with suppress(StaleMemberEpochError, UnknownMemberError):
                wait()

        right(self, offsets, wait_anyway)

    with broken(Committer, "_end", succeed):
        failure = found_out(range(40), exactly_once=False, faults=Faults(given_up=4, varied=False))
    assert "takes lines-" in failure.what or "takes simulated-counts-repartition-" in failure.what


def test_a_transaction_whose_offsets_the_group_refused_counts_twice() -> None:
    right = TransactionCoordination.send_offsets

    async def succeed(self: TransactionCoordination, *arguments: Any) -> None:
        with suppress(StaleMemberEpochError, UnknownMemberError):
            await right(self, *arguments)

    with broken(TransactionCoordination, "send_offsets", succeed):
        failure = found_out(range(40), exactly_once=True, faults=Faults(given_up=4, varied=False))
    assert "instead of" in failure.what or "not settled" in failure.what


def test_tasks_that_were_lost_and_are_not_closed_are_found_out() -> None:
    with broken(StreamThread, "_close_as_they_are", lambda self, **_: None):
        failure = found_out(range(40), exactly_once=False, faults=Faults(given_up=4, varied=False))
    # Who goes on with a task that another member has had commits positions of that one, without its results.
    assert any(
        found in failure.what for found in ("owned twice", "which the coordinator has taken back", "expected at least")
    )


def test_without_fencing_what_a_member_did_that_was_given_up_counts_twice() -> None:
    # Seed 84 is the first that shows it. Where other code has other runs, a later one does.
    with broken(transactional, "transactional_commit_error", lambda group, request: ErrorCode.NONE):
        failure = found_out(range(84, 224), exactly_once=True, faults=Faults(freezes=5, cut_offs=5, varied=False))
    assert "instead of" in failure.what or "went back" in failure.what


def test_a_store_that_is_written_before_the_transaction_is_committed_counts_twice() -> None:
    def write_too_early(self: Any, tasks: Sequence[OwnedTask], member_id: str, member_epoch: int) -> None:
        busy = [owned for owned in tasks if owned.task.commit_needed]
        states = prepare_all(busy, self._idle)
        self._collector.flush()
        if busy or self._transactions.is_open:
            write_all(check_all(busy, self._transactions._producer.flush(self._timeout_s)), self._idle)
            # Long enough for a crash to come in between.
            self._blocking.pause(2.0)
            offsets = {at: OffsetAndMetadata(*to) for _, state in states for at, to in state.offsets.items()}
            self._commit_transaction(offsets)

    with broken(ExactlyOnceCommitter, "commit", write_too_early):
        # As above: seed 11.
        failure = found_out(range(11, 71), exactly_once=True, faults=Faults(crashes=8, cut_offs=3, varied=False))
    assert "instead of" in failure.what or "and its changelog" in failure.what


def test_a_standby_that_misses_records_is_found_although_it_never_takes_over() -> None:
    right = Task.restore

    def forget_last(self: Task, store: str, columns: RecordColumns) -> None:
        kept = columns.cut(0, len(columns.keys) - 1)
        kept.next_offset = columns.next_offset
        right(self, store, kept)

    with broken(Task, "restore", forget_last), pytest.raises(SimulationFailure, match="and its changelog"):
        simulate(
            word_count(),
            inputs=LINES,
            faults=NO_FAULTS,
            config=EXACTLY_ONCE,
            broker_config={"group.streams.num.standby.replicas": "1"},
            expected=counted(exactly_once=True),
        )


def test_a_task_of_the_client_that_dies_ends_a_simulation() -> None:
    """Its instance would go on without what the task was for, until faults or other instances make up for it."""

    def fail(self: Producer, *_: object) -> NoReturn:
        raise ZeroDivisionError("a bug")

    with (
        broken(Producer, "_retry", fail),
        pytest.raises(SimulationFailure, match=r"(?s)failed:.*ZeroDivisionError: a bug"),
    ):
        run(range(20), exactly_once=True)


# ----------------------------------------------------------------------------------------------------------------- failure


def test_a_failure_says_how_to_repeat_it() -> None:
    with pytest.raises(SimulationFailure) as caught:
        simulate(
            word_count(),
            inputs=LINES,
            seed=3,
            expected=counted(exactly_once=False),
            check=lambda outputs, expected: "the sky is not green",
        )
    text = str(caught.value)
    assert text.startswith("seed 3: the sky is not green\n")
    assert "simulate(topology, inputs=inputs, seed=3, instances=3, " in text
    assert "opened as active" in text


def test_the_call_that_repeats_a_failure_gives_the_same_run() -> None:
    def wrong(outputs: Outputs, expected: Outputs) -> str:
        return "the sky is not green"

    known: dict[str, Any] = {"topology": word_count(), "inputs": LINES, "check": wrong, "expected": {}}
    with pytest.raises(SimulationFailure) as first:
        simulate(seed=0, instances=2, partitions=1, chaos_s=4.0, settle_s=90.0, faults=Faults(crashes=1), **known)
    with pytest.raises(SimulationFailure) as again:
        eval(first.value.call, {"simulate": simulate, "Faults": Faults, **known})
    assert again.value.trace == first.value.trace


def test_an_exception_that_the_broker_survives_ends_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on after one, which would hide it."""

    def fail(view: object, request: object) -> NoReturn:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(machine._HANDLERS, "JoinGroupRequest", fail)  # type: ignore[misc, unused-ignore]
    with pytest.raises(SimulationFailure, match=r"(?s)the broker failed.*ZeroDivisionError: a bug"):
        simulate(word_count(), inputs=LINES, protocol="classic", faults=NO_FAULTS, expected={}, settle_s=20.0)
