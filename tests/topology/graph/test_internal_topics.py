from __future__ import annotations

from typing import Any

import pytest

from topology import Store, StreamsBuilder, TimeWindows, Topology, serdes
from topology.graph.internal_topics import changelog_topic, repartition_topic
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.spec.windows import END_OF_TIME_MS

DAY_MS = 86_400_000


def test_changelog_of_a_key_value_store() -> None:
    topic = changelog_topic(StoreSpec(name="s"), {})
    assert (topic.name, topic.kind, topic.partitions) == ("s-changelog", "changelog", None)
    assert dict(topic.configs) == {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


def test_changelog_of_a_window_store() -> None:
    store = StoreSpec(name="w", kind="window", retention_ms=1000)
    configs = dict(changelog_topic(store, {}).configs)
    assert (configs["cleanup.policy"], configs["retention.ms"]) == ("compact,delete", str(DAY_MS + 1000))
    duplicates = StoreSpec(name="w", kind="window", retention_ms=1000, retain_duplicates=True)
    assert dict(changelog_topic(duplicates, {}).configs)["cleanup.policy"] == "delete"
    shorter = changelog_topic(store, {"windowstore.changelog.additional.retention.ms": 7})
    assert dict(shorter.configs)["retention.ms"] == "1007"


@pytest.mark.parametrize("kind", ["window", "session", "versioned"])
def test_a_store_that_keeps_everything_has_no_time_beyond_the_last_one(kind: Any) -> None:
    store = StoreSpec(name="w", kind=kind, retention_ms=END_OF_TIME_MS)
    configs = dict(changelog_topic(store, {}).configs)
    times = [int(value) for name, value in configs.items() if name in ("retention.ms", "min.compaction.lag.ms")]
    assert times == [END_OF_TIME_MS]


def test_settings_of_the_application_and_of_the_store() -> None:
    config = {"topic.retention.ms": 5, "topic.cleanup.policy": "delete", "topic.segment.bytes": 9, "client.id": "x"}
    window = StoreSpec(name="w", kind="window", retention_ms=1000)
    assert dict(changelog_topic(window, config).configs) == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": str(DAY_MS + 1000),
        "segment.bytes": "9",
    }
    own = StoreSpec(name="s", changelog_configs=(("segment.bytes", "1"), ("retention.ms", "2")))
    configs = dict(changelog_topic(own, config).configs)
    assert (configs["segment.bytes"], configs["retention.ms"]) == ("1", "2")
    assert dict(repartition_topic("r", 3, config).configs)["retention.ms"] == "5"


def test_repartition_topics_do_not_expire() -> None:
    topic = repartition_topic("r", 3, {})
    assert (topic.partitions, dict(topic.configs)["retention.ms"]) == (3, "-1")


def program() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by(max)
    grouped.windowed_by(TimeWindows(1000)).count(store=Store("c", in_memory=False))
    grouped.count(store="d")
    builder.add_state_store(Store("e"))
    builder.stream("in2").process(dict, stores=["e"])
    return builder.build()


def test_a_topology_takes_the_applications_configuration() -> None:
    plain = program()
    config = {"topic.segment.bytes": 5, "dsl.store.suppliers.class": "in_memory"}
    configured = plain.configured(config)
    topics = [t for s in configured.subtopologies for t in (*s.changelog_topics, *s.repartition_source_topics)]
    assert {t.name for t in topics} == {"c-changelog", "d-changelog", "e-changelog", "c-repartition", "d-repartition"}
    assert {dict(t.configs)["segment.bytes"] for t in topics} == {"5"}
    persistent = {store.name: store.persistent for s in configured.subtopologies for store in s.stores}
    assert persistent == {"c": True, "d": False, "e": True}
    assert configured.configured({"client.id": "x"}) == configured
    again = configured.configured({"topic.segment.bytes": 6, "dsl.store.suppliers.class": "rocksDB"})
    topics = [t for s in again.subtopologies for t in (*s.changelog_topics, *s.repartition_source_topics)]
    assert {dict(t.configs)["segment.bytes"] for t in topics} == {"6"}
    assert all(store.persistent for s in again.subtopologies for store in s.stores)


def test_building_with_a_configuration_is_the_same() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="c")
    config = {
        "topic.segment.bytes": 5,
        "dsl.store.suppliers.class": "org.x.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
    }
    built = builder.build(config)
    assert built == builder.build().configured(config)
    assert not built.subtopologies[0].stores[0].persistent


def test_internal_names_have_the_application_in_front() -> None:
    assert internal_topic_name("app", "c-changelog") == "app-c-changelog"


def test_a_changelog_keeps_all_that_its_store_answers_for() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=serdes.string, value=serdes.string).group_by_key()
    minute_ms, week_ms = 60_000, 7 * 86_400_000
    words.windowed_by(TimeWindows(minute_ms, grace=minute_ms)).count(store=Store("long", retention=week_ms))
    (subtopology,) = builder.build().subtopologies
    (changelog,) = subtopology.changelog_topics
    # Size, grace and a day, as of a supplier in Kafka Streams, would lose five of these days when it is restored.
    assert dict(changelog.configs)["retention.ms"] == str(week_ms + 86_400_000)
