"""A sample of tasks computed once more, record by record: equal, or it is said what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.recompute import sample_of
from streamsrt.backfill.verify import VerificationError
from tests.streamsrt.backfill import spaced
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.test_engine_local import FIRST, lines, planned


def attempts(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "attempts").iterdir())


def test_all_tasks_computed_again_have_the_same_results(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(200, seed=11), lines(90, seed=12)])
    backfill.run(InProcess())
    before = attempts(backfill.directory)
    assert len(backfill.verify(recompute=100)) == 4
    assert attempts(backfill.directory) == before


def test_the_flights_computed_again_are_the_same(scene: Scene) -> None:
    scene.load(departures(800))
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id="again")
    backfill.run(InProcess())
    assert sum(manifest.records for manifest in backfill.verify(recompute=2)) == 800 + 16


def test_a_program_that_is_not_deterministic_is_found(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [[*lines(20, seed=13), ("varies", 400)]])
    backfill.run(InProcess())
    before = attempts(backfill.directory)
    assert backfill.verify()
    with pytest.raises(
        VerificationError, match=f"task {FIRST.id}_0 gives another result .*repartition-0.*not determin"
    ):
        backfill.verify(recompute=2)
    assert attempts(backfill.directory) == before


@pytest.mark.parametrize("text", ['{"word": "%s", "n": 1}', '{ "n":1,"word":"%s" }'])
def test_values_that_their_serde_would_write_in_another_way_are_the_same(tmp_path: Path, text: str) -> None:
    """What nobody reads is written as it came, and by the second way as the serde writes it."""
    rows = [(text % word, time) for word, time in lines(60, seed=15)]
    backfill = planned(tmp_path, [rows], spaced)
    backfill.run(InProcess())
    before = attempts(backfill.directory)
    assert len(backfill.verify(recompute=2)) == 2
    assert attempts(backfill.directory) == before


def test_the_sample_is_by_chance_and_can_be_repeated(tmp_path: Path) -> None:
    backfill = planned(tmp_path, [lines(9, seed=14)] * 5)
    plan = load_plan(backfill.directory)
    chosen = [[task.id for task in sample_of(plan, 3, seed)] for seed in range(20)]
    assert all(len(set(tasks)) == 3 for tasks in chosen)
    assert len({tuple(tasks) for tasks in chosen}) > 3
    assert chosen[0] == [task.id for task in sample_of(plan, 3, 0)]
    assert sample_of(plan, 99) == list(plan.tasks)
