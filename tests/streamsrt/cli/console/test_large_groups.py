"""The page of an application with 1,000 tasks: what it costs, in both colours, on a phone, while the group is rebalanced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from tests.browser import Browser
from tests.fixtures_brokers import BundledBroker
from tests.interop.test_other_clients import require
from tests.streamsrt.cli.console.test_console import PATIENCE_S, VIEWS, ConsoleProcess, drawn
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes

APPLICATION = "large"
SOURCES = ("clicks", "orders")
PARTITIONS = 500
TASKS = PARTITIONS * len(SOURCES)
INTERACTIVE_S = 1.0
CONTRAST = 4.5
"""Of text with its ground, by WCAG 2 (AA)."""
LOWEST_CONTRAST = """(() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = numbers(color).slice(0, 3).map((each) => linear(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const box = at instanceof SVGGElement ? at.querySelector("rect") : null, style = getComputedStyle(box ?? at);
      const color = box ? style.fill : style.backgroundColor;
      if ((numbers(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let lowest = [99, ""];
  for (const each of document.querySelectorAll("body *")) {
    const hasText = [...each.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!hasText || each.closest("noscript, title")) continue;
    const style = getComputedStyle(each), below = light(ground(each));
    const own = light(each instanceof SVGElement ? style.fill : style.color);
    const found = (Math.max(own, below) + 0.05) / (Math.min(own, below) + 0.05);
    if (found < lowest[0]) lowest = [found, `${each.tagName} ${each.textContent}`];
  }
  return lowest;
})()"""


class Large(NamedTuple):
    """An application with one instance that has all tasks, and a console."""

    console: ConsoleProcess
    network: NetworkThread
    address: str
    folder: Path

    def group(self) -> dict[str, Any]:
        status, body = self.console.get(f"/api/groups/{APPLICATION}")
        return dict(body) if status == 200 else {}

    def instance(self, name: str) -> KafkaStreams:
        builder = StreamsBuilder()
        for source in SOURCES:
            builder.stream(source, key=serdes.string, value=serdes.string).foreach(lambda *_: None)
        config = {
            "application.id": APPLICATION,
            "bootstrap.servers": self.address,
            "state.dir": self.folder / name,
            "http.listen": "127.0.0.1:0",
        }
        return KafkaStreams(builder.build(), config)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Large]:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    network = NetworkThread(ClientConfig(bootstrap_servers=broker.bootstrap_servers))
    network.start()
    made = network.admin.create_topics([NewTopic(name=each, partitions=PARTITIONS) for each in SOURCES])
    assert set(made.values()) == {None}
    console = ConsoleProcess(broker.bootstrap_servers)
    try:
        yield Large(console, network, broker.bootstrap_servers, tmp_path)
    finally:
        console.stop()
        network.stop()
        broker.stop()


def runs_all(group: dict[str, Any]) -> bool:
    return sum(task["phase"] == "running" for task in group.get("tasks", ())) == TASKS


@pytest.mark.slow
@pytest.mark.system
def test_an_application_with_a_thousand_tasks(large: Large) -> None:
    require("chromium", "chromium")
    with large.instance("one"), Browser(large.folder) as page:
        wait_until(lambda: runs_all(large.group()), "all tasks run", timeout_s=PATIENCE_S, pause_s=0.5)
        before = large.console.cpu_s()
        assert len(large.group()["tasks"]) == TASKS
        assert large.console.cpu_s() - before < INTERACTIVE_S
        page.look_like(width=1200, height=800)
        before = page.worked_s()
        page.open(f"{large.console.url}#/app/{APPLICATION}/tasks")
        page.wait_for(drawn("tasks"))
        assert page.worked_s() - before < INTERACTIVE_S
        assert page.value("main.querySelectorAll('tbody tr').length") == TASKS
        _is_found_by_typing(page)
        for width, dark, phone in ((1200, True, False), (390, False, True), (390, True, True)):
            page.look_like(width=width, height=800, dark=dark, phone=phone)
            assert is_dark(page) is dark
            for view in VIEWS:
                page.value(f"location.hash = '#/app/{APPLICATION}/{view}'")
                page.wait_for(drawn(view))
                assert page.value("document.documentElement.scrollWidth") <= width, view
                lowest, text = page.value(LOWEST_CONTRAST)
                assert lowest >= CONTRAST, (view, dark, text)
        _shows_a_rebalance(page, large)


def _is_found_by_typing(page: Browser) -> None:
    """The filter is reached by the keyboard, and stays while the page is drawn anew."""
    page.ask("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
    page.ask("Input.insertText", text="_499")
    page.wait_for(f"main.querySelectorAll('tbody tr').length === {len(SOURCES)}")
    page.value("main.wasDrawnBefore = main.firstElementChild, 0")
    page.wait_for("main.firstElementChild !== main.wasDrawnBefore")
    assert page.value("document.activeElement.value") == "_499"
    page.value("document.activeElement.blur()")


def is_dark(page: Browser) -> bool:
    red = page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    return int(red) < 128


def _shows_a_rebalance(page: Browser, large: Large) -> None:
    """A second instance joins while the page is open: it is shown, and the page is the same one."""
    page.look_like(width=1200, height=800)
    page.value(f"window.isStillOpen = true; location.hash = '#/app/{APPLICATION}/members'")
    page.wait_for(drawn("members"))
    assert page.value("main.querySelectorAll('tbody tr').length") == 1
    with large.instance("two"):
        column = "[...main.querySelectorAll('th')].findIndex((each) => each.textContent === 'Active')"
        actives = f"[...main.querySelectorAll('tbody tr')].map((row) => row.cells[{column}].textContent).join()"
        page.wait_for(f"{actives} === '{PARTITIONS},{PARTITIONS}'")
        page.value(f"location.hash = '#/app/{APPLICATION}/upgrade'")
        page.wait_for(drawn("upgrade"))
        page.wait_for("main.innerText.match(/joined/g).length >= 2 && main.innerText.includes(' moves')")
        assert f"{TASKS:,} moves" in page.value("main.innerText"), "the first assignment gave all of them"
    assert page.value("window.isStillOpen") is True
