"""What the leader of a classic group asks of the cluster: topics, new topics, log ends and commits.

Each request is retried until it succeeds or its time is up: the leader has a deadline of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from streamsrt.assignment.topics import Ends, Left, TopicErrors, TopicImage, TopicsImage, TopicSpec
from streamsrt.client.admin import Admin
from streamsrt.client.cluster import Cluster
from streamsrt.client.offsets import committed
from streamsrt.client.values import EARLIEST, LATEST, NewTopic, TopicPartition
from streamsrt.errors import RequestFailedError, StreamsError
from streamsrt.wire.error_codes import ErrorCode

TIMEOUT_S: Final = 10.0


LeaderAnswer: TypeAlias = TopicsImage | TopicErrors | Ends | Left


def new_topics(specs: Iterable[TopicSpec]) -> list[NewTopic]:
    """Returns the specifications with which an application's topics are created."""
    return [
        NewTopic(
            name=spec.name,
            partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            configs=dict(spec.configs),
        )
        for spec in specs
    ]


class LeaderWork:
    """Executes a leader's requests (see the module). Belongs to the network thread's loop."""

    def __init__(self, cluster: Cluster, admin: Admin, group_id: str) -> None:
        self._cluster = cluster
        self._admin = admin
        self._group_id = group_id

    async def list_topics(self, names: Collection[str] | None) -> TopicsImage:
        """Returns the existing ones of ``names``, or all topics except the cluster's own."""
        found = await self._admin.retrying(lambda: self._admin.topics(names), TIMEOUT_S)
        return TopicsImage.of(
            *(TopicImage(each.topic_id, each.name, each.partitions) for each in found.values() if not each.is_internal)
        )

    async def create_topics(self, specs: Collection[TopicSpec]) -> TopicErrors:
        """Creates topics; each refusal is an error of its topic."""
        wanted = new_topics(specs)
        try:
            results = await self._admin.retrying(lambda: self._admin.create_topics(wanted, False, TIMEOUT_S), TIMEOUT_S)
        except StreamsError as error:
            return TopicErrors({spec.name: (_code(error), str(error)) for spec in specs})
        return TopicErrors({name: (_code(error), str(error)) for name, error in results.items() if error is not None})

    async def end_offsets(
        self,
        partitions: Collection[TopicPartition],
        group: Collection[TopicPartition],
        written: Collection[TopicPartition],
    ) -> Ends:
        """Returns the end offsets of ``partitions``, for those of ``written`` including open transactions, and the
        group's committed offsets of the partitions in ``group``."""
        found: dict[TopicPartition, int] = {}
        if partitions:
            found |= await self._offsets(partitions, LATEST)
        if written:
            found |= await self._offsets(written, LATEST, read_committed=False)
        if group:
            found |= await self._committed(group)
        return Ends(found)

    async def left(self, partitions: Collection[TopicPartition]) -> Left:
        """Counts the records that the group has not read, in topics for which it has committed offsets."""
        done = await self._committed(partitions)
        topics = {name for name, _ in done}
        if not topics:
            return Left({})
        # A member that is gone may have committed a transaction whose markers are not written yet.
        ends = await self._offsets([each for each in partitions if each[0] in topics], LATEST, read_committed=False)
        unknown = [each for each, end in ends.items() if end and each not in done]
        starts = await self._offsets(unknown, EARLIEST) if unknown else {}
        at = {**starts, **done}
        return Left({each: end - at.get(each, 0) for each, end in ends.items() if end > at.get(each, 0)})

    async def _offsets(
        self, partitions: Collection[TopicPartition], which: int, *, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, which)
        found = await self._admin.retrying(lambda: self._admin.list_offsets(wanted, read_committed), TIMEOUT_S)
        return {each: at.offset for each, at in found.items() if at.offset >= 0}

    async def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        done = await committed(self._cluster, self._group_id, partitions, require_stable=False, timeout_s=TIMEOUT_S)
        return {each: offset.offset for each, offset in done.items()}


def _code(error: StreamsError) -> int:
    return error.error_code if isinstance(error, RequestFailedError) else ErrorCode.REQUEST_TIMED_OUT
