"""What a notebook shows of a topology."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

SVG = "{http://www.w3.org/2000/svg}"


def drawn(topology: Topology) -> dict[str, tuple[int, int]]:
    """Where the boxes are, by their titles."""
    picture = ElementTree.fromstring(topology._repr_svg_())
    width, height = int(picture.attrib["width"]), int(picture.attrib["height"])
    found: dict[str, tuple[int, int]] = {}
    for group in picture.iter(f"{SVG}g"):
        rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        assert rect is not None
        assert title is not None
        assert title.text
        x, y = int(rect.attrib["x"]), int(rect.attrib["y"])
        assert x + int(rect.attrib["width"]) <= width
        assert y + int(rect.attrib["height"]) <= height
        found[title.text] = (x, y)
    assert len(set(found.values())) == len(found)
    return found


def test_topics_and_subtopologies_stand_in_the_order_of_the_data() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines", key=serdes.string, value=serdes.string).flat_map_values(str.split, name="split")
    counts = words.group_by(lambda _, word: word, name="by-word").count(store="counts")
    rules = builder.table("rules", key=serdes.string, value=serdes.string, store="rules")
    counts.join(rules, lambda count, _: count, name="ruled").to_stream().to("results", value=serdes.long)
    topology = builder.build()
    boxes = drawn(topology)
    columns = {title.partition("\n")[0]: x for title, (x, _) in boxes.items()}
    first, second = (f"subtopology {part.id}" for part in topology.subtopologies)
    order = ["lines", first, "by-word-repartition", second, "results"]
    assert sorted(columns, key=columns.__getitem__) in (
        [*order[:3], "rules", *order[3:]],
        [*order[:2], "rules", *order[2:]],
    )
    assert columns["rules"] == columns["by-word-repartition"]
    (title,) = (title for title in boxes if title.startswith(second))
    assert "▤ counts" in title.splitlines()
    assert "ruled" in title


def test_an_edge_that_closes_a_circle_leads_back() -> None:
    builder = StreamsBuilder()
    tries = builder.stream("tries", key=serdes.string, value=serdes.string)
    tries.filter(lambda _, value: value == "again").to("tries")
    boxes = drawn(builder.build())
    assert next(iter(boxes)) == "tries"
    assert len(boxes) == 2


def test_a_pattern_may_have_any_letters() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a&b<.*")).foreach(lambda *_: None)
    assert "a&b<.*" in drawn(builder.build())


def test_a_topology_without_anything_is_drawn_too() -> None:
    assert drawn(Topology(subtopologies=(), digest="")) == {}
