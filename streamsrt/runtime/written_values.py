"""Values of stores that a topology can't read, because a later version of the program has written them.

1. The changelogs are the source: each value contains the version that wrote it. The last written values decide, so the
   end of each partition is read, until a stated number of its records was seen.
2. Aborted records don't count. An instance that was killed may have filled the end of a changelog with them: then earlier
   records are read.
3. A changelog that does not exist contains nothing.
4. Who looks again and again reads only what is new, and keeps what was found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from time import monotonic
from types import MappingProxyType
from typing import NamedTuple

from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of, ends_of, read_range, starts_of
from streamsrt.client.values import TopicPartition
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.spec.row_versions import latest_version_in

ENDS_RECORDS = 1_000
"""So many records of each partition tell whether there is a way back."""
_PATIENCE_S = 5.0


class NewerValues(NamedTuple):
    """A store whose changelog has values of a later version than the topology's."""

    spec: StoreSpec
    topic: str
    version: int


def newer_values_written(
    network: NetworkThread, application_id: str, stores: Iterable[StoreSpec], *, records: int, at_start: bool = False
) -> Iterator[NewerValues]:
    """Reads the last ``records`` committed records of each partition of the stores' changelogs. ``at_start``: with the
    connections that restore stores, and what does not arrive soon is not looked at. Raises BrokerError."""
    specs = [spec for spec in stores if spec.has_own_changelog]
    topics = {internal_topic_name(application_id, spec.changelog_name): spec for spec in specs}
    counts = network.admin.partitions_for(sorted(topics)) if topics else {}
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    if not partitions:
        return
    patience_s = _PATIENCE_S if at_start else float("inf")
    latest = _Ends(network, partitions, at_start=at_start, patience_s=patience_s).latest_versions(records)
    for topic, spec in sorted(topics.items()):
        if latest.get(topic, 1) > spec.version:
            yield NewerValues(spec, topic, latest[topic])


class LatestVersions:
    """The latest versions of the last ``records`` committed values of changelogs, to be looked at again and again. What
    fetches with this network must be committed."""

    def __init__(self, network: NetworkThread, *, records: int) -> None:
        self._network = network
        self._records = records
        self._read: dict[TopicPartition, int] = {}
        self._found: dict[str, int] = {}

    def of(self, topics: Collection[str], patience_s: float) -> dict[str, int]:
        """Returns the versions above 1, by topic. What does not arrive in this time is read by the next call. Raises
        BrokerError."""
        counts = self._network.admin.partitions_for(sorted(topics))
        partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
        if partitions:
            ends = _Ends(self._network, partitions, at_start=False, patience_s=patience_s, read=self._read)
            for topic, version in ends.latest_versions(self._records).items():
                self._found[topic] = max(version, self._found.get(topic, 1))
            self._read.update(ends.completed)
        return {topic: version for topic, version in self._found.items() if topic in topics and version > 1}


class _Ends:
    """The ends of partitions, read backwards in ranges that double: one range is enough unless transactions were aborted.
    ``read``: up to where they were read before."""

    def __init__(
        self,
        network: NetworkThread,
        partitions: list[TopicPartition],
        *,
        at_start: bool,
        patience_s: float,
        read: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        self._network = network
        self._is_at_start = at_start
        self._deadline = monotonic() + patience_s
        self._ends = ends_of(network, partitions, read_committed=True)
        self._upto = {tp: end for tp, end in self._ends.items() if end > read.get(tp, 0)}
        first = starts_of(network, self._upto) if self._upto else {}
        self._first = {tp: max(start, read.get(tp, 0)) for tp, start in first.items()}
        self._seen = dict.fromkeys(self._upto, 0)
        self._latest: dict[str, int] = {}
        self._arrived: set[TopicPartition] = set()

    @property
    def completed(self) -> dict[TopicPartition, int]:
        """The ends of the partitions of which enough was read."""
        return {tp: end for tp, end in self._ends.items() if tp not in self._upto}

    def latest_versions(self, records: int) -> dict[str, int]:
        """The latest version of a value by topic."""
        size = records
        while self._upto and monotonic() < self._deadline:
            starts = {tp: max(self._first[tp], end - size) for tp, end in self._upto.items()}
            self._read(starts)
            late = {tp: end for tp, end in self._upto.items() if tp not in self._arrived}
            earlier = {tp: at for tp, at in starts.items() if at > self._first[tp] and self._seen[tp] < records}
            self._upto = earlier | late
            size *= 2
        return self._latest

    def _read(self, starts: Mapping[TopicPartition, int]) -> None:
        self._arrived.clear()
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
            if fetched.next_offset >= self._upto[tp]:
                self._arrived.add(tp)
