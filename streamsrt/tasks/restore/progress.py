"""How far stores have caught up with their changelogs: for active tasks up to the end, for standbys continuously.

1. A changelog is read from the offset that the store itself contains; it is written together with the data, so the two
   never disagree.
2. A store is useless if its changelog can't continue from the store's offset (it is beyond the end, or retention has
   deleted it): it is wiped and restored from the start. This is reported, never hidden.
3. The end offset to restore to is determined once, when restoring starts: nobody else writes to the changelog of a task
   that this member owns.
4. The progress is data: records, bytes, rate and what is left are counted per changelog, to be shown anywhere.
5. Records are applied elsewhere (:mod:`streamsrt.tasks.restore.changelog_work`) and reported here. Listeners are called
   here, so on the processing thread, whichever thread applies the records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamsrt.client.values import TopicPartition
from streamsrt.errors import StreamsError, UserError
from streamsrt.tasks.restore.changelog_work import Applied
from streamsrt.tasks.restore.listeners import NO_RESTORE_LISTENER, NO_STANDBY_LISTENER, RestoreListener, StandbyListener
from streamsrt.wording import error_text


@dataclass(slots=True)
class ChangelogProgress:
    """The restore progress of one store. ``end_offset`` is None for a standby, which follows its changelog forever."""

    store: str
    changelog: TopicPartition
    start_offset: int
    position: int
    end_offset: int | None
    high_watermark: int = -1
    restored_records: int = 0
    restored_bytes: int = 0
    started_at_ms: int = 0

    def offsets_per_second(self, now_ms: int) -> float:
        """Returns the average speed since the start."""
        return (self.position - self.start_offset) * 1000 / max(1, now_ms - self.started_at_ms)

    def eta_s(self, now_ms: int) -> float | None:
        """Returns the seconds until an active task's store is restored, at the average speed; None if unknown."""
        if self.end_offset is None or self.position <= self.start_offset:
            return None
        return self.remaining_records / self.offsets_per_second(now_ms)

    @property
    def remaining_records(self) -> int:
        """The number of records between the position and the end to restore to; compaction may make it fewer."""
        end = self.high_watermark if self.end_offset is None else self.end_offset
        return max(0, end - self.position)

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.position >= self.end_offset


@dataclass(slots=True)
class Changelog:
    """A store that is being restored: its progress and its owner."""

    progress: ChangelogProgress
    task_id: str


class Restorer:
    """All changelogs that are being read. It is updated by reports of applied records."""

    def __init__(
        self, on_restore: RestoreListener = NO_RESTORE_LISTENER, on_standby: StandbyListener = NO_STANDBY_LISTENER
    ) -> None:
        self._changelogs: dict[TopicPartition, Changelog] = {}
        self._on_restore = on_restore
        self._on_standby = on_standby

    def __len__(self) -> int:
        return len(self._changelogs)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._changelogs)

    def add(self, progress: ChangelogProgress, task_id: str = "") -> None:
        """Starts to follow a changelog from ``progress.position`` on."""
        tp = progress.changelog
        self._changelogs[tp] = Changelog(progress, task_id)
        if progress.end_offset is None:
            _notify(self._on_standby.on_update_start, tp, progress.store, progress.start_offset)
        else:
            start, end = progress.start_offset, progress.end_offset
            _notify(self._on_restore.on_restore_start, tp, progress.store, start, end)

    def remove(self, changelog: TopicPartition, *, promoted: bool = False) -> ChangelogProgress | None:
        """Stops following a changelog; returns its progress. ``promoted``: its task becomes active."""
        known = self._changelogs.pop(changelog, None)
        if known is None:
            return None
        progress = known.progress
        if progress.end_offset is None:
            reason = "promoted" if promoted else "migrated"
            at, end = progress.position, progress.high_watermark
            _notify(self._on_standby.on_update_suspended, changelog, progress.store, at, end, reason)
        elif progress.is_done:
            _notify(self._on_restore.on_restore_end, changelog, progress.store, progress.restored_records)
        else:
            _notify(self._on_restore.on_restore_suspended, changelog, progress.store, progress.restored_records)
        return progress

    def progress(self, changelog: TopicPartition) -> ChangelogProgress | None:
        known = self._changelogs.get(changelog)
        return None if known is None else known.progress

    def applied(self, report: Applied) -> bool:
        """Handles a report; returns whether the changelog is at its end now. Raises UserError if a listener fails."""
        known = self._changelogs.get(report.changelog)
        if known is None:
            return False
        progress = known.progress
        progress.position, progress.high_watermark = report.position, report.high_watermark
        progress.restored_records += report.records
        progress.restored_bytes += report.fetched_bytes
        self._notify_batch(known, report.records)
        return progress.is_done

    def _notify_batch(self, known: Changelog, records: int) -> None:
        progress = known.progress
        tp, store, at = progress.changelog, progress.store, progress.position
        if progress.end_offset is None:
            end = progress.high_watermark
            _notify(self._on_standby.on_batch_loaded, tp, store, known.task_id, at, records, end)
        else:
            _notify(self._on_restore.on_batch_restored, tp, store, at, records)


def _notify(listen: Callable[..., None], *news: object) -> None:
    try:
        listen(*news)
    except StreamsError:
        raise
    except Exception as error:
        raise UserError(f"{listen.__qualname__} raised {error_text(error)}") from error
