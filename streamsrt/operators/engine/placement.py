"""What a partitioner may return for a record: a partition, None, or several partitions.

1. None: where the default partitioner sends the record's key.
2. Several (a list, tuple or set): the record is written to each of them; to none where it is empty, and counts as dropped.
3. A partition is whatever is an index in Python, so True is partition 1.
4. Anything else, and a partition that the topic does not have, is the partitioner's mistake. A sink looks at each choice as
   soon as it is made (:func:`checked`): the record fails in processing, and those around it are written.

Source: StreamPartitioner.partitions (KIP-837).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias, TypeVar, cast

from streamsrt.errors import ProductionError
from streamsrt.wording import counted

T = TypeVar("T")
Choice: TypeAlias = int | list[int] | None
"""A partitioner's, after it was checked."""

_PLAIN = {int, type(None)}


def checked(topic: str, choice: object, count: int) -> Choice:
    """Returns the choice for a record of a topic with ``count`` partitions; several partitions as a list without duplicates.

    Raises TypeError and ValueError for what is no partition there.
    """
    if choice is None:
        return None
    if isinstance(choice, list | tuple | set | frozenset):
        return list(dict.fromkeys(_number(topic, choice, each, count) for each in choice))
    return _number(topic, choice, choice, count)


def _number(topic: str, choice: object, partition: object, count: int) -> int:
    try:
        number = operator.index(cast("SupportsIndex", partition))
    except TypeError:
        raise TypeError(
            f"the partitioner returned {choice!r} for a record for topic {topic!r}: return a partition's number, "
            "several in a list or set, or None"
        ) from None
    if not 0 <= number < count:
        raise ValueError(
            f"the partitioner returned {choice!r} for a record for topic {topic!r}, whose partitions are 0 to {count - 1}"
        )
    return number


def is_plain(chosen: Sequence[Choice]) -> bool:
    """Whether each choice is one partition or None: then the columns stay as they are."""
    return _PLAIN.issuperset(map(type, chosen))


def spread(chosen: Sequence[Choice]) -> tuple[list[int], list[int | None]]:
    """The records to write, by index and once for each of their partitions, and those partitions."""
    indexes: list[int] = []
    partitions: list[int | None] = []
    for index, choice in enumerate(chosen):
        each = choice if isinstance(choice, list) else [choice]
        indexes += [index] * len(each)
        partitions += each
    return indexes, partitions


def picked(column: Sequence[T], indexes: Sequence[int]) -> list[T]:
    """The values of a column at ``indexes``."""
    return [column[index] for index in indexes]


def check_partitions(topic: str, count: int, lowest: int, highest: int) -> None:
    """Raises ProductionError where the partitions from ``lowest`` to ``highest`` are not all there."""
    if lowest < 0 or highest >= count:
        wrong = lowest if lowest < 0 else highest
        raise ProductionError(
            f"topic {topic!r} has {counted(count, 'partition')}, a record was sent to partition {wrong}", topic, wrong
        )
