"""Topics of Faust applications, which each instance creates at its start if they are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic, TopicInfo
from streamsrt.config import StreamsConfig
from streamsrt.faust.creation import compact_windows, create_missing, create_topics, set_group_timeouts
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


def test_changelogs_of_windows_that_faust_has_created_become_compacted_only(network: NetworkThread) -> None:
    app = faust.App("windowed", broker="kafka://x")
    app.Table("per-minute", default=int).tumbling(60.0, expires=3600.0)
    app.Table("own", default=int, extra_topic_configs={"cleanup.policy": "compact,delete"}).tumbling(60.0)
    app.Table("plain", default=int)
    names = [f"windowed-{name}-changelog" for name in ("per-minute", "own", "plain")]
    as_of_faust = {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}
    for name in names:
        network.admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=1, configs=as_of_faust)])
    compact_windows(network.admin, app)
    found = network.admin.describe_topic_configs(names)
    assert [found[name]["cleanup.policy"] for name in names] == ["compact", "compact,delete", "compact,delete"]
    assert found[names[0]]["retention.ms"] == "3600000", "its other settings stay"


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_a_classic_group_has_no_timeouts_of_a_streams_group(
    network: NetworkThread, bundled_broker: BundledBroker, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """The session timeout of its members is a setting of each instance."""
    app = faust.App("untimed-classic", broker="kafka://x", broker_session_timeout=86_400)
    given = {"bootstrap.servers": bundled_broker.bootstrap_servers, "group.protocol": protocol}
    create_topics(app, StreamsConfig.of({**config(app), **given}))
    assert ("can't have the settings" in caplog.text) == (protocol == "auto")
