"""Errors of a backfill, in addition to :mod:`streamsrt.errors`.

::

    UserError
    └── BackfillError               exit code 2
        ├── ArchiveError            files of an archive: missing, damaged, with holes or duplicates
        ├── PlanError               the plan can't be made, or does not belong to what is there now
        ├── HandOverError           the group or its topics are not in the state that this step needs
        └── UnplacedRowError        nobody knows which partition a row of a store belongs to
    StateError
    └── ResultsNotWrittenError      a full disk (:mod:`streamsrt.backfill.full_disk`); exit code 4
    StreamsError
    └── WorkerDiedError             a worker process ended again and again; exit code 1
"""

from __future__ import annotations

from streamsrt.errors import StreamsError, UserError


class BackfillError(UserError):
    """A backfill can't continue until something is changed; the message describes the change."""


class ArchiveError(BackfillError):
    """The files of an archive are missing, damaged, or have gaps or duplicates. Repair them or export them again,
    then create a new plan."""


class PlanError(BackfillError):
    """A plan can't be created, or it does not match the current data. Change what the message names, or create a new
    plan."""


class HandOverError(BackfillError):
    """The group or its topics are not in the state that this step of the hand-over requires. In most cases the
    application is still running: stop it, and run the step again."""


class UnplacedRowError(BackfillError):
    """The program's partitioner does not say which partition a row of a store belongs to. ``state repartition`` is refused
    with this message: run the application under another application id, with state from a backfill."""


class WorkerDiedError(StreamsError):
    """A worker process died repeatedly without a result. In most cases the kernel killed it for lack of memory: run
    fewer tasks at a time, with ``streamsrt backfill resume``.
    """
