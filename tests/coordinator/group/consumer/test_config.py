"""Settings of consumer groups: names, defaults, bounds, assignors, and what groups override."""

from __future__ import annotations

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.consumer.config import CONSUMER_SETTINGS, MigrationPolicy
from coordinator.group.settings import InvalidConfigError


@pytest.mark.requirement("CG-135", "CG-136", "CG-137", "CG-138", "CG-139", "CG-140", "CG-141", "CG-142")
def test_defaults_are_kafkas() -> None:
    assert {name.removeprefix("group.consumer."): each.default for name, each in CONSUMER_SETTINGS.items()} == {
        "session.timeout.ms": 45_000,
        "min.session.timeout.ms": 45_000,
        "max.session.timeout.ms": 60_000,
        "heartbeat.interval.ms": 5_000,
        "min.heartbeat.interval.ms": 5_000,
        "max.heartbeat.interval.ms": 15_000,
        "assignment.interval.ms": 1_000,
        "min.assignment.interval.ms": 0,
        "max.assignment.interval.ms": 15_000,
        "max.size": 2147483647,
        "assignors": "uniform,range",
        "migration.policy": "bidirectional",
    }
    config = GroupConfig.parse({}).consumer
    used = config.for_group("any")
    assert (used.session_timeout_ms, used.heartbeat_interval_ms, used.assignment_interval_ms) == (45_000, 5_000, 1_000)
    assert (config.max_size, list(config.assignors)) == (2147483647, ["uniform", "range"])
    assert config.migration is MigrationPolicy.BIDIRECTIONAL


@pytest.mark.requirement("CG-136", "CG-137", "CG-139", "CG-140", "CG-142")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"session.timeout.ms": "44999"}, "must be in the range 45000"),
        ({"session.timeout.ms": "60001"}, "to 60000"),
        ({"heartbeat.interval.ms": "4999"}, "must be in the range 5000"),
        ({"heartbeat.interval.ms": "15001"}, "to 15000"),
        ({"min.session.timeout.ms": "70000"}, "must not be greater than group.consumer.max.session.timeout.ms"),
        ({"max.size": "0"}, "it must be in 1 to"),
        ({"max.size": "many"}, "Not a number of type INT"),
        ({"assignors": "uniform,sticky"}, "'sticky' is not an assignor of this broker. Give one of uniform, range"),
        ({"assignors": " "}, "must name at least one of uniform, range"),
        ({"migration.policy": "both"}, "must be one of disabled, upgrade, downgrade, bidirectional"),
        ({"max.sizes": "1"}, "Did you mean group.consumer.max.size?"),
    ],
)
def test_a_mistake_is_named(settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text.replace("?", r"\?")):
        GroupConfig.parse({f"group.consumer.{name}": value for name, value in settings.items()})


@pytest.mark.requirement("CG-142")
def test_assignors_by_javas_names_and_in_order() -> None:
    java = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    assert list(GroupConfig.parse({"group.consumer.assignors": f"{java}, uniform"}).consumer.assignors) == [
        "range",
        "uniform",
    ]


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("UPGRADE", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_migration_policies(policy: str, upgrades: bool, downgrades: bool) -> None:
    migration = GroupConfig.parse({"group.consumer.migration.policy": policy}).consumer.migration
    assert (migration.upgrades, migration.downgrades) == (upgrades, downgrades)


@pytest.mark.requirement("CG-143")
def test_a_group_overrides_the_broker() -> None:
    broker = GroupConfig.parse({})
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    config = broker.with_group("g", {**own, "streams.num.standby.replicas": "1"})
    used = config.consumer.for_group("g")
    assert (used.session_timeout_ms, used.heartbeat_interval_ms, used.assignment_interval_ms) == (50_000, 6_000, 1_000)
    assert config.for_group("g").num_standby_replicas == 1
    assert config.consumer.for_group("h") == config.with_group("g", {}).consumer.for_group("g")
    described = config.describe_group("g")
    assert described["consumer.session.timeout.ms"] == ("50000", True)
    assert described["consumer.assignment.interval.ms"] == ("1000", False)


@pytest.mark.requirement("CG-143")
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("consumer.session.timeout.ms", "44999", "consumer.session.timeout.ms must be in the range 45000 to 60000"),
        ("consumer.heartbeat.interval.ms", "15001", "must be in the range 5000 to 15000 inclusive."),
        ("consumer.assignment.interval.ms", "-1", "Value must be at least 0"),
        ("consumer.session.timeout.ms", "long", "Not a number of type INT"),
        ("consumer.sesion.timeout.ms", "1", "Did you mean consumer.session.timeout.ms"),
    ],
)
def test_a_mistake_in_a_groups_settings(name: str, value: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        GroupConfig.parse({}).with_group("g", {name: value})
