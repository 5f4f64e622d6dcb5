"""Values of stores that a topology can't read, because a later version of the program has written them.

1. The changelogs are the source: each value contains the version that wrote it. The last written values decide, so the
   end of each partition is read, until a stated number of its records was seen.
2. Aborted records don't count. An instance that was killed may have filled the end of a changelog with them: then earlier
   records are read.
3. A changelog that does not exist contains nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import NamedTuple

from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of, ends_of, read_range, starts_of
from streamsrt.client.values import TopicPartition
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.graph.topology import Topology
from topology.spec.row_versions import latest_version_in

_PATIENCE_S = 5.0


class NewerValues(NamedTuple):
    """A store whose changelog has values of a later version than the topology's."""

    spec: StoreSpec
    topic: str
    version: int


def newer_values_written(
    network: NetworkThread, application_id: str, topology: Topology, *, records: int, at_start: bool = False
) -> Iterator[NewerValues]:
    """Reads the last ``records`` committed records of each partition of the changelogs. ``at_start``: with the connections
    that restore stores, and what does not arrive soon is not looked at. Raises BrokerError."""
    specs = [spec for part in topology.subtopologies for spec in part.stores if spec.has_own_changelog]
    topics = {internal_topic_name(application_id, spec.changelog_name): spec for spec in specs}
    counts = network.admin.partitions_for(sorted(topics)) if topics else {}
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    if not partitions:
        return
    latest = _Ends(network, partitions, at_start=at_start).latest_versions(records)
    for topic, spec in sorted(topics.items()):
        if latest.get(topic, 1) > spec.version:
            yield NewerValues(spec, topic, latest[topic])


class _Ends:
    """The ends of partitions, read backwards in ranges that double: one range is enough unless transactions were aborted."""

    def __init__(self, network: NetworkThread, partitions: list[TopicPartition], *, at_start: bool) -> None:
        self._network = network
        self._is_at_start = at_start
        self._deadline = monotonic() + (_PATIENCE_S if at_start else float("inf"))
        ends = ends_of(network, partitions, read_committed=True)
        self._upto = {tp: end for tp, end in ends.items() if end}
        self._first = starts_of(network, self._upto) if self._upto else {}
        self._seen = dict.fromkeys(self._upto, 0)
        self._latest: dict[str, int] = {}

    def latest_versions(self, records: int) -> dict[str, int]:
        """The latest version of a value by topic."""
        size = records
        while self._upto and monotonic() < self._deadline:
            starts = {tp: max(self._first[tp], end - size) for tp, end in self._upto.items()}
            self._read(starts)
            self._upto = {
                tp: start for tp, start in starts.items() if start > self._first[tp] and self._seen[tp] < records
            }
            size *= 2
        return self._latest

    def _read(self, starts: Mapping[TopicPartition, int]) -> None:
        timeout_s = max(0.0, self._deadline - monotonic())
        for fetched in read_range(self._network, starts, self._upto, apart=self._is_at_start, timeout_s=timeout_s):
            tp = (fetched.topic, fetched.partition)
            for columns in columns_of(fetched):
                if columns.base_offset >= self._upto[tp]:
                    break
                offsets = columns.offsets or range(columns.base_offset, columns.base_offset + len(columns))
                self._seen[tp] += bisect_left(offsets, self._upto[tp])
                versions = (latest_version_in(value) for value in columns.values if value is not None)
                self._latest[fetched.topic] = max(self._latest.get(fetched.topic, 1), *versions, 1)
