"""Which topics exist, and which broker leads which partition.

1. Only requested topics are kept up to date.
2. Updates run one at a time, never more often than ``retry.backoff.ms``, at least every ``metadata.max.age.ms``, and as
   soon as one is requested (:meth:`Metadata.request_update`).
3. An older leader epoch never replaces a newer one of the same topic id: it comes from a lagging broker.
4. A metadata request never creates a topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from streamsrt.client.cluster import TRANSPORT_ERRORS, Cluster
from streamsrt.client.values import ClusterInfo, TopicInfo
from streamsrt.errors import UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode

log = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition. -1: there is none at the moment."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """An existing topic. ``leaders`` by partition."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: dict[int, Leader]

    @property
    def info(self) -> TopicInfo:
        return TopicInfo(self.name, self.topic_id, len(self.leaders), self.is_internal)


class Metadata:
    """The cached metadata. Belongs to the network thread's loop."""

    def __init__(self, cluster: Cluster) -> None:
        self.topics: dict[str, TopicMetadata] = {}
        self.hidden: set[str | None] = set()
        """Topics of the last :meth:`fetch` that this client may not describe."""
        self.absent: set[str] = set()
        """Topics that are kept up to date and did not exist at the last update."""
        self.names: dict[bytes, str] = {}
        self._cluster = cluster
        self._wanted: set[str] = set()
        self._asked = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def lacks_all(self) -> bool:
        """Whether none of the topics existed at the last update: a broker before KRaft says so until the controller has told
        it, for seconds after its start."""
        return self._wanted <= self.absent

    def on_update(self, listener: Callable[[], None]) -> None:
        """Calls ``listener`` after every update."""
        self._listeners.append(listener)

    def want(self, topic: str) -> None:
        """Keeps this topic up to date from now on."""
        if topic not in self._wanted:
            self._wanted.add(topic)
            self._asked.set()

    def request_update(self) -> None:
        """Requests an update, because cached metadata is outdated."""
        self._asked.set()

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Returns the leader; None if it is unknown or there is none at the moment: then an update is in progress."""
        known = self.topics.get(topic)
        leader = None if known is None else known.leaders.get(partition)
        if leader is None or leader.node_id == NO_LEADER or leader.node_id not in self._cluster.brokers:
            self.want(topic)
            self._asked.set()
            return None
        return leader

    def topic_id(self, topic: str) -> bytes:
        """Returns the topic id; sixteen zero bytes if the broker gives topics no ids."""
        known = self.topics.get(topic)
        return NO_TOPIC_ID if known is None else known.topic_id

    async def run(self) -> None:
        """Updates forever."""
        config = self._cluster.config
        while True:
            try:
                async with asyncio.timeout(config.metadata_max_age_ms / 1000):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            try:
                if self._wanted:
                    await self.fetch(self._wanted)
            except (*TRANSPORT_ERRORS, UnsupportedBrokerError) as error:
                log.debug("No metadata: %s", error)
                self._asked.set()
            for listener in self._listeners:
                listener()
            await asyncio.sleep(config.retry_backoff_ms / 1000)

    async def fetch(self, names: Collection[str] | None) -> dict[str, TopicMetadata]:
        """Requests metadata now; None: of all topics. Topics that do not exist are absent from the result and removed
        from the cache."""
        topics = None
        if names is not None:
            topics = [
                types.MetadataRequest.MetadataRequestTopic(name=name, topic_id=NO_TOPIC_ID) for name in sorted(names)
            ]
        request = types.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self._cluster.send(request, version_min=4)
        self._cluster.update(response)
        found = {}
        self.hidden = {
            topic.name for topic in response.topics if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }
        for topic in response.topics:
            if topic.error_code in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE} and topic.name is not None:
                found[topic.name] = self._take(topic.name, topic)
                self.absent.discard(topic.name)
            elif topic.name in self._wanted and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.absent.add(topic.name)
                if (gone := self.topics.pop(topic.name, None)) is not None:
                    self.names.pop(gone.topic_id, None)
        return found

    def _take(self, name: str, topic: types.MetadataResponse.MetadataResponseTopic) -> TopicMetadata:
        before = self.topics.get(name)
        same = before is not None and before.topic_id == topic.topic_id
        leaders = {}
        for partition in topic.partitions:
            leader = Leader(partition.leader_id, partition.leader_epoch)
            known = before.leaders.get(partition.partition_index) if before is not None and same else None
            if known is not None and -1 < leader.epoch < known.epoch:
                leader = known
            leaders[partition.partition_index] = leader
        taken = TopicMetadata(name, topic.topic_id, topic.is_internal, leaders)
        if name in self._wanted:
            if before is not None:
                self.names.pop(before.topic_id, None)
            self.topics[name] = taken
            if topic.topic_id != NO_TOPIC_ID:
                self.names[topic.topic_id] = name
        return taken

    async def cluster_info(self) -> ClusterInfo:
        """Requests the brokers now."""
        connection = await self._cluster.any_connection()
        version = connection.version_of(types.MetadataRequest, 4)
        response = await connection.request(
            types.MetadataRequest(topics=[], allow_auto_topic_creation=False), version=version
        )
        self._cluster.update(response)
        brokers = tuple(sorted(self._cluster.brokers.values(), key=lambda broker: broker.node_id))
        cluster = self._cluster
        return ClusterInfo(
            cluster.cluster_id, cluster.controller_id, brokers, connection.api_versions, connection.features
        )
