"""What records have in them is shown, not obeyed, whichever way it is printed."""

from __future__ import annotations

import json

import pytest

from streamsrt.cli.output import note, print_fields, print_json, print_reasons, print_rows, said_if_interrupted
from streamsrt.cli.run import _StandardError

POISON = "v\x1b[2J\x1b[H\r\nstate: replayed\0\x9b31m"
SHOWN = r"v\x1b[2J\x1b[H\r\nstate: replayed\x00\x9b31m"


def test_a_table_has_a_row_on_a_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"key": "k", "value": POISON}, {"key": "[red]k", "value": "[/] ['a'] [/b]"}]
    print_rows(["key", "value"], rows, as_json=False)
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [(key, value.rstrip()) for key, value in lines] == [
        ("KEY", "VALUE"),
        ("k", SHOWN),
        ("[red]k", "[/] ['a'] [/b]"),
    ]


def test_a_row_is_as_long_as_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(
        ["member", "tasks"], [{"member": "a", "tasks": "x" * 900}, {"member": "b", "tasks": None}], as_json=False
    )
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [13, 908, 9]


def test_no_line_of_a_value_looks_like_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"value": POISON, "stack_trace": "Traceback\n  File\n\nerror\n", "state": "waiting", "line": ""})
    assert capsys.readouterr().out == (
        "value:\n    v\\x1b[2J\\x1b[H\n    state: replayed\\x00\\x9b31m\n"
        "stack_trace:\n    Traceback\n      File\n\n    error\n"
        "state: waiting\nline: \n\n"
    )


def test_json_is_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"value": f"{POISON}\u202eü\N{GRINNING FACE}\U000e0001"}
    print_json(row)
    said = capsys.readouterr().out
    assert said.removesuffix("\n").isprintable()
    assert json.loads(said) == row
    assert "ü\N{GRINNING FACE}" in said


def test_json_has_what_orjson_does_not_write(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"value": {"wei": 2**70, "half": "\ud83d"}}
    print_json(row)
    assert json.loads(capsys.readouterr().out) == row


def test_notes_reasons_and_the_log_keep_their_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    note("one\ntwo\x1b[2J")
    _StandardError().write("a warning\x1b[2J\n")
    assert capsys.readouterr().err == "one\ntwo\\x1b[2J\na warning\\x1b[2J\n"
    print_reasons([{"what": "topic", "name": "t\x1b[2J", "why": "because"}])
    assert capsys.readouterr().out == "topic t\\x1b[2J: because\n"


def test_ctrl_c_says_what_it_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), said_if_interrupted("resume goes on"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "interrupted: resume goes on\n"
    with said_if_interrupted("resume goes on"):
        pass
    assert capsys.readouterr().err == ""
