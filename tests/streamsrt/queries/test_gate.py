"""Whose turn it is: nothing is read while the processing thread works, and nothing is left lying."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from streamsrt.queries.errors import QueryTimedOutError, StateStoreMigratedError, StreamsStoppedError
from streamsrt.queries.gate import QueryGate
from streamsrt.state.store import StoreClosedError

PATIENCE_S = 60.0


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Runs ``work``; its result or what it raised."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def test_while_the_processing_thread_waits_the_caller_answers_itself() -> None:
    gate = QueryGate()
    with gate.idle:
        assert gate.run(threading.get_ident) == threading.get_ident()


def test_while_it_works_it_answers_between_two_batches() -> None:
    gate = QueryGate()
    caller, found = in_thread(lambda: gate.run(threading.get_ident, PATIENCE_S))
    while not found:
        gate.serve()
    caller.join(PATIENCE_S)
    assert found == [threading.get_ident()]


def test_what_lies_there_is_answered_as_soon_as_it_waits() -> None:
    gate = QueryGate()
    caller, found = in_thread(lambda: gate.run(lambda: "answer", PATIENCE_S))
    with gate.idle:
        caller.join(PATIENCE_S)
    assert found == ["answer"]


def test_a_query_that_nobody_comes_to_is_given_up_and_never_done() -> None:
    gate = QueryGate()
    done: list[int] = []
    with pytest.raises(QueryTimedOutError, match="did not get to the query in 0 s"):
        gate.run(lambda: done.append(1), timeout_s=0)
    gate.serve()
    assert done == []


def test_errors_are_raised_where_it_was_asked() -> None:
    gate = QueryGate()

    def fails() -> None:
        raise ZeroDivisionError

    def is_closed() -> None:
        raise StoreClosedError("counts")

    with gate.idle:
        with pytest.raises(ZeroDivisionError):
            gate.run(fails)
        with pytest.raises(StateStoreMigratedError, match="'counts' is closed") as raised:
            gate.run(is_closed)
    assert raised.value.is_retriable


def test_after_the_end_every_query_is_told_so() -> None:
    gate = QueryGate()
    caller, found = in_thread(lambda: gate.run(lambda: 1, PATIENCE_S))
    while not gate._waiting:
        caller.join(0.001)
    gate.close()
    caller.join(PATIENCE_S)
    assert [type(each) for each in found] == [StreamsStoppedError]
    with pytest.raises(StreamsStoppedError, match="has ended on this instance"):
        gate.run(lambda: 1)


def test_many_callers_never_see_half_of_a_change_and_all_are_answered() -> None:
    gate = QueryGate()
    left = right = 0
    rounds, callers = 300, 4

    def read() -> list[tuple[int, int]]:
        return [gate.run(lambda: (left, right), PATIENCE_S) for _ in range(rounds)]

    started = [in_thread(read) for _ in range(callers)]
    while any(thread.is_alive() for thread, _ in started):
        for _ in range(50):
            left += 1
            right += 1
        gate.serve()
        with gate.idle:
            pass
    answers = [pair for _, found in started for pair in found[0]]  # type: ignore[attr-defined]
    assert len(answers) == rounds * callers
    assert all(a == b for a, b in answers)
