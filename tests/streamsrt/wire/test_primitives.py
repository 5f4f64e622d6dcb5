from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire.primitives import (
    ZERO_UUID,
    DecodeError,
    EncodeError,
    read_uvarint,
    uuid_from_text,
    uuid_to_text,
    write_uvarint,
)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), ((1 << 32) - 1, "ffffffff0f")],
)
def test_varints_of_known_form(value: int, data: str) -> None:
    assert write_uvarint(value).hex() == data
    assert read_uvarint(bytes.fromhex("ff" + data + "ff"), 1) == (value, 1 + len(data) // 2)


@given(st.integers(0, (1 << 32) - 1))
def test_varints_come_back(value: int) -> None:
    data = write_uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_varints_out_of_range(value: int) -> None:
    with pytest.raises(EncodeError):
        write_uvarint(value)


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffffff", "808080808001"])
def test_varints_that_are_too_large(data: str) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(bytes.fromhex(data), 0)


def test_uuids_in_text() -> None:
    assert uuid_to_text(ZERO_UUID) == "A" * 22
    # The text form of org.apache.kafka.common.Uuid, e.g. of a topic id in the recorded frames.
    assert uuid_from_text("EhBPt7DaRCqfjrhVyTMI_w").hex() == "12104fb7b0da442a9f8eb855c93308ff"


@given(st.uuids())
def test_uuids_come_back(value: uuid.UUID) -> None:
    text = uuid_to_text(value.bytes)
    assert len(text) == 22
    assert uuid_from_text(text) == value.bytes


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 21 + "+", "A" * 21 + "é", "A B" * 7 + "A"]
)
def test_text_that_is_no_uuid(text: str) -> None:
    with pytest.raises(DecodeError):
        uuid_from_text(text)


def test_a_uuid_of_another_size_has_no_text() -> None:
    with pytest.raises(EncodeError):
        uuid_to_text(b"short")
