"""What decoding, encoding and partitioning of records cost. Run: python -m tests.bench.bench_records

"bare" rows are the floor: the same library calls with nothing around them. "aiokafka" rows are what its own consumer
and producer do per batch. Compare rows within a table; figures of different runs don't compare.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import TypeAlias, TypeVar

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c

from streamsrt.wire.compression import Compression, compress, decompress
from streamsrt.wire.murmur2 import PartitionMemo, murmur2, murmur2_many
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Headers,
    decode_batch,
    decode_batches,
    encode_batch,
    rewrite_log_append_time,
    stamp_producer,
)
from tests.bench.measure import compare, print_table, tune_malloc

BATCHES, PER_BATCH = 20, 1000
RECORDS = BATCHES * PER_BATCH
ONE_HEADER: Headers = (("trace", b"0123456789abcdef"),)

Columns: TypeAlias = tuple[list[bytes], list[bytes], list[int]]
Item = TypeVar("Item")


def columns(spread: int = 0) -> list[Columns]:
    """Batches of 11-byte keys (10,000 of them) and values of 100 bytes, or so many bytes more or less."""
    rng = random.Random(1)
    values = [rng.randbytes(50 + spread // 2).hex()[: 100 + rng.randint(-spread, spread)].encode() for _ in range(997)]
    return [
        (
            [b"user-%06d" % rng.randrange(10_000) for _ in range(PER_BATCH)],
            [values[(base + index) % 997] for index in range(PER_BATCH)],
            [1_700_000_000_000 + base + index for index in range(PER_BATCH)],
        )
        for base in range(0, RECORDS, PER_BATCH)
    ]


def each(function: Callable[[Item], object], items: Sequence[Item]) -> Callable[[], None]:
    """The function on every item, each result dropped before the next call."""

    def run() -> None:
        for item in items:
            function(item)

    return run


def aiokafka_tuples(batch: bytes) -> object:
    batches = MemoryRecords(batch)
    first = batches.next_batch()
    assert first is not None
    assert first.validate_crc()
    return [(record.key, record.value, record.timestamp, record.offset) for record in first]


def bare_columns(batch: bytes) -> object:
    crc32c(memoryview(batch)[21:])
    keys, values, timestamps = [], [], []
    for record in DefaultRecordBatch(batch):
        keys.append(record.key)
        values.append(record.value)
        timestamps.append(record.timestamp)
    return keys, values, timestamps


def aiokafka_build(batch: Columns) -> object:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for index, (key, value, timestamp) in enumerate(zip(*batch, strict=True)):
        builder.append(index, timestamp, key, value, [])
    return builder.build()


def bare_append(batch: Columns) -> object:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    keys, values, timestamps = batch
    deque(map(builder.append, range(len(keys)), timestamps, keys, values, repeat([])), maxlen=0)
    return builder


def decoding(batches: list[bytes], with_headers: list[bytes], uneven: list[bytes]) -> None:
    answers = [b"".join(batches[start : start + 2]) for start in range(0, BATCHES, 2)]
    variants = {
        "bare: CRC + Cython reader into lists": each(bare_columns, batches),
        "decode_batch, headers=False": each(lambda batch: decode_batch(batch, headers=False), batches),
        "decode_batch": each(decode_batch, batches),
        "bare, values of 80 to 120 bytes": each(bare_columns, uneven),
        "decode_batch, values of 80 to 120 bytes": each(decode_batch, uneven),
        "decode_batch, one header a record": each(decode_batch, with_headers),
        "decode_batches, two batches an answer": each(decode_batches, answers),
        "bare: CRC + Cython reader, nothing kept": each(
            lambda batch: (crc32c(memoryview(batch)[21:]), deque(DefaultRecordBatch(batch), maxlen=0)), batches
        ),
        "aiokafka: its CRC, tuples": each(aiokafka_tuples, batches),
    }
    base = "bare: CRC + Cython reader into lists"
    print_table(
        "decode, 1000 records a batch, all of one size unless said", compare(variants, 9), RECORDS, relative_to=base
    )


def encoding(source: list[Columns], batches: list[bytes]) -> None:
    variants: dict[str, Callable[[], object]] = {
        "bare: Cython appends": each(bare_append, source),
        "encode_batch": each(lambda batch: encode_batch(*batch), source),
        "encode_batch, one header a record": each(
            lambda batch: encode_batch(*batch, headers=[ONE_HEADER] * PER_BATCH), source
        ),
        "aiokafka: builder": each(aiokafka_build, source),
        "stamp_producer": each(lambda batch: stamp_producer(batch, 1, 2, 3), batches),
        "rewrite_log_append_time": each(lambda batch: rewrite_log_append_time(batch, 5), batches),
    }
    print_table("encode", compare(variants, 9), RECORDS, relative_to="bare: Cython appends")


def compressing(batches: list[bytes]) -> None:
    records = [batch[HEADER_SIZE_BYTES:] for batch in batches]
    variants: dict[str, Callable[[], object]] = {}
    for codec in Compression:
        data = [bytes(compress(codec, one)) for one in records]
        ratio = sum(map(len, data)) / sum(map(len, records))
        variants[f"compress {codec.type_name} to {ratio:.0%}"] = each(partial(compress, codec), records)
        variants[f"decompress {codec.type_name}"] = each(partial(decompress, codec), data)
    print_table("compression", compare(variants, 3), RECORDS)


def partitioning(source: list[Columns]) -> None:
    keys = [batch[0] for batch in source]
    memo = PartitionMemo()
    small_memo = PartitionMemo(limit_bytes=5 * 120 * PER_BATCH)
    cold = [[b"cold-%06d" % (batch * PER_BATCH + index) for index in range(PER_BATCH)] for batch in range(BATCHES)]
    variants: dict[str, Callable[[], object]] = {
        "PartitionMemo, keys known": each(lambda batch: memo.partitions(batch, 12), keys),
        "PartitionMemo, every key new": each(lambda batch: small_memo.partitions(batch, 12), cold),
        "murmur2_many": each(murmur2_many, cold),
        "murmur2": each(lambda batch: [murmur2(key) for key in batch], cold[:2] * (BATCHES // 2)),
    }
    print_table("partition", compare(variants, 5), RECORDS, relative_to="PartitionMemo, keys known")


def main() -> None:
    tune_malloc()
    source = columns()
    batches = [encode_batch(*batch) for batch in source]
    with_headers = [encode_batch(*batch, headers=[ONE_HEADER] * PER_BATCH) for batch in source]
    decoding(batches, with_headers, [encode_batch(*batch) for batch in columns(spread=20)])
    encoding(source, batches)
    compressing(batches)
    partitioning(source)


if __name__ == "__main__":
    main()
