"""Numbers and addresses in messages, and text from elsewhere."""

from __future__ import annotations

import pytest

from streamsrt.wording import address_text, counted, error_text, host_and_port, printable


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


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("shop-0.shop:8080", "shop-0.shop", 8080, "shop-0.shop:8080"),
        ("[::1]:8080", "::1", 8080, "[::1]:8080"),
        ("::1:8080", "::1", 8080, "[::1]:8080"),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"),
    ],
)
def test_addresses_are_read_with_and_without_brackets(text: str, host: str, port: int, shown: str) -> None:
    assert host_and_port(text) == (host, port)
    assert address_text(host, port) == shown


@pytest.mark.parametrize("text", ["", "shop", ":80", "[]:80", "shop:", "shop:http", "shop:-1", "shop:\u0661"])
def test_other_texts_are_no_addresses(text: str) -> None:
    assert host_and_port(text) is None


def test_an_error_may_refuse_to_be_text() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(ValueError("bad")) == "ValueError: bad"
    assert error_text(MuteError()) == "MuteError: <exception str() failed>"
