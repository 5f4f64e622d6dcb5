from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression
from streamsrt.wire.murmur2 import murmur2, murmur2_padded
from streamsrt.wire.records import encode_batch
from streamsrt.wire.records.texts import TEXT_BYTES_MAX, Texts, encode_texts, read_texts

T0 = 1_700_000_000_000


def words(seed: int, count: int, longest: int = TEXT_BYTES_MAX) -> list[bytes]:
    chance = random.Random(seed)
    return [bytes(chance.choices(range(1, 256), k=chance.randint(1, longest))) for _ in range(count)]


def texts(raw: list[bytes]) -> Texts:
    found = read_texts(b"\0".join(raw))
    assert found is not None
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([1, 2, 63, 64, 65, 300]),
    st.sampled_from([1, 7, 8, 9, TEXT_BYTES_MAX]),
    st.sampled_from([0, 0, T0]),
    st.sampled_from([0, 1, 31, 32, 5_000, 10_000_000, 1 << 33]),
    st.sampled_from([Compression.NONE, Compression.ZSTD]),
    st.booleans(),
)
def test_a_batch_is_that_of_the_general_codec(
    seed: int, count: int, longest: int, base: int, spread: int, compression: Compression, transactional: bool
) -> None:
    raw, chance = words(seed, count, longest), random.Random(seed)
    times = [base, *(base + chance.randint(-spread, spread) for _ in range(count - 1))]
    batch = encode_texts(texts(raw), np.array(times), compression=compression, transactional=transactional)
    assert batch == encode_batch(raw, raw, times, compression=compression, transactional=transactional)


@given(st.integers(0, 1 << 30), st.sampled_from([3, 4, 8, TEXT_BYTES_MAX]))
def test_texts_are_read_joined_and_hashed(seed: int, longest: int) -> None:
    raw, more = words(seed, 40, longest), words(seed + 1, 3)
    joined = Texts.joined([texts(raw), texts(more)])
    assert joined.tolist() == raw + more
    assert murmur2_padded(joined.words, joined.sizes).tolist() == list(map(murmur2, raw + more))
    assert joined[2:5].tolist() == raw[2:5]


@pytest.mark.parametrize("raw", [[b"a", b""], [b""], [b"a" * (TEXT_BYTES_MAX + 1), b"b"]])
def test_other_texts_are_not_read(raw: list[bytes]) -> None:
    assert read_texts(b"\0".join(raw)) is None


@pytest.mark.parametrize("times", [[-1, 5], [0, 1 << 40], [-(1 << 62), 1 << 62], [1 << 62, 0], [5, -(1 << 63)]])
def test_times_that_are_rare_are_left_to_the_general_codec(times: list[int]) -> None:
    assert encode_texts(texts([b"a", b"b"]), np.array(times)) is None


def test_too_many_texts_are_left_to_the_general_codec() -> None:
    raw = [b"a"] * ((1 << 13) + 1)
    assert encode_texts(texts(raw), np.zeros(len(raw), np.int64)) is None
    assert encode_texts(texts(raw[1:]), np.zeros(len(raw) - 1, np.int64)) is not None
