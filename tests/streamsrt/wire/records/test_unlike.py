"""Records of unlike sizes are surveyed as the codec reads them, for all bytes."""

from __future__ import annotations

import random

import pytest

from streamsrt.wire.compression import TooLargeError
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Headers,
    decode_batch,
    encode_batch,
    largest_timestamp,
    read_header,
)
from streamsrt.wire.records.unlike import HEADERS_EACH_MAX, RECORDS_MAX, RECORDS_MIN, Unlike, survey_unlike

NAMES: list[Headers] = [(), (("trace", b"x" * 70),), (("a", None), ("b" * 65, b""), ("c", b"1"))]


def made(
    rng: random.Random, count: int, *, value_bytes_max: int = 150, delta_max_ms: int = 50, headers: bool = False
) -> bytearray:
    def some(size_max: int) -> bytes | None:
        return None if rng.random() < 0.05 else rng.randbytes(rng.randint(0, size_max))

    return bytearray(
        encode_batch(
            [some(90) for _ in range(count)],
            [some(value_bytes_max) for _ in range(count)],
            [1_000 + rng.randint(-delta_max_ms, delta_max_ms) for _ in range(count)],
            headers=[rng.choice(NAMES) for _ in range(count)] if headers else None,
        )
    )


def surveyed(batch: bytearray) -> Unlike | None:
    header = read_header(batch)
    return survey_unlike(memoryview(batch)[HEADER_SIZE_BYTES:], header.records_count, header.base_timestamp)


def is_as_read(batch: bytearray, found: Unlike) -> bool:
    columns = decode_batch(batch, verify_crc=False)
    return (
        found.timestamps.tolist() == columns.timestamps
        and found.keyless.tolist() == [index for index, key in enumerate(columns.keys) if key is None]
        and found.headers_count == sum(map(len, columns.headers or ()))
    )


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("delta_max_ms", [20, 8_000, 40_000_000])
@pytest.mark.parametrize("value_bytes_max", [0, 40, 2_000])
@pytest.mark.parametrize("count", [RECORDS_MIN, 1_000])
def test_records_are_as_the_codec_reads_them(
    count: int, value_bytes_max: int, delta_max_ms: int, headers: bool
) -> None:
    rng = random.Random(f"{count} {value_bytes_max} {delta_max_ms} {headers}")
    batch = made(rng, count, value_bytes_max=value_bytes_max, delta_max_ms=delta_max_ms, headers=headers)
    found = surveyed(batch)
    assert found is not None
    assert is_as_read(batch, found)


@pytest.mark.parametrize("count", [1, RECORDS_MIN - 1, RECORDS_MAX + 1])
def test_other_counts_are_left_to_the_codec(count: int) -> None:
    assert surveyed(made(random.Random(1), count, value_bytes_max=3)) is None


@pytest.mark.parametrize(("headers_each", "is_found"), [(HEADERS_EACH_MAX, True), (HEADERS_EACH_MAX + 1, False)])
def test_records_with_many_headers_are_left_to_the_codec(headers_each: int, is_found: bool) -> None:
    headers: list[Headers] = [(), *[(("h", b"x"),) * headers_each] * RECORDS_MIN]
    batch = bytearray(encode_batch([None] * len(headers), [b"v"] * len(headers), [5] * len(headers), headers=headers))
    found = surveyed(batch)
    assert (found is not None) is is_found
    if found is not None:
        assert is_as_read(batch, found)


def test_headers_are_counted_before_they_are_allowed() -> None:
    batch = made(random.Random(2), RECORDS_MIN, headers=True)
    header = read_header(batch)
    _, count = largest_timestamp(batch, header)
    assert count > RECORDS_MIN
    assert largest_timestamp(batch, header, count)[1] == count
    with pytest.raises(TooLargeError, match="headers or more"):
        largest_timestamp(batch, header, count - 1)


def spoilt(rng: random.Random, batch: bytearray) -> bytearray:
    """The batch with bytes changed, of which most say where something lies."""
    result = bytearray(batch)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(HEADER_SIZE_BYTES, len(result))
        result[at] = rng.choice(
            [0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, result[at] ^ 1, result[at] ^ 2, rng.randrange(256)]
        )
    return result


@pytest.mark.parametrize("seed", range(8))
def test_what_is_answered_is_what_the_codec_reads_whatever_the_bytes(seed: int) -> None:
    rng = random.Random(seed)
    batch = made(rng, RECORDS_MIN, value_bytes_max=3, headers=bool(seed % 2))
    answers = refusals = 0
    for _ in range(500):
        other = spoilt(rng, batch)
        found = surveyed(other)
        if found is not None:
            answers += 1
            assert is_as_read(other, found)
            continue
        try:
            decode_batch(other, verify_crc=False)
        except DecodeError:
            refusals += 1
    assert answers > 20
    assert refusals > 20
