"""The drawing of a topology, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.cli.console.group_view import PartView
from streamsrt.http.server import HttpServer, bound_socket
from tests.browser import Browser
from tests.interop.test_other_clients import require
from tests.streamsrt.cli.console.test_site import site

# Points of an arrow that lie in a box which it neither leaves nor reaches.
CROSSINGS = """import('/graph.js').then(({ drawGraph }) => {
  document.body.replaceChildren(drawGraph(%s, %s, (rate) => `${rate}/s`));
  const svg = document.querySelector('svg');
  const boxes = [...svg.querySelectorAll('g')].map((each) => {
    const [x, y] = each.getAttribute('transform').match(/[\\d.]+/g).map(Number), rect = each.querySelector('rect');
    return { x, y, right: x + Number(rect.getAttribute('width')), bottom: y + Number(rect.getAttribute('height')) };
  });
  let inside = 0;
  for (const path of svg.querySelectorAll(':scope > path')) {
    for (let at = 0; at <= path.getTotalLength(); at += 2) {
      const point = path.getPointAtLength(at);
      const isIn = (box) => point.x > box.x + 1 && point.x < box.right - 1 && point.y > box.y && point.y < box.bottom;
      inside += boxes.some(isIn);
    }
  }
  return { inside, arrows: svg.querySelectorAll(':scope > path').length, boxes,
           titles: [...svg.querySelectorAll('g > text:first-of-type')].map((each) => each.textContent),
           said: [...svg.querySelectorAll('.said')].map((each) => each.textContent) };
})"""


def part(name: str, sources: str, sinks: str = "") -> PartView:
    return PartView(id=name, sources=tuple(sources.split()), patterns=(), sinks=tuple(sinks.split()), stores=("s",) * 3)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Browser]:
    require("chromium", "chromium")
    with bound_socket("127.0.0.1:0") as listening, Browser(tmp_path) as browser:
        server = HttpServer(site().application(), listening)
        browser.open(f"http://127.0.0.1:{listening.getsockname()[1]}/console.css")
        yield browser
        server.stop()


@pytest.mark.slow
def test_arrows_go_behind_no_box(page: Browser) -> None:
    parts = [
        part("a", "orders", "first second"),
        part("b", "first", "third"),
        part("c", "second third customers", "out"),
        part("d", "orders out", "totals"),
    ]
    topics = [{"topic": "orders", "partitions": 4, "lag": 5, "records_per_second": 7}]
    said = [{name: getattr(each, name) for name in each.__slots__} for each in parts]
    found = page.value(CROSSINGS % (json.dumps(said), json.dumps(topics)))
    assert found["inside"] == 0
    assert found["arrows"] == 12
    assert found["said"] == ["7/s", "7/s"]
    columns = {title: box["x"] for title, box in zip(found["titles"], found["boxes"], strict=True)}
    assert columns["customers"] == columns["third"], "what nothing leads to is beside its reader"
    assert len(columns) == 11
    assert columns["orders"] == 0


@pytest.mark.slow
def test_a_circle_is_drawn(page: Browser) -> None:
    said = [{"id": "a", "sources": ["in"], "patterns": [], "sinks": ["in"], "stores": [], "nodes": []}]
    found = page.value(CROSSINGS % (json.dumps(said), "[]"))
    assert (found["arrows"], sorted(found["titles"])) == (2, ["in", "subtopology a"])
