"""The application whose state is taken over, as it is in the cluster: positions, changelogs, what it has not processed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from streamsrt.assignment.internal_topics import is_changelog
from streamsrt.backfill.errors import PlanError, UnplacedRowError
from streamsrt.backfill.group import running_state
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.repartition.partitioners import Placing
from streamsrt.backfill.repartition.survey import records_elsewhere, source_key
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.tasks.input.offset_metadata import refuse_half_written_state
from streamsrt.wire.records import RecordColumns
from streamsrt.wording import counted
from topology.graph.nodes import Subtopology

_LISTED = 5
_BETWEEN = ("-repartition", "-topic")
"""How the topics between subtopologies end, those of foreign-key joins too."""


class OtherApplication:
    """The application of that name on a cluster. Raises PlanError if it has committed nothing there."""

    def __init__(self, network: Network, application_id: str) -> None:
        self._network = network
        self.application_id = application_id
        self.committed: Mapping[TopicPartition, OffsetAndMetadata] = network.admin.committed(application_id)
        if not self.committed:
            raise PlanError(
                f"application {application_id!r} has no committed offsets on this cluster, so nobody knows up to where its "
                "state goes. Check its name (streamsrt groups list)"
            )
        refuse_half_written_state(application_id, self.committed)

    def positions(self, topic: str) -> dict[int, int]:
        """What it has committed of a topic, by partition."""
        return {index: at.offset for (name, index), at in self.committed.items() if name == topic}

    def ends(self, topic: str, count: int) -> tuple[int, ...]:
        """Where the partitions of a changelog end. Raises PlanError if a transaction is open on one."""
        partitions = dict.fromkeys(((topic, index) for index in range(count)), LATEST)
        ends = self._network.admin.list_offsets(partitions)
        decided = self._network.admin.list_offsets(partitions, read_committed=True)
        for tp in partitions:
            if decided[tp].offset < ends[tp].offset:
                raise PlanError(
                    f"a transaction is open on {tp[0]}-{tp[1]}, so its end is not known. If {self.application_id!r} runs, "
                    "stop it; else wait until the broker ends the transaction (transaction.timeout.ms of the producer), "
                    "and plan again"
                )
        return tuple(ends[tp].offset for tp in partitions)

    def check_drained(self, own_topics: Collection[str], source_topics: Collection[str]) -> None:
        """Raises PlanError if records are on the way between its subtopologies. ``own_topics``: repartition topics that it
        has if it is the same program; ``source_topics``: those that are no topics of its own."""
        named = {name for name, _ in self.committed if name.startswith(f"{self.application_id}-")}
        own = {name for name in named if name.endswith(_BETWEEN)} - set(source_topics)
        there = self._network.admin.partitions_for(own | set(own_topics))
        waiting = {topic: self._unread([(topic, index) for index in range(count)]) for topic, count in there.items()}
        for topic, records in sorted(waiting.items()):
            if records:
                raise PlanError(
                    f"application {self.application_id!r} has not processed {counted(records, 'record')} of its topic "
                    f"{topic} yet, and they would be lost. Let it process what is there, stop it, and plan again"
                )

    def check_at_rest(self, counts: Mapping[str, int]) -> None:
        """Raises PlanError if it runs and has not processed everything: its state goes on then. ``counts``: the numbers of
        partitions of its source topics."""
        state = running_state(self._network, self.application_id)
        if state is None:
            return
        # It may have processed the first records of a partition, and not have committed an offset of it yet.
        sources = {(topic, index) for topic, count in counts.items() for index in range(count)}
        waiting = self._unread(sorted(sources | self.committed.keys()))
        if waiting:
            raise PlanError(
                f"application {self.application_id!r} is running (its group is {state}) and has "
                f"{counted(waiting, 'record')} to process: its state and its offsets are not of one moment. Stop it, and "
                "plan again. It can be started again after the run"
            )
        if self._network.admin.committed(self.application_id) != self.committed:
            raise PlanError(
                f"application {self.application_id!r} is running, and has committed offsets just now. Stop it, and plan "
                "again. It can be started again after the run"
            )

    def check_places(self, subtopology: Subtopology, topic: str, placing: Placing | None, count: int) -> None:
        """Raises PlanError if a record of a topic that it has not processed lies elsewhere than its key belongs among
        ``count`` partitions."""
        key_of = source_key(subtopology, topic)
        try:
            astray = sum(
                records_elsewhere(columns, key_of, placing, index, count)
                for index in range(count)
                for columns in self._ahead([(topic, index)])
            )
        except UnplacedRowError as error:
            raise PlanError(
                f"{self.application_id!r} has not processed all records of topic {topic}: {error}"
            ) from error
        if astray:
            raise PlanError(
                f"topic {topic} got more partitions, and {counted(astray, 'record')} that {self.application_id!r} has not "
                "processed lie where their keys belonged before: they would be processed without their state. Stop the "
                "producers, let it process what is there, stop it, and plan again"
            )

    def _unread(self, partitions: Sequence[TopicPartition]) -> int:
        return sum(map(len, self._ahead(partitions)))

    def _ahead(self, partitions: Sequence[TopicPartition]) -> Iterator[RecordColumns]:
        """The records that it has not processed."""
        asked = dict.fromkeys(partitions, LATEST)
        ends = self._network.admin.list_offsets(asked, read_committed=True)
        starts = self._network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        for tp in partitions:
            first = self.committed[tp].offset if tp in self.committed else starts[tp].offset
            yield from read_log(self._network, tp, first, ends[tp].offset)


def missing_changelogs(missing: Mapping[str, str], origin: str, there: Iterable[str]) -> PlanError:
    """The error about stores whose changelogs, by store, do not exist. ``there``: all topics."""
    listed = ", ".join(f"{store} ({topic})" for store, topic in sorted(missing.items())[:_LISTED])
    known = sorted(_changelogs_of(origin, there))
    return PlanError(
        f"there is no changelog for stores: {listed}{', ...' if len(missing) > _LISTED else ''}. {origin!r} has "
        f"{', '.join(known) or 'none'}. Name the topic of each (--changelog STORE=TOPIC), or let stores begin empty "
        "(--empty STORE)"
    )


def _changelogs_of(origin: str, there: Iterable[str]) -> Iterator[str]:
    return (topic for topic in there if topic.startswith(f"{origin}-") and is_changelog(topic))
