"""``streamsrt topology``: looking at programs, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import wordcount
from tests.streamsrt.cli.conftest import Command


def test_describe_prints_what_kafka_streams_prints(command: Command) -> None:
    done = command("topology", "describe", "examples.wordcount:topology")
    assert done.code == 0
    assert done.out == wordcount.topology.describe()
    assert command("topology", "describe", "examples.wordcount").out == done.out


def test_describe_as_json(command: Command) -> None:
    (row,) = command("topology", "describe", "examples.wordcount", "--json").rows
    assert row["digest"] == wordcount.topology.digest
    assert [each["number"] for each in row["subtopologies"]] == [0, 1]
    assert row["subtopologies"][1]["stores"] == ["counts"]
    assert row["subtopologies"][0]["source_topics"] == ["lines"]


def test_graph_is_a_mermaid_diagram(command: Command) -> None:
    out = command("topology", "graph", "examples.wordcount").out
    assert out.startswith(("flowchart", "graph"))
    assert "KSTREAM-AGGREGATE-0000000003" in out


def test_a_function_may_build_it(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from topology import StreamsBuilder\ndef make():\n    b = StreamsBuilder()\n    b.stream('in').to('out')\n"
    )
    (tmp_path / "made_by_a_function.py").write_text(source + "    return b.build()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert "topics: [in]" in command("topology", "describe", "made_by_a_function:make").out


def test_a_module_that_is_not_there(command: Command) -> None:
    done = command("topology", "describe", "no.such.module")
    assert done.code == 2
    assert "there is no module 'no.such.module'" in done.err


def test_diff_of_the_same_program(command: Command) -> None:
    done = command("topology", "diff", "examples.flights", "examples.flights")
    assert (done.code, done.out) == (0, "the same topology: epoch 0 stays\n")


def test_diff_says_what_is_carried_over_and_which_epoch_is_needed(command: Command) -> None:
    done = command("topology", "diff", "examples.flights", "examples.flights_v2")
    assert done.code == 11
    lines = [line.split() for line in done.out.splitlines()]
    assert ["store", "airlines", "carried", "over"] in lines
    assert ["store", "delays-per-hour", "carried", "over"] in lines
    assert ["store", "weather-per-day", "rebuilt"] in lines
    assert "\nstore weather-per-day: new: it starts empty" in done.out
    assert done.out.endswith("run the new version with topology.epoch=1\n")


def test_reasons_stand_below_a_table_that_fits_into_a_terminal(command: Command) -> None:
    versions = ("examples.flights", "examples.flights_v2")
    (found,) = command("topology", "diff", *versions, "--json").rows
    lines = command("topology", "diff", *versions).out.splitlines()
    rows = 1 + sum(len(found[each]) for each in ("subtopologies", "sources", "state"))
    assert max(map(len, lines[:rows])) <= 80
    below = lines[rows:]
    for each in found["state"]:
        assert each["reason"] == "" or f"{each['kind']} {each['name']}: {each['reason']}" in below


def test_diff_against_what_was_described_earlier(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(command("topology", "describe", "examples.flights", "--json").out, encoding="utf-8")
    assert command("topology", "diff", path, "examples.flights").code == 0
    (found,) = command("topology", "diff", path, "examples.wordcount", "--json").rows
    assert found["verdict"] == "REBUILT_OR_ORPHANED"
    assert {row["name"]: row["fate"] for row in found["state"]} == {
        "airlines": "orphaned",
        "delays-per-hour": "orphaned",
        "counts": "rebuilt",
        "counts-repartition": "rebuilt",
    }


def test_diff_against_a_file_that_is_something_else(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text("[]", encoding="utf-8")
    done = command("topology", "diff", path, "examples.flights")
    assert done.code == 2
    assert "make one with `streamsrt topology describe APPLICATION --json`" in done.err
