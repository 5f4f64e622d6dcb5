"""The durable log of one partition.

Rules
1. One thread appends, reads and administers; it never waits for an fsync, except in ``flush`` and ``close``. The only
   other thread is the syncer's, which gets open files and calls back with what is on disk.
2. Batches stay the bytes that the producer sent. Only bytes 0-15 are replaced, which lie outside the CRC; with
   ``LogAppendTime`` the batch gets a new timestamp.
3. An append is all or nothing. Whatever refuses it - the validation, the producer state, the disk - leaves the log, its
   indexes and its producer state as they were.
4. Everything in memory follows from the files; everything in files but the segments themselves follows from those.
5. The high watermark is the log's end: there is one replica. With ``Fsync.GROUP`` the producer's acknowledgement waits
   for the disk, not the reader.
6. After an unclean stop the leader epoch rises, so that a client which read what a power loss took finds out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from coordinator.log import recovery
from coordinator.log.checkpoint import Checkpoint
from coordinator.log.compaction.assessment import Assessment, assess, group_segments
from coordinator.log.compaction.rewriting import CleanedFile, LatestOffsets, Run, at_once
from coordinator.log.compaction.survivors import AbortedData, Survivors
from coordinator.log.compaction.swap import discard_swaps, swap_path
from coordinator.log.config import Fsync, LogConfig, TimestampType
from coordinator.log.contents import admit, stamped
from coordinator.log.errors import LogClosedError, LogFailedError, LogStorageError, OffsetOutOfRangeError
from coordinator.log.files import sync_directory, with_suffix
from coordinator.log.fsync import Syncer, SyncRequest
from coordinator.log.producer_state import ProducerState, WrittenBatch
from coordinator.log.results import AppendInfo, FileRecords, FoundRecords, ReadResult
from coordinator.log.segment import OFFSETS_MAX, SNAPSHOT_SUFFIX, Segment
from coordinator.log.validation import Batch, split_batches
from streamsrt.wire.records import find_timestamp, read_header

logger = logging.getLogger(__name__)

_HEAD = struct.Struct(">qii")
_CLOSED_SEGMENTS_OPEN_MAX = 4
_SEGMENTS_READ_MAX = 64


class PartitionLog:
    """The log of one partition, in a directory of its own. Made by :class:`coordinator.log.directory.LogDirectory`."""

    def __init__(self, directory: Path, config: LogConfig, syncer: Syncer, *, clean: bool) -> None:
        self.directory = directory
        self.name = directory.name
        """Of the topic and the partition. To ask the directory for it takes longer, and memory that no append needs else."""
        self._config = config
        self._syncer = syncer
        self._noted_round = -1
        self._failure: LogFailedError | None = None
        self._is_refusing = False
        self._closed = False
        self._checkpoint_lock = threading.Lock()
        self._unsynced_directories: set[Path] = set()
        self._rolled: list[Segment] = []
        self._open_closed: list[Segment] = []
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._epochs: tuple[tuple[int, int], ...] = ()
        self._epoch_max = 0
        self._producers = ProducerState()
        self._start = 0
        self._end = 0
        self._synced_offset = 0
        self._cleaned_offset = 0
        self._saved: Checkpoint | None = None
        if not directory.exists():
            directory.mkdir(mode=0o700)
            self._unsynced_directories |= {directory, directory.parent}
            clean = True
        self._load()
        if not clean:
            self._begin_epoch(self._epoch_max + 1)

    # ----------------------------------------------------------------------------------------------------- loading

    def _load(self) -> None:
        recovery.remove_leftovers(self.directory)
        checkpoint = self._saved = Checkpoint.load(self.directory)
        start = checkpoint.log_start_offset if checkpoint is not None else 0
        interval_bytes = self._config.index_interval_bytes
        segments = recovery.list_segments(self.directory, interval_bytes)
        if not segments:
            segments = [self._create_segment(start)]
        recovered = recovery.recover(self.directory, segments, checkpoint)
        self._set_segments(segments)
        self._producers = recovered.producers
        self._end = segments[-1].next_offset
        self._start = max(start, segments[0].base_offset)
        if checkpoint is not None:
            self._synced_offset = min(checkpoint.recovery_point, self._end)
        else:
            self._synced_offset = max(self._start, recovery.sync_closed(segments))
        self._cleaned_offset = min(checkpoint.cleaned_offset, self._end) if checkpoint is not None else 0
        self._epoch_max = max((epoch for epoch, _ in recovered.epochs), default=0)
        self._epochs = tuple(pair for pair in recovered.epochs if pair[1] <= self._end) or (
            (self._epoch_max, self._start),
        )
        if self._start > self._end:
            self._restart_at(self._start)

    def _create_segment(self, base_offset: int) -> Segment:
        segment = Segment.create(self.directory, base_offset, self._config.index_interval_bytes)
        self._unsynced_directories.add(self.directory)
        return segment

    def _set_segments(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def _restart_at(self, offset: int) -> None:
        """The log's start was moved beyond what a power loss left: nothing below it may be read, so nothing is kept."""
        for segment in self._segments:
            self._remove_files(segment)
        self._set_segments([self._create_segment(offset)])
        self._end = offset

    def _begin_epoch(self, epoch: int) -> None:
        kept = tuple(pair for pair in self._epochs if pair[1] < self._end)
        self._epochs = (*kept, (epoch, self._end))
        self._epoch_max = epoch
        self._save_checkpoint(durable=False)

    # -------------------------------------------------------------------------------------------------- properties

    @property
    def config(self) -> LogConfig:
        """The settings; a new value holds from the next operation on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._end

    @property
    def high_watermark(self) -> int:
        """The offset up to which readers may read: the end, as there is one replica."""
        return self._end

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed readers may read."""
        return max(self._start, self._producers.last_stable_offset(self._end))

    @property
    def synced_offset(self) -> int:
        """Everything below is known to be on disk."""
        return self._synced_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch stamped on new batches. Metadata, ListOffsets and Fetch must answer with the same one."""
        return self._epochs[-1][0]

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._segments)

    @property
    def producers(self) -> ProducerState:
        """Producer sequences and transactions, to be read only."""
        return self._producers

    # --------------------------------------------------------------------------------------------------- appending

    def append(
        self, batches: bytes | bytearray | memoryview, *, now_ms: int, from_coordinator: bool = False
    ) -> AppendInfo:
        """Appends one or several batches as a producer sent them; returns when the kernel has them.

        ``from_coordinator`` is for the broker's own batches: it allows control batches (transaction markers) and
        transactional batches without sequence numbers, and leaves the limits of size to the caller.
        A batch that an idempotent producer sends again is not written; the answer says where it is.
        Raises :class:`AppendRefusedError` (the producer's fault), :class:`LogFullError` or :class:`LogFailedError`.
        """
        if from_coordinator:
            return self.append_admitted(split_batches(batches, self._config, from_coordinator=True), now_ms, True)
        found = admit(batches, self._config, now_ms, self.name, self._config.unpacked_bytes_max)
        return self.append_admitted(found.batches, now_ms)

    def append_admitted(self, parsed: list[Batch], now_ms: int, from_coordinator: bool = False) -> AppendInfo:
        """``append`` of what :func:`coordinator.log.contents.admit` gave."""
        self._check_open()
        if self._failure is not None:
            raise LogFailedError(self.directory, self._failure.cause, "takes no appends since the disk failed")
        duplicate = self._check_producer(parsed, from_coordinator=from_coordinator)
        if duplicate is not None:
            return AppendInfo(
                duplicate.base_offset, duplicate.last_offset, duplicate.timestamp_ms, self._start, duplicate=True
            )
        append_time_ms = -1
        if self._config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time_ms = now_ms
            parsed = stamped(parsed, now_ms)
        base_offset = self._end
        try:
            self._write(parsed, now_ms)
        except LogStorageError as error:
            self._tell_refused(error)
            raise
        if self._is_refusing:
            self._is_refusing = False
            logger.warning("%s takes records again", self.directory)
        if self._config.fsync is not Fsync.NEVER and self._noted_round != self._syncer.round:
            self._noted_round = self._syncer.note(self)
        return AppendInfo(base_offset, self._end - 1, append_time_ms, self._start, duplicate=False)

    def _tell_refused(self, error: LogStorageError) -> None:
        """Clients repeat their requests: that the disk refuses is told once."""
        if not self._is_refusing:
            self._is_refusing = True
            logger.error("%s. %s", error, error.then)

    def _check_producer(self, parsed: list[Batch], *, from_coordinator: bool) -> WrittenBatch | None:
        header = parsed[0][0]
        if header.producer_id < 0:
            return None
        if from_coordinator:
            self._producers.check_epoch(header)
            return None
        return self._producers.check(header)

    def _write(self, parsed: list[Batch], now_ms: int) -> None:
        offset = self._end
        epoch = self._epochs[-1][0]
        buffers: list[bytes | memoryview] = []
        size_bytes = 0
        for header, batch in parsed:
            buffers.append(_HEAD.pack(offset, header.batch_length, epoch))
            buffers.append(batch[_HEAD.size :])
            size_bytes += len(batch)
            offset += header.last_offset_delta + 1
        segment = self._segment_for(size_bytes, offset, now_ms)
        try:
            segment.write(buffers, size_bytes)
        except LogFailedError as error:
            self._failure = error
            raise
        if segment.first_append_ms < 0:
            segment.first_append_ms = now_ms
        self._note_batches(segment, parsed, now_ms)

    def _note_batches(self, segment: Segment, parsed: list[Batch], now_ms: int) -> None:
        offset = self._end
        index = segment.index
        for header, batch in parsed:
            next_offset = offset + header.last_offset_delta + 1
            index.add(offset, next_offset, len(batch), header.max_timestamp)
            if header.producer_id >= 0:
                aborts = header.is_control and recovery.is_abort(batch)
                self._producers.apply(header, offset, aborts=aborts, append_ms=now_ms)
            offset = next_offset
        self._end = offset

    def _segment_for(self, size_bytes: int, next_offset: int, now_ms: int) -> Segment:
        active = self._segments[-1]
        if active.size_bytes and (
            active.size_bytes + size_bytes > self._config.segment_bytes
            or now_ms - active.first_append_ms >= self._config.roll_ms
            or next_offset - active.base_offset > OFFSETS_MAX
        ):
            self.roll()
        return self._segments[-1]

    def roll(self) -> None:
        """Closes the active segment and begins a new one; the closed one is synced in the background."""
        active = self._segments[-1]
        if not active.size_bytes:
            return
        segment = self._create_segment(self._end)
        active.save_index()
        self._producers.save(recovery.snapshot_path(self.directory, self._end), self._end)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._rolled.append(active)
        self._syncer.note(self, checkpoint=True)
        self._keep_open(active)
        self._prune_snapshots()

    def _prune_snapshots(self) -> None:
        """Keeps the snapshot at the start of each segment, for truncation, and the newest that recovery may use.

        What a snapshot knows of deleted segments stands nowhere else.
        """
        offsets = [int(path.stem) for path in with_suffix(self.directory, SNAPSHOT_SUFFIX)]
        recovery_point = self._saved.recovery_point if self._saved is not None else 0
        usable = [offset for offset in offsets if offset <= recovery_point]
        for offset in set(usable[:-1]) - set(self._bases):
            recovery.snapshot_path(self.directory, offset).unlink(missing_ok=True)

    # ----------------------------------------------------------------------------------------------------- reading

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool = True, up_to: int | None = None) -> ReadResult:
        """Whole batches from the one that holds ``offset``, at most ``max_bytes``, all below offset ``up_to``.

        With ``min_one_batch`` the first batch is returned even if it is larger than ``max_bytes`` (KIP-74).
        ``up_to`` is the high watermark by default; pass ``last_stable_offset`` for read_committed.
        Raises :class:`OffsetOutOfRangeError`.
        """
        found = self.find(offset, max_bytes, min_one_batch=min_one_batch, up_to=up_to)
        return ReadResult([memoryview(each.read()) for each in found.records], found.size_bytes, found.next_offset)

    def find(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, up_to: int | None = None
    ) -> FoundRecords:
        """Where the batches are that :meth:`read` returns."""
        self._check_open()
        if not self._start <= offset <= self._end:
            raise OffsetOutOfRangeError(offset, self._start, self._end)
        end = self._end if up_to is None else min(up_to, self._end)
        records: list[FileRecords] = []
        size_bytes = 0
        i = bisect_right(self._bases, offset) - 1
        while offset < end and i < len(self._segments) and len(records) < _SEGMENTS_READ_MAX:
            segment = self._segments[i]
            i += 1
            if not segment.size_bytes or offset >= segment.next_offset:
                continue
            limit, limit_offset = segment.limit_at(end)
            first = min_one_batch and not records
            left_bytes = max(max_bytes - size_bytes, 0)
            found = segment.find(offset, left_bytes, limit, limit_offset, whole_first=first)
            self._keep_open(segment)
            if found is None:
                break
            records.append(found.records)
            size_bytes += len(found.records)
            offset = found.next_offset
            if offset < segment.next_offset:
                break
        return FoundRecords(records, size_bytes, offset)

    def available_bytes(self, offset: int, up_to: int, enough: int) -> int:
        """The size of what :meth:`read` could give, counted no further than ``enough``. Raises as that does."""
        self._check_open()
        if not self._start <= offset <= self._end:
            raise OffsetOutOfRangeError(offset, self._start, self._end)
        size_bytes, i = 0, max(0, bisect_right(self._bases, offset) - 1)
        while size_bytes < enough and i < len(self._segments):
            size_bytes += self._segments[i].bytes_between(offset, min(up_to, self._end))
            self._keep_open(self._segments[i])
            i += 1
        return size_bytes

    def _keep_open(self, segment: Segment) -> None:
        """Bounds how many closed segments keep their file open."""
        if segment is not self._segments[-1] and segment not in self._open_closed:
            self._open_closed.append(segment)
            if len(self._open_closed) > _CLOSED_SEGMENTS_OPEN_MAX:
                self._open_closed.pop(0).close()

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in ``from_offset <= offset < to_offset``."""
        return self._producers.aborted_transactions(from_offset, to_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with at least this timestamp, ``None`` without one."""
        self._check_open()
        for segment in self._segments:
            from_offset = self._start
            while (batch := segment.find_timestamp(timestamp_ms, from_offset)) is not None:
                found = find_timestamp(batch, 0, timestamp_ms, from_offset=from_offset)
                if found is not None:
                    return found
                from_offset = read_header(batch).next_offset
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that has the largest timestamp, ``None`` without timestamps."""
        self._check_open()
        largest = max((s.max_timestamp_from(self._start) for s in self._segments), default=-1)
        return self.offset_for_timestamp(largest) if largest >= 0 else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch: where ``epoch``, or the last one before it, ended.

        (-1, -1) for an epoch that is not known yet.
        """
        if epoch > self._epochs[-1][0]:
            return -1, -1
        i = bisect_right(self._epochs, epoch, key=lambda pair: pair[0]) - 1
        if i < 0:
            return epoch, self._epochs[0][1]
        end = self._epochs[i + 1][1] if i + 1 < len(self._epochs) else self._end
        return self._epochs[i][0], end

    # ---------------------------------------------------------------------------------------------------- removing

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start up to ``offset``, never down; returns it. Raises :class:`OffsetOutOfRangeError`."""
        self._check_open()
        if not 0 <= offset <= self._end:
            raise OffsetOutOfRangeError(offset, self._start, self._end)
        if offset > self._start:
            self._start = offset
            self._producers.forget_before(offset)
            self._save_checkpoint(durable=False)
            self._delete_oldest(self._below_start())
        return self._start

    def apply_retention(self, now_ms: int) -> int:
        """Deletes the oldest segments by time, by size and below the log's start; returns how many.

        The active segment is closed first if it has expired as well. Producers that were silent too long are forgotten.
        """
        self._check_open()
        self._producers.expire(now_ms, self._config.producer_id_expiration_ms)
        count = self._below_start()
        if "delete" in self._config.cleanup_policy:
            count = max(count, self._expired(now_ms), self._above_size())
        if count == len(self._segments):
            self.roll()
        count = min(count, len(self._segments) - 1)
        if count:
            self._start = max(self._start, self._segments[count].base_offset)
            self._producers.forget_before(self._start)
            self._save_checkpoint(durable=False)
        return self._delete_oldest(count)

    def _below_start(self) -> int:
        return max(bisect_right(self._bases, self._start) - 1, 0)

    def _expired(self, now_ms: int) -> int:
        """How many of the oldest segments hold only records older than the retention."""
        retention_ms = self._config.retention_ms
        if retention_ms < 0:
            return 0
        for i, segment in enumerate(self._segments):
            if segment.size_bytes and now_ms - segment.newest_ms() <= retention_ms:
                return i
            if self._is_empty_active(segment):
                return i
        return len(self._segments)

    def _above_size(self) -> int:
        """How many of the oldest segments can go with at least ``retention_bytes`` left."""
        excess_bytes = self.size_bytes - self._config.retention_bytes
        if self._config.retention_bytes < 0:
            return 0
        for i, segment in enumerate(self._segments):
            excess_bytes -= segment.size_bytes
            if excess_bytes < 0 or self._is_empty_active(segment):
                return i
        return len(self._segments)

    def _is_empty_active(self, segment: Segment) -> bool:
        return segment is self._segments[-1] and not segment.size_bytes

    def _delete_oldest(self, count: int) -> int:
        doomed = self._segments[:count]
        if doomed:
            self._set_segments(self._segments[count:])
            for segment in doomed:
                self._remove_files(segment)
            self._prune_snapshots()
        return len(doomed)

    def _remove_files(self, segment: Segment) -> None:
        if segment in self._open_closed:
            self._open_closed.remove(segment)
        self._syncer.run(partial(_unlink, segment.rename_deleted()))

    # -------------------------------------------------------------------------------------------------- compacting

    def assess_compaction(self, now_ms: int) -> Assessment:
        """What could be compacted now."""
        limit_offset = min(self._synced_offset, self.last_stable_offset)
        return assess(self._segments, self._cleaned_offset, limit_offset, self._config, now_ms)

    def compact(
        self, now_ms: int, *, map_bytes_max: int = 128 << 20, run: Run = at_once
    ) -> Generator[Future[None] | None, None, Mapping[int, str]]:
        """Compacts in steps: other work continues between them, and each step starts after the future of the one before.

        ``map_bytes_max`` bounds the memory for keys; ``run`` does the reading. Offsets stay; readers notice nothing. What
        is left of a pass that ends early is done by the next one. Returns the offsets of batches that can't be read and
        were kept, with the reason. Raises the log's errors, ``OSError`` and DecodeError; the log is whole then.
        """
        self._check_open()
        discard_swaps(self.directory)
        plan = self.assess_compaction(now_ms)
        aborted = AbortedData(tuple(self._producers.aborted))
        dirty = [s for s in self._segments[:-1] if plan.first_dirty_offset < s.next_offset <= plan.end_offset]
        latest = LatestOffsets(aborted, plan.first_dirty_offset, map_bytes_max)
        for step in latest.read(dirty, plan.end_offset, run):
            yield step
            self._check_open()
        survivors = Survivors(
            latest.offsets,
            aborted,
            self._producers,
            end_offset=latest.end_offset,
            now_ms=now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
        )
        closed = [segment for segment in self._segments[:-1] if segment.base_offset < latest.end_offset]
        for group in group_segments(closed, self._config.segment_bytes):
            yield from self._compact_group(group, survivors, run)
        self._cleaned_offset = max(self._cleaned_offset, latest.end_offset)
        self._save_checkpoint(durable=False)
        return survivors.unreadable

    def _compact_group(self, group: list[Segment], survivors: Survivors, run: Run) -> Iterator[Future[None] | None]:
        if not self._still_has(group):
            return
        cleaned = CleanedFile(group, self._config.index_interval_bytes)
        swap = swap_path(self.directory, group[0].base_offset, self._base_after(group[-1]))
        try:
            for step in cleaned.write(survivors, run):
                yield step
                self._check_open()
            self._producers.forget_aborted(survivors.forgotten)
            forgotten = frozenset(survivors.forgotten)
            yield self._syncer.call(partial(self._prepare_swap, cleaned, swap, forgotten))
            self._check_open()
            if self._still_has(group):
                self._swap(group, cleaned, swap)
        finally:
            if not self._closed:
                cleaned.discard()
                swap.unlink(missing_ok=True)

    def _prepare_swap(self, cleaned: CleanedFile, swap: Path, forgotten: frozenset[int]) -> None:
        """On the sync thread: from here on a start would do what is left, so all that it builds on must be on disk."""
        os.fdatasync(cleaned.file.fd)
        if forgotten:
            recovery.forget_aborted(self.directory, forgotten)
        with self._checkpoint_lock:
            self._check_open()
            self._checkpoint().save(self.directory, durable=True)
            os.rename(cleaned.path, swap)
            sync_directory(self.directory)

    def _base_after(self, segment: Segment) -> int:
        return self._segments[self._segments.index(segment) + 1].base_offset

    def _still_has(self, group: list[Segment]) -> bool:
        """Whether retention left the group alone meanwhile."""
        at = bisect_left(self._bases, group[0].base_offset)
        return self._segments[at : at + len(group)] == group

    def _swap(self, group: list[Segment], cleaned: CleanedFile, swap: Path) -> None:
        first = group[0]
        at = self._segments.index(first)
        for segment in group[1:]:
            self._remove_files(segment)
        if first in self._open_closed:
            self._open_closed.remove(first)
        first.close()
        first.index_path.unlink(missing_ok=True)
        os.replace(swap, first.path)
        self._unsynced_directories.add(self.directory)
        replacement = Segment.existing(first.path, self._config.index_interval_bytes)
        replacement.index = cleaned.index
        replacement.save_index()
        self._set_segments([*self._segments[:at], replacement, *self._segments[at + len(group) :]])

    # -------------------------------------------------------------------------------------------- syncing, closing

    def note_unsynced(self, request: SyncRequest) -> None:
        """For the syncer: the files and directories that may have unsynced changes."""
        self._check_open()
        active = self._segments[-1]
        for segment in (*self._rolled, active) if active.size_bytes else self._rolled:
            request.files.setdefault(segment.base_offset, segment.file)
        request.end_offset = self._end
        if self._unsynced_directories:
            request.directories |= self._unsynced_directories
            self._unsynced_directories = set()
        if self._rolled:
            self._rolled = []

    def on_synced(self, end_offset: int, *, checkpoint: bool) -> None:
        """For the syncer, on its thread: everything below ``end_offset`` is on disk."""
        self._synced_offset = max(self._synced_offset, end_offset)
        if checkpoint and not self._closed:
            self._save_checkpoint(durable=True)

    def on_sync_failed(self, error: LogFailedError) -> None:
        """For the syncer, on its thread: no more appends."""
        self._failure = error

    @property
    def has_unsynced(self) -> bool:
        """Whether something was appended or created that is not known to be on disk.

        A log that was never written need not be there: it is as empty when the next start makes it again.
        """
        if self._closed or self._is_untouched:
            return False
        return self._end > self._synced_offset or bool(self._unsynced_directories)

    @property
    def _is_untouched(self) -> bool:
        return self._saved is None and not self._end and self._epochs == ((0, 0),)

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or abandoned."""
        return self._closed

    def flush(self) -> None:
        """Waits until everything appended is on disk. Raises :class:`LogFailedError`."""
        self._syncer.sync(self).result()

    def close(self) -> None:
        """Flushes, writes the hints and the checkpoint, and lets go of the files. A second call does nothing.

        Raises :class:`LogFailedError` if the flush failed; the log is closed all the same, and recovers when reopened.
        """
        if self._closed:
            return
        try:
            if self.has_unsynced:
                self.flush()
            self._write_hints()
        finally:
            self.abandon()

    def _write_hints(self) -> None:
        if self._is_untouched:
            return
        if self._saved is None or self._checkpoint() != self._saved or self._segments[-1].saved_index() is None:
            self._segments[-1].save_index()
            self._producers.save(recovery.snapshot_path(self.directory, self._end), self._end)
            self._save_checkpoint(durable=False)

    def abandon(self) -> None:
        """Lets go of the files without writing anything, for a partition that is being deleted."""
        with self._checkpoint_lock:
            self._closed = True
        for segment in self._segments:
            segment.close()

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self._synced_offset, self._start, self._epochs, self._cleaned_offset)

    def _save_checkpoint(self, *, durable: bool) -> None:
        """``durable`` on the sync thread only. If that thread is busy saving, the other one leaves the work to it."""
        if not self._checkpoint_lock.acquire(blocking=durable):
            self._syncer.note(self, checkpoint=True)
            return
        try:
            if not self._closed:
                checkpoint = self._checkpoint()
                checkpoint.save(self.directory, durable=durable)
                self._saved = checkpoint
        except OSError as error:
            logger.warning(
                "%s: the checkpoint could not be written (%s); the next start will recover from an earlier one",
                self.directory,
                error,
            )
        finally:
            self._checkpoint_lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the log in {self.directory} is closed")


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
