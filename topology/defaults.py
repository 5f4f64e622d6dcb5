"""The serdes that a program leaves open, filled in when the application's configuration is known.

In this order: the application's default serde; the serde from before an operator that may have changed the type; bytes, for
what no operator changed. Where windows or changes of such a type flow, their serde is made over it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from topology.codecs import Serde, bytes_
from topology.errors import MissingSerdeError
from topology.nodes import (
    AnySerde,
    OpenSerde,
    ProcessorNode,
    Side,
    SinkNode,
    SourceNode,
    StoreSpec,
    Subtopology,
    Topology,
)

SerdeOwner = TypeVar("SerdeOwner", bound=SourceNode | SinkNode | StoreSpec)
SIDES: tuple[Side, ...] = ("key", "value", "other_value")
Found = dict[tuple[bool, str, str], Serde[Any]]


def with_default_serdes(topology: Topology, key: AnySerde, value: AnySerde) -> Topology:
    """See :meth:`topology.nodes.Topology.with_default_serdes`."""
    defaults = {"key": key, "value": value, "other_value": value}
    found: Found = {
        (missing.of_store, missing.owner, missing.side): _serde(missing, defaults[missing.side])
        for missing in topology.open_serdes
    }
    return replace(
        topology,
        subtopologies=tuple(_complete(each, found) for each in topology.subtopologies),
        global_subtopologies=tuple(_complete(each, found) for each in topology.global_subtopologies),
        open_serdes=(),
    )


def _complete(subtopology: Subtopology, found: Found) -> Subtopology:
    return replace(
        subtopology,
        nodes=tuple(
            _with_serdes(node, found) if isinstance(node, ProcessorNode) else _filled(node, found, of_store=False)
            for node in subtopology.nodes
        ),
        stores=tuple(_filled(store, found, of_store=True) for store in subtopology.stores),
    )


def _filled(owner: SerdeOwner, found: Found, *, of_store: bool) -> SerdeOwner:
    return replace(
        owner,
        key_serde=owner.key_serde or found[of_store, owner.name, "key"],
        value_serde=owner.value_serde or found[of_store, owner.name, "value"],
    )


def _with_serdes(node: ProcessorNode, found: Found) -> ProcessorNode:
    """The node with the serdes that its operation itself needs."""
    known: dict[str, Any] = {
        f"{side}_serde": found[False, node.name, side] for side in SIDES if (False, node.name, side) in found
    }
    return replace(node, operation=replace(node.operation, **known)) if known else node


def _serde(missing: OpenSerde, default: AnySerde) -> Serde[Any]:
    serde = default or missing.assumed or (bytes_ if missing.changed_by is None else None)
    if serde is None:
        what = "store" if missing.of_store else "step"
        raise MissingSerdeError(
            f"no serde for the {missing.side}s of {what} {missing.owner!r}: {missing.changed_by} made another type. Give "
            f"{missing.side}=serdes.... here, or set default.{missing.side}.serde",
            missing.site,
        )
    return serde if missing.wrap is None else missing.wrap(serde)
