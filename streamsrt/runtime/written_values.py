"""Values of stores that a topology can't read, because a later version of the program has written them.

1. The changelogs are the source: each value contains the version that wrote it. The last written value decides, so the
   end of each partition is read, a stated number of offsets of it.
2. A changelog that does not exist contains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of, ends_of, read_range, starts_of
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
    network: NetworkThread, application_id: str, topology: Topology, *, offsets: int, at_start: bool = False
) -> Iterator[NewerValues]:
    """Reads the last ``offsets`` offsets of each partition of the changelogs. ``at_start``: with the connections
    that restore stores, and what does not arrive soon is not looked at. Raises BrokerError."""
    specs = [spec for part in topology.subtopologies for spec in part.stores if spec.has_own_changelog]
    topics = {internal_topic_name(application_id, spec.changelog_name): spec for spec in specs}
    counts = network.admin.partitions_for(sorted(topics)) if topics else {}
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    if not partitions:
        return
    ends = ends_of(network, partitions, read_committed=True)
    filled = [tp for tp in partitions if ends.get(tp)]
    first = starts_of(network, filled) if filled else {}
    starts = {tp: max(first[tp], ends[tp] - offsets) for tp in filled}
    latest = dict.fromkeys(topics, 1)
    patience_s = _PATIENCE_S if at_start else float("inf")
    for fetched in read_range(network, starts, ends, apart=at_start, timeout_s=patience_s):
        for columns in columns_of(fetched):
            versions = (latest_version_in(value) for value in columns.values if value is not None)
            latest[fetched.topic] = max(latest[fetched.topic], *versions, 1)
    for topic, spec in sorted(topics.items()):
        if latest[topic] > spec.version:
            yield NewerValues(spec, topic, latest[topic])
