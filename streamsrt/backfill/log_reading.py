"""Reading a range of one partition's log back."""

from __future__ import annotations

from collections.abc import Iterator

from streamsrt.backfill.plan import SourceRange
from streamsrt.backfill.sources import LogReader
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, TopicPartition
from streamsrt.wire.records import RecordColumns


def read_log(network: Network, tp: TopicPartition, start: int, end: int) -> Iterator[RecordColumns]:
    """Everything committed from ``start`` to before ``end`` that the log still holds. Raises BackfillError, BrokerError."""
    first = max(start, network.admin.list_offsets({tp: EARLIEST})[tp].offset)
    if first >= end:
        return
    source = SourceRange(topic=tp[0], partition=tp[1], start=first, end=end, log_start=first)
    yield from LogReader(network, [source]).columns(source)
