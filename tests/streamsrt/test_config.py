"""Settings: known keys in both forms, values as text and as Python values, and mistakes that are named."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import ValidationError

from coordinator.broker.config_definitions import TOPIC_CONFIGS
from streamsrt.config import _INTS, _OF_THE_GROUP, StreamsConfig, known_keys
from streamsrt.errors import ConfigError
from streamsrt.runtime.assembly import client_config, leader_settings, topology_settings
from streamsrt.wire.topic_settings import TOPIC_SETTINGS, meant_setting
from topology import serdes

APP = {"application.id": "app"}
ROOT = Path(__file__).parents[2]


def test_only_the_application_id_has_to_be_given() -> None:
    config = StreamsConfig.of(APP)
    assert config.application_id == "app"
    assert config.bootstrap_servers == "127.0.0.1:9092"
    assert config.processing_guarantee == "at_least_once"
    with pytest.raises(ConfigError, match=r"application\.id is missing: set it in the configuration or"):
        StreamsConfig.of({})


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that nothing reads is accepted and shown, and changes nothing."""
    files = [path for name in ("streamsrt", "topology") for path in (ROOT / name).rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in StreamsConfig.model_fields if not re.search(rf"[.\"]{name}\b", text)] == []


def test_both_forms_of_a_key_are_the_same_key() -> None:
    assert StreamsConfig.of(APP, {"commit.interval.ms": 7}) == StreamsConfig.of(APP, commit_interval_ms=7)
    assert StreamsConfig.of({"application_id": "app", "commit_interval_ms": 7}).commit_interval_ms == 7


def test_later_sources_win() -> None:
    first = StreamsConfig.of(APP, {"commit.interval.ms": 1, "linger.ms": 1, "topic.segment.bytes": "9"})
    merged = StreamsConfig.of(first, {"linger_ms": 2}, {"linger.ms": 3})
    assert (merged.commit_interval_ms, merged.linger_ms) == (1, 3)
    assert merged.topic_configs == {"segment.bytes": "9"}
    assert StreamsConfig.of(first, commit_interval_ms=None) == first


@pytest.mark.parametrize("name", [name for name in StreamsConfig.model_fields if name.endswith("_ms")])
def test_each_duration_may_be_a_timedelta(name: str) -> None:
    beside = {"session_timeout_ms": 7_200_000, "transaction_timeout_ms": 7_200_000}
    config = StreamsConfig.of(APP, {**beside, name: timedelta(hours=1)})
    assert getattr(config, name) == 3_600_000


def test_values_may_be_text_durations_or_numbers() -> None:
    config = StreamsConfig.of(
        APP,
        {
            "commit.interval.ms": " 250 ",
            "max.poll.interval.ms": timedelta(minutes=2),
            "state.dir": "/tmp/x",
            "ssl.check.hostname": "false",
        },
    )
    assert config.commit_interval_ms == 250
    assert config.max_poll_interval_ms == 120_000
    assert config.state_dir == Path("/tmp/x")
    assert config.ssl_check_hostname is False


@pytest.mark.parametrize("mistyped", [{"topic.retention.msx": 5}, {"topic.configs": {"retention.msx": 5}}])
def test_a_mistyped_setting_of_internal_topics_is_refused_with_what_was_meant(mistyped: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown setting 'topic\.retention\.msx': did you mean 'topic\.retention\.ms'\?"
    ):
        StreamsConfig.of(APP, mistyped)


def test_settings_of_other_brokers_topics_are_left_to_the_cluster() -> None:
    theirs = {"confluent.tier.enable": "true", "redpanda.remote.read": "true", "retention.local.target.ms": "5"}
    config = StreamsConfig.of(APP, {f"topic.{key}": value for key, value in theirs.items()})
    assert config.topic_configs == theirs


def test_every_setting_of_the_bundled_brokers_topics_is_known() -> None:
    assert TOPIC_CONFIGS.keys() < TOPIC_SETTINGS
    assert all(meant_setting(key) is None for key in TOPIC_SETTINGS)


def test_keys_with_prefixes() -> None:
    config = StreamsConfig.of(
        APP, {"topic.retention.ms": 5, "topic.segment.bytes": "6", "client.tag.zone": "a", "client.tag.row": 1}
    )
    assert config.topic_configs == {"retention.ms": "5", "segment.bytes": "6"}
    assert config.client_tags == {"zone": "a", "row": "1"}
    settings = topology_settings(config)
    assert settings["topic.retention.ms"] == "5"
    assert settings["topic.segment.bytes"] == "6"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("comit.interval.ms", "commit.interval.ms"),
        ("bootstrap.server", "bootstrap.servers"),
        ("state_directory", "state.dir"),
        ("auto.offset.rest", "auto.offset.reset"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as raised:
        StreamsConfig.of(APP, {key: 1})
    assert str(raised.value) == f"unknown setting {key!r}: did you mean {nearest!r}?"
    assert raised.value.exit_code == 2


def test_an_unknown_key_that_is_like_no_other_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting 'zzzzzzzz'$"):
        StreamsConfig.of(APP, {"zzzzzzzz": 1})


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        StreamsConfig.of({"commit.interval.ms": "soon", "lingerms": 1})
    for part in ("application.id is missing", "commit.interval.ms='soon'", "did you mean 'linger.ms'?"):
        assert part in str(raised.value)


def test_every_number_has_the_bounds_of_its_type() -> None:
    numbers = [
        key
        for key, field in StreamsConfig.model_fields.items()
        if field.annotation in (int, int | None) and key != "num_standby_replicas"
    ]
    assert len(numbers) > 30
    for key in numbers:
        with pytest.raises(ConfigError, match=r"is too large: it is a|at most 256 stream threads"):
            StreamsConfig.of(APP, {key: str(1 << 63)})
        with pytest.raises(ConfigError, match="greater than or equal"):
            StreamsConfig.of(APP, {key: str(-(1 << 63) - 1)})
    assert StreamsConfig.of(APP, commit_interval_ms=(1 << 63) - 1).commit_interval_ms == (1 << 63) - 1
    assert {key.replace(".", "_") for key in _INTS} <= set(numbers)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"processing.guarantee": "exactly_once_v2", "isolation.level": "read_uncommitted"},
            "exactly_once_v2 needs isolation.level=read_committed",
        ),
        ({"http.listen": "8080"}, "http.listen=8080: expected HOST:PORT, such as 127.0.0.1:8080"),
        ({"http.listen": ":9000"}, "http.listen=:9000: expected HOST:PORT, such as 127.0.0.1:9000"),
        (
            {"errors.dead.letter.queue.topic.name": "bad topic!"},
            "errors.dead.letter.queue.topic.name='bad topic!' can't be the name of a topic",
        ),
        ({"http.listen": "here"}, "http.listen=here: expected HOST:PORT, such as 127.0.0.1:8080"),
        ({"group.protocol": "consumer"}, "group.protocol='consumer'"),
        (
            {"group.protocol": "classic", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 6_000},
            "heartbeat.interval.ms=6000 must be below session.timeout.ms=6000",
        ),
        ({"num.standby.replicas": 3}, "num.standby.replicas=3"),
        (
            {"application.id": "no spaces"},
            "application.id='no spaces' has other characters than letters (a-z, A-Z), digits, '.', '_' and '-'",
        ),
        ({"application.id": "shop "}, "application.id='shop ' has other characters than letters"),
        ({"application.id": "shop\n"}, r"application.id='shop\n' has other characters than letters"),
        ({"compression.type": "rar"}, "compression.type='rar'"),
        ({"group.instance.id": ""}, "group.instance.id=''"),
        ({"num.stream.threads": "257"}, "at most 256 stream threads, each a process of its own. Start more instances"),
        ({"commit.interval.ms": "9" * 20}, f"commit.interval.ms={'9' * 20} is too large: it is a long, at most"),
        (
            {"session.timeout.ms": 1 << 31},
            "session.timeout.ms=2147483648 is too large: it is an int, at most 2147483647",
        ),
    ],
)
def test_what_can_not_be_done_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        StreamsConfig.of(APP, values)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("values", "record_caches", "rocksdb"),
    [
        ({}, 64, 64),
        ({"cache.max.bytes": 32 << 20}, 16, 16),
        ({"statestore.cache.max.bytes": 10 << 20}, 10, 64),
        ({"cache.max.bytes": 32 << 20, "statestore.cache.max.bytes": 4 << 20}, 4, 28),
        ({"statestore.cache.max.bytes": 0}, 0, 48),
        ({"cache.max.bytes": 8 << 20, "statestore.cache.max.bytes": 0}, 0, 6),
    ],
)
def test_one_budget_is_divided(values: dict[str, object], record_caches: int, rocksdb: int) -> None:
    config = StreamsConfig.of({"application.id": "a", **values})
    assert (config.record_cache_bytes >> 20, config.rocksdb_bytes >> 20) == (record_caches, rocksdb)
    assert config.uncommitted_bytes + config.rocksdb_bytes == config.memory_bytes


@pytest.mark.parametrize("key", ["sasl.password", "sasl_password", "ssl.key.password"])
@pytest.mark.parametrize("value", [12345678, ["hunter2-12345678"], {"a": "12345678"}, b"\xff12345678"])
def test_a_password_of_a_wrong_type_is_not_shown(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=r"password=\(not shown\): ") as mistake:
        StreamsConfig.of(APP, {key: value})
    assert "12345678" not in str(mistake.value)


def test_passwords_are_not_shown() -> None:
    class Provider:
        def __repr__(self) -> str:
            return "secret-3"

        async def token(self) -> str:
            return ""

    secrets = {"sasl.password": "secret-1", "ssl.key.password": "secret-2", "sasl.oauth.token.provider": Provider()}
    config = StreamsConfig.of(APP, secrets)
    assert "secret" not in repr(config)
    assert "secret" not in repr(client_config(config))


def test_the_network_gets_its_settings() -> None:
    config = client_config(
        StreamsConfig.of(
            APP,
            {
                "bootstrap.servers": "h:1",
                "fetch.max.wait.ms": 11,
                "max.partition.fetch.bytes": 4096,
                "delivery.timeout.ms": 12,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
            },
        )
    )
    assert config.bootstrap_servers == "h:1"
    assert config.client_id == "streamsrt-app"
    assert (config.fetch.max_wait_ms, config.fetch.max_partition_bytes) == (11, 4096)
    assert config.producer.delivery_timeout_ms == 12
    assert (config.security.protocol, config.security.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")


def test_every_key_is_known_in_kafkas_form() -> None:
    keys = known_keys()
    assert {"application.id", "commit.interval.ms", "statestore.cache.max.bytes", "task.timeout.ms"} <= set(keys)
    assert all("_" not in key for key in keys)


@pytest.mark.parametrize("key", ["client.tags", "client_tags", "topic.configs", "topic_configs"])
def test_settings_below_a_prefix_are_given_as_a_mapping(key: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is a mapping of keys to values, not of type int: give (topic|client\.tag)\.KEY=VALUE"
    ):
        StreamsConfig.of(APP, {key: 0})


@given(st.text(max_size=20).filter(lambda key: key.replace("_", ".") not in known_keys()), st.integers())
def test_any_other_key_gives_a_config_error_and_nothing_else(key: str, value: int) -> None:
    of_mappings = {"topic.configs", "client.tags", "app.configs"}
    if key.startswith(("topic.", "client.tag.", "app.")) or key.replace("_", ".") in of_mappings:
        return
    if key in _OF_THE_GROUP:
        return
    with pytest.raises(ConfigError, match="unknown setting"):
        StreamsConfig.of(APP, {key: value})


@pytest.mark.requirement("SG-285", "SG-287")
@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("acceptable.recovery.lag", "set streams.acceptable.recovery.lag of the group"),
        ("max.warmup.replicas", "set streams.num.warmup.replicas of the group"),
        ("task.assignor.class", "set streams.assignor.name of the group"),
        ("rack.aware.assignment.tags", "set streams.rack.aware.assignment.tags of the group"),
        ("session.timeout.ms", "set streams.session.timeout.ms of the group"),
        ("heartbeat.interval.ms", "set streams.heartbeat.interval.ms of the group"),
        ("probing.rebalance.interval.ms", "there is no such setting"),
    ],
)
def test_what_the_group_coordinator_decides_has_no_effect(
    caplog: pytest.LogCaptureFixture, key: str, instead: str
) -> None:
    streams = {"application.id": "a", "group.protocol": "streams"}
    assert StreamsConfig.of({**streams, key: "7"}) == StreamsConfig.of(streams)
    assert f"{key} has no effect: the group coordinator decides; {instead}" in caplog.text


@pytest.mark.requirement("SG-286")
@pytest.mark.parametrize("protocol", [{"group.protocol": "classic"}, {"group.protocol": "auto"}, {}])
def test_the_members_of_a_classic_group_decide_it_themselves(
    protocol: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    config = StreamsConfig.of(
        {
            "application.id": "a",
            **protocol,
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "acceptable.recovery.lag": "7",
            "max.warmup.replicas": "3",
            "probing.rebalance.interval.ms": "60000",
            "rack.aware.assignment.tags": "zone, rack",
            "task.assignor.class": "x",
        }
    )
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (6_000, 500)
    assert StreamsConfig.of(config) == config
    settings = leader_settings(config)
    assert (settings.num_warmup_replicas, settings.acceptable_recovery_lag) == (3, 7)
    assert (settings.probing_interval_ms, settings.rack_tags) == (60_000, ("zone", "rack"))
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["task.assignor.class"]


@pytest.mark.parametrize("key", ["default.key.serde", "default_value_serde"])
@pytest.mark.parametrize(
    ("setting", "serde"),
    [
        ("string", serdes.string),
        (" long ", serdes.long),
        ("json", serdes.json),
        ("org.apache.kafka.common.serialization.Serdes$StringSerde", serdes.string),
        ("Serdes$ByteArraySerde", serdes.bytes),
        ("Serdes$BytesSerde", serdes.bytes),
        ("Serdes$UUIDSerde", serdes.uuid),
        (serdes.double, serdes.double),
        (None, None),
    ],
)
def test_default_serdes_are_objects_or_names(key: str, setting: object, serde: object) -> None:
    config = StreamsConfig.of({"application.id": "a", key: setting})
    assert (config.default_key_serde if "key" in key else config.default_value_serde) is serde


@pytest.mark.parametrize("key", ["default.key.serde", "default.value.serde"])
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "strings",
            "'strings' does not name a serde: did you mean 'string'? Give one of boolean, bytes, double, float, ",
        ),
        ("avro", "'avro' does not name a serde: give one of boolean, bytes, "),
        ("Serdes$ListSerde", "does not name a serde"),
        ("bytearray", "does not name a serde"),
        (7, "7 is not a serde: give one of topology.serdes"),
        (serdes.CallableSerde, "is not a serde"),
    ],
)
def test_what_is_no_serde_is_refused(key: str, setting: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=.*{re.escape(said)}"):
        StreamsConfig.of({"application.id": "a", key: setting})


def test_settings_by_their_names() -> None:
    given = {"application_id": "a", "topic.retention.ms": 5, "client.tag.zone": "z", "app.limit": 3}
    config = StreamsConfig.of(given, {"app_configs": {"mode": "x"}}, linger_ms=timedelta(seconds=1))
    assert config.settings(only_given=True) == {
        "application.id": "a",
        "linger.ms": 1000,
        "topic.retention.ms": "5",
        "client.tag.zone": "z",
        "app.limit": 3,
        "app.mode": "x",
    }
    assert config.settings()["num.stream.threads"] == 1
    assert set(config.settings()) >= set(known_keys())
    assert StreamsConfig.of(config).settings() == config.settings()


def test_a_secret_of_a_wrong_type_is_not_shown_by_the_constructor_either() -> None:
    with pytest.raises(ValidationError) as raised:
        StreamsConfig.model_validate({"application.id": "a", "sasl.password": 12345424242})
    assert "12345424242" not in str(raised.value)
    assert "sasl.password" in str(raised.value)
