"""Bytes out of a buffer, many items at once.

1. numpy copies them into a table, in any order. Where all have one size, it makes the objects as well. Where sizes differ,
   each row begins with the size of its item, and ``struct`` makes the objects: a size has one byte there. Longer ones are
   filled up with zeros, which the objects then lack; those that end in zeros themselves are cut out one by one.
2. The loop in C makes the objects where it was built (:mod:`streamsrt.wire.kernels`).
3. Behind the items are :data:`WIDTH_MAX` bytes more.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from streamsrt.wire.kernels import take_items
from streamsrt.wire.later_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

WIDTH_MAX = 512
"""Longer items are cut out one by one, which costs little more than to copy their bytes."""

_SPARE_BYTES = 16
_SIZED_MAX = 255
_ROWS_AT_ONCE = 128
_CACHED_BYTES = 120 << 10
"""A table of so many bytes fits the processor's cache, and is allocated without asking the system for memory."""

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
Numbers: TypeAlias = "npt.NDArray[np.int64]"


class Items:
    """Items at these positions of ``data``, of these sizes; -1 is null. There is at least one."""

    def __init__(self, data: Bytes, at: Numbers, sizes: Numbers) -> None:
        self._data, self._at, self._sizes = data, at, sizes
        low, high = int(sizes.min()), int(sizes.max())
        mean = int(sizes.sum()) // len(sizes)
        self._is_cut = high <= 0 or mean > WIDTH_MAX // 2
        self._width = 1 if self._is_cut else min(high, 2 * mean + _SPARE_BYTES, WIDTH_MAX)
        # The byte before an item gets its size.
        self._is_sized = low < high and self._width <= _SIZED_MAX and int(at.min()) > 0
        self._is_odd = low < 0 or high > self._width
        self._alike = _windows(data, high) if low == high and not self._is_cut else None
        self._table = None if self._alike is None else _table(data, at, high)

    def all(self) -> list[bytes | None]:
        found = take_items(self._data, self._at, self._sizes, np.arange(len(self._at)))
        return self._all_in_parts() if found is None else found

    def _all_in_parts(self) -> list[bytes | None]:
        rows = _CACHED_BYTES // self._width
        count = len(self._at)
        if rows >= count:
            return self._items(self._at, self._sizes)
        items: list[bytes | None] = []
        for start in range(0, count, rows):
            items += self._items(self._at[start : start + rows], self._sizes[start : start + rows])
        return items

    def taken(self, order: Numbers) -> list[bytes | None]:
        """These of them, which are no more than fit the processor's cache."""
        found = take_items(self._data, self._at, self._sizes, order)
        if found is not None:
            return found
        if self._table is not None:
            items: list[bytes | None] = self._table.take(order).tolist()
            return items
        at = self._at.take(order)
        return self._items(at, self._sizes if self._alike is not None else self._sizes.take(order))

    def _items(self, at: Numbers, sizes: Numbers) -> list[bytes | None]:
        if self._alike is not None:
            items: list[bytes | None] = self._alike[at].tolist()
            return items
        if self._is_cut:
            view = self._data.data
            return [_cut(view, start, size) for start, size in zip(at.tolist(), sizes.tolist(), strict=True)]
        if not self._is_sized:
            return _unlike_items(self._data, at, sizes, self._width)
        items = _sized_items(self._data, at, sizes, self._width)
        if self._is_odd:
            _cut_odd(items, self._data, at, sizes, (sizes < 0) | (sizes > self._width))
        return items


def _table(data: Bytes, at: Numbers, size: int) -> npt.NDArray[np.void] | None:
    """Items of that size; None if they do not lie one behind the other."""
    first, count = int(at[0]), len(at)
    if at.tobytes() != np.arange(first, first + size * count, size).tobytes():
        return None
    return np.ndarray((count,), np.dtype((np.void, size)), data, first)


def _unlike_items(data: Bytes, at: Numbers, sizes: Numbers, width: int) -> list[bytes | None]:
    # This takes zeros at the end for what filled the rows up.
    items: list[bytes | None] = bytes_at(data, at, sizes, width).view(f"S{width}")[:, 0].tolist()
    ends_in_zero = data.take(at + sizes - 1, mode="clip") == 0
    _cut_odd(items, data, at, sizes, (sizes <= 0) | (sizes > width) | ends_in_zero)
    return items


def _sized_items(data: Bytes, at: Numbers, sizes: Numbers, width: int) -> list[bytes | None]:
    """Items of at most so many bytes; anything for others."""
    table = _windows(data, width + 1)[at - 1].view(np.uint8).reshape(len(at), width + 1)
    table[:, 0] = sizes
    items: list[bytes | None] = []
    whole = len(at) - len(at) % _ROWS_AT_ONCE
    for some in _rows_of(width, _ROWS_AT_ONCE).iter_unpack(table[:whole].data):
        items += some
    for (item,) in _rows_of(width, 1).iter_unpack(table[whole:].data):
        items.append(item)
    return items


@lru_cache(maxsize=32)
def _rows_of(width: int, count: int) -> Struct:
    return Struct(f"{width + 1}p" * count)


def _cut_odd(
    items: list[bytes | None], data: Bytes, at: Numbers, sizes: Numbers, is_odd: npt.NDArray[np.bool_]
) -> None:
    odd = is_odd.nonzero()[0]
    if len(odd):
        view = data.data
        for index, start, size in zip(odd.tolist(), at[odd].tolist(), sizes[odd].tolist(), strict=True):
            items[index] = _cut(view, start, size)


def bytes_at(data: Bytes, at: Numbers, sizes: Numbers, width: int) -> Bytes:
    """A row for each position: the bytes from there on, cut off after ``width`` (at most :data:`WIDTH_MAX`) or filled up
    with zeros."""
    found = _windows(data, width)[at].view(np.uint8)
    if int(sizes.min()) < width:
        found &= _masks(width).take(sizes, mode="clip").view(np.uint8)
    return found.reshape(len(at), width)


def _windows(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """So many bytes from each byte on. Not for `take()`, which would copy all of them."""
    return np.ndarray((len(data) - width + 1,), np.dtype((np.void, width)), data, 0, (1,))


@lru_cache(maxsize=16)
def _masks(width: int) -> npt.NDArray[np.void]:
    """For each size up to ``width``: so many bytes of ones, the others zero."""
    is_kept = np.arange(width) < np.arange(width + 1).reshape(-1, 1)
    return (is_kept * np.uint8(0xFF)).view(f"V{width}")[:, 0]


def _cut(view: memoryview, start: int, size: int) -> bytes | None:
    return None if size < 0 else view[start : start + size].tobytes()
