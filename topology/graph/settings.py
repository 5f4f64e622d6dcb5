"""The settings of an application that apply to its topology: to internal topics, stores and the output of operators.

1. They are applied to a finished graph, when the configuration is known. Names and digests do not change.
2. Values in the program override a setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from topology.graph.internal_topics import ADDITIONAL_RETENTION_KEY, TOPIC_PREFIX, changelog_topics, repartition_topic
from topology.graph.nodes import Node, ProcessorNode, Subtopology
from topology.graph.operations.traits import Key, traits_of, with_fields
from topology.spec.errors import TopologyError

OPTIMIZATION_KEY = "topology.optimization"
STORE_FORMAT_KEY = "dsl.store.format"
STORE_SUPPLIERS_KEY = "dsl.store.suppliers.class"
UPGRADE_KEY = "upgrade.from"


def settings_in(config: Mapping[str, object]) -> dict[str, object]:
    """Those of the configuration that are in a topology; others are passed over."""
    return {key: _as_setting(value) for key, value in config.items() if is_setting(key)}


def _as_setting(value: object) -> object:
    return value if callable(value) else str(value)


def with_settings(subtopology: Subtopology, config: Mapping[str, object]) -> Subtopology:
    """The subtopology with the settings of :func:`settings_in`. Raises TopologyError for a value that makes no sense."""
    supplier = config.get(STORE_SUPPLIERS_KEY)
    own = supplier if callable(supplier) else None
    persistent, with_headers = not (own or _in_memory_by_default(config)), _with_headers_by_default(config)
    stores = tuple(
        replace(store, persistent=persistent, supplier=own, keeps_headers=store.keeps_headers or with_headers)
        if store.default_persistence
        else store
        for store in subtopology.stores
    )
    return replace(
        subtopology,
        nodes=tuple(_upgrading(node, config) for node in subtopology.nodes),
        stores=stores,
        changelog_topics=changelog_topics(stores, config),
        repartition_source_topics=tuple(
            repartition_topic(topic.name, topic.partitions, config) for topic in subtopology.repartition_source_topics
        ),
    )


def is_setting(key: str) -> bool:
    """Whether a key of the application's configuration changes topics or stores of a topology."""
    known = (ADDITIONAL_RETENTION_KEY, OPTIMIZATION_KEY, STORE_FORMAT_KEY, STORE_SUPPLIERS_KEY, UPGRADE_KEY)
    return key.startswith(TOPIC_PREFIX) or key in known


def _upgrading(node: Node, config: Mapping[str, object]) -> Node:
    """Members up to version 3.4 do not know changes that hold both values."""
    if not isinstance(node, ProcessorNode) or traits_of(node.operation).key is not Key.GROUPED:
        return node
    version = str(config.get(UPGRADE_KEY) or "")
    if version and not re.fullmatch(r"\d+(\.\d+)+", version):
        raise TopologyError(f"{UPGRADE_KEY}={version} is not a version: give one such as 3.4")
    splits = bool(version) and tuple(map(int, version.split(".")[:2])) <= (3, 4)
    return replace(node, operation=with_fields(node.operation, splits_changes=splits))


def _with_headers_by_default(config: Mapping[str, object]) -> bool:
    store_format = str(config.get(STORE_FORMAT_KEY, "default")).lower()
    if store_format not in ("default", "headers"):
        raise TopologyError(f"{STORE_FORMAT_KEY} is default or headers, not {store_format}")
    return store_format == "headers"


def _in_memory_by_default(config: Mapping[str, object]) -> bool:
    supplier = str(config.get(STORE_SUPPLIERS_KEY, ""))
    return supplier == "in_memory" or supplier.endswith("InMemoryDslStoreSuppliers")
