"""Refuses a version that would leave records in flight unread, where no coordinator looks after them.

1. The bundled broker, and the leader of a classic group, refuse such a version themselves. In a streams group of Apache
   Kafka, whose topology can only change after the group was deleted, nobody does.
2. Topics of earlier versions are known by their names, and by the group's committed offsets of them.
3. Only the first instance that starts checks: with others in the group, its topology is decided.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.assignment.in_flight import left_topics
from streamsrt.assignment.topology import topology_of
from streamsrt.client.interface import Administering
from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.errors import TopologyMismatchError
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.runtime.group_facts import unread_records
from streamsrt.wire.features import WHOLE_STREAMS_PROTOCOL
from streamsrt.wording import counted
from topology.graph.topology import Topology


def refuse_left_records(
    config: StreamsConfig,
    topology: Topology,
    admin: Administering,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Raises TopologyMismatchError; BrokerError. Called when the group has no members. ``committed``: its offsets."""
    name = config.application_id
    if config.upgrade_lose_in_flight or WHOLE_STREAMS_PROTOCOL in admin.cluster().features:
        return
    known = topology_of(topology_metadata(topology, name, subtopology_id=config.subtopology_id))
    left = unread_records(admin, name, left_topics(name, known, {topic for topic, _ in committed}), committed)
    if left:
        listed = ", ".join(f"{topic} ({counted(count, 'record')})" for topic, count in sorted(left.items()))
        raise TopologyMismatchError(
            f"Application {name!r}: records are in flight in repartition topics that this version does not read: {listed}. "
            "Start the version that has these topics again: if this one has run meanwhile, `streamsrt groups "
            f"forget-topology {name} --execute` first. Stop the producers, let it read the topics to the end, and stop it "
            "before you start this version. If the records may be lost, start with --lose-in-flight, or delete the topics"
        )
