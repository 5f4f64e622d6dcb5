"""Bytes out of a buffer, many items at once.

1. numpy copies them into a table, in any order, and makes the objects from there. Items of different sizes are filled up
   with zeros, which the objects then lack; those that end in zeros themselves are cut out one by one.
2. Behind the items are :data:`WIDTH_MAX` bytes more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

WIDTH_MAX = 512
"""Longer items are cut out one by one, which costs little more than to copy their bytes."""

_SPARE_BYTES = 16
_CACHED_BYTES = 120 << 10
"""A table of so many bytes fits the processor's cache, and is allocated without asking the system for memory."""

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]


class Items:
    """Items at these positions of ``data``, of these sizes; -1 is null. There is at least one."""

    def __init__(self, data: Bytes, at: Numbers, sizes: Numbers) -> None:
        self._data, self._at, self._sizes = data, at, sizes
        low, high = int(sizes.min()), int(sizes.max())
        mean = int(sizes.sum()) // len(sizes)
        self._is_cut = high <= 0 or mean > WIDTH_MAX // 2
        self._width = 1 if self._is_cut else min(high, 2 * mean + _SPARE_BYTES, WIDTH_MAX)
        self._alike = _windows(data, high) if low == high and not self._is_cut else None
        self._table = None if self._alike is None else _table(data, at, high)

    def all(self) -> list[bytes | None]:
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
        return _unlike_items(self._data, at, sizes, self._width)


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
    odd = ((sizes <= 0) | (sizes > width) | ends_in_zero).nonzero()[0]
    if len(odd):
        view = data.data
        for index, start, size in zip(odd.tolist(), at[odd].tolist(), sizes[odd].tolist(), strict=True):
            items[index] = _cut(view, start, size)
    return items


def bytes_at(data: Bytes, at: Numbers, sizes: Numbers, width: int) -> Bytes:
    """A row for each position: the bytes from there on, cut off after ``width`` (at most :data:`WIDTH_MAX`) or filled up
    with zeros."""
    found = _windows(data, width)[at].view(np.uint8)
    if int(sizes.min()) < width:
        found &= _masks(width)[np.clip(sizes, 0, width)].view(np.uint8)
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
