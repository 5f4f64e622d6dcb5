"""The hottest loops over records in C, where they were built: an optional extra.

1. By default everything is pure Python, and each function here declines: it returns None, and its caller goes on as it would
   without this module. ``STREAMSRT_NATIVE=1 pip install`` builds the module ``_streamsrt_kernels`` out of ``kernels.c``.
2. The loops have no behaviour of their own. What they take, they take as the Python code does, with the same results for all
   bytes; what is unusual or broken they decline. Tests pass with them and without them (``make test-native``).
3. Where the environment variable STREAMSRT_PURE is 1, they are not used, even if they were built.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from streamsrt.wire.later_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt


MODULE = "_streamsrt_kernels"
T = TypeVar("T")

RECORDS_MAX = 1 << 17
"""Reading more of them in one go would keep other threads waiting for more than ten milliseconds."""

_PLACED_COLUMNS = 6

Items: TypeAlias = list[bytes | None]
"""Keys, or values."""
Times: TypeAlias = "npt.NDArray[np.int64]"
Positions: TypeAlias = "npt.NDArray[np.uint32]"
Part: TypeAlias = tuple[Items, Items, list[int]]
"""Keys, values and timestamps."""


class Numbers(Protocol):
    """Keys and their numbers, 0 and up, in the order in which they came."""

    def __len__(self) -> int: ...

    def numbers(self, keys: Sequence[bytes], numbers: Times, /) -> list[bytes]:
        """Writes the number of each key into ``numbers``; a new key gets the next one. Returns the keys that were new."""

    def get(self, key: bytes, /) -> int | None:
        """The number of a key; None where it has none."""


class KeyNumbers:
    """:class:`Numbers` in a dictionary."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: defaultdict[bytes, int] = defaultdict(count().__next__)

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, keys: Sequence[bytes], numbers: Times) -> list[bytes]:
        known = len(self._numbers)
        numbers[: len(keys)] = np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))
        new = list(islice(reversed(self._numbers), len(self._numbers) - known))
        new.reverse()
        return new

    def get(self, key: bytes) -> int | None:
        return self._numbers.get(key)


class RecordsWriter(Protocol):
    """Records of a partition, written as they come. A buffer: their bytes, behind the head of a batch."""

    def __len__(self) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

    def add(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        start: int,
        stop: int,
        /,
    ) -> bool:
        """Writes the records ``start`` to ``stop`` of columns behind the others. False for what are no lists of bytes and of
        times: nothing was written."""

    def sealed(self, head: bytes, /) -> bytes:
        """The batch with this head. The records stay until :meth:`clear`."""

    def times(self, start: int, step: int, /) -> list[int]:
        """Every ``step``-th time from that of record ``start`` on."""

    def bounds(self) -> tuple[int, int]:
        """The time of the first record, and the highest one; there is at least one record."""

    def clear(self) -> None: ...


class Native(Protocol):
    """The module in C."""

    @property
    def KeyNumbers(self) -> type[Numbers]: ...  # noqa: N802

    def read_records(
        self,
        records: memoryview,
        record_count: int,
        base_timestamp: int,
        times: Times,
        keys: Positions,
        values: Positions,
        /,
    ) -> tuple[int, int, int, int] | None: ...

    def read_items(self, records: memoryview, positions: Positions, /) -> Items: ...

    def place_records(self, data: bytes, batches: Times, columns: Times, /) -> bool: ...

    def take_items(self, data: npt.NDArray[np.uint8], at: Times, sizes: Times, order: Times, /) -> Items: ...

    def numbers_at(
        self, known: Numbers, records: memoryview, positions: Positions, numbers: Times, /
    ) -> list[bytes] | None: ...

    def are_ascending(self, times: Times, /) -> bool: ...

    def add_counts(
        self,
        numbers: Times,
        times: Times,
        positions: Times | int,
        totals: Times,
        latest: Times,
        changed_at: Times,
        /,
    ) -> None: ...

    @property
    def WrittenRecords(self) -> type[RecordsWriter]: ...  # noqa: N802

    def write_apart(
        self,
        writers: tuple[RecordsWriter, ...],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        placed_by: Sequence[bytes | None],
        null_partition: int,
        /,
    ) -> bool: ...

    def partitions(self, keys: Sequence[bytes | None], partition_count: int, null: int, /) -> list[int] | None: ...

    def split(
        self,
        chosen: Sequence[int],
        partition_count: int,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        /,
    ) -> list[Part] | None: ...

    def MessageReader(  # noqa: N802
        self,
        parse: Callable[[bytes], T],
        otherwise: Callable[[bytes], T],
        again: Callable[[T, bytes], object] | None,
        indexes: bytes,
        /,
    ) -> Callable[[bytes], T]: ...


native: Native | None
"""The module in C, which the functions below use; None where it was not built, or is not wanted."""

try:
    import _streamsrt_kernels as native  # type: ignore[import-not-found, no-redef]
except ImportError:
    native = None


class UnreadItems:
    """Keys or values of records that are read when somebody asks for them. ``positions``: where they are."""

    __slots__ = ("_native", "_records", "positions")

    def __init__(self, native: Native, records: memoryview, positions: Positions) -> None:
        self._native = native
        self._records = records
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, part: slice) -> UnreadItems:
        return UnreadItems(self._native, self._records, self.positions[part])

    def __iter__(self) -> Iterator[bytes]:
        """Of those of which none is null."""
        return iter(self.read())  # type: ignore[arg-type]

    def read(self) -> Items:
        return self._native.read_items(self._records, self.positions)

    def numbered(self, known: Numbers, numbers: Times) -> list[bytes]:
        """As :meth:`Numbers.numbers`, for keys of which none is null. Bytes are made only of those that are new."""
        new = self._native.numbers_at(known, self._records, self.positions, numbers)
        return known.numbers(self.read(), numbers) if new is None else new  # type: ignore[arg-type]


class NativeRecords(NamedTuple):
    """Records whose keys and values are read when somebody asks for them."""

    unread_keys: UnreadItems
    unread_values: UnreadItems
    times: Times
    low_ms: int
    high_ms: int
    has_null_keys: bool
    has_null_values: bool

    def keys(self) -> Items:
        return self.unread_keys.read()

    def values(self) -> Items:
        return self.unread_values.read()


def read_records(records: memoryview, record_count: int, base_timestamp: int) -> NativeRecords | None:
    """``record_count`` records that fill the buffer.

    None unless their offsets are consecutive, none has headers, and they are written as a producer writes them.
    """
    if native is None or record_count > RECORDS_MAX:
        return None
    times = np.empty(record_count, np.int64)
    keys, values = (UnreadItems(native, records, np.empty(record_count, np.uint32)) for _ in range(2))
    found = native.read_records(records, record_count, base_timestamp, times, keys.positions, values.positions)
    if found is None:
        return None
    low_ms, high_ms, null_keys, null_values = found
    return NativeRecords(keys, values, times, low_ms, high_ms, bool(null_keys), bool(null_values))


def place_records(data: bytes, batches: Times, record_count: int) -> Times | None:
    """Where the records of these batches lie, which ``data`` begins with: rows with the places and the sizes of their keys,
    those of their values, their timestamps, and their offsets.

    ``batches``: rows with the sizes of the batches in bytes, their numbers of records, their base timestamps, base offsets
    and next offsets. None unless the offsets ascend, no record has headers or attributes, and all are written as a producer
    does.
    """
    if native is None or record_count > RECORDS_MAX:
        return None
    columns = np.empty((_PLACED_COLUMNS, record_count), np.int64)
    return columns if native.place_records(data, batches, columns) else None


def take_items(data: npt.NDArray[np.uint8], at: Times, sizes: Times, order: Times) -> Items | None:
    """The bytes at these places, in that order; a size of -1 is null."""
    if native is None or len(order) > RECORDS_MAX:
        return None
    return native.take_items(data, *map(np.ascontiguousarray, (at, sizes, order)))


def new_writer() -> RecordsWriter | None:
    """Without any records; None where the loops in C were not built."""
    return None if native is None else native.WrittenRecords()


def write_records(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps: Sequence[int]
) -> RecordsWriter | None:
    """Records with the offset deltas 0, 1, ... and without headers. None for what are no lists of bytes and of times."""
    writer = new_writer()
    return writer if writer is not None and writer.add(keys, values, timestamps, 0, len(keys)) else None


def write_apart(
    writers: tuple[RecordsWriter, ...],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    placed_by: Sequence[bytes | None],
    null_partition: int,
) -> bool:
    """Writes each record with the writer of its partition, which Kafka's default partitioner gives its key in ``placed_by``.

    False for what are no lists of bytes and of times: nothing was written.
    """
    return native is not None and native.write_apart(writers, keys, values, timestamps, placed_by, null_partition)


def partitions(keys: Sequence[bytes | None], partition_count: int, null_partition: int) -> list[int] | None:
    """The partition of each key by Kafka's default partitioner. None for what is no list or tuple of bytes and None."""
    return None if native is None else native.partitions(keys, partition_count, null_partition)


def split(
    chosen: Sequence[int],
    partition_count: int,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
) -> list[Part] | None:
    """What each partition gets of the columns; ``chosen`` has the partition of each record.

    None for what are no lists or tuples of equal length, and for partitions that there are not.
    """
    return None if native is None else native.split(chosen, partition_count, keys, values, timestamps)


def message_reader(
    parse: Callable[[bytes], T],
    otherwise: Callable[[bytes], T],
    again: Callable[[T, bytes], object] | None,
    indexes: bytes,
) -> Callable[[bytes], T] | None:
    """Reads values of Protobuf with a schema registry.

    ``parse`` gets the bytes behind the head of a message: a zero, the schema's id in four bytes, and ``indexes``, where the
    type stands in its file. ``otherwise`` gets all other values. ``again``: makes of a message that nobody has any more what
    ``parse`` would return for these bytes; what was read from it before stays as it was. None where there is no such thing.
    """
    return None if native is None else native.MessageReader(parse, otherwise, again, indexes)


def key_numbers() -> Numbers:
    """Without any keys."""
    return KeyNumbers() if native is None else native.KeyNumbers()


def are_ascending(times: Times) -> bool:
    """Whether none of the times is less than the one before."""
    if native is not None and times.flags.c_contiguous:
        return native.are_ascending(times)
    return bool((times[1:] >= times[:-1]).all())


def add_counts(
    numbers: Times, times: Times, positions: Times | int, totals: Times, latest: Times, changed_at: Times
) -> None:
    """Adds 1 to the total of each record's row, and keeps the latest of its times and positions.

    ``numbers``: the rows of the records. ``positions``: theirs, or that of the first one, which the others follow.
    """
    if native is not None:
        native.add_counts(numbers, times, positions, totals, latest, changed_at)
        return
    np.add.at(totals, numbers, 1)
    np.maximum.at(latest, numbers, times)
    if isinstance(positions, int):
        positions = np.arange(positions, positions + len(numbers))
    np.maximum.at(changed_at, numbers, positions)
