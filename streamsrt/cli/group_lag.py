"""Offsets and lag of a group, for ``streamsrt groups describe``.

1. Every partition that the group has to read is shown, committed or not: those of the topology's source and repartition
   topics, and of topics with a committed offset; of a classic group, those that its members are assigned.
2. Without a committed offset everything that the log holds is the lag: from its start, where an application begins whose
   ``auto.offset.reset`` is ``earliest``.

Source: kafka-streams-groups.sh and kafka-consumer-groups.sh.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamsrt.cli.classic_group import assigned_partitions, described_classic_group
from streamsrt.cli.described_group import described_group, kind_of_group
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.runtime.group_facts import Committed, GroupDescription
from streamsrt.wire.types import StreamsGroupDescribeResponse

_NOTHING = OffsetAndMetadata(-1)


def offset_rows(network: NetworkThread, group: str) -> list[dict[str, object]]:
    """A row for each partition that the group reads. Raises ConfigError where there is no such group."""
    kind = kind_of_group(network, group)
    if kind == "streams":
        return offset_rows_of(network, described_group(network, group))
    if kind == "classic":
        return offset_rows_of(network, described_classic_group(network, group))
    return _rows(network, group, network.admin.committed(group), frozenset())


def offset_rows_of(
    network: NetworkThread, described: GroupDescription, committed: Committed | None = None
) -> list[dict[str, object]]:
    """A row for each partition that a group reads which was described already. ``committed``: the group's committed
    offsets; None: they are read."""
    if committed is None:
        committed = network.admin.committed(described.group_id)
    if isinstance(described, StreamsGroupDescribeResponse.DescribedGroup):
        read = _of_topology(network, described, {topic for topic, _ in committed})
    else:
        read = assigned_partitions(described)
    return _rows(network, described.group_id, committed, read)


def _rows(
    network: NetworkThread,
    group: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    read: Collection[TopicPartition],
) -> list[dict[str, object]]:
    partitions = {*committed, *read}
    open_ = partitions - set(committed)
    starts = network.admin.list_offsets(dict.fromkeys(open_, EARLIEST)) if open_ else {}
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    rows: list[dict[str, object]] = []
    for topic, partition in sorted(partitions):
        at, end = committed.get((topic, partition), _NOTHING), ends.get((topic, partition))
        start = starts.get((topic, partition))
        since = at.offset if start is None else start.offset
        rows.append(
            {
                "group": group,
                "topic": topic,
                "partition": partition,
                "current_offset": "-" if at.offset < 0 else at.offset,
                "leader_epoch": None if at.leader_epoch < 0 else at.leader_epoch,
                "log_end_offset": "-" if end is None else end.offset,
                "offset_lag": "-" if end is None else end.offset - since,
            }
        )
    return rows


def _of_topology(
    network: NetworkThread, described: StreamsGroupDescribeResponse.DescribedGroup, committed: Collection[str]
) -> set[TopicPartition]:
    """All partitions of the topics that a streams group reads, those that are there."""
    topology = described.topology
    parts = [] if topology is None else topology.subtopologies or []
    read = {name for part in parts for name in part.source_topics} | set(committed)
    read |= {topic.name for part in parts for topic in part.repartition_source_topics}
    there = network.admin.topics(sorted(read)) if read else {}
    return {(name, partition) for name, topic in there.items() for partition in range(topic.partitions)}
