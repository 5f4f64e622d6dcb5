"""A history with records that go to a dead letter topic is replayed as it was live."""

from __future__ import annotations

import pytest

from examples import flights
from streamsrt.backfill import Backfill
from streamsrt.errors import MissingTopicError
from streamsrt.wire.records import encode_batch
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures

LETTERS = "letters"
CONFIG = {"deserialization.exception.handler": "continue", "errors.dead.letter.queue.topic.name": LETTERS}


def planned(scene: Scene, name: str, **options: object) -> Backfill:
    backfill = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
    backfill.plan(
        APPLICATION,
        bootstrap_servers=scene.servers,
        config=CONFIG,
        **options,  # type: ignore[arg-type]
    )
    return backfill


def load(scene: Scene) -> None:
    scene.load(departures(100))
    for partition in range(flights.PARTITIONS):
        scene.network.producer.send(flights.DEPARTURES, partition, encode_batch([b"k"], [b"no JSON"], [0]), 1)
    scene.network.producer.flush()


def test_letters_are_outputs_of_a_backfill_and_no_concern_of_a_repair(scene: Scene) -> None:
    scene.create_topics(LETTERS)
    load(scene)
    scene.run_live("live", **CONFIG)
    assert scene.count(LETTERS) == flights.PARTITIONS
    whole = planned(scene, "whole", application_id="whole")
    whole.run(InProcess())
    whole.commit()
    assert scene.count(LETTERS) == 2 * flights.PARTITIONS
    repair = planned(scene, "repair", application_id="live", store="delays-per-hour")
    repair.run(InProcess())
    assert scene.count(LETTERS) == 2 * flights.PARTITIONS


def test_a_plan_needs_the_topic_as_an_instance_does(scene: Scene) -> None:
    load(scene)
    scene.network.admin.delete_topics([LETTERS])
    with pytest.raises(MissingTopicError, match=LETTERS):
        planned(scene, "plan", application_id="whole")
