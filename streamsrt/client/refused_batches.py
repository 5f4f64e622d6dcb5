"""Handles a record batch that the broker refused: its records one by one, its halves, the rest of it.

A broker accepts a whole batch or none of it. Parts are encoded like the whole: same compression, transactional or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from streamsrt.client.values import RecordRefusedError, RefusedRecord, TopicPartition
from streamsrt.errors import ProductionError, RequestFailedError, StreamsError, missing_acl
from streamsrt.wire.error_codes import ErrorCode, error_message, error_name
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.records import RecordColumns, decode_batches, encode_batch, read_header

Part: TypeAlias = tuple[bytes, int]
"""An encoded batch and how many records it has."""

FATAL = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SECURITY_DISABLED,
    }
)
"""It isn't the record's fault, and the next one would fare the same (RecordCollectorImpl.isFatalException)."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

REMEDIES: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "Raise max.message.bytes of the topic, or write smaller records.",
    ErrorCode.INVALID_TIMESTAMP: (
        "A topic takes timestamps up to message.timestamp.after.max.ms after the broker's clock, and up to "
        "message.timestamp.before.max.ms before it. Correct the timestamps, or raise these settings of the topic."
    ),
}


class BatchRefusal(NamedTuple):
    """The reason why a batch was refused. ``record_errors``: by index, the records that are the reason, if the broker
    names them.

    ``is_retriable``: it was tried until its time was up, and might be taken later.
    """

    error_code: int
    message: str
    record_errors: dict[int, str]
    is_retriable: bool = False

    def is_of_whole_batch(self) -> bool:
        """Whether parts of the batch might be accepted."""
        return self.error_code in TOO_LARGE or (
            self.error_code in {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP} and not self.record_errors
        )


def refusal_text(
    tp: TopicPartition, code: int, said: str | None, what: str = "a batch", principal: str | None = None
) -> str:
    """Returns the broker's error and what to do about it."""
    topic, partition = tp
    said = f" {said.rstrip('.')}." if said else f" {error_message(code)}"
    text = f"The broker refuses {what} for {topic}-{partition} ({error_name(code)}).{said} {REMEDIES.get(code, '')}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text += missing_acl("WRITE", "topic", [topic], principal)
    return text.rstrip()


def can_not_start(error: StreamsError, written: Iterable[TopicPartition], principal: str | None) -> ProductionError:
    """Returns the error of a producer that gets no id for a reason that no retry removes. No record is the reason."""
    text = f"The producer can't start: {error}"
    if isinstance(error, RequestFailedError) and error.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        right = missing_acl("WRITE", "topic", sorted({topic for topic, _ in written}), principal)
        text += (
            f". {right}. Brokers since 2.8 give an id to whoever has WRITE on any topic; before, it also took "
            "IDEMPOTENT_WRITE on the cluster"
        )
    made = ProductionError(text)
    made.exit_code = error.exit_code
    return made


def halves(data: Buffer) -> list[Part]:
    """Splits a batch of two or more records."""
    columns = _columns(data)
    count = len(columns.keys)
    return [_part(data, columns, range(count // 2)), _part(data, columns, range(count // 2, count))]


def records_of(tp: TopicPartition, data: Buffer, refusal: BatchRefusal) -> list[tuple[int, RefusedRecord]]:
    """Returns the refused records, with their index in the batch."""
    columns = _columns(data)
    found = []
    for index in sorted(refusal.record_errors) or range(len(columns.keys)):
        said = refusal.record_errors.get(index) or refusal.message
        error = RecordRefusedError(said, *tp, error_code=refusal.error_code, is_retriable=refusal.is_retriable)
        headers = () if columns.headers is None else tuple(columns.headers[index])
        record = RefusedRecord(
            *tp, columns.keys[index], columns.values[index], columns.timestamps[index], headers, error
        )
        found.append((index, record))
    return found


def without(data: Buffer, dropped: Collection[int]) -> list[Part]:
    """Returns the batch without these records: one batch, or none."""
    columns = _columns(data)
    kept = [index for index in range(len(columns.keys)) if index not in dropped]
    return [_part(data, columns, kept)] if kept else []


def _columns(data: Buffer) -> RecordColumns:
    return decode_batches(data, verify_crc=False)[0]


def _part(data: Buffer, columns: RecordColumns, indexes: Collection[int]) -> Part:
    header = read_header(data)
    batch = encode_batch(
        [columns.keys[index] for index in indexes],
        [columns.values[index] for index in indexes],
        [columns.timestamps[index] for index in indexes],
        headers=None if columns.headers is None else [columns.headers[index] for index in indexes],
        compression=header.compression,
        transactional=header.is_transactional,
    )
    return batch, len(indexes)
