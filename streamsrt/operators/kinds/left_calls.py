"""Calls of ``map_async`` that had not begun when the instance was asked to end: the next start makes them.

1. Only calls that run are waited for. Those behind them are withdrawn, their records' offsets are not committed, and the
   records are read again.
2. That is right only where nothing else has come of these records: no result beside the calls, no change of state, no dead
   letter. With exactly once it would stand in the committed transaction, and come again. :func:`may_be_left` tells it of
   the program, :class:`LeftCalls` of the records.
3. Calls begin in the order of the records of a partition, and all that have begun are settled. So what is left is the end
   of each partition, and a committed offset tells it. Of a record with several calls, some of which are made, all are.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamsrt.operators.engine.environment import Environment
from topology.graph.nodes import ProcessorNode, SourceNode, Subtopology
from topology.graph.operations.traits import Code, Rereading, RunEnd, calls_async, traits_of
from topology.spec.processor import RecordMetadata


def may_be_left(subtopology: Subtopology, node: ProcessorNode) -> bool:
    """Whether records that wait for a call of the node leave no trace: nothing in the subtopology has state or makes other
    calls, and nothing before the node has another child or a processor of the user's."""
    nodes = [each for each in subtopology.nodes if isinstance(each, ProcessorNode)]
    if subtopology.stores or any(calls_async(each.operation) for each in nodes if each is not node):
        return False
    return all(_leaves_no_trace(subtopology, parent) for parent in node.parents)


def _leaves_no_trace(subtopology: Subtopology, name: str) -> bool:
    node = subtopology.node(name)
    if isinstance(node, SourceNode):
        return len(node.children) == 1
    if not isinstance(node, ProcessorNode) or len(node.children) != 1 or node.wrapped_by is not None:
        return False
    traits = traits_of(node.operation)
    return (
        traits.rereading is Rereading.NOTHING
        and traits.run_end is RunEnd.NOTHING
        and traits.code is not Code.PROCESSOR
        and not traits.holds_back
        and all(_leaves_no_trace(subtopology, parent) for parent in node.parents)
    )


class LeftCalls:
    """Where the records of a node's withdrawn calls begin, by input partition."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._done: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], int] = {}
        env.held_back.append(lambda: self._first)

    def done(self, metadata: RecordMetadata) -> None:
        """Notes a record with a call that is settled."""
        topic, partition, offset = metadata
        if offset > self._done.get((topic, partition), -1):
            self._done[topic, partition] = offset

    def leave(self, records: Sequence[RecordMetadata | None]) -> int:
        """Leaves the records of withdrawn calls, in order, but for those at the beginning that must not be left. Returns how
        many those are."""
        count = next((at for at in range(len(records), 0, -1) if self._is_begun(records[at - 1])), 0)
        rest = [record for record in records[count:] if record is not None]
        first: dict[tuple[str, int], int] = {}
        for topic, partition, offset in rest:
            first.setdefault((topic, partition), offset)
        if any(self._env.letters.get(partition, -1) >= offset for partition, offset in first.items()):
            return len(records)
        self._first = first
        self._env.left_records = len(set(rest))
        return count

    def _is_begun(self, record: RecordMetadata | None) -> bool:
        if record is None:
            return True
        topic, partition, offset = record
        return offset <= self._done.get((topic, partition), -1)
