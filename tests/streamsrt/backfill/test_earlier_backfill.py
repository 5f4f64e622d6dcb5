"""A backfill that goes on from an earlier one: plans, tasks and files; and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.earlier_backfill import (
    check_partitions,
    check_same,
    load_earlier,
    not_in_snapshot,
    range_behind,
)
from streamsrt.backfill.engine_local import LocalEngine
from streamsrt.backfill.errors import ArchiveError, PlanError
from streamsrt.backfill.lake import Lake, LakeShare
from streamsrt.backfill.manifest import TaskManifest, load_manifest, manifest_path
from streamsrt.backfill.plan import ArchiveFile, SourceRange, TaskPlan, load_plan, save_plan
from streamsrt.backfill.sources import Archive, read_batches
from streamsrt.backfill.spark.engine import SparkEngine
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.test_engine_local import FIRST, Line, planned
from tests.streamsrt.backfill.test_operators import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNCACHED = {"statestore.cache.max.bytes": "0"}


def lines(chance: random.Random, count: int, *, start: int = 0, step: int = 10, spread: int = 60) -> list[Line]:
    return [(chance.choice("abc") + "x", start + step * index + chance.randrange(spread)) for index in range(count)]


def whole(folder: Path, parts: Sequence[Sequence[Line]]) -> Backfill:
    """A backfill of everything, without caches: what is forwarded does not depend on where a backfill ends."""
    plan = load_plan(planned(folder / "as-it-comes", parts).directory)
    save_plan(plan.model_copy(update={"config": UNCACHED}).sealed(), folder / "plan")
    return Backfill(folder / "plan")


def behind(folder: Path, parts: Sequence[Sequence[Line]], earlier: Backfill) -> Backfill:
    """The backfill of what ``parts`` have behind the end of the earlier one."""
    plan, before = load_plan(whole(folder, parts).directory), load_earlier(earlier.directory)
    read = {source.topic_partition: source for source in before.plan.sources()}

    def moved(task: TaskPlan) -> TaskPlan:
        sources = [
            range_behind(read[each.topic_partition], Archive(""), each.archive, {}, each.end, each.end)
            for each in task.sources
        ]
        return task.model_copy(update={"sources": tuple(sources)})

    changes = {"tasks": tuple(before.behind(map(moved, plan.tasks))), "after": before.after}
    save_plan(plan.model_copy(update={**changes, "clock_ms": before.plan.wall_clock_ms}).sealed(), folder / "behind")
    return Backfill(folder / "behind")


def results(backfill: Backfill) -> dict[str, Any]:
    """What is published: the digests that verify compares, and the records of each output in their order."""
    found: dict[str, Any] = {}
    for manifest in backfill.verify():
        found[manifest.task] = [(store.name, store.entries, store.changelog_digest) for store in manifest.stores]
        for log in manifest.outputs:
            written = found.setdefault(f"{manifest.task} {log.topic}-{log.partition}", [])
            for columns in read_batches(backfill.directory / log.file.path):
                written += zip(columns.keys, columns.values, columns.timestamps, strict=True)
    return found


def overtaken(backfill: Backfill) -> int:
    return sum(manifest.overtaken for manifest in backfill.verify())


@pytest.mark.parametrize("seed", range(2))
def test_days_in_their_order_are_one_backfill(tmp_path: Path, seed: int) -> None:
    """Two partitions, a repartition topic, three parts cut at random: stores, changelogs, outputs."""
    chance = random.Random(seed)
    days = [[lines(chance, chance.randrange(1, 30), start=1_000 * day) for _ in range(2)] for day in range(3)]
    done: Backfill | None = None
    so_far: list[list[Line]] = [[], []]
    for number, day in enumerate(days):
        so_far = [before + new for before, new in zip(so_far, day, strict=True)]
        folder = tmp_path / str(number)
        done = whole(folder, so_far) if done is None else behind(folder, so_far, done)
        done.run(InProcess())
        assert overtaken(done) == 0
    assert done is not None
    at_once = whole(tmp_path / "at-once", so_far)
    at_once.run(InProcess())
    assert results(done) == results(at_once)
    assert sum(manifest.records for manifest in done.verify()) == 2 * sum(map(len, days[2]))
    done.verify(recompute=4)


@pytest.mark.parametrize("seed", range(2))
def test_one_partition_may_be_cut_anywhere(tmp_path: Path, seed: int) -> None:
    """Its order is that of its offsets, however late its records are; the cut may lie in the middle of a file."""
    chance = random.Random(seed)
    rows = lines(chance, 90, spread=400)
    cut = chance.randrange(1, 89)
    first = whole(tmp_path / "first", [rows[:cut]])
    first.run(InProcess())
    second = behind(tmp_path / "second", [rows], first)
    at_once = whole(tmp_path / "at-once", [rows])
    for each in (second, at_once):
        each.run(InProcess())
    assert results(second) == results(at_once)
    assert overtaken(second) == 0
    assert [source.start for source in load_plan(second.directory).sources()] == [cut]


def test_what_comes_out_of_order_is_counted(tmp_path: Path) -> None:
    """The second partition was behind when the first part ended: a whole backfill would have read its records before."""
    early, late = [("ax", 10 * index) for index in range(20)], [("bx", 500 + 10 * index) for index in range(20)]
    first = whole(tmp_path / "first", [late, early])
    first.run(InProcess())
    second = behind(tmp_path / "second", [late, [*early, ("bx", 300), ("ax", 900)]], first)
    second.run(InProcess())
    assert overtaken(second) == 1


def test_kills_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    day, next_day = lines(chance, 30), [*lines(chance, 30, start=1_000), ("die", 1_400)]
    first = whole(tmp_path / "first", [day])
    first.run(InProcess())
    marker = tmp_path / "die"
    marker.write_text("")
    monkeypatch.setenv("DIE_ON", str(marker))
    second = behind(tmp_path / "second", [day + next_day], first)
    second.run(LocalEngine(1))
    assert not marker.exists()
    # As if the second level had been killed.
    last = load_plan(second.directory).tasks[-1].id
    manifest_path(second.directory, last).unlink()
    second.run(InProcess())
    at_once = whole(tmp_path / "at-once", [day + next_day])
    at_once.run(InProcess())
    assert results(second) == results(at_once)


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_spark_goes_on_as_processes_do(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(9)
    day, next_day = lines(chance, 40), lines(chance, 40, start=1_000)
    first = whole(tmp_path / "first", [day])
    first.run(SparkEngine())
    second = behind(tmp_path / "second", [day + next_day], first)
    second.run(SparkEngine())
    at_once = whole(tmp_path / "at-once", [day + next_day])
    at_once.run(InProcess())
    assert results(second) == results(at_once)


@pytest.fixture
def finished(tmp_path: Path) -> Backfill:
    backfill = whole(tmp_path / "first", [lines(random.Random(1), 40)])
    backfill.run(InProcess())
    return backfill


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"application_id": "another"}, "it is of application 'chained', and this one is 'another'"),
        ({"code_digest": "1"}, "source of the application has changed.* Bring back the version"),
        ({"topology_digest": "1"}, "it is of another topology"),
        ({"config": {}}, "its settings were .*statestore.* Give the same --config"),
        ({"changelogs": "full"}, "Leave out --full-changelogs"),
    ],
)
def test_what_must_be_the_same(finished: Backfill, changes: dict[str, object], says: str) -> None:
    earlier = load_earlier(finished.directory)
    check_same(earlier, earlier.plan)
    check_same(
        earlier, earlier.plan.model_copy(update={"application": earlier.plan.application.removesuffix(":topology")})
    )
    with pytest.raises(PlanError, match=says):
        check_same(earlier, earlier.plan.model_copy(update=changes))


def test_the_imported_modules_must_be_the_same(finished: Backfill) -> None:
    """As far as the earlier plan has them: those of an older version have none."""
    earlier = load_earlier(finished.directory)
    plan = earlier.plan.model_copy(update={"module_digests": {"rules": "1"}})
    check_same(earlier, plan)
    knowing = type(earlier)(earlier.directory, plan, earlier.manifests)
    check_same(knowing, plan)
    with pytest.raises(PlanError, match="the source of rules, which the application imports, has changed"):
        check_same(knowing, plan.model_copy(update={"module_digests": {"rules": "2"}}))


def test_another_cluster_and_other_partitions_are_refused(finished: Backfill, tmp_path: Path) -> None:
    plan = load_plan(finished.directory)
    moved = plan.model_copy(update={"cluster_id": "one"}).sealed()
    assert moved.fingerprint == plan.fingerprint
    earlier = load_earlier(finished.directory)
    elsewhere = type(earlier)(earlier.directory, moved, earlier.manifests)
    with pytest.raises(PlanError, match="planned on cluster one, and this is cluster other"):
        check_same(elsewhere, moved.model_copy(update={"cluster_id": "other"}))
    check_same(elsewhere, moved.model_copy(update={"cluster_id": None}))
    check_partitions(earlier, {"lines": 1})
    with pytest.raises(PlanError, match="topic 'lines' has 3 partitions, and had 1 then"):
        check_partitions(earlier, {"lines": 3})


def test_an_unfinished_or_broken_backfill_is_refused(finished: Backfill, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"that backfill can't be continued: there is no plan in"):
        load_earlier(tmp_path / "nowhere")
    plan = load_plan(finished.directory)
    last = plan.tasks[-1].id
    manifest = load_manifest(finished.directory, plan, last)
    assert manifest is not None
    path = manifest_path(finished.directory, last)
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(PlanError, match=f"task {last} is not finished"):
        load_earlier(finished.directory)
    for changes, says in (
        ({"carried": None}, "by a version of streamsrt that did not keep what is needed"),
        (
            {
                "carried": {
                    "punctuations by stream time": [0, "one", 5, 10, 0, -1, "tick", 5, 10, 0, -1, "over", 5, 10, 1]
                }
            },
            "tick scheduled punctuations while records were processed",
        ),
    ):
        path.write_text(manifest.model_copy(update=changes).model_dump_json())
        with pytest.raises(PlanError, match=says):
            load_earlier(finished.directory)
    path.write_bytes(kept)
    (store,) = manifest.stores
    assert store.bundle is not None
    (finished.directory / store.bundle.path).write_bytes(b"x")
    with pytest.raises(PlanError, match="is missing or damaged"):
        load_earlier(finished.directory)


def test_an_earlier_backfill_that_is_gone_or_damaged_later_is_named(finished: Backfill, tmp_path: Path) -> None:
    second = behind(tmp_path / "second", [lines(random.Random(1), 50)], finished)
    plan = load_plan(finished.directory)
    (store,) = next(each.stores for each in finished.verify() if each.stores)
    assert store.bundle is not None
    bundle = finished.directory / store.bundle.path
    kept = bundle.read_bytes()
    bundle.write_bytes(kept[:-1])
    with pytest.raises(PlanError, match="of the earlier backfill is missing or damaged"):
        second.run(InProcess())
    bundle.write_bytes(kept)
    away = finished.directory.rename(tmp_path / "away")
    with pytest.raises(PlanError, match=r"which is missing: there is no plan in .*all nodes need it"):
        second.run(InProcess())
    save_plan(plan.model_copy(update={"config": {}}).sealed(), finished.directory)
    with pytest.raises(PlanError, match="continues another backfill than the one that is in"):
        second.run(InProcess())
    (finished.directory / "plan.json").unlink()
    finished.directory.rmdir()
    away.rename(finished.directory)
    assert len(second.run(InProcess())) == 2


BEFORE = SourceRange(topic="t", partition=0, start=0, end=40, log_start=40)


def test_a_range_begins_where_the_earlier_one_ended() -> None:
    files = [
        ArchiveFile(path="", first_offset=first, next_offset=end, records=end - first, size_bytes=1)
        for first, end in ((0, 40), (40, 80), (80, 100))
    ]
    log = range_behind(BEFORE, None, (), {}, 10, 70)
    assert (log.start, log.log_start, log.end, log.archived_records) == (40, 40, 70, 0)
    both = range_behind(BEFORE, Archive(""), files, {}, 100, 130)
    assert (both.start, both.log_start, both.end, both.archived_records) == (40, 100, 130, 60)
    inside = range_behind(BEFORE.model_copy(update={"end": 47}), Archive(""), files, {}, 0, 130)
    assert (inside.start, inside.log_start, inside.passed_records, inside.archived_records) == (47, 100, 7, 53)
    nothing = range_behind(BEFORE, None, (), {}, 40, 40)
    assert (nothing.start, nothing.log_start, nothing.end) == (40, 40, 40)
    cut = range_behind(BEFORE.model_copy(update={"log_from_ms": 5}), None, (), {}, 0, 60)
    assert cut.log_from_ms == 5
    lake = range_behind(BEFORE, Lake(""), (), {0: LakeShare(20, 40, 60, 2)}, 50, 90)
    assert (lake.start, lake.log_start, lake.end, lake.lake_records, lake.lake_files) == (40, 60, 90, 20, 2)


@pytest.mark.parametrize(
    ("source", "shares", "log", "says"),
    [
        (None, {}, (0, 30), "ends at offset 30, and the earlier backfill has read it up to 40: the topic was"),
        (None, {}, (45, 90), "offsets 40 to 44 of t-0 are missing behind the earlier backfill"),
        (Lake(""), {0: LakeShare(20, 50, 70, 1)}, (50, 90), "offsets 40 to 49 of t-0 are missing"),
        (Lake(""), {0: LakeShare(10, 40, 50, 1)}, (60, 90), "offsets 50 to 59 of t-0 are missing"),
        (
            Lake(""),
            {0: LakeShare(60, 0, 60, 1)},
            (0, 90),
            "begins at offset 0, .* leave out what was read with --lake-where",
        ),
        (Lake(""), {0: LakeShare(60, 40, 100, 1)}, (0, 90), "goes to offset 99, and the log ends at 90"),
        (Lake(""), {0: LakeShare(60, None, None, 1)}, (0, 90), "has no offsets, so nobody can tell"),
        (Lake("", until_ms=5), {}, (0, 90), "has no offsets, so nobody can tell"),
    ],
)
def test_what_can_not_follow_is_refused(source: Any, shares: Any, log: tuple[int, int], says: str) -> None:
    with pytest.raises(ArchiveError, match=says):
        range_behind(BEFORE, source, (), shares, *log)


def test_gaps_that_are_allowed_are_left_out() -> None:
    found = range_behind(BEFORE, Archive("", allow_gaps=True), (), {}, 45, 90)
    assert (found.start, found.log_start, found.end) == (40, 45, 90)


def test_results_do_not_need_the_earlier_directory(finished: Backfill, tmp_path: Path) -> None:
    """What was written to outputs before is a part of them."""
    second = behind(tmp_path / "second", [lines(random.Random(1), 50)], finished)
    manifests: list[TaskManifest] = second.run(InProcess())
    finished.directory.rename(tmp_path / "away")
    assert second.verify() == manifests
    files = [log.file.path for manifest in manifests for log in manifest.outputs]
    assert [path.endswith(".earlier") for path in files] == [True, False]
    assert manifests[0].task.startswith(FIRST.id)


def test_the_plan_says_what_does_not_go_on() -> None:
    (said,) = not_in_snapshot(program("key-value store"))
    assert "attributes of processor objects are lost" in said
    assert not list(not_in_snapshot(program("count")))
