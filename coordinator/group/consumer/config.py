"""Settings of consumer groups: ``group.consumer.*`` of the broker, and ``consumer.*`` of single groups, which override
some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from coordinator.group.classic.config import ClassicConfig
from coordinator.group.consumer.assignor import PartitionAssignor
from coordinator.group.consumer.range_assignor import RangeAssignor
from coordinator.group.consumer.uniform import UniformAssignor
from coordinator.group.settings import INT32_MAX, InvalidConfigError, Ranges, Setting, check_ranges, integer, numbers_of


class MigrationPolicy(StrEnum):
    """Which groups may change between the classic and the consumer protocol while they have members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


ASSIGNORS: Mapping[str, PartitionAssignor] = {"uniform": UniformAssignor(), "range": RangeAssignor()}
NONE_PLUGGED: Mapping[str, PartitionAssignor] = {}
_JAVA_NAMES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
_ASSIGNORS = "group.consumer.assignors"
_POLICY = "group.consumer.migration.policy"

CONSUMER_SETTINGS: Mapping[str, Setting] = {
    "group.consumer.session.timeout.ms": Setting(
        "session_timeout_ms",
        45_000,
        1,
        documentation="A member of a consumer group that sends no heartbeat for this long is removed.",
    ),
    "group.consumer.min.session.timeout.ms": Setting(
        "min_session_timeout_ms", 45_000, 1, documentation="Minimum that a group may set."
    ),
    "group.consumer.max.session.timeout.ms": Setting(
        "max_session_timeout_ms", 60_000, 1, documentation="Maximum that a group may set."
    ),
    "group.consumer.heartbeat.interval.ms": Setting(
        "heartbeat_interval_ms", 5_000, 1, documentation="How often members send a heartbeat."
    ),
    "group.consumer.min.heartbeat.interval.ms": Setting(
        "min_heartbeat_interval_ms", 5_000, 1, documentation="Minimum that a group may set."
    ),
    "group.consumer.max.heartbeat.interval.ms": Setting(
        "max_heartbeat_interval_ms", 15_000, 1, documentation="Maximum that a group may set."
    ),
    "group.consumer.assignment.interval.ms": Setting(
        "assignment_interval_ms",
        1_000,
        documentation="Minimum time between two assignments.",
    ),
    "group.consumer.min.assignment.interval.ms": Setting(
        "min_assignment_interval_ms", 0, documentation="Minimum that a group may set."
    ),
    "group.consumer.max.assignment.interval.ms": Setting(
        "max_assignment_interval_ms", 15_000, documentation="Maximum that a group may set."
    ),
    "group.consumer.max.size": Setting("max_size", INT32_MAX, 1, documentation="Maximum number of members of a group."),
    _ASSIGNORS: Setting(
        "assignors", "uniform,range", documentation="Assignors that consumer groups may use, the default one first."
    ),
    _POLICY: Setting(
        "migration_policy",
        MigrationPolicy.BIDIRECTIONAL.value,
        documentation="Which groups may change between the classic and the consumer protocol while they have members.",
    ),
}
CONSUMER_GROUP_SETTINGS: Mapping[str, str] = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
_RANGES: Ranges = {
    "session_timeout_ms": ("min_session_timeout_ms", "max_session_timeout_ms"),
    "heartbeat_interval_ms": ("min_heartbeat_interval_ms", "max_heartbeat_interval_ms"),
    "assignment_interval_ms": ("min_assignment_interval_ms", "max_assignment_interval_ms"),
}


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """The settings in effect for one consumer group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The broker's settings of consumer groups and, by group id, those of single groups."""

    is_enabled: bool = True
    defaults: ConsumerGroupConfig = ConsumerGroupConfig()
    bounds: Mapping[str, int] = field(default_factory=lambda: numbers_of(CONSUMER_SETTINGS, {}))
    max_size: int = INT32_MAX
    assignors: Mapping[str, PartitionAssignor] = field(default_factory=lambda: ASSIGNORS)
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    resolved: Mapping[str, ConsumerGroupConfig] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        settings: Mapping[str, str],
        plugged: Mapping[str, PartitionAssignor] = NONE_PLUGGED,
        *,
        is_enabled: bool = True,
    ) -> ConsumerConfig:
        """Reads consumer groups' settings from the broker's. Raises InvalidConfigError.

        ``plugged``: assignors that the operator brings, by how the setting names them.
        """
        numbers = numbers_of(CONSUMER_SETTINGS, settings)
        check_ranges(CONSUMER_SETTINGS, _RANGES, numbers)
        return cls(
            is_enabled=is_enabled,
            defaults=ConsumerGroupConfig(**{name: numbers[name] for name in _RANGES}),
            bounds=numbers,
            max_size=numbers["max_size"],
            assignors=_assignors(settings.get(_ASSIGNORS, "uniform,range"), plugged),
            migration=_policy(settings.get(_POLICY, MigrationPolicy.BIDIRECTIONAL)),
        )

    def for_group(self, group_id: str) -> ConsumerGroupConfig:
        return self.resolved.get(group_id, self.defaults)

    def with_group(self, group_id: str, settings: Mapping[str, str]) -> ConsumerConfig:
        """Replaces the ``consumer.*`` settings of one group."""
        resolved = {name: used for name, used in self.resolved.items() if name != group_id}
        if settings:
            changes = dict(self._group_value(name, value) for name, value in settings.items())
            resolved[group_id] = replace(self.defaults, **changes)
        return replace(self, resolved=resolved)

    def _group_value(self, name: str, value: str) -> tuple[str, int]:
        attribute, number = CONSUMER_GROUP_SETTINGS[name], integer(name, value)
        least, most = (self.bounds[bound] for bound in _RANGES[attribute])
        if number < 0:
            raise InvalidConfigError(f"Invalid value {number} for configuration {name}: Value must be at least 0")
        if not least <= number <= most:
            raise InvalidConfigError(f"{name} must be in the range {least} to {most} inclusive.")
        return attribute, number


class NeededConfig(Protocol):
    """The settings that consumer groups use, including those for their classic members."""

    @property
    def classic(self) -> ClassicConfig: ...

    @property
    def consumer(self) -> ConsumerConfig: ...


def _assignors(text: str, plugged: Mapping[str, PartitionAssignor]) -> Mapping[str, PartitionAssignor]:
    """Returns the assignors of a list, by name, the default first."""
    known = {**ASSIGNORS, **plugged}
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name = _JAVA_NAMES.get(part, part)
        if name not in known:
            raise InvalidConfigError(
                f"{_ASSIGNORS}: '{part}' is not an assignor of this broker. Give one of {', '.join(ASSIGNORS)}, or "
                "package.module:Class."
            )
        found[known[name].name] = known[name]
    if not found:
        raise InvalidConfigError(f"{_ASSIGNORS} must name at least one of {', '.join(ASSIGNORS)}.")
    return found


def _policy(text: str) -> MigrationPolicy:
    try:
        return MigrationPolicy(text.strip().lower())
    except ValueError:
        allowed = ", ".join(MigrationPolicy)
        raise InvalidConfigError(f"{_POLICY} is '{text}', but must be one of {allowed}.") from None
