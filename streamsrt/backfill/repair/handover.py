"""The changelog of one repaired store into the cluster. Outputs, other changelogs and offsets stay as they are.

1. The steps are those of a hand-over (:mod:`streamsrt.backfill.handover`), for one changelog.
2. Marks are put on the offsets that the application has committed, and in the end its own metadata are put back: they have
   the stream times from which it continues. Those of a store that is added are put to them.
3. A changelog with records in it is refused, as the last check: the user deletes the topic when nothing else is in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.group import check_no_hand_over, check_nobody_runs, marks_of
from streamsrt.backfill.handover import HandOver, HandOverState, OnStep
from streamsrt.backfill.log_writer import LogWriter
from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.plan import BackfillPlan, StoreRepair
from streamsrt.backfill.repair.feeding import check_feeding
from streamsrt.backfill.repair.moved_rows import moved_rows
from streamsrt.backfill.verify import verify_results
from streamsrt.client.interface import Network
from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.tasks.input.offset_metadata import (
    parse_mark,
    parse_partition_metadata,
    partition_metadata,
    running_metadata,
)
from streamsrt.wording import counted


class RepairHandOver(HandOver):
    """The hand-over of a plan with ``repair``."""

    def __init__(
        self, directory: Path, plan: BackfillPlan, network: Network, writer: LogWriter, on_step: OnStep | None = None
    ) -> None:
        super().__init__(directory, _only_store(plan), network, writer, on_step)
        assert plan.repair is not None
        self._whole = plan
        self._repair: StoreRepair = plan.repair
        self._everything: Sequence[TaskManifest] = ()

    def _results(self) -> list[TaskManifest]:
        self._everything = verify_results(self._directory, self._whole)
        wanted = {task.id for task in self._plan.tasks}
        return [_only_changelog(each, self._repair.store) for each in self._everything if each.task in wanted]

    def already_done(self) -> str:
        """What there is to say where nothing is left to do."""
        name = self._plan.application_id
        return f"store {self._repair.store} of {name} was repaired by plan {self._plan.id} before: nothing to do"

    def commit(self, state_dir: Path | None = None) -> HandOverState:
        """Goes through the steps that are left. Raises HandOverError, VerificationError, PlanError, BrokerError."""
        self._check_stopped_then()
        return super().commit(state_dir)

    def _is_handed_over(self) -> bool:
        """Whether the application's own offsets are back."""
        committed = self._committed_so_far()
        return self._originals().keys() <= committed.keys() and not self._marked(committed)

    # ------------------------------------------------------------------------------------------------------------ checks

    def check(self) -> None:
        """As of a whole hand-over. Raises HandOverError for a plan that was made while the application ran."""
        self._check_stopped_then()
        super().check()

    def _check_stopped_then(self) -> None:
        if self._repair.beside:
            servers = self._plan.bootstrap_servers
            where = f" -b {servers}" if servers else ""
            name, store = self._plan.application_id, self._repair.store
            raise HandOverError(
                f"this plan was made while application {name!r} was running, so store {store!r} lacks what it has read "
                f"since. Stop all of its instances, then: (1) streamsrt backfill plan {self._plan.application} -a {name}"
                f"{where} --store {store} --after {self._directory} --dir OTHER; (2) streamsrt backfill run --dir OTHER; "
                "(3) streamsrt backfill commit --dir OTHER --execute; (4) start the version that has the store"
            )

    def _check_group(self, manifests: Sequence[TaskManifest]) -> None:
        committed = self._of_inputs(self._network.admin.committed(self._plan.application_id))
        check_no_hand_over(self._plan.application_id, committed)
        moved = [
            f"{topic}-{partition}"
            for (topic, partition), there in committed.items()
            if there != self._originals().get((topic, partition))
        ]
        if moved or len(committed) < len(self._originals()):
            raise HandOverError(
                f"application {self._plan.application_id!r} has run since the plan was made, or something else has "
                f"committed its offsets ({', '.join(moved[:3]) or 'some are gone'}): the store would lack what it has read "
                "since. Stop it, and plan again in another --dir"
            )
        self._check_sizes(manifests)
        self._check_places()
        check_feeding(
            self._network, self._directory, self._everything, self._repair.feeding, repaired=self._repair.store
        )

    def _check_places(self) -> None:
        """Raises HandOverError if rows would be where they were before the application's state was moved."""
        if self.state.places_compared:
            return
        counts = {topic.name: topic.partitions for topic in self._whole.internal_topics}
        stores = {self._repair.store, *self._repair.feeding}
        for moved in moved_rows(self._network, self._everything, stores, counts):
            raise moved.refusal(self._repair.store, counts[moved.changelog])
        if any(store.strays for each in self._everything for store in each.stores if store.name in stores):
            # Once the user has deleted the changelog, nobody can see this any more.
            self._save(places_compared=True)

    def _check_empty(self, partitions: Sequence[TopicPartition]) -> None:
        filled = [f"{tp[0]}-{tp[1]} (up to offset {end})" for tp, end in self._ends_of(partitions).items() if end]
        if not filled:
            return
        servers = self._plan.bootstrap_servers
        topic, where = partitions[0][0], f" -b {servers}" if servers else ""
        folders = " and ".join(
            sorted({f"stores/{store.kept_as}" for task in self._plan.tasks for store in task.stores})
        )
        raise HandOverError(
            f"the old changelog of store {self._repair.store!r} is still there: {', '.join(filled[:5])}. All else is ready. "
            f"To replace it: (1) stop all of its instances; (2) streamsrt topics delete {topic}{where} --execute; (3) "
            f"delete the folders {folders} in the state directories of its instances; (4) streamsrt backfill commit --dir "
            f"{self._directory} --execute"
        )

    def _check_still_done(self) -> None:
        """What the application has done with its offsets since then does not matter."""

    def _check_state_dir(self, manifests: Sequence[TaskManifest], state_dir: Path) -> None:
        """Old files of the store are what is to be replaced."""

    # ----------------------------------------------------------------------------------------------------------- offsets

    def _of_inputs(
        self, committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of the offsets of the group those for the inputs of the replay."""
        inputs = {topic for topic, _ in self._originals()}
        return {tp: OffsetAndMetadata(at.offset, at.metadata) for tp, at in committed.items() if tp[0] in inputs}

    def _originals(self) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for name, at in self._repair.committed.items():
            topic, _, partition = name.rpartition("-")
            found[topic, int(partition)] = OffsetAndMetadata(at.offset, at.metadata)
        return found

    def _marked(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TopicPartition]:
        """The inputs with the mark of this repair."""
        marks = marks_of(self._of_inputs(committed))
        return [tp for tp, mark in marks.items() if mark is not None and mark.backfill_id == self._plan.id]

    def _check_marks(self, there: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        committed, originals, ours = self._of_inputs(there), self._originals(), set(self._marked(there))
        if self._before("marked"):
            check_no_hand_over(self._plan.application_id, committed)
            return
        others = [tp for tp, at in committed.items() if tp not in ours and at != originals.get(tp)]
        if others:
            raise HandOverError(
                f"the offsets of {self._plan.application_id!r} were changed while store {self._repair.store!r} was being "
                f"written ({others[0][0]}-{others[0][1]}): the application ran. Its state is of two times now: replace it "
                "with a backfill without --store"
            )

    def _commit_marks(self) -> None:
        there, metadata = self._checked_offsets(), running_metadata(self._plan.id)
        marked = {tp: OffsetAndMetadata(at.offset, metadata) for tp, at in self._originals().items()}
        self._commit_offsets(marked, there)

    def _commit_ends(self, manifests: Sequence[TaskManifest]) -> None:
        self._commit_offsets(with_new_times(self._originals(), manifests), self._checked_offsets())

    # ------------------------------------------------------------------------------------------------------------- abort

    def abort(self, *, execute: bool) -> list[str]:
        """Takes back marks and the new changelog; what that is, or would be. Raises HandOverError."""
        self._check_unrepaired()
        check_nobody_runs(self._network, self._plan.application_id)
        marked = self._marked(self._committed_so_far())
        if execute and (marked or not self._before("marked")):
            self._writer.take_over()
            self._check_unrepaired()
            marked = self._marked(self._committed_so_far())
        topics = self._created_topics()
        actions = [
            f"delete topic {name}: unless this is committed again, the application starts with store "
            f"{self._repair.store} empty"
            for name in topics
        ]
        if marked:
            actions.append(f"put back {counted(len(marked), 'offset')} of {self._plan.application_id} without marks")
        if execute:
            self._take_back(topics, delete_group=False)
            self._put_back(marked)
        return actions

    def _check_unrepaired(self) -> None:
        if self.state.step == "done" or self._was_completed():
            raise HandOverError(
                f"store {self._repair.store!r} of {self._plan.application_id!r} is repaired: there is nothing to abort"
            )

    def _take_back(self, topics: Sequence[str], *, delete_group: bool) -> None:
        super()._take_back(topics, delete_group=delete_group)
        places_compared = self.state.places_compared
        self.state = HandOverState(fingerprint=self._plan.fingerprint, transactions=self.state.transactions)
        if places_compared:
            self._save(places_compared=True)

    def _put_back(self, marked: Sequence[TopicPartition]) -> None:
        originals: Mapping[TopicPartition, OffsetAndMetadata] = self._originals()
        if marked:
            there = self._network.admin.committed(self._plan.application_id)
            self._commit_offsets({tp: originals[tp] for tp in marked}, there)


def with_new_times(
    originals: Mapping[TopicPartition, OffsetAndMetadata], manifests: Sequence[TaskManifest]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of the application, with the stream times of operators that it does not have yet: what is late for a store
    that is added stays late."""
    found = dict(originals)
    for manifest in manifests:
        for read in manifest.reads:
            at = found.get((read.topic, read.partition))
            known = None if at is None else _times_of(at.metadata)
            if at is None or known is None or manifest.operator_times_ms.keys() <= known[1].keys():
                continue
            metadata = partition_metadata(known[0], {**manifest.operator_times_ms, **known[1]})
            found[read.topic, read.partition] = OffsetAndMetadata(at.offset, metadata)
    return found


def _times_of(metadata: str) -> tuple[int, Mapping[str, int]] | None:
    mark = parse_mark(metadata)
    return parse_partition_metadata(metadata) if mark is None else (mark.partition_time_ms, mark.operator_times_ms)


def _only_store(plan: BackfillPlan) -> BackfillPlan:
    """The same plan with nothing but the repaired store to hand over."""
    assert plan.repair is not None
    tasks, changelogs = [], set()
    for task in plan.tasks:
        stores = tuple(store for store in task.stores if store.name == plan.repair.store)
        if stores:
            tasks.append(task.model_copy(update={"stores": stores}))
            changelogs |= {store.changelog for store in stores}
    topics = tuple(topic for topic in plan.internal_topics if topic.name in changelogs)
    return plan.model_copy(update={"tasks": tuple(tasks), "internal_topics": topics})


def _only_changelog(manifest: TaskManifest, store: str) -> TaskManifest:
    stores = tuple(each for each in manifest.stores if each.name == store)
    return manifest.model_copy(update={"stores": stores, "outputs": (), "repartition": ()})
