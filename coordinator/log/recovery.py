"""Bringing a partition's files back to what was written: at start, and on demand after corruption.

Rules
1. The recovery point is an offset below which everything was synced. Below it the log is trusted; from it on every
   batch is read and its CRC checked. A log that ends at its recovery point is not read at all.
2. Bytes after the last whole batch of the newest segment with data are the torn tail of an append: they are cut off,
   with a warning that says how many.
3. Any other incomplete batch was complete once: one with complete batches after it, below the recovery point, or in an
   older segment. It is refused with :class:`CorruptLogError`. Nothing is repaired silently;
   :func:`truncate_at_corruption` is the repair.
4. Offsets have no gaps from the recovery point on: only compaction makes them, and it keeps to older, synced segments.
5. Indexes, producer state and leader epochs come out of the same walk as ``append`` would have made them. Snapshots
   beyond the recovery point are not used: they may know batches that a power loss took.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.log.checkpoint import Checkpoint
from coordinator.log.compaction.rewriting import CLEANED_SUFFIX
from coordinator.log.compaction.swap import SWAP_SUFFIX, finish_swaps
from coordinator.log.errors import CorruptLogError
from coordinator.log.files import replace_file, sync_directory, with_suffix
from coordinator.log.index import SegmentIndex
from coordinator.log.producer_state import ProducerState
from coordinator.log.scan import BrokenBatch, Expected, find_whole_batch, scan_batches
from coordinator.log.segment import DELETED_SUFFIX, LOG_SUFFIX, OFFSETS_MAX, SNAPSHOT_SUFFIX, Segment, file_name
from streamsrt.wire.records import BatchHeader, ControlType, decode_control_batch

logger = logging.getLogger(__name__)

DROPPED_SUFFIX = ".dropped"
#: How many leader epochs may have begun since the newest checkpoint that a power loss left.
_EPOCHS_UNSEEN_MAX = 1024


@dataclass(slots=True)
class Recovered:
    """What a walk over a log found. ``epochs``: (leader epoch, first offset), ascending."""

    producers: ProducerState
    epochs: list[tuple[int, int]]
    truncated_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Repair:
    """What :func:`truncate_at_corruption` dropped: everything from ``first_lost_offset`` on."""

    file: Path
    position: int
    reason: str
    first_lost_offset: int
    dropped_bytes: int
    dropped_files: tuple[Path, ...]


def list_segments(directory: Path, interval_bytes: int) -> list[Segment]:
    """The segments of a partition directory by offset."""
    return [Segment.existing(path, interval_bytes) for path in with_suffix(directory, LOG_SUFFIX)]


def snapshot_path(directory: Path, offset: int) -> Path:
    """Where the producer state after everything below ``offset`` is kept."""
    return directory / file_name(offset, SNAPSHOT_SUFFIX)


def remove_leftovers(directory: Path) -> None:
    """Removes what a killed process had begun to write or to delete, and ends what compaction had decided.

    When a log is opened again in the same process, the sync thread may be at it already.
    """
    found = with_suffix(directory, SWAP_SUFFIX, ".new", DELETED_SUFFIX, CLEANED_SUFFIX)
    if any(path.suffix == SWAP_SUFFIX for path in found):
        finish_swaps(directory)
    for path in found:
        path.unlink(missing_ok=True)


def recover(directory: Path, segments: list[Segment], checkpoint: Checkpoint | None) -> Recovered:
    """Reads what must be read, cuts a torn tail off and fills the indexes of the segments that were read.

    ``segments`` is shortened if its last ones are empty behind a torn one.
    Raises :class:`CorruptLogError` for anything that is not a torn tail.
    """
    recovery_point = checkpoint.recovery_point if checkpoint is not None else segments[0].base_offset
    producers, known_until = _newest_snapshot(directory, max(recovery_point, segments[0].base_offset))
    epochs = list(checkpoint.epochs) if checkpoint is not None else []
    walk = _Walk(Recovered(producers, epochs), known_until)
    start = min(known_until, recovery_point)
    for i, segment in enumerate(segments):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= start:
            continue
        if segment.base_offset > known_until:
            # Retention may delete what was just read, and nothing else could then tell its producers again.
            walk.recovered.producers.save(snapshot_path(directory, segment.base_offset), segment.base_offset)
        fault = walk.read(segment, start, _expected(segments, i, checkpoint))
        if fault is not None:
            if fault.expected_offset < recovery_point:
                following = _following_offset(segment, fault, segments[i + 1 :], walk.recovered)
                raise CorruptLogError(segment.path, fault.position, fault.reason, (fault.expected_offset, following))
            _cut_torn_tail(segment, fault, segments[i + 1 :], walk.recovered)
            del segments[i + 1 :]
            break
    _check_end(segments[-1], recovery_point)
    _remove_snapshots_beyond(directory, segments[-1].next_offset)
    return walk.recovered


def sync_closed(segments: Sequence[Segment]) -> int:
    """Makes closed segments of a log without a checkpoint durable; the offset below which the log is on disk then.

    Compaction may have made gaps there, which are damage above a recovery point.
    """
    for segment in segments[:-1]:
        os.fdatasync(segment.file.fd)
        segment.close()
    return segments[-1].base_offset


def _check_end(last: Segment, recovery_point: int) -> None:
    if last.next_offset < recovery_point:
        reason = f"the file is shorter than it was when everything below offset {recovery_point} was on disk"
        raise CorruptLogError(last.path, last.size_bytes, reason, (last.next_offset, recovery_point))


def _expected(segments: Sequence[Segment], i: int, checkpoint: Checkpoint | None) -> Expected:
    """What recovery demands of the batches in the segment with this index."""
    segment, last = segments[i], segments[-1]
    limit = segment.base_offset + OFFSETS_MAX
    if segment is not last:
        limit = min(limit, segments[i + 1].base_offset)
    if checkpoint is None:
        return Expected(segment.base_offset, limit, last.base_offset, 0, _EPOCHS_UNSEEN_MAX)
    epoch_max = _last_epoch(checkpoint.epochs) + _EPOCHS_UNSEEN_MAX
    contiguous_from = min(checkpoint.recovery_point, last.base_offset)
    return Expected(segment.base_offset, limit, contiguous_from, checkpoint.recovery_point, epoch_max)


def _last_epoch(epochs: Sequence[tuple[int, int]]) -> int:
    return epochs[-1][0] if epochs else 0


class _Walk:
    """Reads segments in order and keeps the state that they build up."""

    def __init__(self, recovered: Recovered, known_until: int) -> None:
        self.recovered = recovered
        self._known_until = known_until

    def read(self, segment: Segment, start: int, expected: Expected) -> BrokenBatch | None:
        """Reads ``segment`` from the batch at offset ``start`` on, or whole if its index does not reach there."""
        index = segment.saved_index()
        if index is None or index.next_offset > start:
            index = segment.new_index()
        position = index.covered_bytes
        segment.index = index
        if position == segment.size_bytes:
            return None
        modified_ms = segment.first_append_ms
        return scan_batches(
            segment.file.fd,
            position=position,
            size_bytes=segment.size_bytes,
            expected=expected._replace(next_offset=index.next_offset),
            visit=lambda header, batch: self._visit(index, header, batch, modified_ms),
        )

    def _visit(self, index: SegmentIndex, header: BatchHeader, batch: memoryview, modified_ms: int) -> None:
        index.add(header.base_offset, header.next_offset, header.size_bytes, header.max_timestamp)
        note_epoch(self.recovered.epochs, header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_offset >= self._known_until:
            aborts = header.is_control and header.records_count > 0 and is_abort(batch)
            self.recovered.producers.apply(header, header.base_offset, aborts=aborts, append_ms=modified_ms)


def is_abort(batch: memoryview) -> bool:
    """Whether a control batch is an abort marker."""
    return decode_control_batch(batch, verify_crc=False).type is ControlType.ABORT


def note_epoch(epochs: list[tuple[int, int]], epoch: int, offset: int) -> None:
    """Adds a leader epoch at the first offset that carries it."""
    if epoch >= 0 and (not epochs or epoch > epochs[-1][0]):
        epochs.append((epoch, offset))


def _newest_snapshot(directory: Path, recovery_point: int) -> tuple[ProducerState, int]:
    for path in reversed(with_suffix(directory, SNAPSHOT_SUFFIX)):
        if int(path.stem) <= recovery_point:
            loaded = ProducerState.load(path)
            if loaded is not None and loaded[1] == int(path.stem):
                return loaded
    return ProducerState(), 0


def _remove_snapshots_beyond(directory: Path, end_offset: int) -> None:
    for path in with_suffix(directory, SNAPSHOT_SUFFIX):
        if int(path.stem) > end_offset:
            path.unlink()


def forget_aborted(directory: Path, marker_offsets: Collection[int]) -> None:
    """Drops aborted transactions from all snapshots, durably, before compaction takes their markers. Raises OSError."""
    for path in with_suffix(directory, SNAPSHOT_SUFFIX):
        loaded = ProducerState.load(path)
        if loaded is not None and loaded[0].forget_aborted(marker_offsets):
            replace_file(path, loaded[0].encoded(loaded[1]), durable=True)


def _following_offset(
    segment: Segment, fault: BrokenBatch, behind: Sequence[Segment], recovered: Recovered
) -> int | None:
    """The offset of something whole behind a fault."""
    for other in behind:
        if other.size_bytes:
            return other.base_offset
    return find_whole_batch(
        segment.file.fd,
        position=fault.position + 1,
        size_bytes=segment.size_bytes,
        offset_min=fault.expected_offset + 1,
        leader_epochs=_possible_epochs(recovered.epochs),
    )


def _cut_torn_tail(segment: Segment, fault: BrokenBatch, behind: Sequence[Segment], recovered: Recovered) -> None:
    following = _following_offset(segment, fault, behind, recovered)
    if following is not None:
        raise CorruptLogError(segment.path, fault.position, fault.reason, (fault.expected_offset, following))
    index = segment.index
    recovered.truncated_bytes = segment.size_bytes - fault.position
    logger.warning(
        "%s: truncated %d bytes at position %d, left by an incomplete append (%s); the log ends at offset %d",
        segment.path,
        recovered.truncated_bytes,
        fault.position,
        fault.reason,
        fault.expected_offset,
    )
    segment.truncate(fault.position)
    segment.index = index
    for empty in behind:
        empty.path.unlink()


def _possible_epochs(epochs: Sequence[tuple[int, int]]) -> range:
    """Every leader epoch up to a few beyond the last that is known, for a checkpoint that was lost."""
    last = _last_epoch(epochs)
    return range(max(0, last - 64), last + 8)


# ------------------------------------------------------------------------------------------------------------- repair


def truncate_at_corruption(directory: Path) -> Repair | None:
    """Drops everything from the first corrupt batch of a partition on, so that the rest can be used again.

    ``directory`` is the partition's, and no broker may have it open. Every batch is read. What is dropped is kept
    beside the log, in files that end with ``.dropped``. Returns what was done, ``None`` if every batch is whole.
    Raises ``OSError`` if there is no space to keep the dropped bytes; nothing is changed then.
    """
    segments = list_segments(directory, interval_bytes=4096)
    checkpoint = Checkpoint.load(directory)
    end_offset = 0
    for i, segment in enumerate(segments):
        index = segment.new_index()
        fault = scan_batches(
            segment.file.fd,
            position=0,
            size_bytes=segment.size_bytes,
            expected=_expected(segments, i, checkpoint)._replace(check_crc_from=0),
            visit=lambda header, batch, index=index: index.add(  # type: ignore[misc]
                header.base_offset, header.next_offset, header.size_bytes, header.max_timestamp
            ),
        )
        end_offset = index.next_offset
        if fault is not None:
            return _drop_from(directory, segment, fault, segments[i + 1 :])
    if segments and checkpoint is not None and end_offset < checkpoint.recovery_point:
        fault = BrokenBatch(segments[-1].size_bytes, "the file is shorter than it once was", end_offset)
        return _drop_from(directory, segments[-1], fault, ())
    return None


def _drop_from(directory: Path, segment: Segment, fault: BrokenBatch, behind: Sequence[Segment]) -> Repair:
    dropped_bytes = segment.size_bytes - fault.position + sum(s.size_bytes for s in behind)
    tail = segment.path.with_name(f"{segment.path.name}.{fault.position}{DROPPED_SUFFIX}")
    _copy_tail(segment.path, fault.position, tail)
    files = [tail]
    for other in behind:
        target = other.path.with_name(other.path.name + DROPPED_SUFFIX)
        other.close()
        os.replace(other.path, target)
        other.index_path.unlink(missing_ok=True)
        files.append(target)
    segment.truncate(fault.position)
    os.fsync(segment.file.fd)
    segment.close()
    segment.index_path.unlink(missing_ok=True)
    _remove_snapshots_beyond(directory, fault.expected_offset)
    _checkpoint_cut(directory, fault.expected_offset)
    sync_directory(directory)
    return Repair(segment.path, fault.position, fault.reason, fault.expected_offset, dropped_bytes, tuple(files))


def _copy_tail(source: Path, position: int, target: Path) -> None:
    try:
        with source.open("rb") as reader, target.open("wb") as writer:
            reader.seek(position)
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _checkpoint_cut(directory: Path, end_offset: int) -> None:
    """A new leader epoch at the cut, so that clients which read beyond it notice."""
    checkpoint = Checkpoint.load(directory)
    if checkpoint is None:
        return
    epoch = _last_epoch(checkpoint.epochs)
    kept = tuple(pair for pair in checkpoint.epochs if pair[1] < end_offset)
    Checkpoint(
        min(checkpoint.recovery_point, end_offset),
        min(checkpoint.log_start_offset, end_offset),
        (*kept, (epoch + 1, end_offset)),
    ).save(directory, durable=True)
