"""Bringing a result into the log of one partition exactly once, however often it is tried.

1. A :class:`LogTarget` says what the log must hold, and where it ended before. The order of records is fixed, so what is
   already there is a beginning of it: writing goes on behind that.
2. :class:`PlainLogWriter` works without transactions. What lies behind the start is read and compared record by record;
   anything else there means that somebody else writes to the partition, and is refused. A log can't be cut back.
3. :class:`TransactionalLogWriter` commits how far it came in the same transaction as the records, under a group of its own.
   So nothing must be read, and others may write to the partition.
4. Its transactional id is that of the application: an attempt that began before, of whichever plan, is fenced, and can't
   take over again. It also commits the offsets of the application: whoever stands still meanwhile loses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.record_sizes import limits_of
from streamsrt.backfill.sources import read_batches
from streamsrt.client.interface import Network
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.wire.records import Headers, RecordColumns, encode_batch

TRANSACTION_RECORDS = 50_000
TRANSACTION_BYTES = 32 << 20
"""A transaction must end long before the broker would end it (``transaction.timeout.ms``), whatever its records are."""

_TRANSACTION_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class LogTarget:
    """The required content of a partition's log from ``start_offset`` on: the record batches of ``paths``, with ``records``
    records."""

    topic: str
    partition: int
    start_offset: int
    paths: tuple[Path, ...]
    records: int

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition

    def columns(self, skip: int = 0) -> Iterator[RecordColumns]:
        """The records behind the first ``skip``."""
        for path in self.paths:
            for columns in read_batches(path):
                if skip >= len(columns):
                    skip -= len(columns)
                else:
                    yield columns.cut(skip)
                    skip = 0


class LogWriter(Protocol):
    """Writes targets and offsets."""

    def take_over(self) -> None:
        """From here on no attempt that began earlier can write. Raises BrokerError."""

    def write(self, target: LogTarget) -> int:
        """Makes the log hold the target's records exactly once; the offset that follows the last one. Raises HandOverError,
        ProductionError, BrokerError; it may be called again then, also by another process."""

    def check_written(self, targets: Sequence[LogTarget]) -> None:
        """Raises HandOverError unless these logs hold their records, and ProducerFencedError if another attempt has taken
        over."""

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], check: Callable[[], None]
    ) -> None:
        """Commits offsets of a group without members, unless ``check`` raises: it is called as late as possible. Raises
        BrokerError."""


class PlainLogWriter:
    """A :class:`LogWriter` without transactions. Nothing else may write to the partitions."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def take_over(self) -> None:
        """Without transactions nobody can be fenced."""

    def write(self, target: LogTarget) -> int:
        present = self._present(target)
        if present:
            self._check_beginning(target, present)
        limit = limits_of(self._network, [target.topic]).get(target.topic)
        for columns in target.columns(present):
            for batch, count in _parts(columns, limit):
                self._network.producer.send(target.topic, target.partition, batch, count)
        self._network.producer.flush()
        self.check_written([target])
        return target.start_offset + target.records

    def check_written(self, targets: Sequence[LogTarget]) -> None:
        for target in targets:
            if self._present(target) != target.records:
                raise _foreign(target, "there are more records than this backfill wrote")

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], check: Callable[[], None]
    ) -> None:
        check()
        self._network.admin.commit(group_id, offsets)

    def _present(self, target: LogTarget) -> int:
        found = self._network.admin.list_offsets({target.topic_partition: LATEST})
        if target.topic_partition not in found:
            raise _gone(target)
        present = found[target.topic_partition].offset - target.start_offset
        if not 0 <= present <= target.records:
            raise _foreign(target, f"it has {present} records since this backfill began to write")
        return present

    def _check_beginning(self, target: LogTarget, present: int) -> None:
        """Compares the log with the records of this backfill. Compaction may have removed some of them."""
        expected = _records(target.columns())
        at = 0
        for columns in read_log(
            self._network, target.topic_partition, target.start_offset, target.start_offset + present
        ):
            for index, record in enumerate(_records(iter((columns,)))):
                offset = columns.offset_at(index) - target.start_offset
                while at <= offset:
                    wanted = next(expected)
                    at += 1
                if record != wanted:
                    raise _foreign(
                        target, f"the record at offset {offset + target.start_offset} is not of this backfill"
                    )


class TransactionalLogWriter:
    """A :class:`LogWriter` in transactions. ``network``: its producer has a transactional id of backfills.

    ``group``: where it keeps how many records of a partition are committed.
    """

    def __init__(self, network: NetworkThread, group: str) -> None:
        self._network = network
        self._group = group

    def take_over(self) -> None:
        # Whatever an earlier attempt left undecided is decided when this returns: only then its position is known.
        self._network.transactions.initialize(_TRANSACTION_TIMEOUT_S)

    def write(self, target: LogTarget) -> int:
        # Of an abort that did not come to its end. A producer would wait for the topic until its time is over.
        there = self._network.admin.list_offsets({target.topic_partition: LATEST}).get(target.topic_partition)
        if there is None:
            raise _gone(target)
        done = self._committed(target)
        if there.offset < target.start_offset + done:
            raise HandOverError(
                f"{target.topic}-{target.partition} ends at offset {there.offset}, and {done} records were written to it "
                f"from offset {target.start_offset} on: they are gone. streamsrt backfill abort --execute, then commit again"
            )
        waiting = waiting_bytes = 0
        limit = limits_of(self._network, [target.topic]).get(target.topic)
        for columns in target.columns(done):
            for batch, count in _parts(columns, limit, transactional=True):
                self._network.producer.send(target.topic, target.partition, batch, count)
                waiting_bytes += len(batch)
            done += len(columns)
            waiting += len(columns)
            if waiting >= TRANSACTION_RECORDS or waiting_bytes >= TRANSACTION_BYTES:
                self._commit(target, done)
                waiting = waiting_bytes = 0
        if waiting:
            self._commit(target, done)
        self._settle()
        return self._network.admin.list_offsets({target.topic_partition: LATEST}, read_committed=True)[
            target.topic_partition
        ].offset

    def _settle(self) -> None:
        """Waits until the last commit is carried out everywhere: it is answered before, an initialization is answered
        after."""
        self._network.transactions.initialize(_TRANSACTION_TIMEOUT_S, again=True)

    def _commit(self, target: LogTarget, done: int) -> None:
        self._network.transactions.commit(
            self._group,
            {target.topic_partition: OffsetAndMetadata(done)},
            member_id="",
            member_epoch=-1,
            timeout_s=_TRANSACTION_TIMEOUT_S,
        )

    def _committed(self, target: LogTarget) -> int:
        found = self._network.admin.committed(self._group, [target.topic_partition]).get(target.topic_partition)
        return 0 if found is None else found.offset

    def check_written(self, targets: Sequence[LogTarget]) -> None:
        self._settle()
        for target in targets:
            if target.records and self._committed(target) != target.records:
                raise HandOverError(
                    f"of {target.records} records for {target.topic}-{target.partition} {self._committed(target)} "
                    "are committed: "
                    "the group that counts them was changed. streamsrt backfill abort --execute, then commit again"
                )

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], check: Callable[[], None]
    ) -> None:
        transactions = self._network.transactions
        transactions.send_offsets(group_id, offsets, _TRANSACTION_TIMEOUT_S)
        try:
            # An instance that starts from here on waits for the offsets. If this process stands still for longer than a
            # transaction may take, the broker drops them.
            check()
        except BaseException:
            transactions.abort(_TRANSACTION_TIMEOUT_S)
            raise
        transactions.commit("", {}, member_id="", member_epoch=-1, timeout_s=_TRANSACTION_TIMEOUT_S)
        self._settle()


def _records(batches: Iterator[RecordColumns]) -> Iterator[tuple[bytes | None, bytes | None, int, Headers]]:
    for columns in batches:
        headers = columns.headers or [()] * len(columns)
        yield from zip(columns.keys, columns.values, columns.timestamps, headers, strict=True)


def _parts(
    columns: RecordColumns, limit_bytes: int | None, *, transactional: bool = False
) -> Iterator[tuple[bytes, int]]:
    """The records in batches that the topic takes, each with the number of its records."""
    batch = encode_batch(
        columns.keys, columns.values, columns.timestamps, headers=columns.headers, transactional=transactional
    )
    count = len(columns)
    if limit_bytes is None or len(batch) <= limit_bytes or count == 1:
        yield batch, count
        return
    for part in (columns.cut(0, count // 2), columns.cut(count // 2)):
        yield from _parts(part, limit_bytes, transactional=transactional)


def _gone(target: LogTarget) -> HandOverError:
    return HandOverError(
        f"topic {target.topic!r} is gone: streamsrt backfill abort --execute, then streamsrt backfill commit again"
    )


def _foreign(target: LogTarget, what: str) -> HandOverError:
    return HandOverError(
        f"{target.topic}-{target.partition} holds other records than those of this backfill ({what}): something else "
        "writes to "
        "it. Stop that, then streamsrt backfill abort --execute and commit again"
    )
