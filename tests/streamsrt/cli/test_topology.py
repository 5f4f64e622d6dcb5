"""``streamsrt topology``: looking at programs, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import wordcount
from tests.streamsrt.cli.conftest import Command
from topology.describe import describe


def test_describe_prints_what_kafka_streams_prints(command: Command) -> None:
    done = command("topology", "describe", "examples.wordcount:topology")
    assert done.code == 0
    assert done.out == describe(wordcount.topology)
    assert command("topology", "describe", "examples.wordcount").out == done.out


def test_describe_as_json(command: Command) -> None:
    (row,) = command("topology", "describe", "examples.wordcount", "--json").rows
    assert row["digest"] == wordcount.topology.digest
    assert [each["number"] for each in row["subtopologies"]] == [0, 1]
    assert row["subtopologies"][1]["stores"] == ["counts"]
    assert row["subtopologies"][1]["changelog_topics"] == ["counts-changelog"]


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
