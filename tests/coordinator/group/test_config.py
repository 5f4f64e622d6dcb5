"""Settings of the group coordinator: names, defaults, bounds, and what groups override."""

from __future__ import annotations

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.settings import InvalidConfigError


@pytest.mark.requirement("SG-255", "SG-258", "SG-262", "SG-263", "SG-265", "SG-267", "SG-269")
def test_defaults_are_kafkas() -> None:
    config = GroupConfig.parse({}).for_group("any")
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (45_000, 5_000)
    assert (config.num_standby_replicas, config.num_warmup_replicas) == (0, 2)
    assert (config.acceptable_recovery_lag, config.task_offset_interval_ms) == (10_000, 60_000)
    assert (config.initial_rebalance_delay_ms, config.assignment_interval_ms) == (3_000, 1_000)
    assert config.assignor_name is None


@pytest.mark.requirement("SG-183", "SG-256", "SG-257", "SG-259", "SG-260", "SG-264", "SG-266", "SG-268", "SG-270")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group.streams.session.timeout.ms": "44999"}, "must be in the range 45000"),
        ({"group.streams.session.timeout.ms": "60001"}, "to 60000"),
        (
            {"group.streams.session.timeout.ms": "5000", "group.streams.min.session.timeout.ms": "5000"},
            r"must be greater than group.streams.heartbeat.interval.ms (5000)",
        ),
        ({"group.streams.heartbeat.interval.ms": "4999"}, "must be in the range 5000"),
        ({"group.streams.heartbeat.interval.ms": "15001"}, "to 15000"),
        (
            {"group.streams.min.session.timeout.ms": "70000"},
            "must not be greater than group.streams.max.session.timeout.ms",
        ),
        ({"group.streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas allows 2 at most"),
        ({"group.streams.num.warmup.replicas": "21"}, "group.streams.max.warmup.replicas allows 20 at most"),
        (
            {"group.streams.task.offset.interval.ms": "14999"},
            "group.streams.min.task.offset.interval.ms asks for 15000",
        ),
        ({"group.streams.num.standby.replicas": "-1"}, "it must be in 0 to 2147483647"),
        ({"group.streams.num.standby.replicas": "many"}, "Invalid value many"),
        ({"group.streams.assignor.name": "best"}, "Registered assignors are: [highly_available, sticky]."),
        (
            {"group.streams.assignor.name": "my.module:Assignor"},
            "Registered assignors are: [highly_available, sticky].",
        ),
        ({"group.streams.sesion.timeout.ms": "1"}, "Did you mean group.streams.session.timeout.ms?"),
    ],
)
def test_a_broker_setting_that_is_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        GroupConfig.parse(settings)
    assert text in str(refused.value)


@pytest.mark.requirement("SG-271", "SG-272", "SG-273", "SG-274", "SG-275", "SG-276", "SG-277", "SG-281")
def test_a_group_overrides_the_broker() -> None:
    settings = {
        "streams.session.timeout.ms": "50000",
        "streams.heartbeat.interval.ms": "6000",
        "streams.acceptable.recovery.lag": "5",
        "streams.num.warmup.replicas": "1",
        "streams.num.standby.replicas": "2",
        "streams.task.offset.interval.ms": "15000",
        "streams.assignor.name": "sticky",
    }
    broker = GroupConfig.parse({})
    config = broker.with_group("g", settings)
    own, other = config.for_group("g"), config.for_group("h")
    assert (own.session_timeout_ms, own.heartbeat_interval_ms, own.acceptable_recovery_lag) == (50_000, 6_000, 5)
    assert (own.num_warmup_replicas, own.num_standby_replicas, own.task_offset_interval_ms) == (1, 2, 15_000)
    assert own.assignor_name == "sticky"
    assert other == broker.for_group("g") == config.with_group("g", {}).for_group("g")
    assert config.describe_group("g")["streams.session.timeout.ms"] == ("50000", True)
    assert config.describe_group("g")["streams.initial.rebalance.delay.ms"] == ("3000", False)


@pytest.mark.requirement("SG-279")
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "streams.heartbeat.interval.ms",
            "100",
            "streams.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
        ),
        (
            "streams.session.timeout.ms",
            "1000",
            "streams.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        ("streams.num.standby.replicas", "3", "streams.num.standby.replicas must be less than or equal to 2"),
        (
            "streams.num.standby.replicas",
            "-1",
            "Invalid value -1 for configuration streams.num.standby.replicas: Value must be at least 0",
        ),
        (
            "streams.assignor.name",
            "nosuch",
            "streams.assignor.name 'nosuch' is not a registered task assignor. Registered assignors are: "
            "[highly_available, sticky].",
        ),
        (
            "streams.assignment.interval.ms",
            "99999",
            "streams.assignment.interval.ms must be in the range 0 to 15000 inclusive.",
        ),
        ("streams.no.such", "1", "Unknown group config name: streams.no.such"),
        (
            "streams.session.timeout",
            "1",
            "Unknown group config name: streams.session.timeout Did you mean streams.session.timeout.ms?",
        ),
    ],
)
def test_a_group_setting_that_is_refused_in_kafkas_words(name: str, value: str, text: str) -> None:
    config = GroupConfig.parse({})
    with pytest.raises(InvalidConfigError) as refused:
        config.with_group("g", {"streams.num.warmup.replicas": "1", name: value})
    assert str(refused.value) == text


@pytest.mark.requirement("SG-280")
def test_stored_settings_outside_of_new_bounds_are_used_as_the_bound() -> None:
    stored = {
        "streams.session.timeout.ms": "60000",
        "streams.heartbeat.interval.ms": "6000",
        "streams.num.standby.replicas": "2",
        "streams.task.offset.interval.ms": "20000",
        "streams.assignor.name": "gone",
        "consumer.session.timeout.ms": "60000",
    }
    tight = {
        "group.streams.max.session.timeout.ms": "50000",
        "group.streams.max.standby.replicas": "1",
        "group.streams.min.task.offset.interval.ms": "30000",
        "group.consumer.max.session.timeout.ms": "50000",
    }
    config, warnings = GroupConfig.parse(tight).with_stored_group("g", stored)
    used = config.for_group("g")
    assert (used.session_timeout_ms, used.heartbeat_interval_ms, used.num_standby_replicas) == (50_000, 6_000, 1)
    assert (used.task_offset_interval_ms, used.assignor_name) == (30_000, None)
    assert config.consumer.for_group("g").session_timeout_ms == 50_000
    assert [warning.split(" is no longer")[0] for warning in warnings] == [
        "group g: streams.session.timeout.ms=60000",
        "group g: streams.num.standby.replicas=2",
        "group g: streams.task.offset.interval.ms=20000",
        "group g: streams.assignor.name=gone",
        "group g: consumer.session.timeout.ms=60000",
    ]
    # Wider bounds again, and the stored values are back.
    assert (
        GroupConfig.parse({}).with_stored_group("g", config.groups["g"])[0].for_group("g").session_timeout_ms == 60_000
    )
