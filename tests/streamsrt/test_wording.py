"""Numbers in messages."""

from __future__ import annotations

from streamsrt.wording import counted


def test_one_is_singular_and_thousands_are_separated() -> None:
    assert [counted(number, "record") for number in (0, 1, 2, 1234567)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,234,567 records",
    ]
