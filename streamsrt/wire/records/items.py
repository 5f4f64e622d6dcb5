"""Bytes out of a buffer, many items at once.

1. numpy copies them into a table, in any order, and makes the objects from there. Items of different sizes are filled up
   with zeros, which the objects then lack; those that end in zeros themselves are cut out one by one.
2. Behind the items are :data:`WIDTH_MAX` bytes more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

WIDTH_MAX = 512
"""Longer items are cut out one by one, which costs little more than to copy their bytes."""

_SPARE_BYTES = 16
_CACHED_BYTES = 120 << 10
"""A table of so many bytes fits the processor's cache, and is allocated without asking the system for memory."""

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]


def items_at(data: Bytes, at: Numbers, sizes: Numbers) -> list[bytes | None]:
    """The bytes that begin at these positions of ``data``; None for a size of
    -1. There is at least one."""
    low, high = int(sizes.min()), int(sizes.max())
    mean = int(sizes.sum()) // len(sizes)
    if high <= 0 or mean > WIDTH_MAX // 2:
        view = data.data
        return [_cut(view, start, size) for start, size in zip(at.tolist(), sizes.tolist(), strict=True)]
    width = min(high, 2 * mean + _SPARE_BYTES, WIDTH_MAX)
    rows = _CACHED_BYTES // width
    items: list[bytes | None] = []
    for start in range(0, len(at), rows):
        part = slice(start, start + rows)
        if low == high:
            items += _windows(data, width)[at[part]].tolist()
        else:
            items += _unlike_items(data, at[part], sizes[part], width)
    return items


def _unlike_items(data: Bytes, at: Numbers, sizes: Numbers, width: int) -> list[bytes | None]:
    # This takes zeros at the end for what filled the rows up.
    items: list[Any] = bytes_at(data, at, sizes, width).view(f"S{width}")[:, 0].tolist()
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
