"""What a partitioner may return for a record: a partition, None, or several partitions.

1. None: where the default partitioner sends the record's key.
2. Several (a list, tuple or set): the record is written to each of them; to none where it is empty, and counts as dropped.
3. Anything else, and a partition that does not exist, is the partitioner's mistake.

Source: StreamPartitioner.partitions (KIP-837).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeVar

from streamsrt.errors import ProductionError

T = TypeVar("T")

_PLAIN = {int, type(None)}


def is_plain(chosen: Sequence[object]) -> bool:
    """Whether each choice is one partition or None: then the columns stay as they are."""
    return _PLAIN.issuperset(map(type, chosen))


def spread(topic: str, chosen: Sequence[object]) -> tuple[list[int], list[int | None]]:
    """The records to write, by index and once for each of their partitions, and those partitions.

    Raises ProductionError for a choice that is no partition.
    """
    indexes: list[int] = []
    partitions: list[int | None] = []
    for index, choice in enumerate(chosen):
        if isinstance(choice, (list, tuple, set, frozenset)):
            numbers: list[int | None] = list(dict.fromkeys(_number(topic, each) for each in choice))
        else:
            numbers = [None if choice is None else _number(topic, choice)]
        indexes += [index] * len(numbers)
        partitions += numbers
    return indexes, partitions


def picked(column: Sequence[T], indexes: Sequence[int]) -> list[T]:
    """The values of a column at ``indexes``."""
    return [column[index] for index in indexes]


def check_partitions(topic: str, count: int, lowest: int, highest: int) -> None:
    """Raises ProductionError where the partitions from ``lowest`` to ``highest`` are not all there."""
    if lowest < 0 or highest >= count:
        wrong = lowest if lowest < 0 else highest
        raise ProductionError(
            f"topic {topic!r} has {count} partitions, a record was sent to partition {wrong}: correct the partitioner",
            topic,
            wrong,
        )


def _number(topic: str, partition: Any) -> int:  # whatever the program's function returned
    try:
        return operator.index(partition)
    except TypeError as error:
        raise ProductionError(
            f"the partitioner returned {partition!r} for a record for topic {topic!r}: return a partition's number, "
            "several in a list or set, or None",
            topic,
        ) from error
