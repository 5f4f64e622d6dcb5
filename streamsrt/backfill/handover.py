"""Handing a finished backfill over to the live application, in steps that may be interrupted anywhere.

1. ``marked``: the group has no members and no offsets; attempts that began earlier, of any backfill of the application,
   can't write any more; internal topics are made; where each log ends is written down; the start offsets are committed with
   the mark "running", on which no instance starts.
2. ``written``: changelogs and outputs are in their logs, each exactly once.
3. ``verified``: the changelogs, read back, are the tasks' state.
4. ``fenced``: this attempt is still the one that may write; the group still has no members. State files are installed, where
   asked.
5. ``done``: the end offsets are committed with the mark "done", in one request. Before this nothing counts.

Every step can be repeated. What was reached is written to ``handover.json`` after each, by a replaced file; the next attempt
looks whether the cluster still has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamsrt.backfill.errors import HandOverError, PlanError
from streamsrt.backfill.group import check_no_hand_over, check_nobody_runs, is_handed_over, marks_of, steps_to_replace
from streamsrt.backfill.installation import check_no_stores, install_bundles
from streamsrt.backfill.kept_history import KeptLonger, configs_of, kept_longer
from streamsrt.backfill.log_writer import LogTarget, LogWriter, TransactionalLogWriter
from streamsrt.backfill.manifest import LogResult, TaskManifest, sync
from streamsrt.backfill.odd_times import check_record_times
from streamsrt.backfill.plan import BackfillPlan, write_durably
from streamsrt.backfill.planned_topics import check_outputs, check_source_topics, topic_ids
from streamsrt.backfill.record_sizes import check_record_sizes
from streamsrt.backfill.verify import VerificationError, verify_changelogs, verify_results
from streamsrt.backfill.written_logs import why_lost
from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST, NewTopic, OffsetAndMetadata, ProducerFencedError, TopicPartition
from streamsrt.errors import RequestFailedError, StreamsError
from streamsrt.tasks.input.offset_metadata import BackfillMark, done_metadata, running_metadata
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wording import counted

HANDOVER_FILE = "handover.json"
_ABORT = "streamsrt backfill abort --execute"

Step = Literal["none", "marked", "written", "verified", "fenced", "done"]
STEPS: tuple[Step, ...] = get_args(Step)
OnStep = Callable[[Step, str], None]


class HandOverState(BaseModel):
    """The progress of a hand-over. Keys are ``topic-partition``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    step: Step = "none"
    created_topics: tuple[str, ...] = ()
    starts: dict[str, int] = Field(default_factory=dict)
    ends: dict[str, int] = Field(default_factory=dict)
    topic_ids: dict[str, str] = Field(default_factory=dict)
    """Of the topics that are written, as far as the broker gives them ids."""
    transactions: bool = True
    """Whether logs are written in transactions; it stays as it began."""
    transactional_id: str = ""
    """Under which they are written; empty: under one of this plan alone."""
    state_dirs: tuple[str, ...] = ()
    """Where state files were being installed."""
    places_compared: bool = False
    """Of a repair: the application had its rows in the same partitions as the result, when its changelog was there."""


def load_state(directory: Path, plan: BackfillPlan) -> HandOverState:
    """Returns the progress of a plan's hand-over. Raises PlanError."""
    path = directory / HANDOVER_FILE
    try:
        state = HandOverState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return HandOverState(fingerprint=plan.fingerprint)
    except ValidationError as error:
        raise PlanError(
            f"{path} is damaged: {error.errors()[0]['msg']}. Bring it back, or abort the backfill"
        ) from None
    if state.fingerprint != plan.fingerprint:
        raise PlanError(f"{path} belongs to another plan: use a separate --dir for each plan")
    return state


def writer_group(plan: BackfillPlan) -> str:
    """The group that counts what a backfill has written to logs."""
    return f"{plan.application_id}-backfill-{plan.id}"


def transactional_id(plan: BackfillPlan, state: HandOverState) -> str:
    """Under which a backfill writes. All of one application share it, so that only the latest attempt can. A hand-over goes
    on with the one that it began with."""
    if state.step != "none":
        return state.transactional_id or writer_group(plan)
    return f"{plan.application_id}-backfill"


class HandOver:
    """The hand-over of one plan whose tasks are finished. ``writer``: transactional if the state requires it."""

    def __init__(
        self, directory: Path, plan: BackfillPlan, network: Network, writer: LogWriter, on_step: OnStep | None = None
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._network = network
        self._writer = writer
        self._on_step = on_step
        self.state = load_state(directory, plan)
        if self.state.step == "none":
            transactions = isinstance(writer, TransactionalLogWriter)
            name = transactional_id(plan, self.state)
            self.state = self.state.model_copy(update={"transactions": transactions, "transactional_id": name})

    def _reach(self, step: Step, text: str, **changes: object) -> None:
        self._save(step=step, **changes)
        self._report(step, text)

    def _save(self, **changes: object) -> None:
        self.state = self.state.model_copy(update=changes)
        fresh = self._directory / f"{HANDOVER_FILE}.new"
        write_durably(fresh, self.state.model_dump_json(indent=1).encode())
        fresh.replace(self._directory / HANDOVER_FILE)
        sync(self._directory)

    def _report(self, step: Step, text: str) -> None:
        if self._on_step is not None:
            self._on_step(step, text)

    def commit(self, state_dir: Path | None = None) -> HandOverState:
        """Goes through the steps that are left. Raises HandOverError, VerificationError, PlanError, BrokerError."""
        if self.state.step == "done":
            self._check_still_done()
            self._report("done", self.already_done())
            return self.state
        if self._was_completed():
            # The process ended before it could write that down.
            self._complete()
            return self.state
        try:
            self._go_on(state_dir)
        except ProducerFencedError as error:
            raise HandOverError(
                f"another commit or abort of a backfill of application {self._plan.application_id!r} has begun since this "
                "one did, or a transaction of this one took too long: it writes nothing more. If no other backfill was "
                "handed over meanwhile, do this again"
            ) from error
        except (HandOverError, VerificationError) as error:
            written = self._written_outputs() if _ABORT in str(error) else ""
            if not written:
                raise
            raise type(error)(
                f"{error}. An abort leaves what is in {written} already, and a commit after it writes these outputs again, "
                "from their beginning: readers find them twice"
            ) from error
        self._complete()
        return self.state

    def _go_on(self, state_dir: Path | None) -> None:
        manifests = self._results()
        check_nobody_runs(self._network, self._plan.application_id)
        self._check_topics(manifests)
        self._check_times(manifests)
        if state_dir is not None and self._before("marked"):
            self._check_state_dir(manifests, state_dir)
        # Another one that is under way is let alone.
        self._check_marks(self._committed_so_far())
        self._writer.take_over()
        if self._was_completed():
            return
        self._check_logs()
        if self._before("marked"):
            self._prepare(manifests)
        # Of the topics that were just made as well, and before anything is written.
        self._check_sizes(manifests)
        self._commit_marks()
        self._report("marked", f"start offsets are marked: {self._plan.application_id} does not start now")
        targets = list(self._targets(manifests))
        if self._before("written"):
            self._write(targets)
        starts, ends = _by_partition(self.state.starts), _by_partition(self.state.ends)
        if self._before("verified"):
            topics = {topic.name: topic for topic in self._plan.internal_topics}
            count = verify_changelogs(self._network, self._directory, manifests, topics, starts, ends, _now_ms())
            self._reach("verified", f"{count} changelog records read back, digests equal")
        self._writer.check_written(targets)
        check_nobody_runs(self._network, self._plan.application_id)
        if state_dir is not None:
            self._install(manifests, ends, state_dir)
        if self._before("fenced"):
            self._reach("fenced", "no other attempt can write any more")
        self._commit_ends(manifests)

    def _was_completed(self) -> bool:
        """Whether the end offsets are committed, but the last step was not reached. The application may have run since."""
        if self.state.step != "fenced" or not self._is_handed_over():
            return False
        # Otherwise these are offsets of an application that was started without this backfill.
        return self._why_lost(may_be_longer=True) is None

    def _committed_so_far(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of the group, without those of a transaction that is undecided: a killed attempt may have left one."""
        return self._network.admin.committed(self._plan.application_id, require_stable=False)

    def _why_lost(self, *, may_be_longer: bool = False) -> str | None:
        """What of that which earlier attempts have written is not there any more; None if all is."""
        if self._before("marked"):
            return None
        internal = {topic.name for topic in self._plan.internal_topics}
        ends = _by_partition(self.state.ends)
        return why_lost(self._network, internal, self.state.topic_ids, ends, may_be_longer=may_be_longer)

    def _check_logs(self) -> None:
        lost = self._why_lost()
        if lost is not None:
            raise HandOverError(lost)

    def _is_handed_over(self) -> bool:
        """Whether the group has an offset at the end of each input, or behind it, and no mark "running" of any backfill."""
        committed = self._committed_so_far()
        if any(mark is not None and not mark.is_done for mark in marks_of(committed).values()):
            return False
        return all(tp in committed and committed[tp].offset >= end for tp, (_, end) in self._inputs().items())

    def _complete(self) -> None:
        self._delete_writer_group()
        self._reach("done", f"application {self._plan.application_id} can be started")

    def _written_outputs(self) -> str:
        """The partitions of outputs that have got records since this hand-over began; empty if there are none."""
        internal = {topic.name for topic in self._plan.internal_topics}
        starts = {tp: start for tp, start in _by_partition(self.state.starts).items() if tp[0] not in internal}
        there = self._network.admin.list_offsets(dict.fromkeys(starts, LATEST)) if starts else {}
        longer = [
            f"{topic}-{index}"
            for (topic, index), start in starts.items()
            if (topic, index) in there and there[topic, index].offset > start
        ]
        return ", ".join([*longer[:5], *([f"{len(longer) - 5} more"] if len(longer) > 5 else [])])

    def already_done(self) -> str:
        """What there is to say where nothing is left to do."""
        return f"plan {self._plan.id} was handed over to application {self._plan.application_id} before: nothing to do"

    def _results(self) -> list[TaskManifest]:
        """The checked results that are handed over, in the order of the plan's tasks."""
        return verify_results(self._directory, self._plan)

    def _check_topics(self, manifests: Sequence[TaskManifest]) -> None:
        try:
            check_source_topics(self._network, self._plan)
            if self._before("written"):
                check_outputs(self._network, self._plan, {log.topic for each in manifests for log in each.outputs})
        except PlanError as error:
            if self._before("marked"):
                raise
            raise HandOverError(f"{error}. Before that, take this hand-over back: {_ABORT}") from None

    def _before(self, step: Step) -> bool:
        return STEPS.index(self.state.step) < STEPS.index(step)

    # ------------------------------------------------------------------------------------------------------------ 1 mark

    def check(self) -> None:
        """Raises what :meth:`commit` would raise before it changes anything: PlanError, VerificationError, HandOverError."""
        if self.state.step == "done" or self._was_completed():
            self._check_still_done()
            self._report("done", self.already_done())
            return
        manifests = self._results()
        check_nobody_runs(self._network, self._plan.application_id)
        self._check_topics(manifests)
        if self._before("marked"):
            self._check_group(manifests)
            names = [topic.name for topic in self._plan.internal_topics]
            present = self._network.admin.partitions_for(names) if names else {}
            self._check_empty([(name, index) for name, count in present.items() for index in range(count)])
            for kept in self._kept_longer(manifests):
                self._report("none", f"would keep history: {kept}")
        self._check_logs()
        self._check_sizes(manifests)
        self._check_times(manifests)

    def _check_group(self, manifests: Sequence[TaskManifest]) -> None:
        committed = self._network.admin.committed(self._plan.application_id)
        if not committed:
            return
        check_no_hand_over(self._plan.application_id, committed)
        name, outputs = self._plan.application_id, sorted({log.topic for each in manifests for log in each.outputs})
        again = (
            f". That writes the outputs of the whole history into {', '.join(outputs)}, where readers find them again"
            if outputs
            else ""
        )
        if self._plan.after is not None and is_handed_over(committed):
            raise HandOverError(
                f"a backfill of {name!r} was handed over already, and this one, which continues "
                f"the backfill in {self._plan.after.directory}, would write all of its state and outputs a second time. "
                "Start the application: it reads what came later itself. To replace what was handed over: "
                f"{self._steps()}{again}"
            )
        raise HandOverError(
            f"application {name!r} has committed offsets since the plan was made: it ran, or another backfill was handed "
            f"over. Plan again with another --application-id, or replace its state: {self._steps()}{again}"
        )

    def _check_sizes(self, manifests: Sequence[TaskManifest]) -> None:
        if self._before("written"):
            check_record_sizes(self._network, self._directory, (log for each in manifests for log in _logs(each)))

    def _check_times(self, manifests: Sequence[TaskManifest]) -> None:
        if self._before("written"):
            check_record_times(
                self._network,
                self._directory,
                (log for each in manifests for log in _logs(each)),
                {topic.name: topic.configs for topic in self._plan.internal_topics},
                sorted({source.topic for source in self._plan.sources()}),
                _now_ms(),
            )

    def _steps(self) -> str:
        again = f"streamsrt backfill commit --dir {self._directory} --execute"
        names = (topic.name for topic in self._plan.internal_topics)
        return steps_to_replace(self._network, self._plan.application_id, names, self._plan.bootstrap_servers, again)

    def _check_empty(self, partitions: Sequence[TopicPartition]) -> None:
        """Raises HandOverError if changelogs or repartition topics have records."""
        filled = [f"{tp[0]}-{tp[1]} (up to offset {end})" for tp, end in self._ends_of(partitions).items() if end]
        if filled:
            raise HandOverError(
                f"changelogs or repartition topics hold records already: {', '.join(filled[:5])}. State and records of an "
                "earlier deployment would be mixed in. Plan again with another --application-id, or replace its state: "
                f"{self._steps()}"
            )

    def _prepare(self, manifests: Sequence[TaskManifest]) -> None:
        self._check_group(manifests)
        created = self._create_topics(self._kept_longer(manifests))
        partitions = sorted({(log.topic, log.partition) for manifest in manifests for log in _logs(manifest)})
        self._check_empty([(topic.name, i) for topic in self._plan.internal_topics for i in range(topic.partitions)])
        starts = self._ends_of(partitions)
        self._save(
            step="marked",
            created_topics=tuple(sorted({*self.state.created_topics, *created})),
            starts={f"{topic}-{partition}": offset for (topic, partition), offset in starts.items()},
            topic_ids=topic_ids(self._network, [topic.name for topic in self._plan.internal_topics]),
        )

    def _kept_longer(self, manifests: Sequence[TaskManifest]) -> list[KeptLonger]:
        return kept_longer(self._plan, manifests, _now_ms())

    def _create_topics(self, kept: Sequence[KeptLonger]) -> list[str]:
        wanted = {topic.name: topic for topic in self._plan.internal_topics}
        present = self._network.admin.partitions_for(list(wanted)) if wanted else {}
        for name, partitions in present.items():
            if partitions != wanted[name].partitions:
                raise HandOverError(
                    f"topic {name!r} has {counted(partitions, 'partition')}, the application needs "
                    f"{wanted[name].partitions}: delete it, or give another application id"
                )
        for each in kept:
            self._report("none", str(each))
        self._keep_longer([each for each in kept if each.topic in present])
        missing = [
            NewTopic(name=name, partitions=topic.partitions, configs=configs_of(topic, kept))
            for name, topic in wanted.items()
            if name not in present
        ]
        if not missing:
            return []
        # Written down first: an abort must know what may have been made.
        names = [topic.name for topic in missing]
        self._save(created_topics=tuple(sorted({*self.state.created_topics, *names})))
        errors = self._network.admin.create_topics(missing)
        theirs = [name for name, error in errors.items() if _has_code(error, ErrorCode.TOPIC_ALREADY_EXISTS)]
        if theirs:
            self._save(created_topics=tuple(each for each in self.state.created_topics if each not in theirs))
            raise HandOverError(
                f"application {self._plan.application_id!r} is running, or an instance of it starts: "
                f"{', '.join(theirs[:5])} has just been created by it. Stop all of its instances, then do this again"
            )
        for error in errors.values():
            if error is not None:
                raise error
        return names

    def _keep_longer(self, kept: Sequence[KeptLonger]) -> None:
        """Raises settings of topics that are there; none is lowered."""
        configs = self._network.admin.describe_topic_configs([each.topic for each in kept]) if kept else {}
        for each in kept:
            if not each.suffices(configs[each.topic].get(each.setting)):
                self._network.admin.alter_topic_configs(each.topic, {each.setting: str(each.needed_ms)})

    def _ends_of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        found = self._network.admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return {tp: found[tp].offset for tp in partitions}

    def _check_marks(self, there: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises HandOverError if these offsets of the group are not this backfill's."""
        if self._before("marked"):
            check_no_hand_over(self._plan.application_id, there)
        elif any(mark is None or mark.backfill_id != self._plan.id for mark in marks_of(there).values()):
            raise HandOverError(
                f"the group of {self._plan.application_id!r} has offsets that are not of backfill {self._plan.id}: "
                "another backfill "
                "or the application itself committed them. Find out which; streamsrt backfill abort --execute drops "
                "this one"
            )

    def _checked_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of the group. Raises HandOverError if they are not this backfill's."""
        there = self._network.admin.committed(self._plan.application_id)
        self._check_marks(there)
        return there

    def _commit_marks(self) -> None:
        """Commits the start offsets with the mark."""
        there = self._checked_offsets()
        if any(mark is not None and mark.is_done for mark in marks_of(there).values()):
            return
        metadata = running_metadata(self._plan.id)
        marked = {tp: OffsetAndMetadata(start, metadata) for tp, (start, _) in self._inputs().items()}
        self._commit_offsets(marked, there)

    def _inputs(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first and the end offset of everything that the live tasks read."""
        # History without offsets of its own stands before offset 0.
        found = {source.topic_partition: (max(0, source.start), source.end) for source in self._plan.sources()}
        for task in self._plan.tasks:
            for repartition in task.repartition:
                # What is in flight there offline is in the state already.
                found[repartition.topic_partition] = (0, 0)
        return found

    def _commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        there: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Commits offsets of the group, which has those that were seen ``there``. Raises HandOverError if it has others."""

        def check() -> None:
            check_nobody_runs(self._network, self._plan.application_id)
            if self._committed_so_far() != there:
                raise HandOverError(
                    f"the offsets of {self._plan.application_id!r} have just been changed by something else: find out by "
                    "what, then do this again"
                )
            self._check_logs()

        try:
            self._writer.commit_offsets(self._plan.application_id, offsets, check)
        except (HandOverError, ProducerFencedError):
            raise
        except StreamsError as error:
            check_nobody_runs(self._network, self._plan.application_id)
            raise HandOverError(f"offsets of {self._plan.application_id!r} can't be committed: {error}") from error

    # ----------------------------------------------------------------------------------------------------------- 2 write

    def _targets(self, manifests: Sequence[TaskManifest]) -> Iterator[LogTarget]:
        found: dict[TopicPartition, list[tuple[Path, int]]] = {}
        for manifest in manifests:
            for log in _logs(manifest):
                found.setdefault((log.topic, log.partition), []).append(
                    (self._directory / log.file.path, log.file.records)
                )
        for (topic, partition), parts in sorted(found.items()):
            yield LogTarget(
                topic,
                partition,
                self.state.starts[f"{topic}-{partition}"],
                tuple(path for path, _ in parts),
                sum(records for _, records in parts),
            )

    def _write(self, targets: Sequence[LogTarget]) -> None:
        ends: dict[str, int] = {}
        for target in targets:
            ends[f"{target.topic}-{target.partition}"] = self._writer.write(target)
            self._report("marked", f"{target.topic}-{target.partition}: {target.records} records")
        total = sum(target.records for target in targets)
        ids = topic_ids(self._network, sorted({target.topic for target in targets})) | self.state.topic_ids
        self._reach("written", f"{total} records are in changelogs and outputs", ends=ends, topic_ids=ids)

    def _install(self, manifests: Sequence[TaskManifest], ends: Mapping[TopicPartition, int], state_dir: Path) -> None:
        name = str(state_dir.absolute())
        again = name in self.state.state_dirs
        if not again:
            self._check_state_dir(manifests, state_dir)
            self._save(state_dirs=(*self.state.state_dirs, name))
        count = install_bundles(self._directory, self._plan, manifests, ends, state_dir)
        self._report("verified", f"{count} stores installed in {state_dir}")

    def _check_state_dir(self, manifests: Sequence[TaskManifest], state_dir: Path) -> None:
        """Raises HandOverError if files may not be installed there."""
        check_no_stores(self._plan, manifests, state_dir)

    # ---------------------------------------------------------------------------------------------------------- 5 offsets

    def _commit_ends(self, manifests: Sequence[TaskManifest]) -> None:
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        times: dict[TopicPartition, tuple[int, dict[str, int]]] = {}
        for manifest in manifests:
            for read in manifest.reads:
                time_ms, operators = times.get((read.topic, read.partition), (-1, {}))
                times[read.topic, read.partition] = (
                    max(time_ms, read.partition_time_ms),
                    {**operators, **manifest.operator_times_ms},
                )
        for tp, (_, end) in self._inputs().items():
            time_ms, operators = times.get(tp, (-1, {}))
            offsets[tp] = OffsetAndMetadata(end, done_metadata(self._plan.id, time_ms, operators))
        self._commit_offsets(offsets, self._checked_offsets())

    def _check_still_done(self) -> None:
        if not self._committed_so_far():
            raise HandOverError(
                f"backfill {self._plan.id} was handed over, and the group of {self._plan.application_id!r} no longer "
                "has offsets: it was deleted. Run streamsrt backfill abort --execute, then commit again"
            )

    # -------------------------------------------------------------------------------------------------------------- abort

    def abort(self, *, execute: bool) -> list[str]:
        """Takes back what can be taken back: marks and internal topics; what that is, or would be. Raises HandOverError."""
        ours = self._marks_to_drop()
        check_nobody_runs(self._network, self._plan.application_id)
        if execute and not self._before("marked"):
            # A killed attempt may have left a transaction open: readers of outputs would wait for its end.
            self._writer.take_over()
            ours = self._marks_to_drop()
        topics = self._created_topics()
        actions = [f"delete topic {name}" for name in topics]
        if ours:
            actions.append(f"delete group {self._plan.application_id} with the marks of this backfill")
        internal = {topic.name for topic in self._plan.internal_topics}
        actions += [
            f"leave what was written to {tp} from offset {start} on"
            for tp, start in self.state.starts.items()
            if tp.rpartition("-")[0] not in internal
        ]
        if execute:
            self._take_back(topics, delete_group=bool(ours))
        return actions

    def _created_topics(self) -> list[str]:
        """The topics that this hand-over has created. Those that were created again since are another one's."""
        names, ids = self.state.created_topics, self.state.topic_ids
        there = self._network.admin.topics(names) if names else {}
        here = {name: topic.topic_id.hex() for name, topic in sorted(there.items())}
        return [name for name, topic_id in here.items() if ids.get(name, topic_id) == topic_id]

    def _marks_to_drop(self) -> list[BackfillMark]:
        """The marks of this backfill. Raises HandOverError if there is anything else."""
        committed = marks_of(self._committed_so_far())
        ours = [mark for mark in committed.values() if mark is not None and mark.backfill_id == self._plan.id]
        if any(mark.is_done for mark in ours) or (committed and len(ours) < len(committed)):
            raise HandOverError(
                f"backfill {self._plan.id} was handed over, or the group of {self._plan.application_id!r} has "
                "offsets of another writer: there is nothing to abort. To start over, delete the group, its changelogs "
                "and the state directories"
            )
        return ours

    def _take_back(self, topics: Sequence[str], *, delete_group: bool) -> None:
        failed = self._network.admin.delete_topics(topics) if topics else {}
        for error in failed.values():
            if error is not None:
                raise error
        self._delete_writer_group()
        if delete_group:
            self._delete_group(self._plan.application_id)
        (self._directory / HANDOVER_FILE).unlink(missing_ok=True)
        sync(self._directory)

    def _delete_writer_group(self) -> None:
        group = writer_group(self._plan)
        if any(listed.group_id == group for listed in self._network.admin.list_groups()):
            self._delete_group(group)

    def _delete_group(self, group: str) -> None:
        for error in self._network.admin.delete_groups([group]).values():
            # Apache Kafka deletes a group itself when the topics of its offsets are gone, and may list it until then.
            if error is not None and not _has_code(error, ErrorCode.GROUP_ID_NOT_FOUND):
                raise error


def _logs(manifest: TaskManifest) -> list[LogResult]:
    changelogs = [store.changelog for store in manifest.stores if store.changelog is not None]
    return [*changelogs, *manifest.outputs]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _by_partition(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Offsets by topic and partition, out of their names."""
    found: dict[TopicPartition, int] = {}
    for name, offset in offsets.items():
        topic, _, partition = name.rpartition("-")
        found[topic, int(partition)] = offset
    return found


def _has_code(error: StreamsError | None, code: ErrorCode) -> bool:
    return isinstance(error, RequestFailedError) and error.error_code == code
