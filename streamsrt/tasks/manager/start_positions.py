"""Where tasks start to read: at committed offsets, or according to their reset policy.

1. Before a task starts, every topic that it reads or writes exists, and its partition count is known.
2. Nothing is remembered here: a request that failed is repeated.
3. If a repartition topic has no committed offset, its start is committed before the task begins. Committed offsets show
   that a repartition topic belongs to the group: a version that does not read it any more finds by them what would be
   lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, OffsetAndMetadata, OffsetOutOfRangeError, TopicPartition
from streamsrt.errors import MissingTopicError, UserError
from streamsrt.tasks.error_policy import NotThereYetError
from streamsrt.tasks.input.offset_metadata import refuse_half_written_state
from streamsrt.tasks.manager.lost_changelogs import emptied_changelog, has_read
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.source_topics import SourceTopics
from streamsrt.tasks.manager.task_settings import TaskSettings
from topology.graph.nodes import Subtopology, internal_topic_name

ADMIN_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class TaskPartitions:
    """The partitions that tasks read."""

    changelogs: list[TopicPartition]
    sources: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class StartPositions:
    """The start positions of tasks: bounds of their changelogs, and positions in their sources."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    sources: Mapping[TopicPartition, OffsetAndMetadata]


class StartPositionFinder:
    """Requests start positions from the cluster. All methods wait for the responses, and raise BrokerError if there are
    none."""

    def __init__(self, settings: TaskSettings, network: Network, source_topics: SourceTopics) -> None:
        self._settings = settings
        self._network = network
        self._source_topics = source_topics

    def find(self, created: list[OwnedTask], member_id: str, member_epoch: int, now_ms: int) -> StartPositions:
        """Returns the start positions of these tasks. Raises NotThereYetError, MissingTopicError, UserError."""
        partitions = self._partitions(created)
        # Offsets first, then the ends: anything committed together with an offset is then below the end, even if its
        # transaction markers are still on their way.
        positions = self.source_positions(partitions.sources, member_id, member_epoch, now_ms)
        starts = self.list_offsets(partitions.changelogs, EARLIEST)
        ends = self.list_offsets(partitions.changelogs, LATEST)
        missing = [*_without(partitions.changelogs, starts), *_without(partitions.changelogs, ends)]
        missing += _without(partitions.sources, positions)
        if missing:
            raise NotThereYetError(missing)
        return StartPositions(starts, ends, positions)

    def _partitions(self, created: list[OwnedTask]) -> TaskPartitions:
        """Returns the partitions that these tasks read. All topics that they read or write exist, and their partition
        counts are known."""
        active = [owned for owned in created if owned.is_active]
        if any(self._source_topics.has_patterns(owned.subtopology) for owned in active):
            present = self._network.admin.topics(timeout_s=ADMIN_TIMEOUT_S)
            for owned in active:
                self._source_topics.match(owned, present)
        changelogs = [
            tp
            for owned in created
            for spec in owned.subtopology.stores
            if (tp := owned.task.restore_target(spec.name)) is not None
        ]
        sources = [tp for owned in active for tp in owned.task.source_partitions]
        outputs = {topic for owned in active for topic in self._output_topics(owned.subtopology)}
        topics = {topic for topic, _ in (*changelogs, *sources)} | outputs
        counts = self._network.admin.partitions_for(topics, timeout_s=ADMIN_TIMEOUT_S) if topics else {}
        missing = sorted(topics - set(counts))
        internal = internal_topic_name(self._settings.application_id, "")
        foreign = [topic for topic in missing if topic in outputs and not topic.startswith(internal)]
        if foreign:
            raise MissingTopicError(
                f"the application writes to topics that no longer exist: {', '.join(foreign)}. Create "
                "them (streamsrt "
                f"topics create {' '.join(foreign)} --partitions N) and start it again"
            )
        if missing:
            raise NotThereYetError(missing)
        # No batch has to wait for the cluster.
        self._settings.note_partitions({topic: counts[topic] for topic in outputs})
        # A topic may have fewer partitions than another one of the same subtopology.
        return TaskPartitions(
            changelogs, [(topic, partition) for topic, partition in sources if partition < counts[topic]]
        )

    def _output_topics(self, subtopology: Subtopology) -> set[str]:
        names = {
            internal_topic_name(self._settings.application_id, sink.topic) if sink.repartition else sink.topic
            for sink in subtopology.sinks
            if sink.topic is not None
        }
        return names | {
            internal_topic_name(self._settings.application_id, spec.changelog_name)
            for spec in subtopology.stores
            if spec.has_own_changelog
        }

    def refuse_emptied(self, owned: OwnedTask, found: StartPositions) -> None:
        """Raises ChangelogLostError if a changelog is empty, although its store has rows and the task's input was read."""
        for spec in owned.subtopology.stores:
            tp = owned.task.restore_target(spec.name)
            if tp is None or not spec.has_own_changelog or found.ends[tp]:
                continue
            at = owned.stores[spec.name].changelog_offset()
            if at and self._has_read(owned, found.sources):
                raise emptied_changelog(owned, spec.name, tp, at)

    def _has_read(self, owned: OwnedTask, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Whether the task's input was read before it starts at these positions."""
        own = {tp: positions[tp] for tp in owned.task.source_partitions if tp in positions}
        return has_read(self._settings.application_id, owned.subtopology, self.list_offsets(own, EARLIEST), own)

    def list_offsets(self, partitions: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, which)
        if not wanted:
            return {}
        found = self._network.admin.list_offsets(wanted, timeout_s=ADMIN_TIMEOUT_S)
        return {tp: at.offset for tp, at in found.items()}

    def source_positions(
        self, partitions: list[TopicPartition], member_id: str, member_epoch: int, now_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if not partitions:
            return {}
        committed = self._network.admin.committed(
            self._settings.application_id,
            partitions,
            member_id=member_id,
            member_epoch=member_epoch,
            timeout_s=ADMIN_TIMEOUT_S,
        )
        refuse_half_written_state(self._settings.application_id, committed)
        found = self._first_positions([tp for tp in partitions if tp not in committed], now_ms)
        first = {tp: OffsetAndMetadata(offset) for tp, offset in found.items()}
        self._commit_first({tp: at for tp, at in first.items() if self._is_repartition(tp)}, member_id, member_epoch)
        return {**committed, **first}

    def _commit_first(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], member_id: str, member_epoch: int
    ) -> None:
        """Commits immediately, not with the first commit: the writer of the topic may stop for good before this task has
        read any of it."""
        if positions:
            self._network.admin.commit(
                self._settings.application_id,
                positions,
                member_id=member_id,
                member_epoch=member_epoch,
                timeout_s=ADMIN_TIMEOUT_S,
            )

    def _is_repartition(self, tp: TopicPartition) -> bool:
        named = internal_topic_name(self._settings.application_id, "")
        return tp[0].startswith(named) and any(
            topic.name == tp[0].removeprefix(named)
            for subtopology in self._settings.subtopologies.values()
            for topic in subtopology.repartition_source_topics
        )

    def _first_positions(self, fresh: list[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
        """Returns the start of partitions without a committed offset. Raises UserError if the reset policy is to fail."""
        by_policy: dict[str, list[TopicPartition]] = defaultdict(list)
        for tp in fresh:
            by_policy[self.reset_policy(tp)].append(tp)
        if "none" in by_policy:
            listed = ", ".join(f"{topic}-{partition}" for topic, partition in by_policy["none"])
            raise UserError(
                f"no offset is committed for {listed}, and its offset_reset is none: commit one, or set another policy"
            )
        found: dict[TopicPartition, int] = {}
        for policy, partitions in by_policy.items():
            named = {"earliest": EARLIEST, "latest": LATEST}
            at = named[policy] if policy in named else self._at_ms(policy, now_ms)
            offsets = self.list_offsets(partitions, at)
            # No record is that young: start at the next one.
            offsets.update(self.list_offsets([tp for tp in partitions if offsets.get(tp, 0) < 0], LATEST))
            found.update(offsets)
        return found

    def after_loss(self, tp: TopicPartition, error: OffsetOutOfRangeError, now_ms: int) -> dict[TopicPartition, int]:
        """Returns where a running task goes on whose log no longer has its position. Raises UserError if the reset policy is
        to fail."""
        if self.reset_policy(tp) == "none":
            raise UserError(
                f"{error} Its offset_reset is none: choose where to go on (streamsrt groups reset-offsets "
                f"{self._settings.application_id} --topic {tp[0]}:{tp[1]} --to-earliest --execute), or set another policy"
            ) from error
        if error.diverged_at is not None:
            return {tp: error.diverged_at}
        return self._first_positions([tp], now_ms)

    def begins(
        self,
        fresh: Iterable[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> dict[TopicPartition, int]:
        """Returns where a reader of each partition would start that has no committed offset, if it started now; the start
        of the log where it would fail. ``ends``: of at least these partitions."""
        found: dict[TopicPartition, int] = {}
        by_time: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in fresh:
            match self.reset_policy(tp):
                case "latest":
                    found[tp] = ends[tp]
                case "earliest" | "none":
                    found[tp] = starts.get(tp, 0)
                case by_duration:
                    by_time[self._at_ms(by_duration, now_ms)].append(tp)
        for at_ms, partitions in by_time.items():
            offsets = self.list_offsets(partitions, at_ms)
            # No record is that young (-1): it would start at the end.
            found |= {tp: at if (at := offsets.get(tp, -1)) >= 0 else ends[tp] for tp in partitions}
        return found

    def _at_ms(self, by_duration: str, now_ms: int) -> int:
        """The time from which such a policy reads. Records have timestamps of the machine's clock."""
        return max(0, self._settings.task_config.clock.at(now_ms) - int(by_duration.rpartition(":")[2]))

    def reset_policy(self, tp: TopicPartition) -> str:
        for subtopology in self._settings.subtopologies.values():
            for source in subtopology.sources:
                if tp[0] in source.topics and source.offset_reset is not None:
                    return source.offset_reset
            matched = self._source_topics.source_of(subtopology, tp[0])
            if matched is not None and matched.offset_reset is not None:
                return matched.offset_reset
        return "earliest" if self._is_repartition(tp) else self._settings.auto_offset_reset


def _without(partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, object]) -> list[TopicPartition]:
    return [tp for tp in partitions if tp not in found]
