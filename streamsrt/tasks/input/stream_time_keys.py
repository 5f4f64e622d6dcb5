"""The names under which stream times of windowed operators are committed with the offsets.

1. A stream time belongs to the operator's state: its name is ``@`` and the name under which its store is kept, which is
   the same in every version of the application. A generated name of a node changes with any unnamed step before it.
2. Operators that share a store, the streams of a cogroup, are numbered in their order from the second on.
3. Both sides of a join observe one stream time; its store is that of the left side's records.
4. Commits that have a time under the operator's own name are read, too. The store's name comes first, since a node's name
   may have been another operator's in the version that committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from streamsrt.tasks.input.offset_metadata import full_names, parse_mark, parse_partition_metadata
from topology.graph.nodes import ProcessorNode, Subtopology
from topology.graph.operations.traits import stream_time_store

_OF_STORE = "@"
"""What no name of an operator or a store begins with."""


def stream_time_keys(subtopology: Subtopology) -> dict[str, str]:
    """Returns the names in commits, by those that operators' stream times have in the task."""
    kept_as = {spec.name: spec.kept_as for spec in subtopology.stores}
    keys: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for node in subtopology.nodes:
        store = stream_time_store(node.operation) if isinstance(node, ProcessorNode) else None
        if store is None or not isinstance(node, ProcessorNode):
            continue
        name = kept_as.get(store, store)
        number = f"#{taken[name]}" if taken[name] else ""
        keys[getattr(node.operation, "time", node.name)] = f"{_OF_STORE}{name}{number}"
        taken[name] += 1
    return keys


def committed_times(metadata: str, subtopology: Subtopology) -> tuple[int, dict[str, int]] | None:
    """Parses the partition time, and stream times by the names in commits; None if the metadata has none."""
    mark = parse_mark(metadata)
    parsed = parse_partition_metadata(metadata)
    if mark is not None:
        parsed = mark.partition_time_ms, dict(mark.operator_times_ms)
    if parsed is None:
        return None
    keys = stream_time_keys(subtopology)
    names = {*keys, *keys.values(), *(node.name for node in subtopology.nodes)}
    return parsed[0], _by_key(full_names(parsed[1], names), keys)


def _by_key(times_ms: Mapping[str, int], keys: Mapping[str, str]) -> dict[str, int]:
    found = {name: time_ms for name, time_ms in times_ms.items() if name not in keys}
    for name, key in keys.items():
        if name in times_ms:
            found.setdefault(key, times_ms[name])
    return found
