"""The short cut over batches of one record reads what the general reader reads, and nothing else."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.shard.journal import JournalBatch, read_journal
from coordinator.shard.lone_records import lone_rows
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import Compression, decode_batches, encode_batch, patch_base_offset
from tests.coordinator.group.memory_log import MemoryLog

lengths = st.sampled_from([0, 1, 5, 62, 63, 64, 65, 120, 200, 8190, 8191, 8192, 20_000])
sizes = st.one_of(st.none(), lengths)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    count = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    data = [
        None if size is None else b"x" * size for size in draw(st.lists(sizes, min_size=2 * count, max_size=2 * count))
    ]
    transactional = draw(st.integers(0, 5)) == 0
    return bytes(
        encode_batch(
            [key and draw(st.binary(min_size=1, max_size=1)) + key for key in data[:count]],
            data[count:],
            [1000 + i for i in range(count)],
            headers=[[("h", b"v")]] * count if draw(st.integers(0, 5)) == 0 else None,
            compression=draw(st.sampled_from([Compression.NONE] * 5 + [Compression.LZ4])),
            producer_id=7 if transactional else -1,
            producer_epoch=0 if transactional else -1,
            transactional=transactional,
        )
    )


def log_of(written: list[bytes]) -> MemoryLog:
    log = MemoryLog()
    for batch in written:
        log.append(batch, now_ms=0)
    return log


@settings(max_examples=60)
@given(st.lists(batches(), max_size=8))
def test_the_same_rows_in_the_same_order(written: list[bytes]) -> None:
    log = log_of(written)
    expected = [
        (key, value)
        for columns in decode_batches(b"".join(log.batches))
        for key, value in zip(columns.keys, columns.values, strict=True)
        if key is not None
    ]
    found = list(read_journal(log))
    assert [row for batch in found for row in batch.rows] == expected
    assert all(isinstance(batch, JournalBatch) for batch in found)


def test_most_of_a_log_takes_the_short_cut() -> None:
    written = [bytes(encode_batch([b"k%d" % i], [b"v" * i or None], [1000 + i])) for i in range(200)]
    data = b"".join(log_of(written).batches)
    rows, position = lone_rows(data, 0, 0)
    assert (len(rows), position) == (200, len(data))
    assert rows[0] == (b"k0", None)
    assert lone_rows(data, 0, 150)[0] == rows[150:]


@settings(max_examples=150)
@given(st.binary(min_size=7, max_size=40), st.binary(max_size=9))
def test_whatever_a_batch_holds_is_never_read_in_another_way(body: bytes, behind: bytes) -> None:
    """Records of any bytes under a right CRC."""
    whole = bytearray(encode_batch([b"k"], [b"v"], [0]))[:61] + body
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
    data = bytes(patch_base_offset(bytes(whole), 0, 0)) + bytes(whole[16:])
    rows, _ = lone_rows(data + behind, 0, 0)
    if rows:
        (columns,) = decode_batches(data)
        assert rows == list(zip(columns.keys, columns.values, strict=True))


@pytest.mark.parametrize("at", [17, 40, 65, 70])
def test_damage_is_left_to_the_general_reader(at: int) -> None:
    log = log_of([bytes(encode_batch([b"key"], [b"value"], [0]))] * 3)
    damaged = bytearray(log.batches[1])
    damaged[at] ^= 1
    log.batches[1] = bytes(damaged)
    assert len(lone_rows(b"".join(log.batches), 0, 0)[0]) == 1
    with pytest.raises(DecodeError):
        list(read_journal(log))
