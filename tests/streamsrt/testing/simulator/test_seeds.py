"""A thousand seeds: five programs, both guarantees, everything that can go wrong at once.

A run has a sixteenth of them, another one each time, and with ``--full`` all.

A seed that fails says how to repeat it; it becomes a test of its own in ``test_found.py``.

Under at_least_once the windowed programs are left out: as in Kafka Streams, what an instance that was given up still writes
may overwrite a newer changelog record, and a window that was closed just before a crash may be lost.
"""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.operators.kinds import counting
from streamsrt.runtime.loop.commit_parts import CommitTurns
from streamsrt.runtime.loop.values import Committed
from streamsrt.testing.simulator import Faults, simulate_seeds
from tests.streamsrt.testing.simulator.programs import AT_LEAST_ONCE, EXACTLY_ONCE, PROGRAMS, as_high, expected

pytestmark = pytest.mark.long

_AT_ONCE = 10
_EXACTLY_ONCE = {"word count": 200, "stateless": 100, "join": 200, "on close": 100, "suppressed": 100}
_AT_LEAST_ONCE = {"word count": 100, "stateless": 100, "join": 100}


def _parts(counts: dict[str, int]) -> list[Any]:
    return [(name, first) for name, count in counts.items() for first in range(0, count, _AT_ONCE)]


def test_they_are_a_thousand() -> None:
    assert _AT_ONCE * (len(_parts(_EXACTLY_ONCE)) + len(_parts(_AT_LEAST_ONCE))) == 1_000


@pytest.mark.share(16)
@pytest.mark.parametrize(("name", "first"), _parts(_EXACTLY_ONCE))
def test_exactly_once(name: str, first: int) -> None:
    program = PROGRAMS[name]
    results = simulate_seeds(
        program.topology(),
        seeds=range(first, first + _AT_ONCE),
        inputs=program.inputs,
        config=EXACTLY_ONCE,
        expected=expected(name, EXACTLY_ONCE),
        **program.exactly_once,
    )
    assert len({result.digest for result in results}) == _AT_ONCE


@pytest.mark.share(5)
@pytest.mark.parametrize("first", range(0, 50, _AT_ONCE))
def test_exactly_once_with_standbys(first: int) -> None:
    """Each store has another one that follows its changelog, is compared with it at the end, and takes over meanwhile."""
    program = PROGRAMS["word count"]
    results = simulate_seeds(
        program.topology(),
        seeds=range(first, first + _AT_ONCE),
        inputs=program.inputs,
        config=EXACTLY_ONCE,
        broker_config={"group.streams.num.standby.replicas": "1"},
        expected=expected("word count", EXACTLY_ONCE),
        **program.exactly_once,
    )
    assert len({result.digest for result in results}) == _AT_ONCE


@pytest.mark.share(5)
@pytest.mark.parametrize("first", range(0, 50, _AT_ONCE))
def test_exactly_once_out_of_caches(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are a few records here; they are counted as a whole all the same."""
    monkeypatch.setattr(counting, "SHORT_RUN_RECORDS", 1)
    monkeypatch.setattr(counting, "_WINDOW_RECORDS", 1)
    program = PROGRAMS["cached"]
    results = simulate_seeds(
        program.topology(),
        seeds=range(first, first + _AT_ONCE),
        inputs=program.inputs,
        config={**EXACTLY_ONCE, "statestore.cache.max.bytes": 1 << 20},
        **program.exactly_once,
    )
    assert len({result.digest for result in results}) == _AT_ONCE


@pytest.mark.share(16)
@pytest.mark.parametrize(("name", "first"), _parts(_AT_LEAST_ONCE))
def test_at_least_once(name: str, first: int) -> None:
    program = PROGRAMS[name]
    results = simulate_seeds(
        program.topology(),
        seeds=range(first, first + _AT_ONCE),
        inputs=program.inputs,
        config=AT_LEAST_ONCE,
        expected=expected(name, AT_LEAST_ONCE),
        **program.at_least_once,
    )
    assert len({result.digest for result in results}) == _AT_ONCE


@pytest.mark.share(5)
@pytest.mark.parametrize("first", range(0, 50, _AT_ONCE))
def test_at_least_once_no_count_is_too_low(first: int) -> None:
    """Where no instance goes on after it was given up: each result may be there twice, but no record counts less than
    once."""
    program = PROGRAMS["word count"]
    results = simulate_seeds(
        program.topology(),
        seeds=range(first, first + _AT_ONCE),
        inputs=program.inputs,
        config=AT_LEAST_ONCE,
        faults=Faults(cut_offs=0, freezes=0, stalls=0),
        check=as_high,
        expected=expected("word count", AT_LEAST_ONCE),
    )
    assert len({result.digest for result in results}) == _AT_ONCE


@pytest.mark.share(5)
@pytest.mark.parametrize(("name", "first"), _parts({"word count": 50, "join": 50}))
def test_at_least_once_with_commits_in_parts(name: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several tasks in an instance, some commits are of a part of them."""
    right, parts = CommitTurns.ended, 0

    def ended(self: CommitTurns, *, is_atomic: bool) -> Committed:
        nonlocal parts
        committed = right(self, is_atomic=is_atomic)
        parts += committed.committed < committed.tasks
        return committed

    monkeypatch.setattr(CommitTurns, "ended", ended)
    program = PROGRAMS[name]
    results = simulate_seeds(
        program.topology(),
        seeds=range(first, first + _AT_ONCE),
        inputs=program.inputs,
        config={**AT_LEAST_ONCE, "commit.interval.ms": 1000},
        instances=2,
        partitions=6,
        **program.at_least_once,
    )
    assert len({result.digest for result in results}) == _AT_ONCE
    assert parts > _AT_ONCE
