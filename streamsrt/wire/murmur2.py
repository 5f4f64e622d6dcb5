"""The default partitioner's hash: MurmurHash2 with Kafka's seed (`org.apache.kafka.common.utils.Utils.murmur2`).

Rules of this module:
- Every function gives Java's signed 32-bit value, bit for bit: a key lands on the partition where Java puts it.
- One key costs about a microsecond in Python, more than the rest of a pipeline. Keys are therefore hashed many at a
  time (one numpy pass for all keys of one length) and remembered, unless the loop in C was built, which needs no memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from streamsrt.wire import kernels
from streamsrt.wire.later_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

_Hashes: TypeAlias = "list[int] | npt.NDArray[np.int32]"
"""Few as a list, many as an array."""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF

# What a remembered key takes beside its bytes: the object, and its place in the dict.
_ANSWER_BYTES = 100

# Below this many keys of one length, numpy's fixed cost per four-byte word exceeds the plain loop's.
_VECTOR_MINIMUM_KEYS = 24


def murmur2(key: bytes) -> int:
    """Hash of `key` as Java's signed int, -2**31 to 2**31 - 1."""
    size = len(key)
    value = _SEED ^ size
    words_end = size & ~3
    for position in range(0, words_end, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if size & 3:
        value = (value ^ int.from_bytes(key[words_end:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    value ^= value >> 15
    return value - (value >> 31 << 32)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Partition of a record with this serialized key: Kafka's `BuiltInPartitioner.partitionForKey`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2_many(keys: Iterable[bytes]) -> dict[bytes, int]:
    """Hash of every distinct key, as `murmur2` gives it."""
    hashes: dict[bytes, int] = {}
    for group, values in _hashed(set(keys)):
        hashes.update(zip(group, values if isinstance(values, list) else values.tolist(), strict=True))
    return hashes


def _hashed(keys: set[bytes]) -> Iterator[tuple[list[bytes], _Hashes]]:
    by_size: dict[int, list[bytes]] = {}
    sizes = set(map(len, keys))
    if len(sizes) == 1:
        by_size[sizes.pop()] = list(keys)
    else:
        for key in keys:
            by_size.setdefault(len(key), []).append(key)
    for size, group in by_size.items():
        if len(group) < _VECTOR_MINIMUM_KEYS:
            yield group, list(map(murmur2, group))
        else:
            yield group, _murmur2_equal_size(group, size)


def _partitions(hashes: _Hashes, partition_count: int) -> list[int]:
    if isinstance(hashes, list):
        return [(value & 0x7FFFFFFF) % partition_count for value in hashes]
    found: list[int] = ((hashes & 0x7FFFFFFF) % partition_count).tolist()
    return found


def _murmur2_equal_size(keys: list[bytes], size: int) -> npt.NDArray[np.int32]:
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), size)
    multiplier = np.uint32(_MULTIPLIER)
    value = np.full(len(keys), _SEED ^ size, np.uint32)
    words_end = size & ~3
    # One contiguous row per word position, so that each pass below runs over adjacent memory.
    words = np.array(np.ascontiguousarray(rows[:, :words_end]).view("<u4").T, order="C")
    for word in words:
        word *= multiplier
        word ^= word >> np.uint32(24)
        word *= multiplier
        value *= multiplier
        value ^= word
    if size & 3:
        for index in range(size & 3):
            value ^= rows[:, words_end + index].astype(np.uint32) << np.uint32(8 * index)
        value *= multiplier
    value ^= value >> np.uint32(13)
    value *= multiplier
    value ^= value >> np.uint32(15)
    return value.view(np.int32)


def murmur2_padded(words: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Hash of each key of any sizes: a row of ``words`` has the bytes of one, padded with zeros."""
    multiplier = np.uint32(_MULTIPLIER)
    quads = np.ascontiguousarray(words).view("<u4")
    value = sizes.astype(np.uint32) ^ np.uint32(_SEED)
    full = sizes >> 2
    for index in range(int(full.max())):
        word = quads[:, index] * multiplier
        word ^= word >> np.uint32(24)
        word *= multiplier
        word ^= value * multiplier
        value = np.where(full > index, word, value)
    count, width = quads.shape
    # Behind its whole words, a key's row has what is left of it, and zeros.
    rest = quads.ravel().take(np.arange(0, count * width, width) + full, mode="clip")
    value = np.where(sizes & 3, (value ^ rest) * multiplier, value)
    value ^= value >> np.uint32(13)
    value *= multiplier
    value ^= value >> np.uint32(15)
    return value.view(np.int32)


class PartitionMemo:
    """Partitions of columns of keys, with the answers of earlier batches remembered.

    One instance serves all output topics: those with as many partitions share the answers. It holds about `limit_bytes` at
    most, however many topics there are and however long their keys, and forgets everything when full: the common keys are
    back after one batch.
    """

    __slots__ = ("_answers", "_limit_bytes", "_used_bytes")

    def __init__(self, limit_bytes: int = 16 << 20) -> None:
        if limit_bytes < 1:
            raise ValueError(f"limit_bytes must be at least 1, got {limit_bytes}")
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._answers: dict[int, dict[bytes | None, int]] = {}
        """By how many partitions there are."""

    def __len__(self) -> int:
        """Number of answers remembered."""
        return sum(len(memo) - (None in memo) for memo in self._answers.values())

    @property
    def used_bytes(self) -> int:
        """What it holds now, about."""
        return self._used_bytes

    def partitions(self, keys: Sequence[bytes | None], partition_count: int, *, null_partition: int = -1) -> list[int]:
        """Partition of each key, in the order of `keys`; a null key gets `null_partition` (the caller's choice)."""
        if partition_count < 1:
            raise ValueError(f"a topic has at least 1 partition, got {partition_count}")
        computed = kernels.partitions(keys, partition_count, null_partition)
        if computed is not None:
            return computed
        memo = self._answers.get(partition_count)
        if memo is None:
            memo = self._answers[partition_count] = {}
        memo[None] = null_partition
        try:
            return list(map(memo.__getitem__, keys))
        except KeyError:
            pass  # at the first key that is not known: only then is it worth finding all of them
        # Not `set(keys) - memo.keys()`: that walks the whole memo.
        missing = cast("set[bytes]", set(keys).difference(memo))
        size_bytes = _remembered_bytes(missing)
        if self._used_bytes + size_bytes > self._limit_bytes:
            self._forget()
            memo = self._answers[partition_count] = {None: null_partition}
            missing = cast("set[bytes]", set(keys).difference(memo))
            size_bytes = _remembered_bytes(missing)
        for group, values in _hashed(missing):
            memo.update(zip(group, _partitions(values, partition_count), strict=True))
        self._used_bytes += size_bytes
        column = list(map(memo.__getitem__, keys))
        if self._used_bytes > self._limit_bytes:
            self._forget()
        return column

    def _forget(self) -> None:
        self._answers = {}
        self._used_bytes = 0


def _remembered_bytes(keys: Collection[bytes]) -> int:
    return sum(map(len, keys)) + _ANSWER_BYTES * len(keys)
