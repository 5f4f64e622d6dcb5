"""One store is rebuilt as a whole backfill would make it, and nothing else is written."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import flights
from streamsrt.backfill import Archive, Backfill, Lake
from streamsrt.backfill.errors import BackfillError, HandOverError, PlanError
from streamsrt.backfill.handover import writer_group
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.log_writer import PlainLogWriter
from streamsrt.backfill.repair.handover import RepairHandOver
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.cli.entry import run_command_line
from streamsrt.client.transaction_coordination import TransactionCoordination
from streamsrt.client.values import LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.tasks.input.offset_metadata import BackfillRunningError
from streamsrt.wire.records import encode_batch
from tests.streamsrt.backfill.delta_lake import COLUMNS
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.system.processes import wait_until

ID = "repaired"
STORE = "delays-per-hour"
CHANGELOG = f"{ID}-{STORE}-changelog"
INTERRUPTIONS = ("marked start", f"marked {CHANGELOG}", "written", "verified", "fenced")


class Interrupted(Exception):
    """Ends a hand-over where a test wants it to end."""


def dies_at(place: str) -> Callable[[str, str], None]:
    step, _, text = place.partition(" ")

    def on_step(reached: str, said: str) -> None:
        if reached == step and said.startswith(text):
            raise Interrupted(place)

    return on_step


def damage(scene: Scene) -> None:
    """Somebody writes into the changelog what is no row of the store, and deletes others."""
    rows = scene.compacted(CHANGELOG)[CHANGELOG, 0]
    keys = list(rows)[:3]
    scene.network.producer.send(CHANGELOG, 0, encode_batch(keys, [None, b"?", b"?"][: len(keys)], [0] * len(keys)), 3)
    scene.network.producer.flush()


def planned(scene: Scene, name: str, application_id: str = ID, **options: object) -> Backfill:
    backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=application_id, bootstrap_servers=scene.servers, **options)  # type: ignore[arg-type]
    return backfill


def computed(scene: Scene, name: str, application_id: str = ID, **options: object) -> Backfill:
    backfill = planned(scene, name, application_id, **options)
    backfill.run(InProcess())
    return backfill


def records(scene: Scene, topic: str) -> list[object]:
    """Everything in a topic, as it lies there."""
    found: list[object] = []
    for tp, end in sorted(scene.ends(topic).items()):
        for columns in read_log(scene.network, tp, 0, end):
            headers = columns.headers or [()] * len(columns)
            found += [
                (
                    tp[1],
                    columns.offset_at(at),
                    columns.keys[at],
                    columns.values[at],
                    columns.timestamps[at],
                    headers[at],
                )
                for at in range(len(columns))
            ]
    return found


def all_ends(scene: Scene) -> dict[TopicPartition, int]:
    """Where each log ends, but for the offsets of groups."""
    counts = {name: each.partitions for name, each in scene.network.admin.topics().items() if not each.is_internal}
    wanted = {(name, index): LATEST for name, count in counts.items() for index in range(count) if name != CHANGELOG}
    return {tp: at.offset for tp, at in scene.network.admin.list_offsets(wanted).items()}


def follow(error: HandOverError, scene: Scene, steps: int = 4) -> None:
    """Does what the error says, up to a step."""
    said = re.findall(r"\((\d)\) (.*?)(?=; \(\d\)|$)", str(error))
    assert [int(number) for number, _ in said] == [1, 2, 3, 4]
    for _, step in said[1:steps]:
        if step.startswith("streamsrt "):
            with pytest.raises(SystemExit) as ended:
                run_command_line(step.split()[1:])
            assert not ended.value.code, step
        else:
            assert step == f"delete the folders stores/{STORE} in the state directories of its instances"
            shutil.rmtree(scene.state_dir(ID) / ID / "stores" / STORE, ignore_errors=True)
    wait_until(lambda: steps > 3 or not scene.network.admin.topics([CHANGELOG]), "it is deleted")


def to_replace(backfill: Backfill) -> HandOverError:
    with pytest.raises(HandOverError, match="the old changelog of store 'delays-per-hour' is still there") as refused:
        backfill.check_commit()
    return refused.value


def test_the_changelog_is_that_of_a_whole_backfill_and_nothing_else_is_written(any_scene: Scene) -> None:
    scene = any_scene
    scene.load(departures(300))
    scene.run_live(ID)
    computed(scene, "whole", "whole").commit()
    scene.run_live("live")
    damage(scene)
    before, committed = all_ends(scene), scene.network.admin.committed(ID)
    backfill = computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene)
    assert backfill.status().step == "done"
    assert backfill.commit().step == "done"
    assert records(scene, CHANGELOG) == records(scene, f"whole-{STORE}-changelog")
    assert all_ends(scene) == before
    assert {tp: (at.offset, at.metadata) for tp, at in scene.network.admin.committed(ID).items()} == {
        tp: (at.offset, at.metadata) for tp, at in committed.items()
    }
    # The application goes on as if nothing had happened.
    scene.load(departures(100, start=6_000))
    assert scene.run_live(ID).progress.restored_records > 0
    scene.run_live("live")
    assert scene.stores(ID) == scene.stores("live")


def test_an_interrupted_repair_goes_on(scene: Scene) -> None:
    scene.load(departures(300))
    scene.run_live(ID)
    computed(scene, "whole", "whole").commit()
    damage(scene)
    committed, backfill = scene.network.admin.committed(ID), computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene, steps=3)
    for place in INTERRUPTIONS:
        with pytest.raises(Interrupted):
            backfill.commit(on_step=dies_at(place))
        with pytest.raises(BackfillRunningError, match="backfill commit --execute"):
            scene.run_live(ID)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("done"))
    assert backfill.commit(state_dir=scene.state_dir(ID)).step == "done"
    assert records(scene, CHANGELOG) == records(scene, f"whole-{STORE}-changelog")
    assert scene.network.admin.committed(ID) == committed
    with pytest.raises(HandOverError, match="is repaired: there is nothing to abort"):
        backfill.abort()
    # A later deletion of the group is no concern of the repair.
    scene.network.admin.delete_groups([ID])
    assert backfill.commit().step == "done"


def test_files_of_the_store_are_replaced_in_a_state_directory(scene: Scene) -> None:
    scene.load(departures(200))
    scene.run_live(ID)
    scene.run_live("live")
    damage(scene)
    backfill = computed(scene, "plan", store=STORE)
    scene.network.admin.delete_topics([CHANGELOG])
    wait_until(lambda: not scene.network.admin.topics([CHANGELOG]), "it is deleted")
    # Its old files are still there.
    assert backfill.commit(state_dir=scene.state_dir(ID)).step == "done"
    assert scene.run_live(ID).progress.restored_records == 0
    assert scene.stores(ID) == scene.stores("live")


def test_an_end_that_was_not_written_down_is_noticed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.load(departures(100))
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene, steps=3)

    def dies(_self: RepairHandOver) -> None:
        raise Interrupted("the offsets are put back")

    with monkeypatch.context() as patch:
        patch.setattr(RepairHandOver, "_delete_writer_group", dies)
        with pytest.raises(Interrupted):
            backfill.commit()
    # The application may be started from here on.
    scene.load(departures(50, start=6_000))
    scene.run_live(ID)
    committed = scene.network.admin.committed(ID)
    with pytest.raises(HandOverError, match="is repaired: there is nothing to abort"):
        backfill.abort()
    assert backfill.commit().step == "done"
    assert scene.network.admin.committed(ID) == committed


def test_an_abort_puts_the_offsets_back(scene: Scene) -> None:
    scene.load(departures(100))
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene, steps=3)
    committed = scene.network.admin.committed(ID)
    assert backfill.abort(execute=True) == []
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"))
    said = backfill.abort(execute=False)
    assert [line.partition(":")[0] for line in said] == [
        f"delete topic {CHANGELOG}",
        f"put back {len(committed)} offsets of {ID} without marks",
    ]
    assert scene.network.admin.committed(ID) != committed
    assert backfill.abort(execute=True) == said
    assert scene.network.admin.committed(ID) == committed
    wait_until(lambda: not scene.network.admin.topics([CHANGELOG]), "it is deleted")
    assert backfill.commit().step == "done"


def commits_and_dies(directory: Path, servers: str) -> None:
    """In a process of its own: records and offsets are sent, and the transaction is not ended."""

    async def dies(_self: TransactionCoordination, _committed: bool, _deadline: float) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    TransactionCoordination.end = dies  # type: ignore[method-assign]
    Backfill(directory, bootstrap_servers=servers).commit()


def test_a_transaction_that_is_left_open_does_not_keep_an_abort_from_its_end(any_scene: Scene) -> None:
    scene = any_scene
    scene.load(departures(100))
    scene.run_live(ID)
    committed, backfill = scene.network.admin.committed(ID), computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene, steps=3)
    process = multiprocessing.get_context("spawn").Process(
        target=commits_and_dies, args=(backfill.directory, scene.servers)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    backfill.abort(execute=True)
    assert {tp: (at.offset, at.metadata) for tp, at in scene.network.admin.committed(ID).items()} == {
        tp: (at.offset, at.metadata) for tp, at in committed.items()
    }
    wait_until(lambda: not scene.network.admin.topics([CHANGELOG]), "it is deleted")
    assert backfill.commit().step == "done"
    scene.run_live(ID)


def test_a_writer_group_that_is_gone_already_does_not_end_an_abort(scene: Scene) -> None:
    scene.load(departures(20))
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene, steps=3)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"))
    plan, writer = backfill.status().plan, PlainLogWriter(scene.network)
    hand_over = RepairHandOver(backfill.directory, plan, scene.network, writer)
    hand_over._delete_group(writer_group(plan))
    assert all(each.group_id != writer_group(plan) for each in scene.network.admin.list_groups())
    # As an abort finds it that has seen it in the list just before.
    hand_over._delete_group(writer_group(plan))
    assert backfill.abort(execute=True)
    assert scene.run_live(ID).progress.processed_records == 0


def test_a_commit_after_half_an_abort_says_what_to_do(scene: Scene) -> None:
    scene.load(departures(100))
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    follow(to_replace(backfill), scene, steps=3)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at(f"marked {CHANGELOG}"))
    scene.network.admin.delete_topics([CHANGELOG])
    wait_until(lambda: not scene.network.admin.topics([CHANGELOG]), "it is deleted")
    with pytest.raises(HandOverError, match=f"'{CHANGELOG}' is gone: streamsrt backfill abort --execute, then"):
        backfill.commit()
    backfill.abort(execute=True)
    assert backfill.commit().step == "done"


def test_an_application_that_runs_or_has_run_since_is_refused(scene: Scene) -> None:
    scene.load(departures(100))
    with pytest.raises(PlanError, match="'repaired' has no committed offsets: it has not run yet"):
        planned(scene, "early", store=STORE)
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    scene.load(departures(10, start=6_000))
    scene.run_live(ID)
    for attempt in (backfill.check_commit, backfill.commit):
        with pytest.raises(HandOverError, match=r"has run since the plan was made.*plan again"):
            attempt()
    again = computed(scene, "again", store=STORE)
    beside = computed(scene, "beside", store=STORE)
    follow(to_replace(again), scene, steps=3)
    with pytest.raises(Interrupted):
        again.commit(on_step=dies_at("marked start"))
    with pytest.raises(BackfillRunningError):
        planned(scene, "third", store=STORE)
    with pytest.raises(HandOverError, match=r"backfill \w+ of application 'repaired' is being handed over"):
        beside.check_commit()
    scene.network.admin.commit(ID, {("departures", 0): OffsetAndMetadata(1)})
    with pytest.raises(HandOverError, match="were changed while store 'delays-per-hour' was being written"):
        again.commit()


def test_a_store_that_it_is_computed_from_must_be_what_the_history_makes_of_it(scene: Scene) -> None:
    scene.load(departures(200))
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    feeding = backfill.status().plan.repair
    assert feeding is not None
    assert feeding.feeding == {"airlines": "rows"}
    topic = f"{ID}-airlines-changelog"
    partition = next(tp[1] for tp, rows in scene.compacted(topic).items() if rows)
    key = next(iter(scene.compacted(topic)[topic, partition]))
    assert key is not None
    scene.network.producer.send(topic, partition, encode_batch([key], [b"another airline"], [0]), 1)
    scene.network.producer.flush()
    for attempt in (backfill.check_commit, backfill.commit):
        with pytest.raises(
            HandOverError, match=f"airlines.*in 1 row of {topic}-{partition} than.*0x{key.hex()}.*--store airlines"
        ):
            attempt()
    assert scene.network.admin.topics([CHANGELOG]), "nothing was deleted for a repair that can't be finished"


def test_what_the_log_has_lost_must_come_from_an_archive(scene: Scene) -> None:
    scene.load(departures(200))
    scene.run_live(ID)
    computed(scene, "whole", "whole").commit()
    root = scene.archive_departures()
    with pytest.raises(PlanError, match=r"can't be rebuilt from a part of the history: .*departures-0 \(from"):
        planned(scene, "lost", store=STORE)
    scene.load(departures(50, start=6_000))
    backfill = computed(scene, "plan", store=STORE, sources={flights.DEPARTURES: Archive(root)})
    follow(to_replace(backfill), scene)
    assert records(scene, CHANGELOG) == records(scene, f"whole-{STORE}-changelog")
    # Records that the application has not read yet have no part in its state.
    ahead = scene.archive_departures()
    with pytest.raises(BackfillError, match="and the application has read it up to"):
        planned(scene, "ahead", store=STORE, sources={flights.DEPARTURES: Archive(ahead)})


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_what_the_log_has_lost_may_come_from_a_lake(scene: Scene) -> None:
    scene.load(departures(100))
    scene.run_live(ID)
    computed(scene, "whole", "whole").commit()
    scene.write_json_departures(scene.folder / "lake")
    scene.archive_departures()
    columns = {**COLUMNS, "timestamp": "cast(at as timestamp)"}
    backfill = planned(
        scene,
        "plan",
        store=STORE,
        sources={flights.DEPARTURES: Lake(scene.folder / "lake", columns=columns, format="json")},
    )
    backfill.run(SparkEngine())
    follow(to_replace(backfill), scene)
    assert records(scene, CHANGELOG) == records(scene, f"whole-{STORE}-changelog")


def test_a_repair_is_continued_by_a_repair_of_the_same_store_only(scene: Scene) -> None:
    scene.load(departures(50))
    scene.run_live(ID)
    backfill = computed(scene, "plan", store=STORE)
    with pytest.raises(PlanError, match="rebuilds store 'delays-per-hour' only"):
        planned(scene, "next", "other", after=backfill.directory)
    with pytest.raises(
        PlanError, match=r"rebuilds store 'delays-per-hour' only .*is not the state of store 'airlines'"
    ):
        planned(scene, "next", store="airlines", after=backfill.directory)
    scene.load(departures(50, start=6_000))
    scene.run_live(ID)
    continued = computed(scene, "next", store=STORE, after=backfill.directory)
    follow(to_replace(continued), scene)
    scene.run_live("live")
    scene.run_live(ID)
    assert scene.stores(ID) == scene.stores("live")
