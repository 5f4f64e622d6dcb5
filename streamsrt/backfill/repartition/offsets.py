"""The marks that keep the application from starting, and the offsets from which it resumes.

1. Marks are committed for the new partitions of the inputs, which have no offsets yet. So no existing offset is lost.
2. Afterwards each partition has the latest stream times of all old ones: a partition now holds rows of several tasks, and
   a window that was closed for one of them stays closed.
3. New partitions of source topics begin at offset 0, whatever auto.offset.reset says: their records came after the raise.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.backfill.repartition.shape import MovedPart, Shape
from streamsrt.backfill.repartition.survey import OperatorTimes
from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.tasks.input.offset_metadata import moving_metadata, partition_metadata
from streamsrt.tasks.input.stream_time_keys import committed_times

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def marks(shape: Shape, committed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit before the first row moves."""
    found = {}
    for part in shape.parts:
        counts = part.counts if part.counts[-1] == part.after else (*part.counts, part.after)
        for tp in part.inputs_after():
            if tp[1] >= counts[0]:
                offset = committed[tp].offset if tp in committed else 0
                found[tp] = OffsetAndMetadata(offset, moving_metadata(counts))
    return found


def operator_times(part: MovedPart, committed: Offsets) -> OperatorTimes:
    """The stream times that are known at the partitions of a subtopology's inputs."""
    found = {}
    for tp in part.inputs_after():
        known = committed_times(committed[tp].metadata, part.subtopology) if tp in committed else None
        if known is not None:
            found[tp] = known[1]
    return found


def final_offsets(shape: Shape, committed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit after the last row has moved."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic, count in shape.source_counts.items():
        known = [index for name, index in committed if name == topic]
        if known:
            new = range(max(known) + 1, count)
            found.update({(topic, index): OffsetAndMetadata(0, partition_metadata(-1, {})) for index in new})
    for part in shape.parts:
        times = operator_times(part, committed)
        latest: dict[str, int] = {}
        for operators in times.values():
            for name, time_ms in operators.items():
                latest[name] = max(time_ms, latest.get(name, -1))
        for topic in part.inputs:
            partitions = [(topic, index) for index in range(part.after)]
            parsed = [committed_times(committed[tp].metadata, part.subtopology) for tp in partitions if tp in committed]
            time_ms = max((each[0] for each in parsed if each is not None), default=-1)
            for tp in partitions:
                if tp in committed or tp[1] >= part.counts[0]:
                    offset = committed[tp].offset if tp in committed else 0
                    found[tp] = OffsetAndMetadata(offset, partition_metadata(time_ms, latest))
    return found
