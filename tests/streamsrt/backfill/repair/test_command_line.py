"""The repair of a store as a user types it."""

from __future__ import annotations

import pytest

from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.test_command_line import Terminal

ID = "typed-repair"


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def test_a_store_is_repaired_by_commands(scene: Scene, terminal: Terminal) -> None:
    scene.load(departures(100))
    scene.run_live(ID)
    where = ("--bootstrap-servers", scene.servers, "--dir", scene.folder / "plan")
    planning = ("backfill", "plan", APPLICATION, "--application-id", ID, *where)
    assert terminal(*planning, "--store", "delays") == (2, "")
    assert "the application has no store 'delays'; it has airlines, delays-per-hour" in terminal.err
    assert terminal(*planning, "--store", "delays-per-hour")[0] == 0
    assert f"store delays-per-hour of {ID} is rebuilt from what the application has read" in terminal.err
    assert "which commit compares with the cluster: airlines" in terminal.err
    assert terminal("backfill", "run", *where)[0] == 0
    assert terminal("backfill", "commit", *where)[0] == 2
    assert f"(2) streamsrt topics delete {ID}-delays-per-hour-changelog -b {scene.servers} --execute" in terminal.err
    delete = ("topics", "delete", f"{ID}-delays-per-hour-changelog", "-b", scene.servers, "--execute")
    assert terminal(*delete)[0] == 0
    assert terminal("backfill", "commit", *where)[0] == 0
    assert f"would write the changelog of store delays-per-hour of {ID}, and nothing else" in terminal.err
    assert terminal("backfill", "commit", *where, "--execute")[0] == 0
    assert "was repaired by plan" not in terminal.err
    for last in ((), ("--execute",)):
        assert terminal("backfill", "commit", *where, *last)[0] == 0
        assert f"store delays-per-hour of {ID} was repaired by plan" in terminal.err
        assert "nothing to do" in terminal.err
        assert "would" not in terminal.err
    assert terminal("backfill", "abort", *where)[0] == 2
    assert "is repaired: there is nothing to abort" in terminal.err


def test_stores_that_are_computed_from_the_repaired_one_are_named(scene: Scene, terminal: Terminal) -> None:
    scene.load(departures(20))
    scene.run_live(ID)
    where = ("--bootstrap-servers", scene.servers, "--dir", scene.folder / "plan")
    planning = ("backfill", "plan", APPLICATION, "--application-id", ID, *where)
    named = "computed from store airlines: delays-per-hour. If its rows were wrong"
    assert terminal(*planning, "--store", "airlines")[0] == 0
    assert named in terminal.err
    assert terminal("backfill", "run", *where)[0] == 0
    assert terminal("backfill", "commit", *where)[0] == 2
    assert named in terminal.err
