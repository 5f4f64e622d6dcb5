"""What an application sends in the topology test driver: the records, and the collector that keeps them.

1. Every record is kept as bytes, in the order in which it was sent.
2. Records without a key go to partition 0, so that tests are repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple

from streamsrt.operators.engine.environment import RefusedRecordError
from streamsrt.operators.engine.placement import check_partitions, picked, spread
from streamsrt.tasks.output.record_collector import Keys, Partitions
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import Headers, RecordColumns
from streamsrt.wire.records.texts import Texts, Times

Refuse = Callable[[str, bytes | None, bytes | None], Exception | None]
"""``(topic, key, value)`` -> why the cluster does not take a record; None: it takes it."""


class ProducedRecord(NamedTuple):
    """A record sent to a topic, as bytes."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


produced_record: Callable[[Iterable[object]], ProducedRecord] = partial(tuple.__new__, ProducedRecord)
"""What a named tuple does, at a third of the time."""


class ProducedRecords:
    """The collector of the driver's tasks. ``all``: every record, in order. ``refuse``: see :data:`Refuse`."""

    def __init__(self, refuse: Refuse | None, partitions_of: Callable[[str], int]) -> None:
        self.all: list[ProducedRecord] = []
        self._refuse = refuse
        self._partitions_of = partitions_of

    def add(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: Partitions = None,
        partition_keys: Keys | None = None,
    ) -> None:
        refuse, produced = self._refuse, self.all
        if partition is None and self._partitions_of(topic) == 1:
            partition = 0
        if len(keys) == 1 and isinstance(partition, int) and headers is None and refuse is None:
            # Most come like this, and the way below costs three times as much.
            produced.append(produced_record((topic, partition, keys[0], values[0], timestamps[0], ())))
            return
        count = self._partitions_of(topic)
        partitions: Iterable[int] = map(partition_for, partition_keys or keys, repeat(count))
        if isinstance(partition, int):
            partitions = repeat(partition)
        elif partition is not None:
            at, numbers = spread(partition)
            keys, values, timestamps = picked(keys, at), picked(values, at), picked(timestamps, at)
            headers = None if headers is None else picked(headers, at)
            partition_keys = None if partition_keys is None else picked(partition_keys, at)
            known = [number for number in numbers if number is not None]
            check_partitions(topic, count, min(known, default=0), max(known, default=0))
            default = map(partition_for, partition_keys or keys, repeat(count))
            partitions = [d if number is None else number for number, d in zip(numbers, default, strict=False)]
        each = repeat(()) if headers is None else map(tuple, headers)
        records = map(produced_record, zip(repeat(topic), partitions, keys, values, timestamps, each, strict=False))
        if refuse is None:
            produced += records
            return
        taken = list(records)
        for record in taken:
            if (reason := refuse(topic, record.key, record.value)) is not None:
                raise RefusedRecordError(reason)
        produced += taken

    def add_texts(self, topic: str, texts: Texts, times: Times) -> None:
        raw = texts.tolist()
        self.add(topic, raw, raw, times.tolist())


def partition_for(key: bytes | None, partitions: int) -> int:
    """The partition of a key; 0 without a key, so that tests are repeatable."""
    return 0 if key is None or partitions == 1 else partition_for_key(key, partitions)


def columns_of(records: Sequence[ProducedRecord], offset: int) -> RecordColumns:
    """The records, at least one, as a run of a partition that begins at ``offset``."""
    _, _, keys, values, timestamps, headers = map(list, zip(*records, strict=True))
    return RecordColumns(
        keys, values, timestamps, offset, offset + len(records), None, headers if any(headers) else None
    )
