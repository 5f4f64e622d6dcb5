"""Topics that batches wait for although the cluster says that they do not exist: somebody has deleted them.

1. A topic counts as absent when a batch for it has waited for a third of ``absent_topic_timeout_ms`` and the metadata
   requested since then says so. Before that, it may just have been created, and not be known to all brokers.
2. After ``absent_topic_timeout_ms`` the batch fails, long before ``delivery.timeout.ms``. Whoever starts over then finds out
   what to do about the topic. Records of a changelog are never left out: no handler is asked about them.
3. A broker that knows none of the client's topics has just started, and tells nothing.
4. Nothing is done while batches are acknowledged in time.
"""

from __future__ import annotations

import logging
import math

from streamsrt.client.metadata import Metadata

log = logging.getLogger(__name__)


class AbsentTopics:
    """Belongs to the network thread's loop; any thread may read ``names``."""

    def __init__(self, metadata: Metadata, timeout_s: float) -> None:
        self.names: tuple[str, ...] = ()
        """The topics that batches wait for at this moment."""
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._asked_at = -math.inf

    def has_failed(self, topic: str, waited_s: float, now: float) -> bool:
        """Whether a batch that has waited for so long fails. Logs once that a topic is absent."""
        patience_s = self._timeout_s / 3
        if waited_s < patience_s:
            return False
        if now - self._asked_at >= patience_s / 2:
            if now - self._asked_at >= self._timeout_s:
                # What was absent earlier may be there by now.
                self._metadata.absent.clear()
            self._asked_at = now
            self._metadata.want(topic)
            self._metadata.request_update()
        if topic not in self._metadata.absent or self._metadata.lacks_all:
            return False
        if topic not in self.names:
            self.names = (*self.names, topic)
            log.warning("%s", absent_text(topic))
        return waited_s >= self._timeout_s

    def forget_present(self) -> None:
        """Forgets topics that exist again."""
        if self.names:
            self.names = tuple(name for name in self.names if name in self._metadata.absent)


def absent_text(topic: str) -> str:
    """Describes for people what an absent topic prevents."""
    return (
        f"results wait to be written to topic {topic}, which does not exist: nothing can be committed until it is there"
    )
