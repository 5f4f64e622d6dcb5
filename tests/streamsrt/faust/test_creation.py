"""Topics of Faust applications, which each instance creates at its start if they are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic, TopicInfo
from streamsrt.config import StreamsConfig
from streamsrt.faust.creation import create_missing, set_group_timeouts
from streamsrt.faust.reading import DeclaredTopic
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import config  # noqa: E402


class Overtaken:
    """The requests of an instance that looks before another one has created the topics."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def topics(self, names: object) -> Mapping[str, TopicInfo]:
        return {}

    def create_topics(self, topics: list[NewTopic]) -> Mapping[str, Any]:
        answers: Mapping[str, Any] = self._admin.create_topics(topics)
        return answers


@pytest.fixture
def network(bundled_broker: BundledBroker) -> Iterator[NetworkThread]:
    started = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    started.start()
    yield started
    started.stop()


def settings_of_group(
    network: NetworkThread, app: faust.App, **given: str
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Those of the group before and after."""
    settings = StreamsConfig.of({**config(app), "bootstrap.servers": "localhost:1", **given})
    before = network.admin.describe_group_configs(settings.application_id)
    set_group_timeouts(network.admin, app, settings)
    return before, network.admin.describe_group_configs(settings.application_id)


def test_timeouts_of_faust_become_those_of_the_group(network: NetworkThread) -> None:
    app = faust.App("timed", broker="kafka://x", broker_session_timeout=7, broker_heartbeat_interval=2)
    _, after = settings_of_group(network, app)
    assert after["streams.session.timeout.ms"] == "7000"
    assert after["streams.heartbeat.interval.ms"] == "2000"
    _, after = settings_of_group(network, app, **{"session.timeout.ms": "8000"})
    assert after["streams.session.timeout.ms"] == "8000", "a setting of the runtime overrides it"


def test_an_application_that_sets_none_changes_nothing(network: NetworkThread) -> None:
    before, after = settings_of_group(network, faust.App("untimed", broker="kafka://x"))
    assert before == after


def test_a_timeout_that_the_cluster_refuses_is_a_warning(
    network: NetworkThread, caplog: pytest.LogCaptureFixture
) -> None:
    app = faust.App("refused", broker="kafka://x", broker_session_timeout=86_400)
    before, after = settings_of_group(network, app)
    assert before == after
    assert "refused: its group can't have the settings" in caplog.text


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
