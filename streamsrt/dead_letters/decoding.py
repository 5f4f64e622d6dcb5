"""Decodes a letter's key and value with the serdes of its application.

1. The serdes are those of the source that read the record. The name of an internal topic begins with the application's
   id.
2. Keys and values that can't be decoded, which is why many letters exist, are shown as bytes, with the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

from streamsrt.config import named_serde
from streamsrt.wording import error_text
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from topology.graph.operations.traits import Code, ResultsPerRecord, traits_of
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
    """UTF-8, else hexadecimal digits. Bytes with a zero are no text but a number: so they are of ``serdes.long``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex()
    return data.hex() if "\0" in text else text


def shown(topic: str, data: bytes | None, decode: Decode) -> object:
    """A key or a value as it is shown; what can't be decoded is text that says so."""
    if data is None:
        return None
    try:
        return decode(topic, data)
    except Exception as error:  # noqa: BLE001  # a user's serde may raise anything
        return f"{as_text(topic, data)} (not decoded: {error_text(error)})"


class SecondTime(NamedTuple):
    """Nodes that see a replayed record for the second time. ``beside``: they get the records of its topic without leading
    to the step that failed. ``before``: they lead to it, or are it, and have kept something of the record, or have given
    several results for it, of which others may have got through."""

    beside: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


def reaches(topology: Topology, topic: str, step: str) -> bool:
    """Whether records of that topic come to that step, within the subtopology that reads it."""
    source = source_of(topology, topic)
    if source is None:
        return False
    nodes = {node.name: node for part in topology.subtopologies for node in part.nodes}
    found, open_ = {source.name}, [source.name]
    while open_:
        children = [child for child in _children(nodes[open_.pop()]) if child not in found]
        found.update(children)
        open_ += children
    return step in found


def second_time(topology: Topology, topic: str, step: str) -> SecondTime:
    """What a replay of a record of that topic does again, beside the step that failed."""
    source = source_of(topology, topic)
    if source is None:
        return SecondTime()
    nodes = {node.name: node for part in topology.subtopologies for node in part.nodes}
    leads: dict[str, bool] = {}

    def leads_to_step(name: str) -> bool:
        if name not in leads:
            leads[name] = name == step or any([leads_to_step(child) for child in _children(nodes[name])])
        return leads[name]

    if not leads_to_step(source.name):
        return SecondTime()
    beside: dict[str, None] = {}
    before: dict[str, None] = {}
    for name in reversed([name for name, leading in leads.items() if leading]):
        node = nodes[name]
        if name != step:
            beside |= dict.fromkeys(child for child in _children(node) if not leads_to_step(child))
        if isinstance(node, ProcessorNode) and _is_done_again(node, is_step=name == step):
            before[name] = None
    return SecondTime(tuple(beside), tuple(before))


def _children(node: Node) -> tuple[str, ...]:
    return () if isinstance(node, SinkNode) else node.children


def _is_done_again(node: ProcessorNode, *, is_step: bool) -> bool:
    if node.stores:
        return True
    traits = traits_of(node.operation)
    return not is_step and (
        traits.results in (ResultsPerRecord.ANY, ResultsPerRecord.BY_WINDOW) or traits.code is Code.EFFECT
    )
