"""Compares the stores of an instance with what their changelogs have.

1. A store has exactly the last rows of its changelog below the offset that it says it has. Only committed records count.
2. That holds between two steps of its thread, with exactly once: at least once, an instance that was given up may still
   write into a changelog.
3. Only key-value stores are compared: others keep rows for a while, or in another form than their changelogs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct

from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.task_manager import TaskManager
from streamsrt.testing.simulator.broker import BrokerLife
from streamsrt.wire.records import decode_batches
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import StoreKind, kind_of

_TIME = Struct(">q")


def difference(manager: TaskManager, broker: BrokerLife) -> str:
    """Returns which row of which store is another one than in the changelog; empty if there is none."""
    for owned in manager:
        for spec, store, (topic, partition) in _compared(owned):
            offset = store.changelog_offset() or 0
            expected = _rows_below(broker, topic, partition, offset, is_timestamped=spec.timestamped)
            found = dict(store.range())
            wrong = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
            if wrong:
                key = wrong[0]
                return (
                    f"store {spec.name} of {owned.role} task {owned}, at offset {offset} of {topic}-{partition}, has "
                    f"{found.get(key)!r} for {key!r}, and its changelog {expected.get(key)!r}"
                )
    return ""


def _compared(owned: OwnedTask) -> Iterator[tuple[StoreSpec, MemoryStore, tuple[str, int]]]:
    for spec in owned.subtopology.stores:
        changelog, store = owned.task.restore_target(spec.name), owned.stores[spec.name]
        is_plain = kind_of(spec) is StoreKind.KEY_VALUE and not (spec.keeps_headers or spec.plain_rows)
        if changelog is not None and spec.source_topic is None and is_plain and isinstance(store, MemoryStore):
            yield spec, store, changelog


def _rows_below(
    broker: BrokerLife, topic: str, partition: int, offset: int, *, is_timestamped: bool
) -> Mapping[bytes, bytes]:
    stored = broker.read(topic, partition)
    rows: dict[bytes, bytes] = {}
    for columns in decode_batches(stored.batches, aborted=stored.aborted):
        for index, (key, value, timestamp) in enumerate(
            zip(columns.keys, columns.values, columns.timestamps, strict=True)
        ):
            if key is None or columns.offset_at(index) >= offset:
                continue
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = _TIME.pack(timestamp) + value if is_timestamped else value
    return rows
