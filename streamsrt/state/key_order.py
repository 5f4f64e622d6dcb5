"""The order of keys, for batches that are written in it.

Nothing depends on it but speed: the order is that of a part of each key, so that numbers can be compared instead of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamsrt.wire.later_numpy import np

_FEW = 200
_COMPARED_BYTES = 16


def positions_in_order(keys: Sequence[bytes]) -> list[int]:
    """Where the keys are, in about their order: they are compared by 16 bytes, after those that all of them begin with.

    >>> positions_in_order([b"c", b"a", b"b"])
    [1, 2, 0]
    """
    if len(keys) < _FEW:
        return sorted(range(len(keys)), key=keys.__getitem__)
    least, greatest = min(keys), max(keys)
    first = next((at for at, (one, other) in enumerate(zip(least, greatest, strict=False)) if one != other), len(least))
    parts = np.array([key[first : first + _COMPARED_BYTES] for key in keys], dtype=f"S{_COMPARED_BYTES}")
    numbers = parts.view(">u8").reshape(len(keys), 2).astype(np.uint64)
    positions: list[int] = np.lexsort((numbers[:, 1], numbers[:, 0])).tolist()
    return positions
