"""A store of every kind is rebuilt alone, beside an application that has processed the same records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.client.values import LATEST
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repair import every_kind
from tests.streamsrt.backfill.repair.every_kind import HELD, MINUTE_MS, NAMES, OTHERS, STORES, WORDS
from tests.streamsrt.backfill.repair.test_handover import records
from tests.streamsrt.backfill.scene import Scene
from tests.system.processes import wait_until

APPLICATION = "tests.streamsrt.backfill.repair.every_kind:topology"
ID = "kinds"
CONFIG = {
    "statestore.cache.max.bytes": "0",
    # The records are of 1970, and brokers delete windows by their age.
    "windowstore.changelog.additional.retention.ms": "3000000000000",
}
KEYS = [f"key-{number}".encode() for number in range(9)]


def load(scene: Scene, first: int) -> None:
    """Three rounds of records."""
    for number in range(first, first + 3):
        at = number * MINUTE_MS
        for topic in (NAMES, OTHERS):
            values = [f"{topic[5]}{(number + index) % 4}".encode() for index in range(len(KEYS))]
            scene._write(topic, KEYS, values, [at] * len(KEYS))
        scene._write(NAMES, KEYS[:1], [None], [at + 1])
        scene._write(WORDS, KEYS, [b"%d" % number] * len(KEYS), [at + 10 + index for index in range(len(KEYS))])


def run_live(scene: Scene, application_id: str) -> None:
    config = {
        "application.id": application_id,
        "bootstrap.servers": scene.servers,
        "state.dir": scene.state_dir(application_id),
        **CONFIG,
    }
    KafkaStreams(every_kind.topology, config).run(until="quiet", timeout_s=60, signals=False)


def computed(scene: Scene, name: str, application_id: str, store: str | None = None) -> Backfill:
    backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=application_id, config=CONFIG, store=store)
    backfill.run(InProcess())
    return backfill


def written(scene: Scene, topic: str, store: str) -> list[object]:
    # What is held back is logged with the time at which the plan was made.
    return [(*row[:4], *row[5:]) if store == HELD else row for row in records(scene, topic)]  # type: ignore[index]


def ends(scene: Scene) -> dict[tuple[str, int], int]:
    there = {name: each.partitions for name, each in scene.network.admin.topics().items() if not each.is_internal}
    wanted = {(name, index): LATEST for name, count in there.items() for index in range(count)}
    return {tp: at.offset for tp, at in scene.network.admin.list_offsets(wanted).items()}


SOME = ("held-store", "keys-of-names", "last", "released")


@pytest.mark.slow
@pytest.mark.parametrize(
    "stores", [pytest.param(SOME, id="some"), pytest.param(STORES, id="all", marks=pytest.mark.full)]
)
def test_each_store_is_rebuilt_as_a_whole_backfill_makes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, stores: Sequence[str]
) -> None:
    # Each task opens two dozen stores: fewer tasks are enough.
    monkeypatch.setattr(flights, "PARTITIONS", 2)
    scene.create_topics(WORDS, NAMES, OTHERS)
    load(scene, 0)
    for application_id in (ID, "live"):
        run_live(scene, application_id)
    computed(scene, "whole", "whole").commit()
    admin = scene.network.admin
    rebuilt = 0
    for store in stores:
        backfill = computed(scene, store, ID, store)
        (changelog,) = {
            each.changelog for task in backfill.status().plan.tasks for each in task.stores if each.name == store
        }
        assert changelog is not None
        rebuilt += scene.count(changelog) > 0
        admin.delete_topics([changelog])
        wait_until(lambda: not admin.topics([changelog]), "it is deleted")  # noqa: B023
        before = ends(scene)
        assert backfill.commit(state_dir=scene.state_dir(ID)).step == "done", store
        assert written(scene, changelog, store) == written(scene, changelog.replace(ID, "whole", 1), store), store
        assert {tp: end for tp, end in ends(scene).items() if tp[0] != changelog} == before, store
    assert rebuilt == len(stores), "each of them has rows"
    load(scene, 3)
    for application_id in (ID, "live"):
        run_live(scene, application_id)
    assert scene.stores(ID) == scene.stores("live")
