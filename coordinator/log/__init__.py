"""The durable log of one partition: append, read, recover.

==================  =========================================================================================
module              contents
==================  =========================================================================================
``directory``       :class:`LogDirectory`: owner, format version, clean shutdown, the partitions
``partition_log``   :class:`PartitionLog`: append, read, look up, retention, truncation
``segment``         one file of batches, and reading from it
``results``         the results of appends and reads
``index``           the sparse offset and time index of a segment
``producer_state``  sequences of idempotent producers, open and aborted transactions
``validation``      checks produced bytes: whole batches, valid headers
``contents``        checks the records of a batch, and prepares the batch for the log
``scan``            reads and checks the batches of a file
``compaction``      keeps the last record of each key
``recovery``        recovery after an unclean stop, and repair after corruption
``checkpoint``      recovery point, log start offset, leader epochs
``fsync``           :class:`Syncer`: the thread that forces bytes to disk, for many waiters at once
``filesystem``      forcing everything of a filesystem to disk at once
``files``           replacing small files, syncing directories
``config``          :class:`LogConfig`, :class:`Fsync`
``errors``          the tree of errors
``recompression``   compresses batches with the codec of their topic (``compression.type``)
==================  =========================================================================================
"""

from coordinator.log.config import Fsync, LogConfig, TimestampType
from coordinator.log.directory import LogDirectory
from coordinator.log.errors import (
    AppendRefusedError,
    CorruptLogError,
    CorruptRecordError,
    FormatVersionError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    LogClosedError,
    LogDirectoryError,
    LogDirectoryLockedError,
    LogError,
    LogFailedError,
    LogFullError,
    LogStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnsupportedMagicError,
)
from coordinator.log.fsync import Syncer
from coordinator.log.partition_log import PartitionLog
from coordinator.log.recovery import Repair, truncate_at_corruption
from coordinator.log.results import AppendInfo, FileRecords, FoundRecords, ReadResult

__all__ = [
    "AppendInfo",
    "AppendRefusedError",
    "CorruptLogError",
    "CorruptRecordError",
    "FileRecords",
    "FormatVersionError",
    "FoundRecords",
    "Fsync",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "LogClosedError",
    "LogConfig",
    "LogDirectory",
    "LogDirectoryError",
    "LogDirectoryLockedError",
    "LogError",
    "LogFailedError",
    "LogFullError",
    "LogStorageError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionLog",
    "ReadResult",
    "RecordTooLargeError",
    "Repair",
    "Syncer",
    "TimestampType",
    "UnsupportedMagicError",
    "truncate_at_corruption",
]
