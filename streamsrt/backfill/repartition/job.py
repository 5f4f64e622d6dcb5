"""A repartition of state, from the survey to the offsets from which the application resumes.

with StateRepartition("shop.app:topology", "shop", bootstrap_servers="127.0.0.1:9092") as repartition:
    survey = repartition.survey()
    if not survey.blockers:
        repartition.execute(survey)
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType

from streamsrt.application import load_application
from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.group import check_nobody_runs, marks_of
from streamsrt.backfill.planned_application import configured
from streamsrt.backfill.repartition.moving import CHUNK_ROWS, Mover, fence_earlier, transactional_id
from streamsrt.backfill.repartition.offsets import final_offsets, marks, operator_times
from streamsrt.backfill.repartition.rows import StoredRows, closed_marks
from streamsrt.backfill.repartition.shape import shape_of
from streamsrt.backfill.repartition.survey import (
    StateSurvey,
    survey_inputs,
    survey_marks,
    survey_store,
    survey_transactions,
)
from streamsrt.backfill.sources import connected
from streamsrt.client.values import OffsetAndMetadata, TopicPartition

OnStep = Callable[[str], None]


class StateRepartition:
    """The state of an application whose source topics got more partitions. Raises BackfillError and
    StreamsError. Every method may be called again."""

    def __init__(
        self,
        application: str,
        application_id: str,
        *,
        bootstrap_servers: str,
        config: Mapping[str, str] | None = None,
        chunk_rows: int = CHUNK_ROWS,
        record_keys: Collection[str] = (),
    ) -> None:
        loaded = load_application(application)
        self._topology, self._config = configured(loaded.topology, {**loaded.config, **(config or {})}, application_id)
        self._id = application_id
        self._servers = bootstrap_servers
        self._chunk_rows = chunk_rows
        self._record_keys = record_keys
        self._open = contextlib.ExitStack()

    def __enter__(self) -> StateRepartition:
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="streamsrt-repartition-"))
        self._stored = StoredRows(Path(folder))
        self._network = self._open.enter_context(connected(self._servers, transactional_id=transactional_id(self._id)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def end_earlier_attempt(self) -> None:
        """Fences an earlier attempt and ends the transaction that it left open, so that a survey need not wait for it."""
        fence_earlier(self._network)

    # ---------------------------------------------------------------------------------------------------------- looking

    def survey(self) -> StateSurvey:
        """Finds out what would move, and what prevents it. Changes nothing."""
        committed = self._committed()
        shape = shape_of(self._topology, self._config, self._network.admin.topics(), committed, self._record_keys)
        found = StateSurvey(shape, blockers=[*self._against_group(committed), *shape.blockers])
        if not shape.parts or found.blockers:
            return found
        found.blockers += survey_transactions(self._network, shape)
        if found.blockers:
            return found
        found.blockers += survey_inputs(self._network, shape, committed)
        times = {tp: names for part in shape.parts for tp, names in operator_times(part, committed).items()}
        marked: dict[str, Mapping[int, int]] = {}
        for store in (each for each in shape.stores if each.has_marks):
            found.stores.append(survey_marks(self._network, store, self._stored))
            rows = closed_marks(store, self._stored)
            marked[store.store] = {index: row.timestamp for index, row in rows.items()}
        for store in (each for each in shape.stores if not each.has_marks):
            looked = survey_store(self._network, store, self._stored, times, marked)
            found.stores.append(looked)
            found.blockers += looked.blockers()
        return found

    def _committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._network.admin.committed(self._id)

    def _against_group(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[str]:
        try:
            check_nobody_runs(self._network, self._id)
        except HandOverError as error:
            return [str(error)]
        running = [mark for mark in marks_of(committed).values() if mark is not None and not mark.is_done]
        if running:
            return [
                f"backfill {running[0].backfill_id} is writing the state of application {self._id!r}: finish it with "
                "streamsrt backfill commit --execute, or drop it with streamsrt backfill abort --execute"
            ]
        return []

    # ---------------------------------------------------------------------------------------------------------- changing

    def execute(self, survey: StateSurvey, on_step: OnStep | None = None) -> int:
        """Moves the rows that the survey found, and returns how many. Raises HandOverError if the survey has blockers."""
        if survey.blockers:
            raise HandOverError("; ".join(survey.blockers))
        say = on_step or (lambda _: None)
        shape = survey.shape
        mover = Mover(self._network, say, chunk_rows=self._chunk_rows)
        fence_earlier(self._network)
        # No instance starts while changelogs have fewer partitions than tasks; from here on the marks prevent it.
        self._grow(shape.grown_repartitions)
        self._commit(marks(shape, self._committed()))
        say(f"the application is marked: {self._id} does not start now")
        self._grow({store.changelog: store.after for store in shape.stores if store.existing < store.after})
        for store in shape.stores:
            mover.move(store, self._stored)
        # A commit is answered before it is carried out everywhere; an initialization is answered after.
        fence_earlier(self._network)
        self._commit(final_offsets(shape, self._committed()))
        say(f"application {self._id} can be started")
        return mover.moved

    def _grow(self, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        for error in self._network.admin.create_partitions(counts).values():
            if error is not None:
                raise error

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        check_nobody_runs(self._network, self._id)
        self._network.admin.commit(self._id, offsets)
