"""Finds changelogs that were deleted while the application has state in them, and those that nobody will create.

1. The rows are then in the stores on disk only. Whoever assigns tasks creates the topic again, at once or with the next
   assignment. It would lack the rows, and the task's store would be wiped to match it: the instance ends before that.
2. It shows in one of four ways: the topic is gone when a task starts, or while one runs, which is looked at from time to
   time; it is empty, although the store has rows and the task's input was read before; or its end goes back between two
   commits.
3. Beside members of Java's Kafka Streams, a topic that was never there shows that the leader runs another topology: a leader
   creates the changelogs of its own topology before it assigns tasks.
4. A store that has lost its rows together with the topic can't be told from one that never had any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import CancelledError, Future

from streamsrt.client.interface import Network
from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.errors import ChangelogLostError, StreamsError, TopologyMismatchError
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from topology.graph.nodes import Subtopology, internal_topic_name

logger = logging.getLogger(__name__)

PATIENCE_MS = 4_000
"""How long a topic has to be missing: brokers do not know a new topic at once."""
JAVA_PATIENCE_MS = 10_000
WATCH_INTERVAL_MS = 30_000
_AGAIN_MS = 1_000


def foreign_changelogs(group: str, created: Iterable[OwnedTask], missing: Collection[object]) -> StreamsError | None:
    """Returns the error for changelogs that the leader's topology does not have, as it seems."""
    for owned in created:
        stores = {
            topic[0]: spec.name
            for spec in owned.subtopology.stores
            if spec.has_own_changelog and (topic := owned.task.restore_target(spec.name)) is not None
        }
        absent = sorted(topic for topic in stores if topic in missing)
        if absent and not any(topic in missing for topic, _ in owned.task.source_partitions):
            return TopologyMismatchError(
                f"Group {group!r} has given task {owned} to this instance, but {', '.join(absent)} does not exist: the "
                "leader of the group creates the changelogs of its own topology before it assigns tasks, so it runs another "
                f"one, with other stores than {', '.join(stores[topic] for topic in absent)} in subtopology "
                f"{owned.key[0]}. Beside members of Java's Kafka Streams, all stores need the same names: compare "
                "`streamsrt topology describe` with Java's Topology.describe(), and see `streamsrt topics list`. "
                "If somebody has deleted the topic, start the instance again: with the next tasks, the leader creates it"
            )
    return None


def missing_changelog(created: Iterable[OwnedTask], missing: Collection[object]) -> ChangelogLostError | None:
    """Returns the error for a missing changelog of a store that has rows. ``missing``: topics. None: nothing shows that it
    was ever there, or the input is missing as well, which is another trouble."""
    for owned in created:
        if any(topic in missing for topic, _ in owned.task.source_partitions):
            continue
        for spec in owned.subtopology.stores:
            tp = owned.task.restore_target(spec.name)
            if spec.has_own_changelog and tp is not None and tp[0] in missing:
                at = owned.stores[spec.name].changelog_offset()
                if at:
                    return _error(
                        owned, spec.name, tp[0], f"was deleted, and store {spec.name} has rows up to offset {at}"
                    )
    return None


class ChangelogWatch:
    """Looks every :data:`WATCH_INTERVAL_MS` whether the changelogs of running tasks exist: without records, nothing else
    would show that one is gone. Nobody waits for the answer."""

    def __init__(self, network: Network, running: Callable[[], Collection[OwnedTask]]) -> None:
        self._network = network
        self._running = running
        self._look_at_ms: int | None = None
        self._answer: Future[types.MetadataResponse] | None = None
        self._missing_since_ms: int | None = None

    def check(self, now_ms: int) -> None:
        """Asks if it is time to, or takes the answer. Raises ChangelogLostError for a topic that stays away: a broker that
        has just started may not know it yet."""
        if self._answer is not None:
            if self._answer.done():
                self._take(self._answer, now_ms)
        elif self._look_at_ms is None:
            self._look_at_ms = now_ms + WATCH_INTERVAL_MS
        elif now_ms >= self._look_at_ms:
            self._ask(now_ms)

    def _ask(self, now_ms: int) -> None:
        names = {
            name
            for owned in self._running()
            for name in (*_changelogs(owned), *(topic for topic, _ in owned.task.source_partitions))
        }
        if not names:
            self._look_at_ms = now_ms + WATCH_INTERVAL_MS
            return
        topics = [types.MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)]
        self._answer = self._network.request(types.MetadataRequest(topics=topics, allow_auto_topic_creation=False))

    def _take(self, answer: Future[types.MetadataResponse], now_ms: int) -> None:
        self._answer, self._look_at_ms = None, now_ms + WATCH_INTERVAL_MS
        try:
            found = answer.result().topics
        except (StreamsError, CancelledError) as error:
            logger.debug("it is not known whether changelogs exist: %s", error)
            return
        missing = {each.name for each in found if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        lost = missing_changelog(self._running(), missing)
        if lost is None:
            self._missing_since_ms = None
            return
        if self._missing_since_ms is None:
            self._missing_since_ms = now_ms
        if now_ms - self._missing_since_ms >= PATIENCE_MS:
            raise lost
        self._look_at_ms = now_ms + _AGAIN_MS


def _changelogs(owned: OwnedTask) -> set[str]:
    targets = (owned.task.restore_target(spec.name) for spec in owned.subtopology.stores if spec.has_own_changelog)
    return {tp[0] for tp in targets if tp is not None}


def emptied_changelog(owned: OwnedTask, store: str, tp: TopicPartition, at: int) -> ChangelogLostError:
    """Returns the error for a store at offset ``at`` whose changelog is empty."""
    return _error(
        owned, store, tp[0], f"is empty, and store {store} has rows up to offset {at}: it was deleted and created again"
    )


def has_read(
    application_id: str,
    subtopology: Subtopology,
    starts: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, OffsetAndMetadata],
) -> bool:
    """Whether input was read before: a reset of the application deletes changelogs on purpose, with everything read again.
    ``starts``: of the logs; that of a repartition topic moves with what was read of it."""
    own = {internal_topic_name(application_id, topic.name) for topic in subtopology.repartition_source_topics}
    return any(at.offset > (0 if tp[0] in own else starts.get(tp, 0)) for tp, at in positions.items())


def check_ends(owned: OwnedTask, ends: Mapping[str, int]) -> None:
    """Raises ChangelogLostError if a changelog ends before what was written to it earlier. ``ends``: by store."""
    for store in [spec.name for spec in owned.subtopology.stores if spec.has_own_changelog and spec.name in ends]:
        end = ends[store]
        before = owned.written_to.get(store, owned.restored_to.get(store, 0))
        if end <= before:
            topic = owned.task.restore_target(store)
            raise _error(
                owned,
                store,
                "" if topic is None else topic[0],
                f"ended at offset {before} and now ends at {end}: it was deleted and created again, or brokers lost records",
            )
        owned.written_to[store] = end


def _error(owned: OwnedTask, store: str, topic: str, what: str) -> ChangelogLostError:
    return ChangelogLostError(
        f"task {owned}: the changelog {topic} {what}. These rows are only in the state directories of instances that have "
        "the store; a new changelog would lack them, and the state would be lost. Stop all instances and copy their state "
        f"directories (`streamsrt state export` reads store {store} from one). Then restore the topic from a backup; or "
        "compute its rows again with `streamsrt backfill`; or give the state up: delete it with `streamsrt state clean`, "
        "and with `streamsrt groups reset-offsets APP --to-earliest --delete-internal-topics` read all input again. "
        "docs/troubleshooting.md describes each way"
    )
