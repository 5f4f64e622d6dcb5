from __future__ import annotations

from pathlib import Path

import pytest

import coordinator
from coordinator.broker.config_definitions import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    in_milliseconds,
    parse_configs,
    topic_defaults,
)
from coordinator.group.settings import InvalidConfigError


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " +5 ", 5),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_values(key: str, text: str, value: object) -> None:
    assert TOPIC_CONFIGS[key].parse(text) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("retention.ms", "1_000", "not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "not a number of type LONG"),
        ("retention.ms", "9" * 5000, "not a number of type LONG"),
        ("max.message.bytes", "2147483648", "not a number of type INT"),
        ("retention.ms", "-2", "must be at least -1"),
        ("segment.bytes", "13", "must be at least 14"),
        ("min.cleanable.dirty.ratio", "nan", "not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "inf", "not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1.5", "must be at most 1"),
        ("preallocate", "yes", "expected true or false"),
        ("cleanup.policy", "compact,purge", "expected one of delete, compact"),
    ],
)
def test_bounds(key: str, text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as refused:
        TOPIC_CONFIGS[key].parse(text)
    assert key in str(refused.value)
    assert len(str(refused.value)) < 400


def test_every_default_is_allowed_and_reads_back() -> None:
    for definition in (*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()):
        assert definition.parse(definition.render(definition.default)) == definition.default


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"Unknown topic config name: retention\.byte\. Did you mean retention\.bytes\?"
    ):
        parse_configs({"retention.byte": "1"}, TOPIC_CONFIGS, what="topic")
    with pytest.raises(InvalidConfigError, match=r"Unknown topic config name: zzz\.$"):
        parse_configs({"zzz": "1"}, TOPIC_CONFIGS, what="topic")


def test_a_topic_falls_back_to_the_brokers_setting_of_the_same_meaning() -> None:
    given = {"log.retention.ms": 5, "message.max.bytes": 7}
    defaults = topic_defaults(given)
    assert (defaults["retention.ms"], defaults["max.message.bytes"], defaults["segment.ms"]) == (5, 7, 604_800_000)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "2"}, {"log.retention.ms": "7200000"}),
        ({"log.retention.hours": "-1"}, {"log.retention.ms": "-1"}),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {"log.retention.ms": "180000"}),
        ({"log.retention.hours": "2", "log.retention.ms": "5"}, {"log.retention.ms": "5"}),
        ({"log.roll.hours": "1", "num.partitions": "3"}, {"log.roll.ms": "3600000", "num.partitions": "3"}),
    ],
)
def test_settings_in_minutes_and_hours(given: dict[str, str], expected: dict[str, str]) -> None:
    assert in_milliseconds(given) == expected


def test_hours_that_are_no_number() -> None:
    with pytest.raises(InvalidConfigError, match=r"log\.retention\.hours"):
        in_milliseconds({"log.retention.hours": "soon"})


WITHOUT_EFFECT = {
    *("file.delete.delay.ms", "flush.messages", "flush.ms", "min.insync.replicas", "preallocate"),
    *("segment.index.bytes", "segment.jitter.ms", "unclean.leader.election.enable"),
}
"""Settings of topics that are accepted for the sake of Kafka's tools, and documented as such in ``coordinator.broker``."""


def test_every_setting_is_read_by_somebody() -> None:
    tables = {"config_definitions.py", "kafka_settings.py", "__init__.py"}
    folder = Path(coordinator.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name not in tables)
    of_topics = {row.broker_key for row in TOPIC_CONFIGS.values()}
    unread = {key for key in {*TOPIC_CONFIGS, *(BROKER_CONFIGS.keys() - of_topics)} if f'"{key}"' not in text}
    assert unread == WITHOUT_EFFECT, "read it where it has its effect, or say that it has none"
