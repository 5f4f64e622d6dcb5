"""Records as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from streamsrt.wire.kernels import UnreadItems
from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.items import Bytes, Items, Numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Times: TypeAlias = "list[int] | NDArray[np.int64]"
Table: TypeAlias = "NDArray[np.uint8]"
"""A row for each item, a column for each byte."""


@dataclass(slots=True, eq=False)
class RecordColumns:
    """Records of one batch, column by column.

    `offsets` is None if the offsets are `base_offset`, `base_offset + 1`, ...; `headers` is None if no record has one.
    `next_offset` is the position to read from after these records. `timestamp_bounds`: the lowest and the highest
    timestamp, if known; `times`: the timestamps as a numpy array, if numpy read them.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    base_offset: int
    next_offset: int
    offsets: list[int] | None = None
    headers: list[Headers] | None = None
    timestamp_bounds: tuple[int, int] | None = None
    times: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def tables(self) -> Tables | None:
        """Keys and values as tables, where they were read as such."""
        return None

    @property
    def placed(self) -> Placed | None:
        """Where keys and values lie, if that is how they were read."""
        return None

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, RecordColumns) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _compared(self) -> tuple[object, ...]:
        columns = self.keys, self.values, self.timestamps, self.offsets, self.headers
        return *columns, self.base_offset, self.next_offset, self.timestamp_bounds

    @property
    def has_nulls(self) -> tuple[bool, bool]:
        """Whether a key is null, and whether a value is."""
        # What is not empty is not None, which is the quicker test.
        return tuple(not all(column) and None in column for column in (self.keys, self.values))  # type: ignore[return-value]

    @property
    def first_timestamp(self) -> int:
        """Of the first record; there is at least one."""
        return self.timestamps[0]

    @property
    def quick_keys(self) -> list[bytes | None] | UnreadItems:
        """The keys, as what is there already."""
        return self.keys

    @property
    def quick_times(self) -> Times:
        """The timestamps, as what is there already."""
        return self.timestamps if self.times is None else self.times

    @property
    def timestamp_min(self) -> int:
        """The lowest timestamp; there is at least one record."""
        return min(self.timestamps) if self.timestamp_bounds is None else self.timestamp_bounds[0]

    @property
    def timestamp_max(self) -> int:
        """The highest timestamp; there is at least one record."""
        return max(self.timestamps) if self.timestamp_bounds is None else self.timestamp_bounds[1]

    def offset_at(self, index: int) -> int:
        """Offset of the record with this index (0 or more)."""
        return self.base_offset + index if self.offsets is None else self.offsets[index]

    @property
    def each_offset(self) -> Sequence[int]:
        """The offset of each record."""
        return range(self.base_offset, self.base_offset + len(self)) if self.offsets is None else self.offsets

    def cut(self, start: int, stop: int | None = None) -> RecordColumns:
        """The records from index `start` to before `stop` (None: to the end), as new columns."""
        if stop is None or stop >= len(self):
            stop, next_offset = len(self), self.next_offset
        else:
            next_offset = self.offset_at(stop)
        base_offset = self.offset_at(start) if start < stop else next_offset
        return RecordColumns(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            base_offset,
            next_offset,
            None if self.offsets is None else self.offsets[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )

    def from_offset(self, offset: int) -> RecordColumns:
        """The records at `offset` and after; the object itself if these are all of its records."""
        if offset <= self.base_offset:
            return self
        if self.offsets is None:
            return self.cut(min(offset - self.base_offset, len(self)))
        return self.cut(sum(1 for known in self.offsets if known < offset))


class UnreadRecords(Protocol):
    """Records whose keys and values are read when somebody asks for them."""

    @property
    def times(self) -> NDArray[np.int64]: ...
    @property
    def unread_keys(self) -> UnreadItems | None: ...
    @property
    def has_null_keys(self) -> bool: ...
    @property
    def has_null_values(self) -> bool: ...
    def keys(self) -> list[bytes | None]: ...
    def values(self) -> list[bytes | None]: ...


class LazyColumns(RecordColumns):
    """Records whose columns become lists when somebody asks for them, which counts do for their keys at most.

    They keep the buffer that the records were read from.
    """

    __slots__ = ("_keys", "_records", "_timestamps", "_values")

    def __init__(
        self, records: UnreadRecords, base_offset: int, next_offset: int, timestamp_bounds: tuple[int, int]
    ) -> None:
        self._records = records
        self._keys: list[bytes | None] | None = None
        self._values: list[bytes | None] | None = None
        self._timestamps: list[int] | None = None
        self.base_offset, self.next_offset = base_offset, next_offset
        self.offsets = self.headers = None
        self.timestamp_bounds = timestamp_bounds
        self.times = records.times

    def __len__(self) -> int:
        return len(self._records.times)

    def __reduce__(self) -> tuple[type[RecordColumns], tuple[object, ...]]:
        columns = self.keys, self.values, self.timestamps, self.base_offset, self.next_offset
        return RecordColumns, (*columns, self.offsets, None, self.timestamp_bounds)

    @property
    def keys(self) -> list[bytes | None]:  # type: ignore[override]
        if self._keys is None:
            self._keys = self._records.keys()
        return self._keys

    @property
    def values(self) -> list[bytes | None]:  # type: ignore[override]
        if self._values is None:
            self._values = self._records.values()
        return self._values

    @property
    def timestamps(self) -> list[int]:  # type: ignore[override]
        if self._timestamps is None:
            self._timestamps = self._records.times.tolist()
        return self._timestamps

    @property
    def quick_keys(self) -> list[bytes | None] | UnreadItems:
        unread = self._records.unread_keys
        return self.keys if unread is None or self._keys is not None else unread

    @property
    def has_nulls(self) -> tuple[bool, bool]:
        return self._records.has_null_keys, self._records.has_null_values

    @property
    def first_timestamp(self) -> int:
        return int(self._records.times[0])


class Tables(NamedTuple):
    """Keys and values that all have the same sizes, where they lie in the buffer that they were read from.

    ``runs``: tables of keys and of values, for some records each, in their order. ``times``: of all records.
    """

    runs: list[tuple[Table, Table]]
    times: NDArray[np.int64]

    @property
    def unread_keys(self) -> None:
        """They are tables."""

    @property
    def has_null_keys(self) -> bool:
        return False

    @property
    def has_null_values(self) -> bool:
        return False

    def keys(self) -> list[bytes | None]:
        return [key for keys, _ in self.runs for key in _rows(keys)]

    def values(self) -> list[bytes | None]:
        return [value for _, values in self.runs for value in _rows(values)]


class TableColumns(LazyColumns):
    """Records that were read as tables. They become lists when somebody asks for them, which a restore never does."""

    __slots__ = ("_tables",)

    def __init__(self, tables: Tables, base_offset: int, next_offset: int, timestamp_bounds: tuple[int, int]) -> None:
        super().__init__(tables, base_offset, next_offset, timestamp_bounds)
        self._tables = tables

    @property
    def tables(self) -> Tables:
        return self._tables


class Placed(NamedTuple):
    """Records of any sizes, where they lie in ``data``: :mod:`streamsrt.wire.records.items` takes them from there. A size of
    -1 is null.

    Between each value and the one before lie its key and six bytes more: the sizes of key, value and record, two deltas, and
    attributes.
    """

    data: Bytes
    keys_at: Numbers
    key_sizes: Numbers
    values_at: Numbers
    value_sizes: Numbers
    times: Numbers
    offsets: Numbers

    def keys(self) -> list[bytes | None]:
        return Items(self.data, self.keys_at, self.key_sizes).all()

    def values(self) -> list[bytes | None]:
        return Items(self.data, self.values_at, self.value_sizes).all()

    @property
    def unread_keys(self) -> None:
        """They are found quickly."""

    @property
    def has_null_keys(self) -> bool:
        return bool((self.key_sizes < 0).any())

    @property
    def has_null_values(self) -> bool:
        return bool((self.value_sizes < 0).any())


class PlacedColumns(LazyColumns):
    """Records that were read where they lie. They become lists when somebody asks for them."""

    __slots__ = ("_placed",)

    def __init__(self, placed: Placed, base_offset: int, next_offset: int) -> None:
        times, offsets = placed.times, placed.offsets
        super().__init__(placed, base_offset, next_offset, (int(times.min()), int(times.max())))
        self._placed = placed
        if int(offsets[0]) != base_offset or int(offsets[-1]) - base_offset >= len(offsets):
            self.offsets = offsets.tolist()

    @property
    def placed(self) -> Placed:
        return self._placed


def _rows(table: Table) -> list[bytes]:
    count, size = table.shape
    rows: list[bytes] = table.view(f"V{size}")[:, 0].tolist() if size else [b""] * count
    return rows
