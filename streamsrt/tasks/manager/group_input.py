"""Input that the whole group has not read yet, for a member that ends when all present input is processed.

1. A member knows only its own tasks. Other tasks may belong to members that process them, to a killed member whose
   session has not ended, or to nobody. So if a member does not have every input partition, it compares the group's
   committed offsets with the ends of all input topics: those of the sources, and the repartition topics.
2. Committed offsets are read first, the ends after them. Results are written before the offsets of their input are
   committed: if nothing is unread, nothing is on its way between two tasks either. For its own partitions, the member
   uses its positions, which it has committed.
3. If there is no committed offset that the log still has, a reader starts according to its reset policy: only
   ``earliest`` leaves something unread.
4. The check is made when all own tasks are at their ends, at most once per :data:`REQUEST_INTERVAL_MS`; the answer is valid
   for that long.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, TopicPartition
from streamsrt.errors import BrokerError
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
            unread = self.unread(own)
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

    def unread(self, own: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the number of unread records of each input partition of the group that has any. Raises BrokerError."""
        partitions = self._partitions()
        if own.keys() >= partitions:
            return {}
        found = self._network.admin.committed(self._group_id, require_stable=False, timeout_s=ADMIN_TIMEOUT_S)
        # If a transaction is undecided, the older offset counts: something is still unread.
        committed = {tp: at.offset for tp, at in found.items()} | dict(own)
        starts = self._finder.list_offsets(partitions, EARLIEST)
        ends = self._finder.list_offsets(partitions, LATEST)
        left = {tp: self._left(tp, committed.get(tp), starts.get(tp, 0), end) for tp, end in ends.items()}
        return {tp: count for tp, count in left.items() if count > 0}

    def _left(self, tp: TopicPartition, committed: int | None, start: int, end: int) -> int:
        if committed is not None and start <= committed <= end:
            return end - committed
        return end - start if self._finder.reset_policy(tp) == "earliest" else 0

    def _partitions(self) -> frozenset[TopicPartition]:
        """Returns all existing input partitions of the group."""
        admin = self._network.admin
        read = self._source_topics.among(lambda names: admin.topics(names, timeout_s=ADMIN_TIMEOUT_S))
        return frozenset((name, partition) for name, topic in read.items() for partition in range(topic.partitions))
