"""Reads topics from start to end, for commands: existing partitions and their contents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from time import monotonic

from streamsrt.client.network import NetworkThread
from streamsrt.client.unreadable import unreadable_batch
from streamsrt.client.values import EARLIEST, LATEST, Fetched, TopicPartition
from streamsrt.errors import MissingTopicError
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import RecordColumns, iter_columns

_POLL_S = 1.0


def partitions_of(network: NetworkThread, topic: str) -> list[TopicPartition]:
    """Returns all partitions of a topic. Raises MissingTopicError."""
    count = network.admin.partitions_for([topic]).get(topic)
    if count is None:
        raise MissingTopicError(f"no such topic: {topic} (streamsrt topics list shows all topics)")
    return [(topic, index) for index in range(count)]


def starts_of(network: NetworkThread, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the first offset that each partition's log still has."""
    return {tp: at.offset for tp, at in network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST)).items()}


def ends_of(
    network: NetworkThread, partitions: Collection[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Returns the offset after the last record of each partition. ``read_committed``: after the last decided one."""
    found = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    return {tp: at.offset for tp, at in found.items()}


def read_range(
    network: NetworkThread,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    follow: bool = False,
    apart: bool = False,
    timeout_s: float = float("inf"),
) -> Iterator[Fetched]:
    """Yields the data in this range, partition by partition as it arrives, and possibly more. ``follow``: continues at
    the end. ``apart``: with the connections that restore stores, which do not wait long at the end of a partition. Ends
    early after ``timeout_s``."""
    deadline = monotonic() + timeout_s
    fetcher = network.restorer if apart else network.fetcher
    left = {tp for tp in starts if follow or starts[tp] < ends[tp]}
    fetcher.add_partitions({tp: starts[tp] for tp in left})
    try:
        while left and monotonic() < deadline:
            for fetched in fetcher.poll(_POLL_S):
                tp = (fetched.topic, fetched.partition)
                if tp not in left:
                    continue
                if fetched.error is not None:
                    raise fetched.error
                yield fetched
                if not follow and fetched.next_offset >= ends[tp]:
                    left.discard(tp)
                    fetcher.remove_partitions([tp])
    finally:
        fetcher.remove_partitions(left)


def columns_of(fetched: Fetched) -> Iterator[RecordColumns]:
    """Yields the records of a response. An error names the position of the first batch that can't be read."""
    position = fetched.offset
    try:
        for columns in iter_columns(fetched.buffer, from_offset=position, aborted=fetched.aborted):
            yield columns
            position = columns.next_offset
    except DecodeError as error:
        raise unreadable_batch((fetched.topic, fetched.partition), position, error) from error
