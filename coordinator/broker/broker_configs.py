"""The settings of the broker in force, and where each comes from.

1. Kafka's order: what was set at run time for this broker, what was set at run time for all brokers, what was given at
   the start, the default.
2. Only some settings can be changed at run time (Kafka's ``DynamicBrokerConfig``): those that topics fall back to, and
   those of compaction. They are durable, and hold at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import orjson

from coordinator.broker.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS, Value, nearest_key
from coordinator.broker.kafka_settings import kafka_setting
from coordinator.broker.keyed_log import KeyedLog
from coordinator.group.settings import InvalidConfigError

DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5
"""Kafka's numbers of sources."""

DYNAMIC_KEYS = frozenset(
    {row.broker_key for row in TOPIC_CONFIGS.values() if row.broker_key is not None}
    | {"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size"}
)
ALL_BROKERS = ""
_ROW = "configs/"


class ConfigSynonym(NamedTuple):
    """A value of a setting, with its source."""

    source: int
    text: str


class BrokerConfigs(Mapping[str, Value]):
    """All settings of the broker by their names. ``given`` has a value for each."""

    def __init__(self, given: Mapping[str, Value]) -> None:
        self._given = dict(given)
        self._node = str(given["broker.id"])
        self._dynamic: dict[str, dict[str, str]] = {self._node: {}, ALL_BROKERS: {}}
        self._values: dict[str, Value] = dict(given)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def load(self, rows: Mapping[str, bytes]) -> None:
        """Loads earlier run-time settings from the broker's log."""
        for scope in self._dynamic:
            row = rows.get(_ROW + scope)
            if row is not None:
                self._dynamic[scope] = orjson.loads(row)
        self._combine()

    def dynamic(self, scope: str) -> dict[str, str]:
        """Returns run-time settings, for all brokers (:data:`ALL_BROKERS`) or for the one with this id."""
        return dict(self._dynamic[scope])

    def origins(self, key: str) -> list[ConfigSynonym]:
        """Returns every value of the setting with its source, the one in effect first, Kafka's default last."""
        definition = BROKER_CONFIGS[key]
        found = [
            ConfigSynonym(source, self._dynamic[scope][key])
            for scope, source in ((self._node, DYNAMIC_BROKER), (ALL_BROKERS, DYNAMIC_DEFAULT_BROKER))
            if key in self._dynamic[scope]
        ]
        given = self._given[key]
        if given != definition.default:
            found.append(ConfigSynonym(STATIC_BROKER, definition.render(given)))
        return [*found, ConfigSynonym(DEFAULT, definition.render(definition.default))]

    def check(self, settings: Mapping[str, str]) -> None:
        """Raises InvalidConfigError for settings that can't be changed at run time, or not to this value."""
        for key, text in settings.items():
            if key not in BROKER_CONFIGS and kafka_setting(key) is not None:
                raise InvalidConfigError(f"{key} is a setting of Apache Kafka that this broker does not act on.")
            if key not in BROKER_CONFIGS:
                raise InvalidConfigError(f"Unknown broker config name: {key}.{nearest_key(key, DYNAMIC_KEYS)}")
            if key not in DYNAMIC_KEYS:
                raise InvalidConfigError(
                    f"Cannot update these configs dynamically: Set({key}). Give it at the start (--config, --properties)."
                )
            BROKER_CONFIGS[key].parse(text)

    def set(self, scope: str, settings: Mapping[str, str], rows: KeyedLog) -> None:
        """Replaces run-time settings. Raises the log's errors without any change."""
        rows.put(_ROW + scope, orjson.dumps(dict(settings)) if settings else None)
        self._dynamic[scope] = dict(settings)
        self._combine()

    def _combine(self) -> None:
        self._values = dict(self._given)
        for scope in (ALL_BROKERS, self._node):
            for key, text in self._dynamic[scope].items():
                if key in DYNAMIC_KEYS:
                    self._values[key] = BROKER_CONFIGS[key].parse(text)
