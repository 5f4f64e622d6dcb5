"""Kafka Streams semantics for Python, on the streams rebalance protocol.

The public names are loaded when they are first used, so that importing one leaf of the package (the bundled broker
imports :mod:`streamsrt.wire`) does not load the runtime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsrt.app import KafkaStreams
    from streamsrt.config import StreamsConfig
    from streamsrt.errors import StreamsError
    from streamsrt.runtime.values import Progress, State
    from streamsrt.tasks.listeners import RestoreListener, StandbyListener
    from streamsrt.testing.topology_test_driver import TopologyTestDriver

_EXPORTS: dict[str, str] = {
    "KafkaStreams": "streamsrt.app",
    "Progress": "streamsrt.runtime.values",
    "RestoreListener": "streamsrt.tasks.listeners",
    "StandbyListener": "streamsrt.tasks.listeners",
    "State": "streamsrt.runtime.values",
    "StreamsConfig": "streamsrt.config",
    "StreamsError": "streamsrt.errors",
    "TopologyTestDriver": "streamsrt.testing.topology_test_driver",
}

__all__ = [
    "KafkaStreams",
    "Progress",
    "RestoreListener",
    "StandbyListener",
    "State",
    "StreamsConfig",
    "StreamsError",
    "TopologyTestDriver",
]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'streamsrt' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
