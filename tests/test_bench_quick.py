"""What the quick benchmark says of ratios; nothing is timed here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench.bench_quick import (
    NOT_RECORDED,
    PATHS,
    RECORDED,
    WORSE,
    conclusion,
    here,
    judge,
    main,
    read,
    settle,
    table,
    write,
)


@pytest.mark.parametrize(
    ("recorded", "measured", "text", "fails"),
    [
        (1.0, 1.0, "", False),
        (1.0, 1.29, "", False),
        (1.0, 1.3, WORSE, True),
        (2.0, 2.59, "", False),
        (0.5, 0.66, WORSE, True),
        (9.0, 30.0, WORSE, True),
        (1.0, 0.78, "", False),
        (1.0, 0.76, "better: record it", False),
        (None, 0.1, NOT_RECORDED, True),
    ],
)
def test_a_ratio_is_judged_by_what_is_recorded(recorded: float | None, measured: float, text: str, fails: bool) -> None:
    (verdict,) = judge({} if recorded is None else {"count": recorded}, {"count": measured}, 1.3)
    assert (verdict.text, verdict.fails) == (text, fails)


def test_only_what_was_measured_is_judged() -> None:
    verdicts = judge({"count": 1.0, "join": 1.0, "gone": 1.0}, {"join": 1.0})
    assert [each.path for each in verdicts] == ["join"]
    assert conclusion(verdicts) == ""


def test_what_seems_worse_is_measured_again() -> None:
    asked: list[Sequence[str]] = []

    def again(paths: Sequence[str]) -> dict[str, float]:
        asked.append(paths)
        return {"count": 1.1, "join": 1.6}

    verdicts = settle(
        {"count": 1.0, "join": 1.0, "map": 1.0}, {"count": 1.4, "join": 1.5, "map": 1.0, "new": 1.0}, again
    )
    assert asked == [["count", "join"]]
    assert {each.path: (each.measured, each.fails) for each in verdicts} == {
        "count": (1.1, False),
        "join": (1.5, True),
        "map": (1.0, False),
        "new": (1.0, True),
    }


def test_nothing_is_measured_again_where_all_is_well() -> None:
    def again(paths: Sequence[str]) -> dict[str, float]:
        raise AssertionError(paths)

    assert not settle({"count": 1.0}, {"count": 1.2}, again)[0].fails


def test_the_table_and_its_conclusion_name_the_paths() -> None:
    verdicts = judge({"count": 1.0, "join": 0.5}, {"count": 1.4, "join": 0.5, "map": 0.8})
    head, *rows = table(verdicts).splitlines()
    assert head.split()[-3:] == ["recorded", "now", "change"]
    assert [row.split() for row in rows] == [
        ["count", "1.00", "1.40", "1.40x", "WORSE"],
        ["join", "0.50", "0.50", "1.00x"],
        ["map", "-", "0.80", "-", "NOT", "RECORDED"],
    ]
    worse, unknown = conclusion(verdicts).splitlines()
    assert worse.startswith("count: at least 1.3 times what is recorded.")
    assert unknown.startswith("map: nothing is recorded")


def test_recording_some_paths_keeps_the_others(tmp_path: Path) -> None:
    file = tmp_path / "ratios.json"
    first, second, *_ = PATHS
    write(file, {second: 1.23456, first: 2.0})
    write(file, {first: 3.0})
    assert read(file) == (here(), {first: 3.0, second: 1.235})
    assert list(read(file)[1]) == [first, second]


def test_recording_drops_paths_that_are_gone(tmp_path: Path) -> None:
    file = tmp_path / "ratios.json"
    file.write_text(json.dumps({"recorded with": "", "ratios": {"gone": 1.0}}))
    first = next(iter(PATHS))
    write(file, {first: 3.0})
    assert read(file)[1] == {first: 3.0}


def test_nothing_is_recorded_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert read(tmp_path / "ratios.json") == ("", {})


def test_every_path_is_recorded_and_no_other() -> None:
    """Record a new one: make bench-quick BENCH=--write."""
    assert list(read(RECORDED)[1]) == list(PATHS)


def test_an_unknown_path_is_told_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench_quick", "cuont"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "no such path: cuont; there are decode a batch" in capsys.readouterr().err
