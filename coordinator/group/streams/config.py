"""Settings of streams groups: those that hold for one group, and what its machine asks of all settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordinator.group.classic.config import ClassicConfig
from coordinator.group.consumer.config import ConsumerConfig
from streamsrt.assignment.assignor import AssignorSettings


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """The settings in effect for one streams group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    num_standby_replicas: int = 0
    num_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10_000
    task_offset_interval_ms: int = 60_000
    initial_rebalance_delay_ms: int = 3_000
    assignment_interval_ms: int = 1_000
    assignor_name: str | None = None
    rack_tags: tuple[str, ...] = ()

    @property
    def assignor_settings(self) -> AssignorSettings:
        return AssignorSettings(
            num_standby_replicas=self.num_standby_replicas,
            num_warmup_replicas=self.num_warmup_replicas,
            acceptable_recovery_lag=self.acceptable_recovery_lag,
            rack_tags=self.rack_tags,
            assignor_name=self.assignor_name,
        )

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """Returns settings whose change requires a new assignment, as in the group's metadata record.

        Apache Kafka writes the standby tasks only; the others are there where they are not what they are by default.
        """
        every = (
            ("acceptable.recovery.lag", str(self.acceptable_recovery_lag), "10000"),
            ("assignor.name", self.assignor_name or "", ""),
            ("num.standby.replicas", str(self.num_standby_replicas), None),
            ("num.warmup.replicas", str(self.num_warmup_replicas), "2"),
            ("rack.aware.assignment.tags", ",".join(self.rack_tags), ""),
        )
        return tuple((name, value) for name, value, default in every if value != default)


class NeededConfig(Protocol):
    """The settings that streams groups go by. The others are for their members of the classic protocol, and for changes
    between the two protocols."""

    @property
    def streams_enabled(self) -> bool: ...

    @property
    def max_size(self) -> int: ...

    @property
    def classic(self) -> ClassicConfig: ...

    @property
    def consumer(self) -> ConsumerConfig: ...

    def for_group(self, group_id: str) -> StreamsGroupConfig: ...
