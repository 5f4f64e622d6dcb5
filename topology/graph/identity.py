"""Ids and digests: what the members of a group compare, even if they run different code or versions of Python.

1. A subtopology's id is a hash over what it owns: its stores with a changelog; without any, the repartition topics that it
   reads; without any, its source topics and patterns. It stays the same when code, a stateless step or another
   subtopology changes.
2. A digest is a hash over the whole structure: nodes with their kinds, names and order, serdes by name, stores with their
   settings, topics, copartition groups. It does not cover the order of a source's topics, the user's functions, how they
   are called (``with_key``), which result of a predicate keeps a record, or the line of the program that has an operator.
3. Both are computed from sorted JSON, so they do not depend on the process or its hash seed. Default values are left
   out, so that a setting which is added in a later version does not change the digests of existing programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256

from topology.graph.nodes import InternalTopic, Node, SourceNode, StoreSpec, Subtopology
from topology.spec.codecs import Serde
from topology.spec.errors import CallSite

ID_DIGITS = 8
DIGEST_DIGITS = 32

_CODE_ONLY = {"with_key", "negate", "splits_changes", "wrapped_by", "supplier", "upcasts"}


def subtopology_id(
    changelogs: Iterable[str], repartition_sources: Iterable[str], topics: Iterable[str], patterns: Iterable[str]
) -> str:
    """The id of the subtopology that owns these: names of stores and topics."""
    owned = {
        "changelogs": sorted(changelogs),
        "repartition": sorted(repartition_sources),
        "sources": [sorted(topics), sorted(patterns)],
    }
    kind = next((kind for kind in ("changelogs", "repartition") if owned[kind]), "sources")
    return _hash([kind, owned[kind]], ID_DIGITS)


def subtopology_digest(
    nodes: tuple[Node, ...],
    stores: tuple[StoreSpec, ...],
    repartition_sources: tuple[InternalTopic, ...],
    copartition_groups: tuple[tuple[str, ...], ...],
) -> str:
    """The digest of one subtopology's structure."""
    partitions = {topic.name: topic.partitions for topic in repartition_sources}
    nodes = tuple(
        replace(node, topics=tuple(sorted(node.topics))) if isinstance(node, SourceNode) else node for node in nodes
    )
    return _hash([_plain(nodes), _plain(stores), partitions, _plain(copartition_groups)], DIGEST_DIGITS)


def topology_digest(subtopologies: tuple[Subtopology, ...]) -> str:
    """The digest of a topology: of its subtopologies in order."""
    return _hash([subtopology.digest for subtopology in subtopologies], DIGEST_DIGITS)


def _hash(value: object, digits: int) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:digits]


def _plain(value: object) -> object:
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, CallSite):
        return None
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Serde):
        return f"serde {value.name}"
    if callable(value):
        # Before dataclasses: a function of the program may be one, or a class that is one.
        return "function"
    if is_dataclass(value):
        given = {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.name not in _CODE_ONLY and getattr(value, field.name) != field.default
        }
        return [type(value).__name__, {name: _plain(item) for name, item in given.items()}]
    raise TypeError(f"{value!r} cannot be part of a digest")
