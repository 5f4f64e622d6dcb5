"""A full disk ends a task of a backfill: it is no fault of a record."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from streamsrt.backfill.engine_local import failure_of
from streamsrt.backfill.full_disk import ResultsNotWrittenError, full_disk_said
from streamsrt.backfill.plan import PLAN_FILE, load_plan, save_plan
from streamsrt.backfill.replay import OfflineSettings, TaskReplay
from streamsrt.backfill.run_task import LogFiles
from streamsrt.errors import StateError
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.tasks.task_config import TaskConfig
from tests.streamsrt.backfill.test_engine_local import planned
from tests.streamsrt.operators.programs import APPLICATION, Piped, columns_of
from topology import Processor, ProcessorContext, Record, StreamsBuilder, serdes
from topology.graph.topology import Topology

LONG = "x" * 2_000
SAYS = (
    r"files of the backfill in .* can't be written: the disk is full\. Free space there, then streamsrt backfill resume"
)


class Careless(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.downstream = context

    def process(self, record: Record[str, str]) -> None:
        try:
            self.downstream.forward(record)
        except Exception:  # noqa: BLE001  # what a program may do
            return


def copied(*, carelessly: bool) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    (stream.process(Careless) if carelessly else stream).to("out", key=serdes.string, value=serdes.string)
    return builder.build().with_default_serdes()


@pytest.mark.skipif(sys.platform != "linux", reason="there is a full device")
@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("carelessly", [True, False])
def test_no_handler_skips_records_because_the_disk_is_full(tmp_path: Path, generate: bool, carelessly: bool) -> None:
    (tmp_path / "out-0.log").symlink_to("/dev/full")
    handlers = ExceptionHandlers(production=log_and_continue, processing=log_and_continue)
    config = TaskConfig(handlers=handlers, generate=generate)
    settings = OfflineSettings(
        application_id=APPLICATION, task_config=config, partitions_of_topic=lambda _topic: 1, full_changelogs=False
    )
    (subtopology,) = copied(carelessly=carelessly).subtopologies

    def compute(files: LogFiles) -> None:
        replay = TaskReplay(subtopology, 0, settings, files.write)
        rows = [Piped("in", "k", LONG, at, ()) for at in range(1_200)]
        replay.merge({("in", 0): iter([columns_of(rows, 0)])})
        replay.finish()
        files.results(tmp_path)

    with pytest.raises(ResultsNotWrittenError, match=SAYS), full_disk_said(tmp_path), LogFiles(tmp_path) as files:
        compute(files)


def test_a_full_disk_at_the_end_of_a_task_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsNotWrittenError, match=SAYS) as caught, full_disk_said(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert failure_of(caught.value, caught.value.exit_code).exit_code == StateError.exit_code
    full = "state store 'counts' in /elsewhere can't be written: the disk is full. (No space left on device)"
    with pytest.raises(ResultsNotWrittenError, match=SAYS), full_disk_said(tmp_path, stores=True):
        raise StateError(full)


@pytest.mark.skipif(sys.platform != "linux", reason="there is a full device")
def test_a_plan_that_does_not_fit_is_made_again(tmp_path: Path) -> None:
    plan = load_plan(planned(tmp_path, [[("ax", 1)]]).directory)
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / f"{PLAN_FILE}.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(
        ResultsNotWrittenError, match=r"the disk is full\. Free space there, then streamsrt backfill plan"
    ):
        save_plan(plan, folder)
    assert not list(folder.iterdir())
    save_plan(plan, folder)


def test_what_else_fails_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), full_disk_said(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "gone")
    with pytest.raises(StateError, match="elsewhere") as caught, full_disk_said(tmp_path):
        raise StateError("state store 'counts' in /elsewhere can't be written: No space left on device")
    assert type(caught.value) is StateError
