"""A new day into a backfill that is there: on a broker, from the first plan to the running application."""

from __future__ import annotations

import pytest

from examples import flights
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import HandOverError
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.test_command_line import ID, Terminal, terminal

__all__ = ["terminal"]


def test_a_new_day_into_a_backfill(scene: Scene, terminal: Terminal) -> None:
    """The first part out of an archive, the second out of the log: stores and outputs of a live run over both."""
    scene.load(departures(300))
    root = scene.archive_departures()
    planning = ("backfill", "plan", APPLICATION, "-a", ID, "-b", scene.servers)
    first, second = scene.folder / "first", scene.folder / "second"
    assert terminal(*planning, "--dir", first, "--archive", f"departures={root}")[0] == 0, terminal.err
    assert terminal(*planning, "--dir", second, "--after", first)[0] == 2
    assert "is not finished" in terminal.err
    assert terminal("backfill", "run", "--dir", first, "--workers", "1")[0] == 0, terminal.err
    rows = departures(100, start=6_000)
    scene.load(rows)
    assert terminal(*planning[:3], "-a", "other", *planning[5:], "--dir", second, "--after", first)[0] == 2
    assert "it is of application 'typed', and this one is 'other'" in terminal.err
    assert terminal(*planning, "--dir", second, "--after", first)[0] == 0, terminal.err
    assert "the log does not hold the whole history" not in terminal.err
    assert terminal("backfill", "run", "--dir", second, "--workers", "1")[0] == 0, terminal.err
    assert f"finished: 4 tasks, {len(rows):,} records" in terminal.err
    assert "older than" not in terminal.err
    assert terminal("backfill", "verify", "--dir", second, "--recompute", "2")[0] == 0, terminal.err
    committing = ("backfill", "commit", "--dir", second, "--state-dir", scene.state_dir(ID), "--execute")
    assert terminal(*committing)[0] == 0, terminal.err
    outputs = scene.compacted(flights.DELAYS)
    streams = scene.run_live(ID)
    assert (streams.progress.processed_records, streams.progress.restored_records) == (0, 0)
    ends = scene.ends(flights.DELAYS)
    scene.refill_departures([*departures(300), *rows])
    scene.run_live("live")
    assert scene.stores(ID) == scene.stores("live") != {}
    assert scene.compacted(flights.DELAYS, ends) == outputs


def test_what_was_handed_over_is_not_written_twice(scene: Scene) -> None:
    """The application goes on itself; once it has, no plan goes on from what it began with."""
    scene.load(departures(100))
    first, second = (Backfill(scene.folder / name, bootstrap_servers=scene.servers) for name in ("first", "second"))
    first.plan(APPLICATION, application_id=ID)
    first.run(InProcess())
    first.commit()
    written = scene.count(flights.DELAYS)
    scene.load(departures(50, start=3_000))
    second.plan(APPLICATION, application_id=ID, after=first.directory)
    second.run(InProcess())
    with pytest.raises(
        HandOverError, match=r"was handed over already.* Start the application: it reads what came later"
    ):
        second.commit()
    assert scene.count(flights.DELAYS) == written
    streams = scene.run_live(ID)
    assert streams.progress.processed_records == 50
    third = Backfill(scene.folder / "third", bootstrap_servers=scene.servers)
    with pytest.raises(
        HandOverError, match="reads the later records itself, so there is nothing to do but to start it"
    ):
        third.plan(APPLICATION, application_id=ID, after=first.directory)
