"""Backfills in slices on a cluster: planned, run, continued and handed over as others are."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.plan import load_plan
from streamsrt.cli.entry import run_command_line
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import Scene
from tests.streamsrt.backfill.slices import keyed, passed_on
from tests.streamsrt.backfill.slices.test_sliced_tasks import results

KEYED = f"{keyed.__name__}:topology"
UNCACHED = {"statestore.cache.max.bytes": "0"}


def load(scene: Scene, count: int, seed: int, from_ms: int) -> None:
    chance = random.Random(seed)
    for topic, values in (("customers", ("Ann", "Bob", None)), ("orders", ("1", "22", "test"))):
        keys = [b"%d" % chance.randrange(20) for _ in range(count)]
        texts = [None if value is None else value.encode() for value in chance.choices(values, k=count)]
        scene._write(topic, keys, texts, [from_ms + 20 * index + chance.randrange(2_000) for index in range(count)])


def computed(scene: Scene, name: str, *, slices: int = 1, after: Path | None = None) -> Backfill:
    backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
    backfill.plan(KEYED, application_id="keyed", config=UNCACHED, slices=slices, after=after)
    backfill.run(InProcess())
    return backfill


def test_a_sliced_backfill_is_continued_and_handed_over_as_the_whole_is(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.create_topics(*keyed.TOPICS)
    load(scene, 300, seed=1, from_ms=0)
    whole, sliced = computed(scene, "whole"), computed(scene, "sliced", slices=3)
    assert results(sliced) == results(whole)
    assert {manifest.slices for manifest in sliced.verify(recompute=9)} == {3}
    assert sum(manifest.counters["dropped_late"] for manifest in whole.verify()) > 0
    load(scene, 100, seed=2, from_ms=6_000)
    with pytest.raises(PlanError, match="--slices divides a whole history, and --after continues"):
        computed(scene, "refused", slices=2, after=sliced.directory)
    behind = computed(scene, "behind-sliced", after=sliced.directory)
    assert results(behind) == results(computed(scene, "behind-whole", after=whole.directory))
    sliced.commit(state_dir=scene.state_dir("keyed"))
    assert scene.count("keyed-totals-changelog") == sum(
        store.changelog.file.records
        for manifest in sliced.verify()
        for store in manifest.stores
        if store.changelog is not None and store.name == "totals"
    )
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run_command_line(["backfill", "report", "--dir", str(sliced.directory)])
    assert re.search(r"TASK +SLICES .*\n\S+_0 +3 ", capsys.readouterr().out)


def test_a_store_is_repaired_in_slices(scene: Scene) -> None:
    scene.create_topics(*keyed.TOPICS)
    load(scene, 150, seed=3, from_ms=0)
    config = {"application.id": "keyed", "bootstrap.servers": scene.servers, "state.dir": scene.state_dir("keyed")}
    KafkaStreams(keyed.topology, {**config, **UNCACHED}).run(until="quiet", timeout_s=100, signals=False)
    made = []
    for slices in (1, 3):
        backfill = Backfill(scene.folder / str(slices), bootstrap_servers=scene.servers)
        backfill.plan(KEYED, application_id="keyed", config=UNCACHED, store="totals", slices=slices)
        backfill.run(InProcess())
        made.append(results(backfill))
    assert made[0] == made[1]


def test_a_plan_says_what_is_divided(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.create_topics(*keyed.TOPICS)
    words = ["backfill", "plan", KEYED, "-a", "keyed", "-b", scene.servers, "--dir", str(scene.folder / "plan")]
    with pytest.raises(SystemExit) as ended:
        run_command_line([*words, "--slices", "2"])
    assert ended.value.code == 0
    (subtopology,) = load_plan(scene.folder / "plan").slices
    assert f"tasks of subtopology {subtopology} are divided into 2 slices each" in capsys.readouterr().err


def test_slices_that_pass_values_on_as_they_came_are_the_same_when_they_are_recomputed(scene: Scene) -> None:
    """The task as a whole runs on processor nodes, which write these values anew."""
    scene.create_topics(*passed_on.TOPICS)
    for topic in ("customers", "orders"):
        keys = [b"%d" % (index % 9) for index in range(60)]
        values: list[bytes | None] = [b'{"id": %d, "a": [1, 2]}' % index for index in range(60)]
        scene._write(topic, keys, values, [20 * index for index in range(60)])
    made = []
    for slices in (1, 2):
        backfill = Backfill(scene.folder / str(slices), bootstrap_servers=scene.servers)
        application = f"{passed_on.__name__}:topology"
        backfill.plan(application, application_id="passing", config=UNCACHED, slices=slices)
        backfill.run(InProcess())
        assert backfill.verify(recompute=9)
        made.append(stored(backfill))
    assert made[0] == made[1]


def stored(backfill: Backfill) -> list[object]:
    return [
        (store.name, store.entries, store.changelog and store.changelog.file.digest)
        for manifest in backfill.verify()
        for store in manifest.stores
    ]
