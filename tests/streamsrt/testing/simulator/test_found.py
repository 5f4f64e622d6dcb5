"""Seeds that found a bug."""

from __future__ import annotations

from streamsrt.testing.simulator import Faults, simulate
from tests.streamsrt.testing.simulator.programs import EXACTLY_ONCE, PROGRAMS


def test_a_thread_that_stood_still_opens_no_task_that_was_given_away_meanwhile() -> None:
    """The membership confirmed a revocation, as the task was not open; the thread had yet to hear of it, and opened it."""
    program = PROGRAMS["join"]
    simulate(
        program.topology(),
        inputs=program.inputs,
        seed=159,
        faults=Faults(midway=0),
        config=EXACTLY_ONCE,
        **program.exactly_once,
    )
