"""Settings of the group coordinator under Kafka's names, with Kafka's defaults and bounds.

Broker settings are ``group.streams.*``, ``group.consumer.*`` and, of classic groups, ``group.*``; a group overrides some
of them by dynamic settings ``streams.*`` and ``consumer.*`` of its own (``kafka-configs --entity-type groups``). Unknown
names and values out of bounds are refused with one message each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator.group.classic.config import CLASSIC_SETTINGS, ClassicConfig
from coordinator.group.consumer.assignor import PartitionAssignor
from coordinator.group.consumer.config import (
    CONSUMER_GROUP_SETTINGS,
    CONSUMER_SETTINGS,
    NONE_PLUGGED,
    ConsumerConfig,
)
from coordinator.group.settings import (
    INT32_MAX,
    InvalidConfigError,
    Ranges,
    Setting,
    check_ranges,
    integer,
    nearest,
    numbers_of,
)
from coordinator.group.streams.config import StreamsGroupConfig
from streamsrt.assignment.assignor import TASK_ASSIGNORS

__all__ = ["BROKER_SETTINGS", "GroupConfig", "InvalidConfigError"]

_OWN_SETTINGS: dict[str, Setting] = {
    "group.coordinator.rebalance.protocols": Setting(
        "rebalance_protocols", "classic,consumer,streams", documentation="Which protocols groups may use."
    ),
    "group.streams.session.timeout.ms": Setting(
        "session_timeout_ms",
        45_000,
        1,
        documentation="A member of a streams group that sends no heartbeat for this long is removed.",
    ),
    "group.streams.min.session.timeout.ms": Setting(
        "min_session_timeout_ms", 45_000, 1, documentation="Minimum that a group may set."
    ),
    "group.streams.max.session.timeout.ms": Setting(
        "max_session_timeout_ms", 60_000, 1, documentation="Maximum that a group may set."
    ),
    "group.streams.heartbeat.interval.ms": Setting(
        "heartbeat_interval_ms", 5_000, 1, documentation="How often members send a heartbeat."
    ),
    "group.streams.min.heartbeat.interval.ms": Setting(
        "min_heartbeat_interval_ms", 5_000, 1, documentation="Minimum that a group may set."
    ),
    "group.streams.max.heartbeat.interval.ms": Setting(
        "max_heartbeat_interval_ms", 15_000, 1, documentation="Maximum that a group may set."
    ),
    "group.streams.max.size": Setting("max_size", INT32_MAX, 1, documentation="Maximum number of members of a group."),
    "group.streams.num.standby.replicas": Setting(
        "num_standby_replicas", 0, documentation="Number of standby tasks of each stateful task."
    ),
    "group.streams.max.standby.replicas": Setting(
        "max_standby_replicas", 2, documentation="Maximum that a group may set."
    ),
    "group.streams.num.warmup.replicas": Setting(
        "num_warmup_replicas", 2, documentation="Maximum number of warm-up tasks at a time."
    ),
    "group.streams.max.warmup.replicas": Setting(
        "max_warmup_replicas", 20, documentation="Maximum that a group may set."
    ),
    "group.streams.acceptable.recovery.lag": Setting(
        "acceptable_recovery_lag",
        10_000,
        0,
        2**63 - 1,
        documentation="Maximum number of records left to restore for an instance to count as caught up.",
    ),
    "group.streams.task.offset.interval.ms": Setting(
        "task_offset_interval_ms",
        60_000,
        1,
        documentation="How often members report the changelog offsets of their tasks.",
    ),
    "group.streams.min.task.offset.interval.ms": Setting(
        "min_task_offset_interval_ms", 15_000, 1, documentation="Minimum that a group may set."
    ),
    "group.streams.initial.rebalance.delay.ms": Setting(
        "initial_rebalance_delay_ms",
        3_000,
        documentation="How long the first assignment of a new group waits for more members.",
    ),
    "group.streams.assignment.interval.ms": Setting(
        "assignment_interval_ms",
        1_000,
        documentation="Minimum time between two assignments.",
    ),
    "group.streams.min.assignment.interval.ms": Setting(
        "min_assignment_interval_ms", 0, documentation="Minimum that a group may set."
    ),
    "group.streams.max.assignment.interval.ms": Setting(
        "max_assignment_interval_ms", 15_000, documentation="Maximum that a group may set."
    ),
    "group.streams.assignor.name": Setting(
        "assignor_name", None, documentation="Name of the task assignor; empty: the default one."
    ),
    "offset.metadata.max.bytes": Setting(
        "offset_metadata_max_bytes",
        4096,
        documentation="Maximum size of the metadata that a client may store with a committed offset.",
    ),
}
BROKER_SETTINGS: dict[str, Setting] = {**_OWN_SETTINGS, **CLASSIC_SETTINGS, **CONSUMER_SETTINGS}

_GROUP_SETTINGS: dict[str, str] = {
    "streams.session.timeout.ms": "session_timeout_ms",
    "streams.heartbeat.interval.ms": "heartbeat_interval_ms",
    "streams.num.standby.replicas": "num_standby_replicas",
    "streams.num.warmup.replicas": "num_warmup_replicas",
    "streams.acceptable.recovery.lag": "acceptable_recovery_lag",
    "streams.task.offset.interval.ms": "task_offset_interval_ms",
    "streams.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "streams.assignment.interval.ms": "assignment_interval_ms",
    "streams.assignor.name": "assignor_name",
    "streams.rack.aware.assignment.tags": "rack_tags",
}

_RANGES: Ranges = {
    "session_timeout_ms": ("min_session_timeout_ms", "max_session_timeout_ms"),
    "heartbeat_interval_ms": ("min_heartbeat_interval_ms", "max_heartbeat_interval_ms"),
    "assignment_interval_ms": ("min_assignment_interval_ms", "max_assignment_interval_ms"),
}
_MAXIMA = {"num_standby_replicas": "max_standby_replicas", "num_warmup_replicas": "max_warmup_replicas"}
_MINIMA = {"task_offset_interval_ms": "min_task_offset_interval_ms"}


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Broker settings and, by group id, the settings of single groups. Immutable: ``with_group`` returns a new one."""

    broker: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: StreamsGroupConfig = field(default_factory=StreamsGroupConfig)
    bounds: Mapping[str, int] = field(default_factory=lambda: numbers_of(_OWN_SETTINGS, {}))
    max_size: int = INT32_MAX
    offset_metadata_max_bytes: int = 4096
    streams_enabled: bool = True
    resolved: Mapping[str, StreamsGroupConfig] = field(default_factory=dict)
    classic: ClassicConfig = field(default_factory=ClassicConfig)
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)

    @classmethod
    def parse(
        cls, settings: Mapping[str, str], assignors: Mapping[str, PartitionAssignor] = NONE_PLUGGED
    ) -> GroupConfig:
        """Reads broker settings. Raises InvalidConfigError with the setting, its value and the allowed ones.

        ``assignors``: those of consumer groups that the operator brings, by how the setting names them.
        """
        for name in settings:
            if name not in BROKER_SETTINGS:
                raise InvalidConfigError(f"Unknown config name: {name}.{nearest(name, BROKER_SETTINGS)}")
        numbers = numbers_of(_OWN_SETTINGS, settings)
        assignor = settings.get("group.streams.assignor.name")
        named = settings.get("group.coordinator.rebalance.protocols", "classic,consumer,streams")
        protocols = {part.strip() for part in named.split(",")}
        _check_broker_bounds(numbers)
        _check_assignor("group.streams.assignor.name", assignor)
        fields = {name: numbers[name] for name in _GROUP_SETTINGS.values() if name in numbers}
        return cls(
            broker=dict(settings),
            defaults=replace(StreamsGroupConfig(assignor_name=assignor), **fields),  # type: ignore[arg-type]
            bounds=numbers,
            max_size=numbers["max_size"],
            offset_metadata_max_bytes=numbers["offset_metadata_max_bytes"],
            streams_enabled="streams" in protocols,
            classic=ClassicConfig.parse(settings),
            consumer=ConsumerConfig.parse(settings, assignors, is_enabled="consumer" in protocols),
        )

    def for_group(self, group_id: str) -> StreamsGroupConfig:
        return self.resolved.get(group_id, self.defaults)

    def with_group(self, group_id: str, settings: Mapping[str, str]) -> GroupConfig:
        """Replaces the dynamic settings of one group; empty settings remove them.

        Raises InvalidConfigError in Kafka's words; nothing has changed then.
        """
        groups, resolved = dict(self.groups), dict(self.resolved)
        groups.pop(group_id, None)
        resolved.pop(group_id, None)
        for name in settings:
            if name not in _GROUP_SETTINGS and name not in CONSUMER_GROUP_SETTINGS:
                hint = nearest(name, {**_GROUP_SETTINGS, **CONSUMER_GROUP_SETTINGS})
                raise InvalidConfigError(f"Unknown group config name: {name}{hint}")
        own = {name: value for name, value in settings.items() if name in _GROUP_SETTINGS}
        if settings:
            groups[group_id] = dict(settings)
        if own:
            changes = dict(self._group_value(name, value) for name, value in own.items())
            resolved[group_id] = replace(self.defaults, **changes)  # type: ignore[arg-type]
        rest = {name: value for name, value in settings.items() if name not in own}
        return replace(self, groups=groups, resolved=resolved, consumer=self.consumer.with_group(group_id, rest))

    def with_stored_group(self, group_id: str, settings: Mapping[str, str]) -> tuple[GroupConfig, tuple[str, ...]]:
        """Replaces the settings of one group with stored ones, and returns warnings for those that are no longer valid.

        What the broker's bounds do not allow any more is used as the bound; what can't be used at all, as the default.
        """
        fitting: dict[str, str] = {}
        warnings = []
        for name, value in settings.items():
            used = self._fitting(name, value)
            if used is not None:
                fitting[name] = used
            if used != value:
                instead = "its default" if used is None else used
                warnings.append(f"group {group_id}: {name}={value} is no longer allowed: {instead} is used")
        made = self.with_group(group_id, fitting)
        return replace(made, groups={**made.groups, group_id: dict(settings)}), tuple(warnings)

    def _fitting(self, name: str, value: str) -> str | None:
        if self._is_allowed(name, value):
            return value
        attribute = _GROUP_SETTINGS.get(name) or CONSUMER_GROUP_SETTINGS.get(name, "")
        bounds = self.bounds if name in _GROUP_SETTINGS else self.consumer.bounds
        limits = [
            bounds[limit]
            for limit in (f"min_{attribute}", f"max_{attribute}", _MAXIMA.get(attribute, ""))
            if limit in bounds
        ]
        if not limits:
            return None
        try:
            nearest_limit = str(min(limits, key=lambda limit: abs(limit - int(value))))
        except ValueError:
            return None
        return nearest_limit if self._is_allowed(name, nearest_limit) else None

    def _is_allowed(self, name: str, value: str) -> bool:
        try:
            self.with_group("", {name: value})
        except InvalidConfigError:
            return False
        return True

    def describe_group(self, group_id: str) -> dict[str, tuple[str | None, bool]]:
        """Returns by dynamic setting: (value in use, whether the group itself sets it)."""
        own = self.groups.get(group_id, {})
        found: dict[str, tuple[str | None, bool]] = {}
        for table, used in (
            (_GROUP_SETTINGS, self.for_group(group_id)),
            (CONSUMER_GROUP_SETTINGS, self.consumer.for_group(group_id)),
        ):
            for name, attribute in table.items():
                value = getattr(used, attribute)
                text = ",".join(value) if isinstance(value, tuple) else value
                found[name] = (None if text is None else str(text), name in own)
        return found

    def _group_value(self, name: str, value: str) -> tuple[str, int | str | tuple[str, ...]]:
        """Returns the attribute of a dynamic setting and its value."""
        attribute = _GROUP_SETTINGS[name]
        if attribute == "assignor_name":
            _check_assignor(name, value)
            return attribute, value
        if attribute == "rack_tags":
            return attribute, tuple(tag for part in value.split(",") if (tag := part.strip()))
        number = integer(name, value)
        low = 0 if attribute != "task_offset_interval_ms" else 1
        if number < low:
            raise InvalidConfigError(f"Invalid value {number} for configuration {name}: Value must be at least {low}")
        if attribute in _RANGES:
            least, most = (self.bounds[bound] for bound in _RANGES[attribute])
            if not least <= number <= most:
                raise InvalidConfigError(f"{name} must be in the range {least} to {most} inclusive.")
        if attribute in _MAXIMA and number > self.bounds[_MAXIMA[attribute]]:
            raise InvalidConfigError(f"{name} must be less than or equal to {self.bounds[_MAXIMA[attribute]]}")
        if attribute in _MINIMA and number < self.bounds[_MINIMA[attribute]]:
            raise InvalidConfigError(f"{name} must be greater than or equal to {self.bounds[_MINIMA[attribute]]}")
        return attribute, number


def _check_broker_bounds(numbers: Mapping[str, int]) -> None:
    check_ranges(_OWN_SETTINGS, _RANGES, numbers)
    names = {setting.attribute: name for name, setting in _OWN_SETTINGS.items()}
    timeout_ms, interval_ms = numbers["session_timeout_ms"], numbers["heartbeat_interval_ms"]
    if timeout_ms <= interval_ms:
        raise InvalidConfigError(
            f"{names['session_timeout_ms']} is {timeout_ms}, but must be greater than {names['heartbeat_interval_ms']} "
            f"({interval_ms}): else members are removed between two of their heartbeats."
        )
    for attribute, most in _MAXIMA.items():
        if numbers[attribute] > numbers[most]:
            raise InvalidConfigError(
                f"{names[attribute]} is {numbers[attribute]}, but {names[most]} allows {numbers[most]} at most."
            )
    for attribute, least in _MINIMA.items():
        if numbers[attribute] < numbers[least]:
            raise InvalidConfigError(
                f"{names[attribute]} is {numbers[attribute]}, but {names[least]} asks for {numbers[least]} at least."
            )


def _check_assignor(name: str, value: str | None) -> None:
    if value is not None and value not in TASK_ASSIGNORS:
        raise InvalidConfigError(
            f"{name} '{value}' is not a registered task assignor. Registered assignors are: [{', '.join(TASK_ASSIGNORS)}]."
        )
