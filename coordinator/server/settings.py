"""The broker's settings from a properties file and the command line.

1. What Apache Kafka takes starts this broker, too: settings that it does not act on are named in one warning, and a count
   that is more than a single node has (``default.replication.factor=3``) comes down to what it has.
2. Not so for what protects data from strangers: a mechanism or an authorizer that is not there is refused.
3. Kafka's ``node.id`` is ``broker.id``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from coordinator.broker.config_definitions import (
    BROKER_CONFIGS,
    COARSER_KEYS,
    ConfigType,
    Value,
    in_milliseconds,
    nearest_key,
)
from coordinator.broker.kafka_settings import KAFKA_SETTINGS, ignored_text, kafka_setting
from coordinator.group.config import BROKER_SETTINGS, GroupConfig
from coordinator.group.settings import InvalidConfigError
from coordinator.server.assignors import plugged_assignors
from coordinator.server.properties import parse_properties

logger = logging.getLogger("coordinator.settings")

_NODE_ID = ("node.id", "broker.id")
_ANY_NODE_ID = "-1"
_COUNTS = (
    "default.replication.factor",
    "num.partitions",
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
)


def read_configs(properties: Path | None, pairs: Sequence[str]) -> tuple[dict[str, Value], GroupConfig]:
    """The broker's settings and the group coordinator's. Raises InvalidConfigError."""
    texts = _read_properties(properties) if properties is not None else {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise InvalidConfigError(f"--config {pair}: expected KEY=VALUE")
        texts[key.strip()] = value.strip()
    texts = in_milliseconds(_with_node_id(texts))
    broker = {key: text for key, text in texts.items() if key in BROKER_CONFIGS}
    group = {key: text for key, text in texts.items() if key in BROKER_SETTINGS}
    _check_others({key: text for key, text in texts.items() if key not in broker and key not in group})
    configs = {key: definition.default for key, definition in BROKER_CONFIGS.items()}
    configs.update({key: _parsed(key, text) for key, text in broker.items()})
    return configs, GroupConfig.parse(group, plugged_assignors(group))


def _with_node_id(texts: Mapping[str, str]) -> dict[str, str]:
    found = {key: text for key, text in texts.items() if key not in _NODE_ID}
    given = [texts[key] for key in _NODE_ID if texts.get(key, _ANY_NODE_ID) != _ANY_NODE_ID]
    return {**found, "broker.id": given[0]} if given else found


def _parsed(key: str, text: str) -> Value:
    definition = BROKER_CONFIGS[key]
    most = definition.maximum
    if key in _COUNTS and most is not None:
        asked = KAFKA_SETTINGS[key].parse(text)
        if isinstance(asked, int) and asked > most:
            logger.warning("%s=%s is more than this broker supports: %d is used", key, text, most)
            return int(most)
    return definition.parse(text)


def _check_others(texts: Mapping[str, str]) -> None:
    """Raises InvalidConfigError for what Apache Kafka would not take either."""
    known = [*BROKER_CONFIGS, *COARSER_KEYS, *BROKER_SETTINGS, *KAFKA_SETTINGS]
    for key, text in texts.items():
        definition = kafka_setting(key)
        if definition is None:
            raise InvalidConfigError(f"Unknown broker config name: {key}.{nearest_key(key, known)}")
        if text or definition.type in (ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG):
            definition.parse(text)
    if texts:
        logger.warning("%s", ignored_text(texts))


def _read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
