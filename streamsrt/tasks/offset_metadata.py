"""What a backfill leaves in the metadata of committed offsets, and what the runtime makes of it.

1. ``srt:backfill:<id>:running``: state is being written. An application that finds it does not start: it would process
   history into half of its state.
2. ``srt:backfill:<id>:done;st=<ms>;<operator>=<ms>...``: the offset is where live processing goes on; ``st`` is the
   partition time there, and the others are the stream times that windowed operators have seen, by which they tell late
   records.
3. Anything else is not of a backfill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote, unquote

from streamsrt.errors import UserError

_PREFIX = "srt:backfill:"
_RUNNING, _DONE = "running", "done"


class BackfillRunningError(UserError):
    """The application's state is being written by a backfill."""


@dataclass(frozen=True, slots=True)
class BackfillMark:
    """A mark of a backfill; times in ms. ``is_done`` False: it still runs."""

    backfill_id: str
    is_done: bool
    partition_time_ms: int = -1
    operator_times_ms: Mapping[str, int] = field(default_factory=dict)


class _Committed(Protocol):
    @property
    def metadata(self) -> str: ...


def running_metadata(backfill_id: str) -> str:
    """The metadata of offsets whose state is being written."""
    return f"{_PREFIX}{backfill_id}:{_RUNNING}"


def done_metadata(backfill_id: str, partition_time_ms: int, operator_times_ms: Mapping[str, int]) -> str:
    """The metadata of offsets up to which the state is written."""
    times = "".join(f";{quote(name, safe='')}={time}" for name, time in sorted(operator_times_ms.items()))
    return f"{_PREFIX}{backfill_id}:{_DONE};st={partition_time_ms}{times}"


def parse_mark(metadata: str) -> BackfillMark | None:
    """The mark that some metadata is; None where it is none."""
    if not metadata.startswith(_PREFIX):
        return None
    backfill_id, _, rest = metadata.removeprefix(_PREFIX).partition(":")
    state, *pairs = rest.split(";")
    if state == _RUNNING:
        return BackfillMark(backfill_id, is_done=False)
    try:
        times = {unquote(name): int(time) for name, time in (pair.split("=", 1) for pair in pairs)}
    except ValueError:
        return None
    if state != _DONE:
        return None
    return BackfillMark(backfill_id, True, times.pop("st", -1), times)


def refuse_running_backfill(application_id: str, committed: Mapping[tuple[str, int], _Committed]) -> None:
    """Raises BackfillRunningError where a backfill has not handed the application over yet."""
    for (topic, partition), offset in sorted(committed.items()):
        mark = parse_mark(offset.metadata)
        if mark is not None and not mark.is_done:
            raise BackfillRunningError(
                f"application {application_id!r} can't start: backfill {mark.backfill_id} is writing its state (offset of "
                f"{topic}-{partition}). Finish it with streamsrt backfill commit --execute, or drop it with streamsrt "
                "backfill abort --execute, then start the application"
            )
