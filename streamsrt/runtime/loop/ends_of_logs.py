"""What a stream thread asks of the logs that its tasks read, after a commit: where they end, and that they begin later."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST, TopicPartition
from streamsrt.errors import BrokerError
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.task_manager import TaskManager

logger = logging.getLogger(__name__)

_ADMIN_TIMEOUT_S = 5.0


def is_all_read(network: Network, manager: TaskManager, now_ms: int) -> bool:
    """Whether the running tasks, all of whose work is committed, are at the ends of their logs, and the group has no input
    left. False where the cluster does not tell."""
    positions = manager.positions()
    try:
        ends = network.admin.list_offsets(dict.fromkeys(positions, LATEST), timeout_s=_ADMIN_TIMEOUT_S)
    except BrokerError:
        return False
    # A position beyond the end is about to be reset: the log was created again, or the committed offset was wrong. Of a log
    # whose end the cluster does not tell, nothing is known.
    if any(tp not in ends or ends[tp].offset != at for tp, at in positions.items()):
        return False
    for owned in manager.running():
        owned.note_ends(positions)
    return manager.group_input.is_read(positions, now_ms)


class RepartitionPurge:
    """Deletes records of repartition topics that were read and committed: nobody reads them again.

    It is not waited for: a broker that does not answer must not hold up the tasks. One is under way at a time.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._asked: Future[dict[TopicPartition, int]] | None = None

    def begin(self, running: Iterable[OwnedTask], committed: Mapping[TopicPartition, int]) -> None:
        before = {
            tp: committed[tp]
            for owned in running
            for topic in owned.subtopology.repartition_source_topics
            for tp in owned.inputs
            if tp[0].endswith(f"-{topic.name}") and tp in committed
        }
        if not before or (self._asked is not None and not self._asked.done()):
            return
        self._asked = self._network.admin.begin_delete_records(before, timeout_s=_ADMIN_TIMEOUT_S)
        self._asked.add_done_callback(_tell_failure)


def _tell_failure(asked: Future[dict[TopicPartition, int]]) -> None:
    error = None if asked.cancelled() else asked.exception()
    if error is not None:
        logger.warning("repartition topics could not be purged, trying again later: %s", error)
