"""The drawing of a topology, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from streamsrt.cli.console.group_view import PartView
from streamsrt.cli.console.instances import Json
from streamsrt.http.server import HttpServer, bound_socket
from tests.browser import Browser
from tests.interop.test_other_clients import require
from tests.streamsrt.cli.console.test_site import site

PHONE_WIDTH = 358
# Points of an arrow that lie in a box which it neither leaves nor reaches.
CROSSINGS = """import('/graph.js').then(({ drawGraph }) => {
  document.body.replaceChildren(drawGraph(%s, %s, (rate) => `${rate}/s`, %s));
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
           outside: [...svg.querySelectorAll('g > text')].filter((each) => {
             const box = each.parentNode.querySelector('rect').getBoundingClientRect(), text = each.getBoundingClientRect();
             return text.right > box.right || text.bottom > box.bottom;
           }).map((each) => each.textContent),
           names: [...svg.querySelectorAll('g')].map((each) =>
             [...each.querySelectorAll('text.title')].map((line) => line.textContent).join('')),
           stores: [...svg.querySelectorAll('g')].map((each) =>
             [...each.querySelectorAll('text.stored')].map((line) => line.textContent).join('')),
           width: svg.getBoundingClientRect().width, wider: document.documentElement.scrollWidth - innerWidth,
           titles: [...svg.querySelectorAll('g > text:first-of-type')].map((each) => each.textContent),
           said: [...svg.querySelectorAll('.said')].map((each) => each.textContent) };
})"""


def part(name: str, sources: str, sinks: str = "") -> PartView:
    return PartView(id=name, sources=tuple(sources.split()), patterns=(), sinks=tuple(sinks.split()), stores=("s",) * 3)


def drawn(page: Browser, parts: list[PartView], topics: Sequence[Json] = (), *, narrow: int | None = None) -> Json:
    values = (json.dumps(value) for value in ([asdict(each) for each in parts], topics, narrow))
    return dict(page.value(CROSSINGS % tuple(values)))


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
    found = drawn(page, parts, topics)
    assert found["inside"] == 0
    assert found["arrows"] == 12
    assert found["said"] == ["7/s", "7/s"]
    columns = {title: box["x"] for title, box in zip(found["titles"], found["boxes"], strict=True)}
    assert columns["customers"] == columns["third"], "what nothing leads to is beside its reader"
    assert len(columns) == 11
    assert columns["orders"] == 0


@pytest.mark.slow
def test_a_circle_is_drawn(page: Browser) -> None:
    found = drawn(page, [part("a", "in", "in")])
    assert (found["arrows"], found["inside"], sorted(found["titles"])) == (2, 0, ["in", "subtopology a"])


@pytest.mark.slow
def test_a_circle_goes_behind_no_box(page: Browser) -> None:
    parts = [
        part("a", "orders answers", "asked totals"),
        part("b", "asked", "checked"),
        part("c", "checked customers", "answers asked"),
        part("d", "totals", "out"),
    ]
    found = drawn(page, parts, [{"topic": "asked", "partitions": 4, "lag": 5, "records_per_second": 7}])
    assert (found["arrows"], found["inside"]) == (12, 0)
    assert all(box["x"] > 0 and box["right"] < found["width"] for box in found["boxes"])
    assert found["said"] == ["7/s"]


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [None, PHONE_WIDTH])
def test_names_are_whole_and_stay_in_their_boxes(page: Browser, narrow: int | None) -> None:
    names = [
        f"a-shop-with-a-long-name-KSTREAM-AGGREGATE-STATE-STORE-000000000{number}-repartition" for number in (3, 8)
    ]
    unbroken = "W" * 120
    parts = [
        part("7e2860af", "orders", " ".join(names)),
        replace(part("951c3fed", " ".join(names), unbroken), stores=("totals-of-each-customer-in-each-country",)),
    ]
    found = drawn(page, parts, narrow=narrow)
    assert set(found["names"]) >= {*names, unbroken}
    assert "▤ totals-of-each-customer-in-each-country" in found["stores"]
    assert found["outside"] == []


@pytest.mark.slow
def test_on_a_phone_boxes_are_below_one_another_and_nothing_is_cut_off(page: Browser) -> None:
    page.look_like(width=390, height=800, phone=True)
    parts = [
        part("a", "orders", "first second"),
        part("b", "first", "third"),
        part("c", "second third customers", "out orders"),
        part("d", "orders out", "totals"),
    ]
    topics = [{"topic": "orders", "partitions": 4, "lag": 5, "records_per_second": 7}]
    found = drawn(page, parts, topics, narrow=PHONE_WIDTH)
    assert (found["width"], found["wider"], found["inside"], found["arrows"]) == (PHONE_WIDTH, 0, 0, 13)
    boxes = found["boxes"]
    assert all(above["bottom"] < below["y"] for above, below in pairwise(sorted(boxes, key=lambda box: box["y"])))
    assert all(box["x"] > 0 and box["right"] < PHONE_WIDTH for box in boxes)
    assert page.value("document.body.innerHTML.includes('4 partitions, lag 5, 7/s')")


@pytest.mark.slow
def test_topics_that_records_choose_are_drawn_as_such(page: Browser) -> None:
    found = drawn(page, [replace(part("a", "orders", "totals"), chosen_sinks=True)])
    assert "(chosen by the record)" in found["titles"]
    assert found["arrows"] == 3
