"""Topics of Faust applications, which each instance creates at its start if they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic, TopicInfo
from streamsrt.faust.creation import create_missing
from streamsrt.faust.reading import DeclaredTopic
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.faust.needed import require_faust

require_faust()


class Overtaken:
    """The requests of an instance that looks before another one has created the topics."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def topics(self, names: object) -> Mapping[str, TopicInfo]:
        return {}

    def create_topics(self, topics: list[NewTopic]) -> Mapping[str, Any]:
        answers: Mapping[str, Any] = self._admin.create_topics(topics)
        return answers


def test_topics_that_another_instance_has_just_created_are_taken(bundled_broker: BundledBroker) -> None:
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    try:
        wanted = [DeclaredTopic("overtaken-1", 2, 1, {}), DeclaredTopic("overtaken-2", 2, 1, {})]
        create_missing(network.admin, wanted[:1])
        create_missing(Overtaken(network.admin), wanted)  # type: ignore[arg-type]
        assert set(network.admin.topics(["overtaken-1", "overtaken-2"])) == {"overtaken-1", "overtaken-2"}
    finally:
        network.stop()
