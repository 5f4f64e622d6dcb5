"""Numbers in messages, and text from elsewhere."""

from __future__ import annotations

from streamsrt.wording import counted, printable


def test_one_is_singular_and_thousands_are_separated() -> None:
    assert [counted(number, "record") for number in (0, 1, 2, 1234567)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,234,567 records",
    ]


def test_what_a_terminal_obeys_is_escaped_and_what_people_write_is_not() -> None:
    assert printable("v\x1b[2J\x1b[H\r\nline\0") == r"v\x1b[2J\x1b[H\r\nline\x00"
    assert printable("\x9b31m\u202egnp.exe\u2028\ud800") == r"\x9b31m\u202egnp.exe\u2028\ud800"
    assert printable("two\n\tlines\r", kept="\n\t") == "two\n\tlines\\r"
    for text in ("", "Grüße, 你好", "a\xa0b", "\N{MAN}\u200d\N{PERSONAL COMPUTER}", "می\u200cخواهم"):
        assert printable(text) == text
