"""Sets the serdes that a program leaves open, when the application's configuration is known.

In this order: the application's default serde; the serde before an operator that may have changed the type; bytes, if no
operator changed the type. Serdes of windowed keys and of changes are built on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from topology.graph.nodes import (
    OpenSerde,
    ProcessorNode,
    Side,
    SinkNode,
    SourceNode,
    StoreSpec,
    Subtopology,
)
from topology.spec.codecs import AnySerde, ProgramSerde, bytes_
from topology.spec.errors import MissingSerdeError

SerdeOwner = TypeVar("SerdeOwner", bound=SourceNode | SinkNode | StoreSpec)
SIDES: tuple[Side, ...] = ("key", "value", "other_value")
Chosen = dict[tuple[bool, str, str], ProgramSerde]
"""By whether a store has it, the name of the store or node, and the side."""


def chosen_serdes(open_serdes: Iterable[OpenSerde], key: AnySerde, value: AnySerde) -> Chosen:
    """The serde of each that is open; ``key``, ``value``: the application's defaults. Raises MissingSerdeError."""
    defaults = {"key": key, "value": value, "other_value": value}
    return {
        (missing.of_store, missing.owner, missing.side): _serde(missing, defaults[missing.side])
        for missing in open_serdes
    }


def with_serdes(subtopology: Subtopology, chosen: Chosen) -> Subtopology:
    """The subtopology with every serde known."""
    return replace(
        subtopology,
        nodes=tuple(
            _with_own_serdes(node, chosen) if isinstance(node, ProcessorNode) else _filled(node, chosen, of_store=False)
            for node in subtopology.nodes
        ),
        stores=tuple(_filled(store, chosen, of_store=True) for store in subtopology.stores),
    )


def _filled(owner: SerdeOwner, chosen: Chosen, *, of_store: bool) -> SerdeOwner:
    return replace(
        owner,
        key_serde=owner.key_serde or chosen[of_store, owner.name, "key"],
        value_serde=owner.value_serde or chosen[of_store, owner.name, "value"],
    )


def _with_own_serdes(node: ProcessorNode, chosen: Chosen) -> ProcessorNode:
    """The node with the serdes that its operation itself needs."""
    known: dict[str, Any] = {
        f"{side}_serde": chosen[False, node.name, side] for side in SIDES if (False, node.name, side) in chosen
    }
    return replace(node, operation=replace(node.operation, **known)) if known else node


def _serde(missing: OpenSerde, default: AnySerde) -> ProgramSerde:
    serde = default or missing.assumed or (bytes_ if missing.changed_by is None else None)
    if serde is None:
        what = "store" if missing.of_store else "step"
        raise MissingSerdeError(
            f"no serde for the {missing.side}s of {what} {missing.owner!r}: {missing.changed_by} changes their type. "
            f"Give {missing.side}=serdes.... here, or set default.{missing.side}.serde",
            missing.site,
        )
    return serde if missing.wrap is None else missing.wrap(serde)
