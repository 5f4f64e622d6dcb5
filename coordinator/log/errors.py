"""Errors of the log, by who is at fault and what the caller must do.

::

    LogError
    ├── LogDirectoryError                   the operator must act; the broker does not start
    │   ├── LogDirectoryLockedError         another process owns the directory
    │   ├── FormatVersionError              not a data directory of this broker, or of another version of it
    │   ├── CorruptLogError                 bytes changed that were written whole: restore them or repair explicitly
    │   ├── UnreadableLogError              one of the broker's own logs holds what it can't read: the same
    │   └── NewerLogError                   a newer broker has written it: start that one
    ├── LogStorageError                     the disk failed this append; what was there before is still readable
    │   ├── LogFullError                    no space: nothing half-written stays, a later append may succeed
    │   └── LogFailedError                  write or fsync failed: this log refuses appends until it is reopened
    ├── LogClosedError                      a bug of the caller, or the partition was deleted meanwhile
    ├── OffsetOutOfRangeError               the reader asked below the log's start or above its end
    └── AppendRefusedError                  the producer's fault; nothing was written
        ├── CorruptRecordError              CRC, length or framing
        ├── InvalidRecordError              a batch that no producer may send, or that no consumer could read
        │   └── UnsupportedMagicError       a record format older than magic 2
        ├── RecordTooLargeError             above ``max.message.bytes``, or above a whole segment
        │   └── UnpackedTooLargeError       above ``message.max.unpacked.bytes``
        ├── InvalidTimestampError           further from the broker's clock than the topic allows
        ├── OutOfOrderSequenceError         an idempotent producer left a gap
        ├── InvalidProducerEpochError       a fenced producer
        └── InvalidTxnStateError            a plain write in the middle of the same producer's transaction

Errors that a client sees carry ``error_code``, the number of the protocol (Kafka's ``Errors``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class LogError(Exception):
    """Anything that the log refuses or fails to do. ``error_code`` is the protocol's number (-1: unknown)."""

    error_code: ClassVar[int] = -1


class LogDirectoryError(LogError):
    """The data directory cannot be used as it is: the operator must act."""


class LogDirectoryLockedError(LogDirectoryError):
    """Another process has the data directory open.

    ``pid`` is the process that wrote the lock file, ``None`` when it left none.
    """

    def __init__(self, directory: Path, pid: int | None) -> None:
        self.directory = directory
        self.pid = pid
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"data directory {directory} is in use by {owner}: "
            "stop that broker first, or give this one another --data-dir"
        )


class FormatVersionError(LogDirectoryError):
    """The directory holds something else than this version's log."""

    def __init__(self, directory: Path, reason: str, remedy: str) -> None:
        self.directory = directory
        super().__init__(f"data directory {directory} {reason}: {remedy}")


class CorruptLogError(LogDirectoryError):
    """Bytes of the log that were once written whole are not valid any more.

    ``file`` and ``position`` say where, ``reason`` what was seen, ``offsets`` which offsets are unreadable
    (first, first not affected; the second is ``None`` when nothing valid follows).
    :func:`coordinator.log.recovery.truncate_at_corruption` repairs the partition by dropping everything from there.
    """

    error_code = 56

    def __init__(self, file: Path, position: int, reason: str, offsets: tuple[int, int | None]) -> None:
        self.file = file
        self.position = position
        self.reason = reason
        self.offsets = offsets
        first, following = offsets
        lost = (
            f"offsets {first} to {following - 1} are unreadable"
            if following is not None
            else f"offset {first} and all after it are unreadable"
        )
        super().__init__(
            f"{file} is corrupt at byte {position}: {reason}; {lost}. Restore the file from a backup, or start the "
            f"broker once with --truncate-corrupt to drop this partition's records from offset {first} on "
            f"(the dropped bytes are kept beside the log in files that end with .dropped)"
        )


class UnreadableLogError(LogDirectoryError):
    """One of the broker's own logs holds records that it can't read; ``directory`` is that of the log."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        super().__init__(
            f"{directory} holds records that can't be read: {reason}. Restore the directory from a backup, or start "
            "the broker once with --truncate-corrupt to drop everything from there on"
        )


class NewerLogError(LogDirectoryError):
    """One of the broker's own logs holds records of a newer broker; ``directory`` is that of the log."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        super().__init__(
            f"{directory} holds records that can't be read: {reason}. A newer broker has written them: start that version "
            "of streamsrt, or restore the directory from a backup"
        )


class LogStorageError(LogError):
    """The disk failed: KAFKA_STORAGE_ERROR. What was appended before is still readable."""

    error_code = 56
    then: ClassVar = "The log takes no records until the broker is started again"
    """What follows, for the broker's own log."""

    def __init__(self, file: Path, cause: OSError | None, reason: str) -> None:
        self.file = file
        self.cause = cause
        detail = f": {cause.strerror or cause}" if cause is not None else ""
        super().__init__(f"{file}: {reason}{detail}")


class LogFullError(LogStorageError):
    """No space for the append. Nothing of it stays; free some space and append again."""

    then = "Records are refused until there is space"


class LogFailedError(LogStorageError):
    """A write or an fsync failed, so what is on disk is not known: the log takes no more appends until reopened."""


class LogClosedError(LogError):
    """The log was closed or deleted: NOT_LEADER_OR_FOLLOWER, so that clients look for it again."""

    error_code = 6


class OffsetOutOfRangeError(LogError):
    """The offset lies below the log's start or above its end: OFFSET_OUT_OF_RANGE."""

    error_code = 1

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset
        super().__init__(
            f"offset {offset} is outside of the log, which holds {start_offset} to {end_offset} (exclusive)"
        )


class AppendRefusedError(LogError):
    """The producer sent what may not be written. Nothing was.

    ``record_errors``: which records it is about, by their index in the batch, and what is wrong with each.
    """

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        self.record_errors = record_errors
        super().__init__(message)


class CorruptRecordError(AppendRefusedError):
    """Framing or CRC of a batch is wrong: CORRUPT_MESSAGE, upon which producers send it again."""

    error_code = 2


class InvalidRecordError(AppendRefusedError):
    """A batch or a record that no producer may send: INVALID_RECORD."""

    error_code = 87


class UnsupportedMagicError(InvalidRecordError):
    """The batch has a record format older than magic 2: INVALID_RECORD too, as Kafka 4 answers."""


class RecordTooLargeError(AppendRefusedError):
    """The batch is larger than ``max_message_bytes`` or than a segment: MESSAGE_TOO_LARGE."""

    error_code = 10


class UnpackedTooLargeError(RecordTooLargeError):
    """The batch holds more than it may when it is unpacked: MESSAGE_TOO_LARGE too, upon which Java's producers halve it."""


class InvalidTimestampError(AppendRefusedError):
    """A record is further from the broker's clock than the topic allows: INVALID_TIMESTAMP."""

    error_code = 32


class OutOfOrderSequenceError(AppendRefusedError):
    """The sequence number is not the next of this producer: OUT_OF_ORDER_SEQUENCE_NUMBER."""

    error_code = 45


class InvalidProducerEpochError(AppendRefusedError):
    """The producer was fenced by a newer epoch of the same id: INVALID_PRODUCER_EPOCH."""

    error_code = 47


class InvalidTxnStateError(AppendRefusedError):
    """A plain write while the same producer's transaction is open here: INVALID_TXN_STATE."""

    error_code = 48
