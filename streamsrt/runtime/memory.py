"""The budget of ``cache.max.bytes``: how it is divided, and what is used.

1. Record caches, including the changes in them that wait for a commit, get one part; the block caches and write buffers
   of all RocksDB stores share the other.
2. Both parts belong to the process, not to a task: with more tasks, each gets less.
3. It is a budget for state. Fetched input and output to be sent have limits of their own (``fetch.buffer.bytes``,
   ``buffer.memory``), and in-memory stores are not limited.
4. A store is measured again when its task has woken since. What RocksDB does to stores at rest (it compacts them, and
   flushes what others have no room for) is seen later: every time, some of them are measured too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from streamsrt.config import StreamsConfig
from streamsrt.membership.values import Task as TaskKey
from streamsrt.runtime.values import MemoryUse
from streamsrt.state.rocksdb import RocksDBOptions
from streamsrt.tasks.manager.owned_task import OwnedTask

MIB = 1 << 20
ROUNDS_AT_REST = 12
"""After so many measurements each store at rest was measured again."""


def budget_text(config: StreamsConfig) -> str:
    """The budget in words, for the log."""
    return (
        f"memory for state: {config.memory_bytes / MIB:.0f} MiB (cache.max.bytes), of which "
        f"{config.uncommitted_bytes / MIB:.0f} for record caches and uncommitted changes and "
        f"{config.rocksdb_bytes / MIB:.0f} for RocksDB's block caches and write buffers"
        + ("" if config.record_cache_bytes else "; record caches are off")
    )


class _Seen(NamedTuple):
    """What was measured of a task."""

    owned: OwnedTask
    wakes: int
    cache_bytes: int
    state_bytes: int


class MemoryMeter:
    """Measures the present usage on the processing thread; ``rests(task)`` says whether nothing changes a task before it
    wakes."""

    def __init__(self, config: StreamsConfig, rocksdb: RocksDBOptions, rests: Callable[[OwnedTask], bool]) -> None:
        self._config = config
        self._rocksdb = rocksdb
        self._rests = rests
        self._seen: dict[TaskKey, _Seen] = {}
        self._round = 0

    def measure(self, tasks: Iterable[OwnedTask]) -> MemoryUse:
        """Returns the usage by these tasks, which are all of the process."""
        self._round = (self._round + 1) % ROUNDS_AT_REST
        seen = self._seen = {
            owned.key: self._look_at(owned, again=number % ROUNDS_AT_REST == self._round)
            for number, owned in enumerate(tasks)
        }
        return MemoryUse(
            limit_bytes=self._config.memory_bytes,
            record_cache_bytes=sum(each.cache_bytes for each in seen.values()),
            rocksdb_bytes=self._rocksdb.used_bytes(),
            write_buffer_bytes=self._rocksdb.write_buffers_used_bytes(),
            state_bytes=sum(each.state_bytes for each in seen.values()),
        )

    def _look_at(self, owned: OwnedTask, *, again: bool) -> _Seen:
        last, rests = self._seen.get(owned.key), self._rests(owned)
        is_known = last is not None and last.owned is owned and last.wakes == owned.wakes
        if last is not None and is_known and rests and not again:
            return last
        return _Seen(
            owned,
            # A task that is awake may change without another wake.
            owned.wakes if rests else -1,
            sum(cache.size_bytes() for cache in owned.task.caches.values()),
            sum(store.approximate_size_bytes() for store in owned.stores.values()),
        )


def memory_text(memory: MemoryUse) -> str:
    """Describes the usage for people."""
    return (
        f"memory of state {memory.used_bytes / MIB:.0f} of {memory.limit_bytes / MIB:.0f} MiB, "
        f"{memory.state_bytes / MIB:.0f} MiB stored"
    )
