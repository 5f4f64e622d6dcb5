"""The hand-over: interrupted anywhere, started too early, disturbed, taken back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.application import load_application
from streamsrt.backfill import Backfill
from streamsrt.backfill.attempts import new_attempt
from streamsrt.backfill.errors import BackfillError, HandOverError, PlanError
from streamsrt.backfill.handover import HANDOVER_FILE, load_state, transactional_id, writer_group
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.planned_topics import check_source_topics
from streamsrt.backfill.run_task import compute_task
from streamsrt.backfill.sources import connected, read_batches
from streamsrt.backfill.verify import VerificationError
from streamsrt.client.network import BlockingAdmin
from streamsrt.client.values import NewTopic, OffsetAndMetadata
from streamsrt.errors import StreamsError, TopologyMismatchError
from streamsrt.tasks.input.offset_metadata import BackfillRunningError, parse_mark
from streamsrt.wire.records import encode_batch
from tests.streamsrt.backfill.processes import InProcess, commit_and_die
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes

ID = "flights-backfilled"
INTERRUPTIONS = ("marked", "marked flights-backfilled-delays", "marked delays-2", "written", "verified", "fenced")


class Interrupted(Exception):
    """Ends a hand-over where a test wants it to end."""


def computed(scene: Scene, count: int = 400) -> Backfill:
    """A backfill whose tasks are finished."""
    scene.load(departures(count))
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=ID)
    backfill.run(InProcess())
    return backfill


def dies_at(place: str) -> Callable[[str, str], None]:
    """Ends the hand-over at the first step whose name and text begin like that."""
    step, _, text = place.partition(" ")

    def on_step(reached: str, said: str) -> None:
        if reached == step and said.startswith(text):
            raise Interrupted(place)

    return on_step


def record_counts(scene: Scene) -> dict[str, int]:
    topics = (f"{ID}-airlines-changelog", f"{ID}-delays-per-hour-changelog", "delays")
    return {topic: scene.count(topic) for topic in topics}


def expected_counts(backfill: Backfill) -> dict[str, int]:
    counts: dict[str, int] = {}
    for manifest in backfill.verify():
        changelogs = [store.changelog for store in manifest.stores if store.changelog is not None]
        for log in (*changelogs, *manifest.outputs):
            counts[log.topic] = counts.get(log.topic, 0) + log.file.records
    return counts


@pytest.mark.parametrize("transactions", [True, False])
def test_an_interrupted_hand_over_goes_on_and_writes_everything_once(scene: Scene, transactions: bool) -> None:
    backfill = computed(scene)
    for place in INTERRUPTIONS:
        with pytest.raises(Interrupted):
            backfill.commit(state_dir=scene.state_dir(ID), on_step=dies_at(place), transactions=transactions)
        with pytest.raises(BackfillRunningError, match="backfill commit --execute") as refused:
            scene.run_live(ID)
        assert refused.value.exit_code == 2
    assert backfill.commit(state_dir=scene.state_dir(ID)).step == "done"
    assert backfill.commit().step == "done"
    assert record_counts(scene) == expected_counts(backfill)
    assert scene.run_live(ID).progress.restored_records == 0
    committed = scene.network.admin.committed(ID)
    assert all(offset.offset == scene.ends(tp[0])[tp] for tp, offset in committed.items())


def test_a_version_that_would_misread_the_installed_stores_does_not_start(scene: Scene) -> None:
    backfill = computed(scene, 100)
    state_dir = scene.state_dir(ID)
    assert backfill.commit(state_dir=state_dir).step == "done"
    builder = StreamsBuilder()
    builder.table(flights.AIRLINES, key=serdes.string, value=serdes.double, store="airlines").to_stream().to("delays")
    config = {"application.id": ID, "bootstrap.servers": scene.servers, "state.dir": state_dir}
    for epoch, says in ((0, "is not the one that ran last"), (1, "would be misread by this version: store 'airlines'")):
        other = KafkaStreams(builder.build(), {**config, "topology.epoch": epoch})
        with pytest.raises(TopologyMismatchError, match=says):
            other.run(until="quiet", timeout_s=60, signals=False)
    assert scene.run_live(ID).progress.restored_records == 0


@pytest.mark.parametrize("has_run", [False, True])
def test_a_hand_over_that_ended_before_it_wrote_that_down_is_done(scene: Scene, has_run: bool) -> None:
    backfill = computed(scene)
    written = backfill.directory / HANDOVER_FILE
    before = b""

    def on_step(reached: str, said: str) -> None:
        nonlocal before
        if reached == "fenced":
            before = written.read_bytes()

    assert backfill.commit(on_step=on_step).step == "done"
    if has_run:
        scene.load(departures(10, start=8_000))
        scene.run_live(ID)
    committed = scene.network.admin.committed(ID)
    written.write_bytes(before)
    assert backfill.commit().step == "done"
    assert scene.network.admin.committed(ID) == committed
    assert backfill.commit().step == "done"


@pytest.mark.parametrize("transactions", [True, False])
def test_a_killed_driver_leaves_what_the_next_one_goes_on_behind(scene: Scene, transactions: bool) -> None:
    backfill = computed(scene)
    for killed_after in (2, 5):
        assert commit_and_die(backfill.directory, scene.servers, killed_after, transactions=transactions) == -9
    assert backfill.commit().step == "done"
    assert record_counts(scene) == expected_counts(backfill)


def test_part_of_a_log_that_is_there_is_not_written_again(scene: Scene) -> None:
    backfill = computed(scene)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("marked start"), transactions=False)
    manifest = max(backfill.verify(), key=lambda manifest: manifest.stores[1].entries)
    log = manifest.stores[1].changelog
    assert log is not None
    columns = next(read_batches(backfill.directory / log.file.path)).cut(0, 7)
    batch = encode_batch(columns.keys, columns.values, columns.timestamps, headers=columns.headers)
    scene.network.producer.send(log.topic, log.partition, batch, 7)
    scene.network.producer.flush()
    assert backfill.commit().step == "done"
    assert record_counts(scene) == expected_counts(backfill)


def test_a_topic_that_an_instance_creates_meanwhile_is_left_to_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill, create = computed(scene), BlockingAdmin.create_topics

    def create_after_the_instance(self: BlockingAdmin, topics: Sequence[NewTopic]) -> object:
        assert create(self, topics[:1]) == {topics[0].name: None}
        return create(self, topics)

    monkeypatch.setattr(BlockingAdmin, "create_topics", create_after_the_instance)
    with pytest.raises(HandOverError, match="is running, or an instance of it starts"):
        backfill.commit()
    plan = load_plan(backfill.directory)
    named = [topic.name for topic in plan.internal_topics]
    assert set(named[1:]) == set(load_state(backfill.directory, plan).created_topics)


def test_records_of_somebody_else_are_refused(scene: Scene) -> None:
    backfill = computed(scene)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("marked start"), transactions=False)
    scene.network.producer.send(f"{ID}-airlines-changelog", 0, encode_batch([b"XX"], [b"other"], [0]), 1)
    scene.network.producer.flush()
    with pytest.raises(HandOverError, match="not of this backfill"):
        backfill.commit()
    assert any("delete topic" in action for action in backfill.abort(execute=False))
    backfill.abort(execute=True)
    assert backfill.commit().step == "done"


def test_a_late_writer_is_noticed_before_the_offsets_are_committed(scene: Scene) -> None:
    backfill = computed(scene)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"), transactions=False)
    scene.network.producer.send(f"{ID}-airlines-changelog", 0, encode_batch([b"XX"], [b"late"], [0]), 1)
    scene.network.producer.flush()
    with pytest.raises(BackfillError, match=r"more records|something else writes"):
        backfill.commit()
    assert all(not mark.is_done for mark in map(parse_mark, _metadata(scene)) if mark is not None)


def _metadata(scene: Scene) -> list[str]:
    return [offset.metadata for offset in scene.network.admin.committed(ID).values()]


def test_an_earlier_attempt_that_is_still_alive_is_fenced(scene: Scene) -> None:
    backfill = computed(scene)
    plan = backfill.status().plan
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("marked delays-1"))
    used = transactional_id(plan, load_state(backfill.directory, plan))
    with connected(scene.servers, transactional_id=used) as zombie:
        zombie.transactions.initialize(10.0)
        batch = encode_batch([b"XX"], [b"late"], [0], transactional=True)
        zombie.producer.send(f"{ID}-airlines-changelog", 0, batch, 1)
        assert backfill.commit().step == "done"
        with pytest.raises(StreamsError):
            zombie.transactions.commit("", {}, member_id="", member_epoch=-1, timeout_s=10.0)
    assert record_counts(scene) == expected_counts(backfill)


def test_a_record_of_somebody_else_in_a_changelog_is_found_by_its_digest(scene: Scene) -> None:
    backfill = computed(scene)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("marked start"))
    scene.network.producer.send(f"{ID}-airlines-changelog", 0, encode_batch([b"XX"], [b"other"], [0]), 1)
    scene.network.producer.flush()
    again = r"something else writes.* An abort leaves what is in delays-0, delays-1, .* writes these outputs again"
    with pytest.raises(VerificationError, match=again):
        backfill.commit()
    backfill.abort(execute=True)
    assert backfill.commit().step == "done"


@pytest.mark.parametrize("transactions", [True, False])
def test_what_retention_deletes_meanwhile_is_not_missed(scene: Scene, transactions: bool) -> None:
    backfill = computed(scene, 200)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"), transactions=transactions)
    topic = f"{ID}-delays-per-hour-changelog"
    scene.network.admin.delete_records({(topic, 0): 7, (topic, 3): scene.ends(topic)[topic, 3]})
    assert backfill.commit().step == "done"


def test_a_running_application_is_left_alone(scene: Scene) -> None:
    backfill = computed(scene, 100)
    config = {"application.id": ID, "bootstrap.servers": scene.servers, "state.dir": scene.state_dir(ID)}
    streams = KafkaStreams(flights.topology, config)
    streams.start()
    try:
        with pytest.raises(HandOverError, match="is running"):
            backfill.commit()
        with pytest.raises(HandOverError, match="is running"):
            Backfill(scene.folder / "other", bootstrap_servers=scene.servers).plan(APPLICATION, application_id=ID)
    finally:
        streams.close()


def test_an_application_with_offsets_of_its_own_is_left_alone(scene: Scene) -> None:
    backfill = computed(scene, 100)
    scene.network.admin.commit(ID, {("departures", 0): OffsetAndMetadata(1)})
    with pytest.raises(HandOverError, match="committed offsets"):
        backfill.commit()
    with pytest.raises(HandOverError, match="offsets already"):
        Backfill(scene.folder / "other", bootstrap_servers=scene.servers).plan(APPLICATION, application_id=ID)


def test_a_second_backfill_waits_until_the_first_one_is_handed_over_or_dropped(scene: Scene) -> None:
    first = computed(scene, 40)
    second = Backfill(scene.folder / "other", bootstrap_servers=scene.servers)
    second.plan(APPLICATION, application_id=ID)
    second.run(InProcess())
    with pytest.raises(Interrupted):
        first.commit(on_step=dies_at("marked"))
    mark = parse_mark(_metadata(scene)[0])
    assert mark is not None
    says = f"backfill {mark.backfill_id} of application '{ID}' is being handed over: .* with the --dir that it began"
    for refused in (second.check_commit, second.commit):
        with pytest.raises(HandOverError, match=says):
            refused()
    first.abort()
    assert second.commit().step == "done"


def replace_state(scene: Scene) -> None:
    """The steps that an error lists."""
    admin = scene.network.admin
    topics = [name for name in admin.topics() if name.startswith(f"{ID}-")]
    admin.delete_groups([ID])
    admin.delete_topics(topics)
    wait_until(lambda: not admin.topics(topics), "they are deleted")


@pytest.mark.parametrize(
    ("place", "transactions"), [("marked delays-2", True), ("written", True), ("fenced", True), ("fenced", False)]
)
def test_a_commit_whose_changelogs_were_deleted_meanwhile_does_not_go_on_behind_them(
    scene: Scene, place: str, transactions: bool
) -> None:
    backfill = computed(scene, 100)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at(place), transactions=transactions)
    internal = load_plan(backfill.directory).internal_topics
    replace_state(scene)
    gone = f"topic '{ID}-[^']*' is gone: streamsrt backfill abort --execute, then .* again"
    for refused in (backfill.check_commit, backfill.commit):
        with pytest.raises(HandOverError, match=gone):
            refused()
    # An instance that was started makes them again.
    scene.network.admin.create_topics([NewTopic(name=topic.name, partitions=topic.partitions) for topic in internal])
    again = "was deleted and created again since this hand-over began: streamsrt backfill abort --execute, then"
    for refused in (backfill.check_commit, backfill.commit):
        with pytest.raises(HandOverError, match=again):
            refused()
    # They are not this backfill's.
    assert not any(action.startswith("delete topic") for action in backfill.abort())
    left = scene.count("delays")
    assert backfill.commit().step == "done"
    expected = expected_counts(backfill)
    assert record_counts(scene) == {**expected, "delays": expected["delays"] + left}
    assert scene.run_live(ID).progress.processed_records == 0


def test_an_application_that_ran_without_its_backfill_is_not_taken_for_handed_over(scene: Scene) -> None:
    backfill = computed(scene, 100)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("fenced"))
    replace_state(scene)
    scene.run_live(ID)
    with pytest.raises(HandOverError, match="another backfill or the application itself committed them"):
        backfill.commit()


def test_a_log_that_lost_its_last_records_is_noticed(scene: Scene) -> None:
    backfill = computed(scene, 100)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"))
    path = backfill.directory / HANDOVER_FILE
    state = load_state(backfill.directory, load_plan(backfill.directory))
    name = max(state.ends, key=lambda name: state.ends[name])
    longer = state.model_copy(update={"ends": {**state.ends, name: state.ends[name] + 1}})
    path.write_text(longer.model_dump_json())
    with pytest.raises(HandOverError, match=f"{name} ends at offset {state.ends[name]}, .* its last records are gone"):
        backfill.commit()
    path.write_text(state.model_dump_json())
    assert backfill.commit().step == "done"


@pytest.mark.parametrize("place", ["marked start", f"marked {ID}-delays-per-hour-changelog-1", "verified", "fenced"])
def test_a_commit_that_hung_writes_nothing_after_another_backfill_was_handed_over(scene: Scene, place: str) -> None:
    first = computed(scene, 100)
    scene.load(departures(50, start=5_000))
    second = Backfill(scene.folder / "other", bootstrap_servers=scene.servers)
    second.plan(APPLICATION, application_id=ID)
    second.run(InProcess())
    step, _, text = place.partition(" ")
    seen: list[object] = []

    def hangs(reached: str, said: str) -> None:
        if reached == step and said.startswith(text) and not seen:
            replace_state(scene)
            assert second.commit().step == "done"
            seen.append((scene.network.admin.committed(ID), record_counts(scene)))

    says = (
        "offsets that are not of backfill" if step == "fenced" else "another commit or abort of a backfill .* has begun"
    )
    with pytest.raises(HandOverError, match=says):
        first.commit(on_step=hangs)
    assert [(scene.network.admin.committed(ID), record_counts(scene))] == seen
    assert scene.run_live(ID).progress.processed_records == 0


@pytest.mark.parametrize("transactions", [True, False])
def test_a_commit_that_hung_while_the_state_was_replaced_commits_no_offsets(scene: Scene, transactions: bool) -> None:
    backfill, seen = computed(scene, 100), False

    def hangs(reached: str, _said: str) -> None:
        nonlocal seen
        if reached == "fenced" and not seen:
            seen = True
            replace_state(scene)

    with pytest.raises(HandOverError, match=f"topic '{ID}-[^']*' is gone"):
        backfill.commit(on_step=hangs, transactions=transactions)
    assert scene.network.admin.committed(ID) == {}


def test_a_hand_over_goes_on_with_the_transactional_id_that_it_began_with(scene: Scene) -> None:
    backfill = computed(scene, 100)
    plan, path = load_plan(backfill.directory), backfill.directory / HANDOVER_FILE
    assert transactional_id(plan, load_state(backfill.directory, plan)) == f"{ID}-backfill"
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"))
    state = load_state(backfill.directory, plan)
    path.write_text(state.model_dump_json(exclude={"transactional_id", "topic_ids"}))
    assert transactional_id(plan, load_state(backfill.directory, plan)) == writer_group(plan)
    assert backfill.commit().step == "done"
    assert record_counts(scene) == expected_counts(backfill)


def test_an_abort_takes_back_marks_and_internal_topics(scene: Scene) -> None:
    backfill = computed(scene, 100)
    assert backfill.abort(execute=True) == []
    # An attempt that is killed before it says that it is finished leaves its folder.
    plan = load_plan(backfill.directory)
    with new_attempt(backfill.directory, plan.tasks[0].id) as left:
        compute_task(backfill.directory, plan, plan.tasks[0].id, left)
        assert not any(str(left) in action for action in backfill.abort(execute=True)), "somebody works there"
    assert left.is_dir()
    assert any(f"delete {left}, left by a run" in action for action in backfill.abort(execute=False))
    backfill.abort(execute=True)
    assert not left.exists()
    assert backfill.verify()
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"))
    planned = backfill.abort(execute=False)
    assert _metadata(scene)
    assert backfill.abort(execute=True) == planned
    assert any(action.startswith("leave what was written to delays-") for action in planned)
    assert not _metadata(scene)
    assert not [name for name in scene.network.admin.topics() if name.startswith(ID)]
    assert backfill.status().step == "none"
    assert backfill.commit().step == "done"
    with pytest.raises(HandOverError, match="handed over"):
        backfill.abort(execute=True)


def test_a_damaged_result_is_not_handed_over(scene: Scene) -> None:
    backfill = computed(scene, 100)
    bundle = next(store.bundle for manifest in backfill.verify() for store in manifest.stores if store.bundle)
    path = backfill.directory / bundle.path
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(VerificationError, match="missing or damaged"):
        backfill.commit()
    assert not _metadata(scene)


def test_a_state_directory_of_another_life_is_refused(scene: Scene) -> None:
    backfill = computed(scene, 100)
    scene.run_live("flights-other")
    root = scene.state_dir("flights-other")
    os.rename(root / "flights-other", root / ID)
    file = scene.folder / "file"
    file.write_bytes(b"x")
    for wrong in (file, file / "below"):
        with pytest.raises(HandOverError, match=r"--state-dir .*file is not a directory"):
            backfill.check_commit(state_dir=wrong)
        with pytest.raises(HandOverError, match=r"--state-dir .*file is not a directory"):
            backfill.commit(state_dir=wrong)
    with pytest.raises(HandOverError, match="earlier deployment"):
        backfill.commit(state_dir=root)
    assert not _metadata(scene)
    assert backfill.commit(state_dir=scene.state_dir(ID)).step == "done"


def test_two_processes_do_not_work_on_one_backfill(scene: Scene, tmp_path: Path) -> None:
    backfill = computed(scene, 100)
    seen: list[str] = []

    def on_step(step: str, _text: str) -> None:
        if step == "marked" and not seen:
            with pytest.raises(BackfillError, match="another process"):
                backfill.run("local")
            seen.append(step)

    backfill.commit(on_step=on_step)
    assert seen


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_record_that_a_topic_does_not_take_is_refused_before_anything_is_written(
    scene: Scene, compression: str
) -> None:
    scene.load(departures(400))
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=ID, config={"compression.type": compression})
    backfill.run(InProcess())
    longest = max(
        len(encode_batch([key], [value], [0]))
        for manifest in backfill.verify()
        for log in manifest.outputs
        for columns in read_batches(backfill.directory / log.file.path)
        for key, value in zip(columns.keys, columns.values, strict=True)
    )

    def remake(limit: int) -> None:
        admin = scene.network.admin
        admin.delete_topics(["delays"])
        wait_until(lambda: not admin.topics(["delays"]), "it is deleted")
        topic = NewTopic(name="delays", partitions=flights.PARTITIONS, configs={"max.message.bytes": str(limit)})
        assert admin.create_topics([topic]) == {"delays": None}

    remake(longest - 1)
    says = (
        rf"a record for delays-\d has {longest} bytes, and the topic takes {longest - 1} .max\.message\.bytes.: raise"
    )
    with pytest.raises(HandOverError, match=says):
        backfill.check_commit()
    with pytest.raises(HandOverError, match=says):
        backfill.commit()
    assert scene.network.admin.committed(ID) == {}
    assert scene.count(f"{ID}-delays-per-hour-changelog") == 0
    remake(longest + 20)
    assert backfill.commit().step == "done"


def test_changelogs_are_kept_as_long_as_the_history_is_old(scene: Scene) -> None:
    scene.load(departures(20))
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    plan = backfill.plan("tests.streamsrt.backfill.old_history:topology", application_id=ID)
    backfill.run(InProcess())
    settings, said = {f"{ID}-per-hour-changelog": "retention.ms", f"{ID}-latest-changelog": "min.compaction.lag.ms"}, []
    for topic, key in settings.items():
        assert any(text.startswith(f"old history; at commit, {topic} gets {key}=") for text in plan.warnings)
    configured = {topic.name: topic.configs for topic in plan.internal_topics}

    def days_longer() -> list[int]:
        there = scene.network.admin.describe_topic_configs(settings)
        return [
            (int(there[topic][key] or 0) - int(configured[topic][key])) // 86_400_000 for topic, key in settings.items()
        ]

    backfill.check_commit(on_step=lambda _, text: said.append(text))
    for topic, key in settings.items():
        assert any(text.startswith(f"would keep history: {topic} gets {key}=") for text in said)
    # Topics that somebody has made before are raised, too.
    names = [NewTopic(name=topic, partitions=flights.PARTITIONS, configs=configured[topic]) for topic in settings]
    scene.network.admin.create_topics(names)
    assert days_longer() == [0, 0]
    assert backfill.commit().step == "done"
    kept = days_longer()
    assert min(kept) > 365
    config = {"application.id": ID, "bootstrap.servers": scene.servers, "state.dir": scene.state_dir(ID)}
    application = load_application("tests.streamsrt.backfill.old_history:topology")
    KafkaStreams(application.topology, config).run(until="quiet", timeout_s=60, signals=False)
    assert days_longer() == kept


def test_source_topics_with_more_partitions_are_refused(scene: Scene) -> None:
    backfill = computed(scene, 100)
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("marked start"))
    scene.network.admin.create_partitions({flights.DEPARTURES: flights.PARTITIONS + 2})
    says = "topic departures has 6 partitions, and had 4 when plan .* Plan again in another --dir"
    with pytest.raises(PlanError, match=says):
        backfill.run(InProcess())
    with pytest.raises(HandOverError, match=rf"{says}. Before that, .* backfill abort --execute"):
        backfill.commit()
    backfill.abort()
    for refused in (backfill.check_commit, backfill.commit):
        with pytest.raises(PlanError, match=says):
            refused()
    assert scene.network.admin.committed(ID) == {}


@pytest.mark.parametrize("place", ["", "marked start"], ids=["before", "between"])
def test_outputs_that_are_not_those_of_the_plan_are_refused_before_anything_is_written(
    scene: Scene, place: str
) -> None:
    backfill, admin = computed(scene, 100), scene.network.admin
    if place:
        with pytest.raises(Interrupted):
            backfill.commit(on_step=dies_at(place))
    partitions = admin.partitions_for(["delays"])["delays"]

    def is_refused(says: str) -> None:
        for refused in (backfill.check_commit, backfill.commit):
            with pytest.raises(HandOverError if place else PlanError, match=says):
                refused()
        assert place or scene.network.admin.committed(ID) == {}

    admin.create_partitions({"delays": partitions + 1})
    is_refused(f"topic delays has {partitions + 1} partitions, and had {partitions} when plan .* Plan again")
    admin.delete_topics(["delays"])
    is_refused(
        f"topic delays, which plan .* does not exist any more: create it with {partitions} partitions, as it had"
    )
    admin.create_topics([NewTopic(name="delays", partitions=partitions)])
    backfill.commit()
    assert record_counts(scene) == expected_counts(backfill)


def test_another_cluster_is_not_taken_for_one_with_new_topics(scene: Scene) -> None:
    plan = computed(scene, 100).status().plan
    elsewhere = plan.model_copy(
        update={"cluster_id": "elsewhere", "topic_ids": dict.fromkeys(plan.topic_ids, "00" * 16)}
    )
    with pytest.raises(
        PlanError, match=r"made on cluster elsewhere, and this is cluster .*--bootstrap-servers of that one"
    ):
        check_source_topics(scene.network, elsewhere)
    check_source_topics(scene.network, plan)


def test_a_source_topic_that_was_created_again_is_refused(scene: Scene) -> None:
    backfill = computed(scene, 100)
    scene.refill_departures(departures(200))
    says = "topic departures was deleted and created again since plan .* Plan again in another --dir"
    for refused in (lambda: backfill.run(InProcess()), backfill.check_commit, backfill.commit):
        with pytest.raises(PlanError, match=says):
            refused()
    later = Backfill(scene.folder / "later", bootstrap_servers=scene.servers)
    with pytest.raises(PlanError, match=r"since the earlier backfill was planned, .* without --after"):
        later.plan(APPLICATION, application_id=ID, after=backfill.directory)
