"""Whatever happens to an application: a task that no iteration looks at has nothing to do, and nothing to commit."""

from __future__ import annotations

import pytest

from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.testing.simulator import simulate_seeds
from tests.streamsrt.testing.simulator.programs import AT_LEAST_ONCE, EXACTLY_ONCE, PROGRAMS


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tasks_rest_only_when_they_are_done(name: str, exactly_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    right, rested = StreamThread._iterate, 0

    def iterate(self: StreamThread) -> None:
        nonlocal rested
        right(self)
        awake = {owned.key for owned in self._manager.awake()}
        resting = [owned for owned in self._manager.running() if owned.key not in awake]
        assert all(owned.is_at_rest for owned in resting)
        rested += len(resting)

    monkeypatch.setattr(StreamThread, "_iterate", iterate)
    program = PROGRAMS[name]
    config, options = (EXACTLY_ONCE, program.exactly_once) if exactly_once else (AT_LEAST_ONCE, program.at_least_once)
    results = simulate_seeds(program.topology(), seeds=range(2), inputs=program.inputs, config=config, **options)
    assert len(list(results)) == 2
    assert rested
