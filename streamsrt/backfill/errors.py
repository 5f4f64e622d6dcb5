"""What can go wrong in a backfill, beyond :mod:`streamsrt.errors`.

::

    UserError
    └── BackfillError               exit code 2
        ├── ArchiveError            files of an archive: missing, damaged, with holes or duplicates
        ├── PlanError               the plan can't be made, or does not belong to what is there now
        └── HandOverError           the group or its topics are not in the state that this step needs
    StreamsError
    └── WorkerDiedError             a worker process ended again and again; exit code 1
"""

from __future__ import annotations

from streamsrt.errors import StreamsError, UserError


class BackfillError(UserError):
    """A backfill can't go on before something is changed."""


class ArchiveError(BackfillError):
    """The files of an archive are not the history that they should be."""


class PlanError(BackfillError):
    """A plan can't be made, or it is not a plan of what is there now."""


class HandOverError(BackfillError):
    """The group or its topics are not in the state that this step of the hand-over needs."""


class WorkerDiedError(StreamsError):
    """A worker process ended without a result, as often as is allowed."""
