"""A replay reads what the stopped application has read, also through repartition topics."""

from __future__ import annotations

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import ArchiveError, PlanError
from streamsrt.backfill.plan import SourceRange
from streamsrt.backfill.repair.inputs import check_not_ahead, check_whole
from streamsrt.wire.records import encode_batch
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repair import two_parts, two_stores
from tests.streamsrt.backfill.repair.test_handover import records
from tests.streamsrt.backfill.scene import Scene
from tests.system.processes import wait_until

APPLICATION = "tests.streamsrt.backfill.repair.two_stores:topology"
ID = "letters"
STORES = ("counts", "words-by-letter")
WORDS = ["ant", "bee", "ant", "ape", "cow", "bee", "ant"]


def loaded(scene: Scene) -> None:
    scene.create_topics("words", "counted")
    scene._write("words", [word.encode() for word in WORDS], [b""] * len(WORDS), list(range(len(WORDS))))


def run_live(scene: Scene, guarantee: str = "at_least_once") -> None:
    config = {
        "application.id": ID,
        "bootstrap.servers": scene.servers,
        "state.dir": scene.state_dir(ID),
        "statestore.cache.max.bytes": 0,
        "processing.guarantee": guarantee,
    }
    KafkaStreams(two_stores.topology, config).run(until="quiet", timeout_s=60, signals=False)


def planned(scene: Scene, name: str, application_id: str, store: str | None) -> Backfill:
    backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=application_id, config={"statestore.cache.max.bytes": "0"}, store=store)
    return backfill


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_each_of_two_stores_is_rebuilt_alone(scene: Scene, guarantee: str) -> None:
    loaded(scene)
    run_live(scene, guarantee)
    whole = planned(scene, "whole", "whole", None)
    whole.run(InProcess())
    whole.commit()
    for store in STORES:
        backfill = planned(scene, store, ID, store)
        plan = backfill.status().plan
        assert {each.level for each in plan.tasks} == ({0} if store == "counts" else {0, 1})
        backfill.run(InProcess())
        changelog = f"{ID}-{store}-changelog"
        scene.network.admin.delete_topics([changelog])
        wait_until(lambda: not scene.network.admin.topics([changelog]), "it is deleted")  # noqa: B023
        outputs = scene.ends("counted")
        assert backfill.commit().step == "done"
        assert records(scene, changelog) == records(scene, f"whole-{store}-changelog")
        assert scene.ends("counted") == outputs


def test_records_on_their_way_are_not_counted_twice(scene: Scene) -> None:
    loaded(scene)
    run_live(scene)
    (repartition,) = [name for name in scene.network.admin.topics() if name.endswith("-repartition")]
    scene.network.producer.send(repartition, 1, encode_batch([b"a"], [b"left"], [0]), 1)
    scene.network.producer.flush()
    planned(scene, "counts", ID, "counts")
    with pytest.raises(
        PlanError, match=f"has not processed 1 record of repartition topic {repartition} yet.*run --until"
    ):
        planned(scene, "letters", ID, "words-by-letter")


def test_state_that_is_placed_by_another_count_is_refused(scene: Scene) -> None:
    loaded(scene)
    run_live(scene)
    there = scene.network.admin.partitions_for({"words"})["words"]
    assert set(scene.network.admin.create_partitions({"words": there + 2}).values()) == {None}
    with pytest.raises(PlanError, match=f"has {there} partitions, .* needs {there + 2}: .*state repartition"):
        planned(scene, "grown", ID, "counts")


def test_the_history_must_be_whole_and_not_longer_than_what_was_read() -> None:
    lost = SourceRange(topic="words", partition=1, start=7, end=9, log_start=7)
    with pytest.raises(PlanError, match=r"no longer holds the older records of words-1 \(from 7\)"):
        check_whole([lost], "counts")
    check_whole([lost.model_copy(update={"allow_gaps": True}), lost.model_copy(update={"log_from_ms": 5})], "counts")
    check_not_ahead(("words", 1), [], 9)
    check_not_ahead(("words", 1), [9], 9)
    with pytest.raises(ArchiveError, match="of words-1 goes to offset 9, and the application has read it up to 9"):
        check_not_ahead(("words", 1), [7, 10], 9)


def test_settings_that_only_the_old_changelog_has_are_named(scene: Scene) -> None:
    loaded(scene)
    run_live(scene)
    assert not planned(scene, "as-it-is", ID, "counts").status().plan.warnings
    settings = {"max.message.bytes": "2000000", "cleanup.policy": "compact"}
    scene.network.admin.alter_topic_configs(f"{ID}-counts-changelog", settings)
    (warning,) = planned(scene, "changed", ID, "counts").status().plan.warnings
    assert "(max.message.bytes=2000000)" in warning
    backfill = Backfill(scene.folder / "kept", bootstrap_servers=scene.servers)
    option = warning.rpartition(" -c ")[2]
    config = {"statestore.cache.max.bytes": "0", **dict([option.split("=")])}
    assert not backfill.plan(APPLICATION, application_id=ID, config=config, store="counts").warnings


def test_a_repair_has_no_notes_about_what_it_does_not_compute(scene: Scene) -> None:
    loaded(scene)
    config = {"application.id": ID, "bootstrap.servers": scene.servers, "state.dir": scene.state_dir(ID)}
    KafkaStreams(two_parts.topology, config).run(until="quiet", timeout_s=60, signals=False)
    application = "tests.streamsrt.backfill.repair.two_parts:topology"

    def warnings(name: str, application_id: str, store: str | None) -> str:
        backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
        return " ".join(backfill.plan(application, application_id=application_id, store=store).warnings)

    whole = warnings("whole", "whole", None)
    assert "asks" in whole
    assert "store unlogged has no changelog" in whole
    assert warnings("repair", ID, "counts") == ""
