"""Settings of classic groups, which are the same for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.group.settings import INT32_MAX, InvalidConfigError, Setting, numbers_of

CLASSIC_SETTINGS: dict[str, Setting] = {
    "group.min.session.timeout.ms": Setting(
        "min_session_timeout_ms",
        6_000,
        1,
        documentation="Minimum session timeout that a member of a classic group may set.",
    ),
    "group.max.session.timeout.ms": Setting(
        "max_session_timeout_ms",
        1_800_000,
        1,
        documentation="Maximum session timeout that a member of a classic group may set.",
    ),
    "group.initial.rebalance.delay.ms": Setting(
        "initial_rebalance_delay_ms",
        3_000,
        documentation="How long the first rebalance of an empty classic group waits for more members.",
    ),
    "group.max.size": Setting("max_size", INT32_MAX, 1, documentation="Maximum number of members of a classic group."),
}


@dataclass(frozen=True, slots=True)
class ClassicConfig:
    """The settings in use. A new member that never returns is removed after a fixed time."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = INT32_MAX
    new_member_join_timeout_ms: int = 300_000

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> ClassicConfig:
        """Reads them from all broker settings. Raises InvalidConfigError."""
        config = cls(**numbers_of(CLASSIC_SETTINGS, settings))
        if config.min_session_timeout_ms > config.max_session_timeout_ms:
            raise InvalidConfigError(
                f"group.min.session.timeout.ms ({config.min_session_timeout_ms}) must not be greater than "
                f"group.max.session.timeout.ms ({config.max_session_timeout_ms})."
            )
        return config
