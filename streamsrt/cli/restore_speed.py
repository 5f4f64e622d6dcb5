"""How many records of a changelog this machine restores per second, measured with existing records.

It reads the topic as an instance does, and writes the rows into a temporary store on disk. Other load of the machine is
not taken into account.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, TopicPartition
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.wire.records import iter_columns

TIME_S = 2.0
_POLL_S = 0.2
_MEMORY_BYTES = 64 << 20


def measured_records_per_s(network: NetworkThread, topic: str, partitions: int, time_s: float = TIME_S) -> float | None:
    """None where the topic has too few records to tell."""
    everything: list[TopicPartition] = [(topic, number) for number in range(partitions)]
    starts = network.admin.list_offsets(dict.fromkeys(everything, EARLIEST))
    ends = {each: at.offset for each, at in network.admin.list_offsets(dict.fromkeys(everything, LATEST)).items()}
    left = {each for each in everything if each in starts and starts[each].offset < ends.get(each, 0)}
    if not left:
        return None
    network.fetcher.add_partitions({each: starts[each].offset for each in left})
    try:
        return _measured(network, left, ends, time_s)
    finally:
        network.fetcher.remove_partitions(left)


def _measured(
    network: NetworkThread, partitions: set[TopicPartition], ends: dict[TopicPartition, int], time_s: float
) -> float | None:
    left, records = set(partitions), 0
    with tempfile.TemporaryDirectory(prefix="streamsrt-speed-") as folder:
        store = RocksDBStore(Path(folder), "speed", RocksDBOptions(memory_bytes=_MEMORY_BYTES))
        store.begin_restoring(sum(ends.values()))
        began = time.monotonic()
        while left and time.monotonic() - began < time_s:
            for fetched in network.fetcher.poll(_POLL_S):
                for columns in iter_columns(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted):
                    rows = [pair for pair in zip(columns.keys, columns.values, strict=True) if pair[0] is not None]
                    store.restore([key or b"" for key, _ in rows], [value for _, value in rows], fetched.next_offset)
                    records += len(rows)
                if fetched.next_offset >= ends[fetched.topic, fetched.partition]:
                    left.discard((fetched.topic, fetched.partition))
        took_s = time.monotonic() - began
        store.close()
    return records / took_s if records and took_s > 0 else None
