"""What a letter's key and value say, by the serdes with which its application reads them.

1. A serde is that of the source that read the record. Of an internal topic the name begins with the application's id.
2. What can't be read is the reason for many a letter: then the bytes are shown, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from streamsrt.config import named_serde
from topology.graph.nodes import SinkNode, SourceNode
from topology.graph.topology import Topology
from topology.spec.codecs import AnySerde

Decode: TypeAlias = Callable[[str, bytes], object]
"""``(topic, bytes)``."""


def source_of(topology: Topology, topic: str) -> SourceNode | None:
    """The node that reads a topic; None where the topology doesn't."""
    for part in topology.subtopologies:
        for node in part.nodes:
            if isinstance(node, SourceNode) and _reads(node, topic):
                return node
    return None


def _reads(node: SourceNode, topic: str) -> bool:
    if node.pattern is not None:
        return re.fullmatch(node.pattern, topic) is not None
    return any(topic == each or (node.repartition and topic.endswith(f"-{each}")) for each in node.topics)


def decoders(topology: Topology, config: Mapping[str, object]) -> tuple[Decode, Decode]:
    """How keys and values of its source topics are decoded. Bytes that no serde is known for are shown as text."""
    return (
        _decoder(topology, lambda node: node.key_serde, _default("default.key.serde", config)),
        _decoder(topology, lambda node: node.value_serde, _default("default.value.serde", config)),
    )


def _default(name: str, config: Mapping[str, object]) -> AnySerde:
    given = config.get(name, config.get(name.replace(".", "_")))
    return cast("AnySerde", named_serde(name, given))


def _decoder(topology: Topology, serde_of: Callable[[SourceNode], AnySerde], default: AnySerde) -> Decode:
    def decode(topic: str, data: bytes) -> object:
        node = source_of(topology, topic)
        serde = default if node is None else serde_of(node) or default
        return as_text(topic, data) if serde is None else serde.deserialize(data)

    return decode


def as_text(_topic: str, data: bytes) -> str:
    """UTF-8, else hexadecimal digits."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def shown(topic: str, data: bytes | None, decode: Decode) -> object:
    """A key or a value as it is shown; what can't be decoded is text that says so."""
    if data is None:
        return None
    try:
        return decode(topic, data)
    except Exception as error:  # noqa: BLE001  # a user's serde may raise anything
        return f"{as_text(topic, data)} (not decoded: {type(error).__name__}: {error})"


def other_readers(topology: Topology, topic: str, step: str) -> tuple[str, ...]:
    """The nodes beside the step and what leads to it that get the records of a topic: a replay runs through them, too."""
    source = source_of(topology, topic)
    if source is None:
        return ()
    children = {
        node.name: () if isinstance(node, SinkNode) else node.children
        for part in topology.subtopologies
        for node in part.nodes
    }
    leads: dict[str, bool] = {}

    def leads_to_step(name: str) -> bool:
        if name not in leads:
            leads[name] = name == step
            leads[name] = leads[name] or any(leads_to_step(child) for child in children.get(name, ()))
        return leads[name]

    found: list[str] = []
    name = source.name
    while name != step:
        following = children.get(name, ())
        towards = [child for child in following if leads_to_step(child)]
        found += [child for child in following if child not in towards]
        if not towards:
            break
        found += towards[1:]
        name = towards[0]
    return tuple(dict.fromkeys(found))
