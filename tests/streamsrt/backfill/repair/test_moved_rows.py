"""A replay of records from before a topic got more partitions is refused if the application's rows were moved since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.manifest import LogResult, StoreResult, StrayRows, TaskManifest
from streamsrt.backfill.repair.moved_rows import moved_rows
from streamsrt.backfill.repartition.job import StateRepartition
from streamsrt.backfill.row_places import notes_on_places
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST, NewTopic
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import encode_batch
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repair import two_stores
from tests.streamsrt.backfill.repair.test_handover import Interrupted, dies_at
from tests.streamsrt.backfill.scene import Scene
from tests.system.processes import wait_until
from topology import Topology

APPLICATION = "tests.streamsrt.backfill.repair.two_stores:topology"
ID = "moved"
WORDS = [f"{chr(97 + number % 5)}{number}" for number in range(25)]
CONFIG = {"statestore.cache.max.bytes": "0"}
BEFORE, AFTER = 2, 5


def by_key(word: str, count: int) -> int:
    return partition_for_key(word.encode(), count)


def create(scene: Scene, partitions: int) -> None:
    topics = [NewTopic(name=name, partitions=partitions, configs={}) for name in ("words", "counted")]
    assert not any(scene.network.admin.create_topics(topics).values())


def grow(scene: Scene) -> None:
    assert not any(scene.network.admin.create_partitions({"words": AFTER}).values())


def write(scene: Scene, partitions: int, place: Callable[[str, int], int] = by_key, *, first_ms: int = 0) -> None:
    """One record for each word."""
    for number, word in enumerate(WORDS, first_ms):
        batch = encode_batch([word.encode()], [b""], [number])
        scene.network.producer.send("words", place(word, partitions), batch, 1)
    scene.network.producer.flush()


def run_live(scene: Scene, topology: Topology = two_stores.topology) -> None:
    config = {
        "application.id": ID,
        "bootstrap.servers": scene.servers,
        "state.dir": scene.state_dir(ID),
        **CONFIG,
    }
    KafkaStreams(topology, config).run(until="quiet", timeout_s=60, signals=False)


def go_on_behind_a_move(scene: Scene, *, first_ms: int = 0) -> None:
    """The application runs, its topics get more partitions, its state is moved, and it runs on. ``first_ms``: as for
    :func:`write`, of the later records."""
    create(scene, BEFORE)
    write(scene, BEFORE)
    run_live(scene)
    grow(scene)
    with StateRepartition(APPLICATION, ID, bootstrap_servers=scene.servers) as job:
        job.execute(job.survey())
    write(scene, AFTER, first_ms=first_ms)
    run_live(scene)


def computed(scene: Scene, store: str) -> Backfill:
    backfill = Backfill(scene.folder / store, bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=ID, config=CONFIG, store=store)
    backfill.run(InProcess())
    return backfill


def delete(scene: Scene, store: str) -> None:
    changelog = f"{ID}-{store}-changelog"
    scene.network.admin.delete_topics([changelog])
    wait_until(lambda: not scene.network.admin.topics([changelog]), "it is deleted")


def astray() -> int:
    return sum(by_key(word, BEFORE) != by_key(word, AFTER) for word in WORDS)


def test_a_store_whose_rows_were_moved_since_is_not_rebuilt_from_the_old_records(scene: Scene) -> None:
    go_on_behind_a_move(scene)
    backfill = computed(scene, "counts")
    said = (
        rf"'counts' can't be rebuilt from these records: {astray()} rows of store 'counts' would lie where 2 partitions put "
        r"their keys, and moved-counts-changelog has 5 \(keys 0x.* in partition 0.*\.\.\.\).*has them elsewhere.*Plan again"
    )
    for attempt in (backfill.check_commit, backfill.commit):
        with pytest.raises(HandOverError, match=said):
            attempt()
    # Not the advice to repair first what can't be repaired.
    with pytest.raises(HandOverError, match=r"of store 'counts' \('words-by-letter' is computed from it\) would lie"):
        computed(scene, "words-by-letter").check_commit()
    delete(scene, "counts")
    with pytest.raises(HandOverError, match=r"would lie where 2 partitions.*the changelog.*is lost.*probably moved"):
        backfill.commit()
    assert not scene.network.admin.topics(["moved-counts-changelog"])


def test_an_application_that_began_after_the_topics_had_grown_has_its_rows_where_they_are(scene: Scene) -> None:
    create(scene, BEFORE)
    write(scene, BEFORE)
    grow(scene)
    write(scene, AFTER)
    run_live(scene)
    backfill = computed(scene, "counts")
    (note,) = notes_on_places(backfill.status().plan, backfill.verify())
    assert f"store counts: {astray()} rows lie where 2 partitions would put their keys, and there are 5 now" in note
    with pytest.raises(HandOverError, match="All else is ready"):
        backfill.check_commit()
    delete(scene, "counts")
    # What was seen while the changelog was there still counts.
    with pytest.raises(Interrupted):
        backfill.commit(on_step=dies_at("written"))
    backfill.abort(execute=True)
    wait_until(lambda: not scene.network.admin.topics(["moved-counts-changelog"]), "it is deleted")
    assert backfill.commit().step == "done"


def test_a_producer_with_a_partitioner_of_its_own_is_no_reason(scene: Scene) -> None:
    create(scene, AFTER)
    write(scene, AFTER, lambda word, count: WORDS.index(word) % count)
    run_live(scene)
    backfill = computed(scene, "counts")
    assert any(store.strays for each in backfill.verify() for store in each.stores)
    assert not list(notes_on_places(backfill.status().plan, backfill.verify()))
    delete(scene, "counts")
    assert backfill.commit().step == "done"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_lake_without_partitions_places_the_old_records_by_their_keys(scene: Scene) -> None:
    go_on_behind_a_move(scene, first_ms=1_000)
    changelog = f"{ID}-counts-changelog"
    before = {tp: {key: row for key, row in rows.items() if row[0]} for tp, rows in rows_of(scene, changelog).items()}
    lake = scene.folder / "lake"
    lake.mkdir()
    table = pa.table(
        {
            "key": [word.encode() for word in WORDS],
            "value": [b""] * len(WORDS),
            "timestamp": list(range(len(WORDS))),
        }
    )
    pq.write_table(table, lake / "old.parquet")
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    sources = {"words": Lake(lake, "timestamp", until_ms=1_000)}
    backfill.plan(APPLICATION, application_id=ID, config=CONFIG, store="counts", sources=sources)
    backfill.run(SparkEngine())
    assert not list(notes_on_places(backfill.status().plan, backfill.verify()))
    delete(scene, "counts")
    assert backfill.commit().step == "done"
    assert rows_of(scene, changelog) == before


def rows_of(scene: Scene, topic: str) -> dict[int, dict[bytes | None, tuple[bytes | None, int]]]:
    """The last value and timestamp of each key, by partition."""
    ends = scene.network.admin.list_offsets({(topic, index): LATEST for index in range(AFTER)}, read_committed=True)
    found: dict[int, dict[bytes | None, tuple[bytes | None, int]]] = {}
    for tp, end in ends.items():
        rows = found[tp[1]] = {}
        for columns in read_log(scene.network, tp, 0, end.offset):
            rows.update(zip(columns.keys, zip(columns.values, columns.timestamps, strict=True), strict=True))
    return found


# ---------------------------------------------------------------------------------------------------------- what decides


def results(strays: Mapping[int, StrayRows], topic: str = "none-changelog") -> list[TaskManifest]:
    """The results of tasks with these rows in store ``counts``."""
    file = {"path": "", "records": 0, "size_bytes": 0, "digest": ""}
    return [
        TaskManifest.model_construct(
            stores=(
                StoreResult(
                    name="counts",
                    entries=each.rows,
                    changelog=LogResult.model_validate({"topic": topic, "partition": partition, "file": file}),
                    strays=each,
                ),
            )
        )
        for partition, each in strays.items()
    ]


def stray(rows: int, explained_by: Sequence[int], *, has_own_keys: bool = False) -> StrayRows:
    return StrayRows(
        rows=rows,
        explained_by=tuple(explained_by),
        belong_to={bytes([number]).hex(): 3 for number in range(rows)},
        has_own_keys=has_own_keys,
    )


@pytest.mark.parametrize(
    ("strays", "found"),
    [
        ({0: stray(1, [1, 2]), 1: stray(1, [2, 3])}, [(2, 2)]),
        ({0: stray(3, [1, 2, 3])}, [(3, None)]),
        ({0: stray(9, [1]), 1: stray(9, [2])}, []),
        ({0: stray(3, [1], has_own_keys=True)}, []),
        ({0: stray(12, [1], has_own_keys=True)}, [(12, 1)]),
    ],
)
def test_of_a_lost_changelog_one_number_of_partitions_must_explain_all_rows(
    scene: Scene, strays: Mapping[int, StrayRows], found: list[tuple[int, int | None]]
) -> None:
    network: Network = scene.network
    moved = moved_rows(network, results(strays), {"counts"}, {"none-changelog": 4})
    assert [(each.rows, each.before) for each in moved] == found
    assert not list(moved_rows(network, results(strays), {"other"}, {"none-changelog": 4}))


def test_rows_that_the_application_has_elsewhere_need_no_number_that_explains_them(scene: Scene) -> None:
    """The topic may have grown twice."""
    topic = "seen-changelog"
    scene.network.admin.create_topics([NewTopic(name=topic, partitions=4, configs={})])
    keys = [bytes([number]) for number in range(3)]
    scene.network.producer.send(topic, 3, encode_batch(keys, [b"1"] * 3, [0] * 3), 3)
    scene.network.producer.flush()
    (moved,) = moved_rows(scene.network, results({1: stray(3, [])}, topic), {"counts"}, {topic: 4})
    assert moved.is_seen
    assert "would lie where a smaller number of partitions put" in str(moved.refusal("counts", 4))
    # Deleted there, and put where the task has them.
    scene.network.producer.send(topic, 3, encode_batch(keys, [None] * 3, [1] * 3), 3)
    scene.network.producer.send(topic, 1, encode_batch(keys, [b"1"] * 3, [1] * 3), 3)
    scene.network.producer.flush()
    assert not list(moved_rows(scene.network, results({1: stray(3, [2])}, topic), {"counts"}, {topic: 4}))
