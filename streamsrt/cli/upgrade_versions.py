"""Values of stores that a former version can't read, because a later one has written them: then there is no way back.

1. The changelogs are the source: each value contains the version that wrote it. The last written value decides, so the
   end of each partition is read, at most :data:`LOOKED_AT` offsets of it.
2. A changelog that does not exist contains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamsrt.backfill.plan import SourceRange
from streamsrt.backfill.sources import LogReader
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.graph.topology import Topology
from topology.spec.row_versions import latest_version_in

LOOKED_AT = 1_000


def unreadable_stores(network: NetworkThread, group: str, former: Topology) -> list[str]:
    """A sentence for each store whose values ``former`` can't read."""
    specs = [spec for part in former.subtopologies for spec in part.stores if spec.has_own_changelog]
    topics = {internal_topic_name(group, spec.changelog_name): spec for spec in specs}
    counts = network.admin.partitions_for(sorted(topics)) if topics else {}
    found = []
    for topic, spec in sorted(topics.items()):
        latest = max(_versions(network, topic, counts.get(topic, 0)), default=1)
        if latest > spec.version:
            found.append(_said(spec, topic, latest))
    return found


def _versions(network: NetworkThread, topic: str, count: int) -> Iterator[int]:
    if not count:
        return
    partitions = [(topic, partition) for partition in range(count)]
    starts = network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    sources = []
    for tp in partitions:
        end = ends[tp].offset
        start = max(starts[tp].offset, end - LOOKED_AT)
        if start < end:
            sources.append(SourceRange(topic=topic, partition=tp[1], start=start, end=end, log_start=start))
    reader = LogReader(network, sources)
    for source in sources:
        for columns in reader.columns(source):
            yield max((latest_version_in(value) for value in columns.values if value is not None), default=1)


def _said(spec: StoreSpec, topic: str, latest: int) -> str:
    return (
        f"store {spec.name}: its changelog {topic} has values of version {latest}, and the former version reads them up to "
        f"version {spec.version}. It would fail at the first one, so you can't roll back: correct the "
        "later version and continue with that"
    )
