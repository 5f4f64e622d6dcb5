"""Knows which instance has which stores and partitions, from the group coordinator's latest response with endpoints.

1. A partition of a store is where the source partitions of its task are: active in one instance, standby in others.
2. Only instances with ``application.server`` are known here; queries can't be routed to others.
3. The partition of a key is where Kafka's producers send its bytes (murmur2), unless ``partitioner`` computes another
   one because the input is partitioned differently.

Source: KIP-1071 ``PartitionsByUserEndpoint``; ``StreamsMetadataState``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from streamsrt.errors import BrokerError, MissingTopicError, UserError
from streamsrt.membership.values import Endpoint, TopicPartition
from streamsrt.queries.errors import StreamsRebalancingError, UnknownStateStoreError
from streamsrt.queries.values import HostInfo, Key, KeyQueryMetadata, Partitioner, StreamsMetadata
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wording import error_text
from topology.graph.nodes import StoreSpec, Subtopology, internal_topic_name
from topology.graph.topology import Topology

Partitions = frozenset[TopicPartition]


class SerializedKey(NamedTuple):
    """A key serialized by its store's serde in another process."""

    data: bytes


class StoreDirectory:
    """The stores of a topology: by name, with the topics that feed them."""

    def __init__(self, topology: Topology, application_id: str) -> None:
        self._stores: dict[str, tuple[Subtopology, StoreSpec]] = {
            spec.name: (subtopology, spec)
            for subtopology in (*topology.subtopologies, *topology.global_subtopologies)
            for spec in subtopology.stores
        }
        self.globals = frozenset(
            spec.name for subtopology in topology.global_subtopologies for spec in subtopology.stores
        )
        """The stores of which every instance has all."""
        self._application_id = application_id

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._stores))

    def spec(self, store: str) -> StoreSpec:
        """Raises UnknownStateStoreError."""
        try:
            return self._stores[store][1]
        except KeyError:
            names = ", ".join(self.names) or "none"
            raise UnknownStateStoreError(f"the topology has no store {store!r}; its stores: {names}") from None

    def is_global(self, store: str) -> bool:
        """Whether every instance has the whole store; it then counts as one partition."""
        return store in self.globals

    def source_topics(self, store: str) -> frozenset[str]:
        """Returns the topics, by full name, that the tasks with this store read. Raises UnknownStateStoreError."""
        self.spec(store)
        return frozenset(
            internal_topic_name(self._application_id, topic) if source.repartition else topic
            for source in self._stores[store][0].sources
            for topic in source.topics
        )

    def counting_topics(self, store: str) -> frozenset[str]:
        """Returns the topics whose largest partition count is that of the store."""
        spec = self.spec(store)
        if spec.has_own_changelog:
            return frozenset((internal_topic_name(self._application_id, spec.changelog_name),))
        return self.source_topics(store)

    def reads(self, store: str, topic: str) -> bool:
        """Whether the tasks with this store read a topic, by its name or by a pattern."""
        return topic in self.source_topics(store) or any(
            source.pattern is not None and re.fullmatch(source.pattern, topic)
            for source in self._stores[store][0].sources
        )

    def stores_of(self, partitions: Partitions) -> frozenset[str]:
        """Returns the stores of the tasks that read these partitions."""
        topics = {topic for topic, _ in partitions}
        return frozenset(
            name
            for name in self._stores
            if name not in self.globals and any(self.reads(name, topic) for topic in topics)
        )

    def key_bytes(self, store: str, key: Key) -> bytes:
        """Serializes a key with the store's serde. Raises UserError if it fails."""
        if isinstance(key, SerializedKey):
            return key.data
        serde = self.spec(store).key_serde
        assert serde is not None
        try:
            return serde.serialize(key)
        except Exception as error:
            raise UserError(
                f"{key!r} can't be a key of store {store!r}: its serde raised {error_text(error)}"
            ) from error


class Routing:
    """The instances with their partitions. Updated by the processing thread, read by any thread."""

    def __init__(
        self, stores: StoreDirectory, partitions_of_topic: Callable[[str], int], own_host: HostInfo | None = None
    ) -> None:
        self.stores = stores
        self.own_host = own_host
        self.partitions_of_topic = partitions_of_topic
        self._hosts: dict[HostInfo, tuple[Partitions, Partitions]] = {}

    def update(self, partitions: Mapping[Endpoint, tuple[Partitions, Partitions]]) -> None:
        """Takes over the group coordinator's report: active and standby partitions by endpoint."""
        self._hosts = {HostInfo(each.host, each.port): found for each, found in partitions.items()}

    @property
    def hosts(self) -> Mapping[HostInfo, tuple[Partitions, Partitions]]:
        """Returns the last :meth:`update`."""
        return self._hosts

    def all_metadata(self) -> list[StreamsMetadata]:
        """Returns the tasks and stores of every instance with an endpoint. Global stores are in each of them."""
        everywhere = self.stores.globals
        return [
            StreamsMetadata(
                host, self.stores.stores_of(active) | everywhere, active, self.stores.stores_of(standby), standby
            )
            for host, (active, standby) in sorted(self.hosts.items())
        ]

    def metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Returns the instances that have partitions of a store, active or standby. Raises UnknownStateStoreError."""
        self.stores.spec(store)
        return [
            each for each in self.all_metadata() if store in each.state_store_names | each.standby_state_store_names
        ]

    def partition_count(self, store: str) -> int:
        """Returns a store's partition count. Raises UnknownStateStoreError, StreamsRebalancingError."""
        if self.stores.is_global(store):
            return 1
        topics = self.stores.counting_topics(store)
        if not self.stores.spec(store).has_own_changelog:
            # What matches a pattern is known of the instances that read it.
            read = {topic for active, standby in self.hosts.values() for topic, _ in active | standby}
            topics |= {topic for topic in read if self.stores.reads(store, topic)}
        try:
            return max(map(self.partitions_of_topic, sorted(topics)), default=1)
        except (BrokerError, MissingTopicError) as error:
            raise StreamsRebalancingError(
                f"the number of partitions of store {store!r} is not known: {error}"
            ) from error

    def partition_of(self, store: str, key: Key, partitioner: Partitioner | None = None) -> int:
        """Returns the partition of a key."""
        count = self.partition_count(store)
        if partitioner is not None:
            return partitioner(key, count)
        return partition_for_key(self.stores.key_bytes(store, key), count)

    def hosts_of(self, store: str, partition: int) -> tuple[HostInfo | None, frozenset[HostInfo]]:
        """Returns the instances with the active task and with standbys of a store's partition, as far as they are known."""
        if self.stores.is_global(store):
            return self.own_host, frozenset()

        def has(partitions: Partitions) -> bool:
            return any(number == partition and self.stores.reads(store, topic) for topic, number in partitions)

        active = [host for host, (actives, _) in self.hosts.items() if has(actives)]
        standby = frozenset(host for host, (_, standbys) in self.hosts.items() if has(standbys))
        return (active[0] if active else None), standby

    def key_metadata(self, store: str, key: Key, partitioner: Partitioner | None = None) -> KeyQueryMetadata:
        """Returns the instances that have a key. Raises UnknownStateStoreError, StreamsRebalancingError, UserError (the
        key's type)."""
        partition = self.partition_of(store, key, partitioner)
        active, standbys = self.hosts_of(store, partition)
        return KeyQueryMetadata(active, standbys, partition)
