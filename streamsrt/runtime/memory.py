"""The budget of ``cache.max.bytes``: how it is divided, and what is used.

1. Record caches, including the changes in them that wait for a commit, get one part; the block caches and write buffers
   of all RocksDB stores share the other.
2. Both parts belong to the process, not to a task: with more tasks, each gets less.
3. It is a budget for state. Fetched input and output to be sent have limits of their own (``fetch.buffer.bytes``,
   ``buffer.memory``), and in-memory stores are not limited.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamsrt.config import StreamsConfig
from streamsrt.runtime.values import MemoryUse
from streamsrt.state.rocksdb import RocksDBOptions
from streamsrt.tasks.manager.owned_task import OwnedTask

MIB = 1 << 20


def budget_text(config: StreamsConfig) -> str:
    """The budget in words, for the log."""
    return (
        f"memory for state: {config.memory_bytes / MIB:.0f} MiB (cache.max.bytes), of which "
        f"{config.uncommitted_bytes / MIB:.0f} for record caches and uncommitted changes and "
        f"{config.rocksdb_bytes / MIB:.0f} for RocksDB's block caches and write buffers"
        + ("" if config.record_cache_bytes else "; record caches are off")
    )


def memory_use(config: StreamsConfig, tasks: Iterable[OwnedTask], rocksdb: RocksDBOptions) -> MemoryUse:
    """Returns the present usage. Called on the processing thread."""
    tasks = list(tasks)
    return MemoryUse(
        limit_bytes=config.memory_bytes,
        record_cache_bytes=sum(cache.size_bytes() for owned in tasks for cache in owned.task.caches.values()),
        rocksdb_bytes=rocksdb.used_bytes(),
        write_buffer_bytes=rocksdb.write_buffers_used_bytes(),
        state_bytes=sum(store.approximate_size_bytes() for owned in tasks for store in owned.stores.values()),
    )


def memory_text(memory: MemoryUse) -> str:
    """Describes the usage for people."""
    return (
        f"memory of state {memory.used_bytes / MIB:.0f} of {memory.limit_bytes / MIB:.0f} MiB, "
        f"{memory.state_bytes / MIB:.0f} MiB stored"
    )
