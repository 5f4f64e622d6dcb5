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
    """A backfill can't go on before something is changed. The message says what."""


class ArchiveError(BackfillError):
    """The files of an archive are missing, damaged, or have holes or duplicates. Repair or export them again, then
    plan anew."""


class PlanError(BackfillError):
    """A plan can't be made, or it is not a plan of what is there now. Change what the message names, or plan
    anew."""


class HandOverError(BackfillError):
    """The group or its topics are not in the state that this step of the hand-over needs. Mostly the application
    still runs: stop it, and run the step again."""


class WorkerDiedError(StreamsError):
    """A worker process ended without a result, as often as is allowed. Mostly the kernel ended it for lack of
    memory: run fewer tasks at a time, with ``streamsrt backfill resume``."""
