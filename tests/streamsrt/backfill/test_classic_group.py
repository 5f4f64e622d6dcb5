"""The hand-over into a classic group, over brokers of several versions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import HandOverError
from streamsrt.runtime.values import State
from streamsrt.tasks.input.offset_metadata import BackfillRunningError
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures, open_scene
from tests.streamsrt.backfill.test_handover import Interrupted, dies_at, expected_counts
from tests.system.processes import wait_until

CLASSIC = {
    "group.protocol": "classic",
    "processing.guarantee": "exactly_once_v2",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
}


@pytest.fixture
def on_any_version(any_version: str, tmp_path: Path) -> Iterator[Scene]:
    yield from open_scene(any_version, tmp_path)


def computed(scene: Scene, application_id: str, count: int) -> Backfill:
    scene.load(departures(count))
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id=application_id)
    backfill.run(InProcess())
    return backfill


def test_a_classic_group_takes_over_a_backfill_and_goes_on(on_any_version: Scene) -> None:
    scene, application_id = on_any_version, f"flights-{uuid.uuid4().hex[:8]}"
    backfill = computed(scene, application_id, 200)
    with pytest.raises(Interrupted):
        backfill.commit(
            state_dir=scene.state_dir(application_id), on_step=dies_at("marked delays-2"), transactions=True
        )
    with pytest.raises(BackfillRunningError, match="backfill commit --execute"):
        scene.run_live(application_id, **CLASSIC)
    assert backfill.commit(state_dir=scene.state_dir(application_id), transactions=True).step == "done"
    topics = (f"{application_id}-airlines-changelog", f"{application_id}-delays-per-hour-changelog", "delays")
    assert {topic: scene.count(topic) for topic in topics} == expected_counts(backfill)
    assert scene.run_live(application_id, **CLASSIC).progress.restored_records == 0
    scene.load(departures(100, start=4_000))
    scene.run_live(application_id, **CLASSIC)
    committed = scene.network.admin.committed(application_id)
    assert all(offset.offset == scene.ends(tp[0])[tp] for tp, offset in committed.items())
    # The same records to an application that read them all.
    live = f"live-{application_id}"
    scene.run_live(live, **CLASSIC)
    assert scene.stores(application_id) == scene.stores(live)


def test_a_classic_group_that_has_members_is_left_alone(on_any_version: Scene) -> None:
    scene, application_id = on_any_version, f"flights-{uuid.uuid4().hex[:8]}"
    backfill = computed(scene, application_id, 50)
    config = {"application.id": application_id, "bootstrap.servers": scene.servers, "state.dir": scene.state_dir("x")}
    with KafkaStreams(flights.topology, {**config, **CLASSIC}) as streams:
        wait_until(lambda: streams.state is State.RUNNING, "the instance runs")
        with pytest.raises(HandOverError, match="is running"):
            backfill.commit()
