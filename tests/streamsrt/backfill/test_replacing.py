"""Replacing the state of an application that has some already: refused, with commands that work as they are printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import HandOverError
from streamsrt.cli.entry import run_command_line
from tests.streamsrt.backfill import chained
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures

ID = "replaced"
CHAINED = "tests.streamsrt.backfill.chained:topology"


def backfilled(scene: Scene, name: str, application: str = APPLICATION, after: Path | None = None) -> Backfill:
    backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
    backfill.plan(application, application_id=ID, bootstrap_servers=scene.servers, after=after)
    backfill.run(InProcess())
    return backfill


def follow(error: HandOverError, scene: Scene) -> list[str]:
    """Does what the error says, in its order; the commands."""
    steps = re.findall(r"\((\d)\) (.*?)(?=; \(\d\)|\. That writes|$)", str(error))
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert steps[0][1] == "stop all of its instances"
    commands = []
    for _, step in steps[1:]:
        if step.startswith("streamsrt "):
            commands.append(step)
            with pytest.raises(SystemExit) as ended:
                run_command_line(step.split()[1:])
            assert not ended.value.code, step
        elif step != "plan again":
            assert step == "delete the state directories of its instances"
            shutil.rmtree(scene.state_dir(ID), ignore_errors=True)
    return commands


@pytest.mark.parametrize("continued", [True, False])
def test_a_commit_over_an_earlier_one_follows_the_steps_of_its_refusal(scene: Scene, continued: bool) -> None:
    scene.load(departures(100))
    # Planned while the group is new, as nobody could plan it later without deleting the group.
    first, second = backfilled(scene, "first"), None if continued else backfilled(scene, "second")
    first.commit()
    if second is None:
        scene.load(departures(50, start=3_000))
        second = backfilled(scene, "second", after=first.directory)
    else:
        scene.run_live(ID)
    ends = scene.ends(flights.DELAYS)
    for attempt in (second.check_commit, second.commit):
        with pytest.raises(HandOverError, match=r"replace .*\(1\) stop") as refused:
            attempt()
    assert scene.ends(flights.DELAYS) == ends
    assert f"the outputs of the whole history into {flights.DELAYS}" in str(refused.value)
    commands = follow(refused.value, scene)
    assert [command.split()[1:3] for command in commands] == [
        ["groups", "delete"],
        ["topics", "delete"],
        ["backfill", "commit"],
    ]
    assert second.status().step == "done"
    assert scene.run_live(ID).progress.processed_records == 0
    scene.run_live("live")
    assert scene.stores(ID) == scene.stores("live")
    with pytest.raises(HandOverError, match="committed offsets already") as again:
        backfilled(scene, "third")
    follow(again.value, scene)
    assert backfilled(scene, "third").commit().step == "done"


def test_records_left_in_repartition_topics_are_not_counted_again(scene: Scene) -> None:
    scene.create_topics("lines", "counts")
    scene._write("lines", [b"k"] * 6, [b"apple", b"bee", b"ant", b"bat", b"cat", b"cow"], [1, 2, 3, 4, 5, 6])
    config = {"application.id": ID, "bootstrap.servers": scene.servers, "state.dir": scene.state_dir(ID)}
    backfill = backfilled(scene, "plan", CHAINED)
    KafkaStreams(chained.topology, config).run(until="quiet", timeout_s=60, signals=False)
    internal = [name for name in scene.network.admin.topics() if name.startswith(ID)]
    (repartition,) = [name for name in internal if name.endswith("-repartition")]
    # All but the repartition topic is deleted, as somebody may who thinks of the state only.
    scene.network.admin.delete_groups([ID])
    scene.network.admin.delete_topics([name for name in internal if name != repartition])
    shutil.rmtree(scene.state_dir(ID))
    with pytest.raises(HandOverError, match=f"hold records already: {repartition}") as refused:
        backfill.commit()
    follow(refused.value, scene)
    assert backfill.status().step == "done"
    streams = KafkaStreams(chained.topology, config)
    streams.run(until="quiet", timeout_s=60, signals=False)
    assert streams.progress.processed_records == 0
