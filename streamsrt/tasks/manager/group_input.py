"""Input that the whole group has not read yet, for a member that ends when all present input is processed.

1. A member knows only its own tasks. Other tasks may belong to members that process them, to a killed member whose
   session has not ended, or to nobody. So if a member does not have every input partition, it compares the group's
   committed offsets with the ends of all input topics: those of the sources, and the repartition topics.
2. Committed offsets are read first, the ends after them. Results are written before the offsets of their input are
   committed: if nothing is unread, nothing is on its way between two tasks either. For its own partitions, the member
   uses its positions, which it has committed.
3. If there is no committed offset that the log still has, a reader starts according to its reset policy: only
   ``latest`` leaves nothing unread.
4. Where the cluster does not describe a topic that a source names, or a partition, nothing is known of its records: it
   is not taken for a topic without records.
5. The check is made when all own tasks are at their ends, at most once per :data:`REQUEST_INTERVAL_MS`; the answer is valid
   for that long.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, TopicInfo, TopicPartition
from streamsrt.errors import BrokerError
from streamsrt.tasks.error_policy import NotThereYetError
from streamsrt.tasks.manager.source_topics import SourceTopics
from streamsrt.tasks.manager.start_positions import ADMIN_TIMEOUT_S, StartPositionFinder
from streamsrt.wording import counted

logger = logging.getLogger(__name__)

REQUEST_INTERVAL_MS = 1_000
LOG_INTERVAL_MS = 10_000
_SHOWN_PARTITIONS = 5


class GroupInput:
    """Requests the unread input from the cluster, and keeps the latest result."""

    def __init__(
        self, application_id: str, network: Network, source_topics: SourceTopics, finder: StartPositionFinder
    ) -> None:
        self._group_id = application_id
        self._network = network
        self._source_topics = source_topics
        self._finder = finder
        self._requested_ms: int | None = None
        self._is_read = False
        self._logged_ms: int | None = None

    def is_read(self, own: Mapping[TopicPartition, int], now_ms: int) -> bool:
        """Returns whether the group has read and committed all of its input; False if the cluster does not answer.
        ``own``: committed positions of this member."""
        if self._requested_ms is None or now_ms - self._requested_ms >= REQUEST_INTERVAL_MS:
            self._requested_ms = now_ms
            self._is_read = self._is_all_read(own, now_ms)
        return self._is_read

    def _is_all_read(self, own: Mapping[TopicPartition, int], now_ms: int) -> bool:
        try:
            unread = self.unread(own, now_ms)
        except BrokerError as error:
            self._log(f"it is not known which records the group has not read yet: {error}", now_ms)
            return False
        if unread:
            shown = [f"{topic}-{partition}: {count}" for (topic, partition), count in sorted(unread.items())]
            more = ", ..." if len(shown) > _SHOWN_PARTITIONS else ""
            self._log(
                f"{counted(sum(unread.values()), 'record')} outside this member's tasks not processed and committed yet "
                f"({', '.join(shown[:_SHOWN_PARTITIONS])}{more}). If a member was killed, its tasks move to others "
                f"when its session ends; streamsrt groups describe {self._group_id} shows the members",
                now_ms,
            )
        else:
            self._logged_ms = None
        return not unread

    def _log(self, why: str, now_ms: int) -> None:
        if self._logged_ms is None:
            # Usually this is over within moments.
            self._logged_ms = now_ms
        elif now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            logger.warning("not stopping yet: %s", why)

    def unread(self, own: Mapping[TopicPartition, int], now_ms: int) -> dict[TopicPartition, int]:
        """Returns the number of unread records of each input partition of the group that has any. Raises BrokerError, also
        where nothing is unread of what the cluster describes, but it does not describe everything."""
        described = self._described()
        partitions = {(name, partition) for name, topic in described.items() for partition in range(topic.partitions)}
        left = {} if own.keys() >= partitions else self._left(partitions, own, now_ms)
        if not left and (missing := sorted(self._source_topics.named - described.keys())):
            raise NotThereYetError(missing)
        return left

    def _left(
        self, partitions: Collection[TopicPartition], own: Mapping[TopicPartition, int], now_ms: int
    ) -> dict[TopicPartition, int]:
        found = self._network.admin.committed(self._group_id, require_stable=False, timeout_s=ADMIN_TIMEOUT_S)
        # If a transaction is undecided, the older offset counts: something is still unread.
        committed = {tp: at.offset for tp, at in found.items()} | dict(own)
        starts = self._finder.list_offsets(partitions, EARLIEST)
        ends = self._finder.list_offsets(partitions, LATEST)
        next_read = {tp: at for tp, at in committed.items() if tp in ends and starts.get(tp, 0) <= at <= ends[tp]}
        fresh = [tp for tp in ends if tp not in next_read]
        next_read |= self._finder.begins(fresh, starts, ends, now_ms)
        left = {tp: count for tp, end in ends.items() if (count := end - next_read[tp]) > 0}
        if not left and (missing := sorted(tp for tp in partitions if tp not in ends)):
            raise NotThereYetError(missing)
        return left

    def _described(self) -> dict[str, TopicInfo]:
        """Returns the input topics of the group, as far as the cluster describes them."""
        admin = self._network.admin
        return self._source_topics.among(lambda names: admin.topics(names, timeout_s=ADMIN_TIMEOUT_S))
