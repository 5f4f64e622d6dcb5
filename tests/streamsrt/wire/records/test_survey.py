"""What a survey says of a batch is what decoding it gives, and it refuses what decoding refuses."""

from __future__ import annotations

import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import assume, given
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression, TooLargeError
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Headers,
    RecordColumns,
    decode_batch,
    empty_batch,
    encode_batch,
    find_timestamp,
    largest_timestamp,
    quick,
    read_header,
    renumbered_records,
    survey_batch,
    survey_unpacked,
)
from streamsrt.wire.records.decoding import LONG_RECORD_BYTES
from streamsrt.wire.records.plain import read_plain
from streamsrt.wire.records.survey import PIECE_BYTES, unpacked
from streamsrt.wire.records.uniform import RECORDS_MIN
from tests.coordinator.broker.odd_batches import batch, record, several, sized, varint
from tests.streamsrt.wire.records.reference import has_long_number, resealed

T0 = 1_700_000_000_000

keys = st.one_of(st.none(), st.binary(max_size=9))
rows = st.lists(st.tuples(keys, keys, st.integers(-3, 1 << 50)), min_size=1, max_size=6)


@given(rows, st.sampled_from(Compression), st.booleans(), st.integers(0, 1 << 30), st.integers(0, 255))
def test_a_survey_and_decoding_agree(
    made: list[tuple[bytes | None, bytes | None, int]], codec: Compression, is_damaged: bool, place: int, byte: int
) -> None:
    data = bytearray(encode_batch(*zip(*made, strict=True), compression=codec))
    if is_damaged:
        data[HEADER_SIZE_BYTES + place % (len(data) - HEADER_SIZE_BYTES)] = byte
    check(resealed(data))


@given(rows, st.booleans(), st.integers(0, 1 << 30), st.integers(0, 255))
def test_the_plain_reader_is_as_strict_as_the_quick_one(
    made: list[tuple[bytes | None, bytes | None, int]], is_damaged: bool, place: int, byte: int
) -> None:
    data = bytearray(encode_batch(*zip(*made, strict=True), headers=[(("h", b"v"),)] * len(made)))
    if is_damaged:
        place = HEADER_SIZE_BYTES + place % (len(data) - HEADER_SIZE_BYTES)
        # The quick reader takes the attributes of a record, which nobody uses, for a number of several bytes.
        assume(byte < 0x80 or place not in attributes_of(data))
        data[place] = byte
    whole = resealed(data)
    try:
        columns = decode_batch(whole)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_plain(memoryview(whole), read_header(whole))
        return
    found = read_plain(memoryview(whole), read_header(whole))
    assert [(each.key, each.value, each.timestamp) for each in found] == list(
        zip(columns.keys, columns.values, columns.timestamps, strict=True)
    )


def attributes_of(data: bytearray) -> list[int]:
    """Where they stand, in records with lengths of one byte."""
    found, at = [], HEADER_SIZE_BYTES
    while at < len(data):
        found.append(at + 1)
        at += 1 + (data[at] >> 1)
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("key", [None, b"k"])
def test_long_records(codec: Compression, key: bytes | None) -> None:
    values = [bytes(PIECE_BYTES), bytes(3 * PIECE_BYTES)]
    data = encode_batch([key] * 2, values, [T0 + 5, T0], compression=codec)
    check(data)
    if codec is Compression.NONE:
        check(resealed(bytearray(data[:-1] + b"\x02")))


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_of_records_of_one_size(codec: Compression, has_keys: bool) -> None:
    count = RECORDS_MIN + 9
    data = encode_batch(
        [b"k%07d" % index if has_keys else None for index in range(count)],
        [b"v" * 20] * count,
        [T0 + random.Random(3).randrange(500) for _ in range(count)],
        compression=codec,
    )
    check(data)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("sizes", [(30_000, 5, 70), (5, 70, 30_000, 5), (9_000, 9_000), tuple(range(400))])
def test_of_several_pieces(codec: Compression, sizes: tuple[int, ...]) -> None:
    count = len(sizes)
    headers: list[Headers] = [(("h", b"v"), ("", None))[: index % 3] for index in range(count)]
    keys = [None if index % 3 == 1 else b"k" for index in range(count)]
    data = encode_batch(
        keys, [bytes(size) for size in sizes], [T0 + index % 7 for index in range(count)], headers=headers
    )
    check(repacked(data, codec))
    for place in (HEADER_SIZE_BYTES, HEADER_SIZE_BYTES + 1, len(data) - 1):
        damaged = bytearray(data)
        damaged[place] ^= 2
        check(repacked(resealed(damaged), codec))
    check(repacked(resealed(bytearray(data[:-1])), codec))


def repacked(data: bytes, codec: Compression) -> bytes:
    count = read_header(data).records_count
    return batch(data[HEADER_SIZE_BYTES:], count, base_ms=T0, codec=codec)


def test_a_batch_without_records_holds_no_time() -> None:
    data = empty_batch(read_header(batch(several(0, 1), 2, max_ms=T0 + 1)))
    assert find_timestamp(data, 0, T0) is None


class TestManyHeaders:
    """A record of many headers is not given to the reader that makes them all in one go."""

    COUNT = 100_000
    FIELDS = varint(COUNT) + (sized(b"") + sized(None)) * COUNT

    @pytest.fixture
    def data(self) -> bytes:
        return batch(record() + record(None, ms=9, offset=1, headers=self.FIELDS) + record(offset=2), 3, max_ms=T0 + 9)

    @pytest.fixture
    def given(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The sizes of what the compiled reader gets."""
        sizes: list[int] = []

        def reader(view: memoryview) -> DefaultRecordBatch:
            sizes.append(len(view))
            return DefaultRecordBatch(view)

        monkeypatch.setattr(quick, "DefaultRecordBatch", reader)
        return sizes

    def test_they_are_passed_over_where_a_time_is_looked_for(self, data: bytes, given: list[int]) -> None:
        assert find_timestamp(b"pad" + data, 3, T0 + 1) == (1, T0 + 9)
        assert find_timestamp(data, 0, T0, from_offset=2) == (2, T0)
        assert max(given) <= HEADER_SIZE_BYTES + PIECE_BYTES

    def test_they_are_counted(self, data: bytes, given: list[int]) -> None:
        header = read_header(data)
        assert largest_timestamp(data, header) == (T0 + 9, self.COUNT)
        found = survey_batch(data, header)
        assert (list(found.timestamps), found.keyless, found.is_in_order) == ([T0, T0 + 9, T0], [1], True)
        assert found.headers_count == self.COUNT
        assert max(given) <= HEADER_SIZE_BYTES + PIECE_BYTES

    @pytest.mark.parametrize("headers", [True, False])
    @pytest.mark.parametrize("is_long", [True, False])
    def test_readers_get_them_from_the_codec_that_gives_others_their_turn(
        self, given: list[int], is_long: bool, headers: bool
    ) -> None:
        count = LONG_RECORD_BYTES // 2 + (8 if is_long else -8)
        long_record = record(None, ms=9, offset=1, headers=varint(count) + (sized(b"") + sized(None)) * count)
        made = decode_batch(batch(record() + long_record + record(offset=2), 3, max_ms=T0 + 9), headers=headers)
        assert (made.timestamps, made.keys[1], len(made)) == ([T0, T0 + 9, T0], None, 3)
        assert made.headers == ([(), (("", None),) * count, ()] if headers else None)
        assert len(given) == (0 if is_long else 1), "the compiled reader reads a record in one go"

    def test_a_long_record_that_is_broken_is_told(self) -> None:
        count = LONG_RECORD_BYTES
        fields = varint(count) + (sized(b"") + sized(None)) * (count - 1) + sized(None) + sized(None)
        for headers in (True, False):
            with pytest.raises(DecodeError, match="a header has no key"):
                decode_batch(batch(record(headers=fields), 1), headers=headers)

    def test_what_lies_behind_the_bound_is_not_read(self, data: bytes) -> None:
        header = read_header(data)
        broken = data[: -self.COUNT] + b"\xff" * self.COUNT
        with pytest.raises(TooLargeError, match=f"{self.COUNT} headers or more; {self.COUNT - 1} are allowed"):
            largest_timestamp(data, header, self.COUNT - 1)
        with pytest.raises(TooLargeError):
            survey_unpacked(memoryview(data), header, self.COUNT - 1)
        with pytest.raises(DecodeError):
            survey_unpacked(memoryview(broken), header)

    def test_a_record_that_says_that_it_is_shorter(self) -> None:
        shorter = bytearray(record(headers=self.FIELDS))
        data = batch(varint(20) + bytes(shorter[3:]), 1)
        with pytest.raises(DecodeError):
            largest_timestamp(data, read_header(data))

    @pytest.mark.parametrize("cut", [1, 2, 3, 50_000])
    def test_broken_ones(self, cut: int) -> None:
        fields = self.FIELDS[:-cut]
        for data in (batch(record(headers=fields)), batch(record(headers=self.FIELDS) + bytes(cut))):
            with pytest.raises(DecodeError):
                largest_timestamp(data, read_header(data))

    def test_a_header_without_a_key(self) -> None:
        data = batch(record(headers=varint(self.COUNT) + (sized(None) + sized(None)) * self.COUNT))
        with pytest.raises(DecodeError, match="no key"):
            largest_timestamp(data, read_header(data))

    def test_renumbering_leaves_out_attributes(self) -> None:
        """As Kafka does; other readers do not agree on how many bytes they are."""
        assert bytes(renumbered_records(batch(record(attributes=255)))) == record()

    def test_renumbering_leaves_them_as_they_are(self) -> None:
        records = [record(offset=offset, headers=self.FIELDS) for offset in (5, 1000, 2)]
        right = [record(offset=offset, headers=self.FIELDS) for offset in range(3)]
        assert bytes(renumbered_records(batch(b"".join(records), 3))) == b"".join(right)


def check(data: bytes) -> None:
    header = read_header(data)
    try:
        columns: RecordColumns | None = decode_batch(data)
    except DecodeError:
        columns = None
    if columns is None or has_long_number(unpacked(data, header, 1 << 24)[HEADER_SIZE_BYTES:], header.records_count):
        with pytest.raises(DecodeError):
            survey_batch(data, header)
        if header.compression is Compression.NONE:
            with pytest.raises(DecodeError):
                largest_timestamp(data, header)
        return
    found = survey_batch(data, header)
    assert list(found.timestamps) == columns.timestamps
    assert list(found.keyless) == [index for index, key in enumerate(columns.keys) if key is None]
    if header.compression is Compression.NONE:
        headers_count = sum(map(len, columns.headers or ()))
        assert largest_timestamp(data, header) == (max(columns.timestamps), headers_count)


NO_TEXT = varint(2) + sized(b"\xff\xfe") + sized(b"v") + sized("\u00e9".encode()) + sized(None)


def test_header_keys_that_are_no_text_are_read_as_java_reads_them() -> None:
    data = batch(record(b"a", b"b") + record(None, None, ms=5, offset=1, headers=NO_TEXT), 2, max_ms=T0 + 5)
    columns = decode_batch(data)
    assert (columns.keys, columns.values, columns.timestamps) == ([b"a", None], [b"b", None], [T0, T0 + 5])
    assert columns.headers == [(), (("\ufffd\ufffd", b"v"), ("\u00e9", None))]
    assert decode_batch(data, headers=False).headers is None
    check(data)


@pytest.mark.parametrize("cut", [1, 2, 5, 9, 12])
def test_broken_ones_of_that_kind_are_refused(cut: int) -> None:
    whole = record(headers=NO_TEXT)
    with pytest.raises(DecodeError):
        decode_batch(batch(whole[:-cut]))
    with pytest.raises(DecodeError):
        decode_batch(batch(whole + b"\0" * cut))


@pytest.mark.parametrize(
    ("deltas", "is_in_order"), [((0, 1, 2), True), ((0, 0, 0), False), ((2, 1, 0), False), ((5, 6, 7), False)]
)
def test_offsets_within_a_batch(deltas: tuple[int, ...], is_in_order: bool) -> None:
    data = batch(several(*deltas), 3)
    assert survey_batch(data, read_header(data)).is_in_order is is_in_order
    assert bytes(renumbered_records(data)) == several(0, 1, 2)


def test_what_is_too_large_unpacked_is_told_from_what_is_broken() -> None:
    data = batch(record(b"k", bytes(10_000)), codec=Compression.ZSTD)
    with pytest.raises(TooLargeError):
        survey_batch(data, read_header(data), limit_bytes=9_000)
