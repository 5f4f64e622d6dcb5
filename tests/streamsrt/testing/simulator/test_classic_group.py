"""Seeds with ``group.protocol=classic``: everything that can go wrong at once, in a group whose members assign the tasks."""

from __future__ import annotations

import pytest

from streamsrt.testing.simulator import simulate_seeds
from tests.streamsrt.testing.simulator.programs import EXACTLY_ONCE, PROGRAMS

CLASSIC = {**EXACTLY_ONCE, "group.protocol": "classic", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}


def simulate(name: str, seeds: range) -> None:
    program = PROGRAMS[name]
    results = simulate_seeds(
        program.topology(), seeds=seeds, inputs=program.inputs, config=CLASSIC, **program.exactly_once
    )
    assert len({result.digest for result in results}) == len(seeds)


@pytest.mark.parametrize("name", ["word count", "join"])
def test_a_few_seeds(name: str) -> None:
    simulate(name, range(3))


@pytest.mark.long
@pytest.mark.parametrize("name", ["word count", "stateless", "join", "on close", "suppressed"])
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_many_seeds(name: str, first: int) -> None:
    simulate(name, range(first, first + 25))
