"""Whether the cluster takes every record of a result: a broker refuses what is larger than its topic allows
(``max.message.bytes``).

1. The hand-over writes without compression, and a batch of several records is split where it is too large: only single
   records count.
2. Files are gone through by the heads of their batches. A batch is read only where a record in it may be too large, or where
   it is compressed, which does not show its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.manifest import LogResult
from streamsrt.client.interface import Network
from streamsrt.errors import StreamsError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Compression,
    Headers,
    RecordColumns,
    encode_batch,
    iter_columns,
    read_header,
)

MAX_MESSAGE_BYTES = "max.message.bytes"


def check_record_sizes(network: Network, directory: Path, logs: Iterable[LogResult]) -> None:
    """Raises HandOverError if a topic that is there does not take a record that is to be written to it."""
    results = list(logs)
    topics = sorted({log.topic for log in results})
    limits = limits_of(network, sorted(network.admin.partitions_for(topics))) if topics else {}
    for log in results:
        limit = limits.get(log.topic, 0)
        size = _too_large(directory / log.file.path, limit) if limit else None
        if size is not None:
            raise HandOverError(
                f"a record for {log.topic}-{log.partition} has {size} bytes, and the topic takes {limit} "
                f"({MAX_MESSAGE_BYTES}): raise that setting of topic {log.topic}, then commit again. The results are kept"
            )


def limits_of(network: Network, topics: Sequence[str]) -> dict[str, int]:
    """The largest batch in bytes that each of these topics takes; of a topic whose settings can't be read, nothing."""
    try:
        configs = network.admin.describe_topic_configs(topics) if topics else {}
    except StreamsError:
        # Most likely not authorized. Then the broker refuses what is too large when it is written.
        return {}
    found = {topic: values.get(MAX_MESSAGE_BYTES) for topic, values in configs.items()}
    return {topic: int(limit) for topic, limit in found.items() if limit}


def _too_large(path: Path, limit: int) -> int | None:
    """The size of the first record in a file that is too large, as a batch of its own; None if there is none."""
    for columns in _suspects(path, limit):
        for index in range(len(columns)):
            size = _size_bytes(columns, index)
            if size > limit:
                return size
    return None


def _suspects(path: Path, limit: int) -> Iterator[RecordColumns]:
    """The batches of a file in which a record may be too large."""
    with open(path, "rb") as file:
        while head := file.read(HEADER_SIZE_BYTES):
            header = read_header(head)
            rest = header.size_bytes - len(head)
            if header.size_bytes <= limit and header.compression == Compression.NONE:
                file.seek(rest, 1)
            else:
                yield from iter_columns(head + file.read(rest))


def _size_bytes(columns: RecordColumns, index: int) -> int:
    """The size of a record as a batch of its own."""
    key, value = columns.keys[index], columns.values[index]
    headers: Headers = columns.headers[index] if columns.headers is not None else ()
    return len(encode_batch([key], [value], [columns.timestamps[index]], headers=[headers]))
