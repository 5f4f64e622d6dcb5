from __future__ import annotations

import re

import pytest

from topology import Store, StreamsBuilder, serdes


def test_a_pattern_and_a_chosen_topic() -> None:
    builder = StreamsBuilder()

    def choose(key: object, value: object, context: object) -> str:
        return "x"

    builder.stream(re.compile("in-.*")).to(choose)
    text = builder.build().describe()
    assert "(topics: in-.*)" in text
    assert "choose)" in text


@pytest.fixture
def drawing() -> str:
    builder = StreamsBuilder()
    table = builder.table("names", key=serdes.string, value=serdes.string, store="names-store")
    stream = builder.stream("orders", key=serdes.string, value=serdes.string)
    stream.group_by(max).count(store=Store("counts"))
    stream.join(table, max).to("joined", value=serdes.string)
    stream.to(lambda key, value, context: "any")
    return builder.build().mermaid()


def test_mermaid_declares_what_it_connects(drawing: str) -> None:
    assert drawing.startswith("flowchart TD\n")
    lines = [line.strip() for line in drawing.splitlines()]
    declared = {match[1] for line in lines if (match := re.match(r"(\w+)[\[(]", line))}
    connected = {
        name for line in lines if (match := re.match(r"(\w+) (?:-->|-\.-) (\w+)$", line)) for name in match.groups()
    }
    assert connected == declared - {"subgraph"}
    assert sum(line.startswith("subgraph") for line in lines) == sum(line == "end" for line in lines) == 2


def test_mermaid_shows_topics_stores_and_subtopologies(drawing: str) -> None:
    for label in ("orders", "names", "joined", "counts-repartition", "(chosen by record)", "counts", "names-store"):
        assert f'"{label}"' in drawing
    (source,) = re.findall(r'(topic\d+)\[/"counts-repartition"/\]', drawing)
    assert len(re.findall(rf"--> {source}\b", drawing)) == len(re.findall(rf"  {source} -->", drawing)) == 1


def test_mermaid_shows_patterns_as_they_are() -> None:
    builder = StreamsBuilder()
    pattern = r'"a"|<b>&#34;|\w+`'
    builder.stream(re.compile(pattern), key=serdes.string, value=serdes.string).foreach(max)
    (shown,) = re.findall(r'topic0\[/"([^"<>]*)"/\]', builder.build().mermaid())
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), shown) == pattern


def test_dot_connects_what_it_declares_and_tells_digests() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
    topology = builder.build()
    drawing = topology.dot()
    declared = set(re.findall(r'^ +"([^"]+)" \[', drawing, re.MULTILINE))
    connected = {name for pair in re.findall(r'"([^"]+)" -> "([^"]+)"', drawing) for name in pair}
    assert connected == declared
    assert {"topic in", "topic out", "store counts"} <= declared
    assert f'tooltip="{topology.digest}"' in drawing
    assert f'tooltip="{topology.subtopologies[0].digest}"' in drawing
    assert drawing.startswith("digraph topology {")
    assert drawing.count("{") == drawing.count("}")
