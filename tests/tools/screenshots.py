"""The pictures of the console in docs/console: ``python -m tests.tools.screenshots [FOLDER]`` takes them.

It runs what they show: a bundled broker, two applications, an upgrade of one of them, orders of which some fail, a console,
Chromium. Whoever takes them looks at each of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.browser import Browser
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.console.test_console import ConsoleProcess, drawn
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "console"
WIDTH, PHONE_WIDTH, HEIGHT_MAX = 1100, 390, 640
PATIENCE_S = 120.0
PARTITIONS = 4
LETTERS = "orders-dlq"
TOPICS = ("orders", "customers", "totals", "large-orders", "clicks", LETTERS)
CUSTOMERS = ("ada", "ben", "chloe", "dev", "emre", "fay", "gus", "hana")
TURN_S = 0.25
ORDERS_PER_TURN = 40
POISON_EVERY = 97


@dataclass(frozen=True)
class Picture:
    """One of them. ``at``: where in the console; ``before``: what is done in the page first; ``until``: what it shows."""

    name: str
    at: str
    until: str
    before: str = ""
    dark: bool = False
    phone: bool = False


def _view(view: str, until: str, *, name: str = "", **how: Any) -> Picture:
    return Picture(name or view, f"#/app/shop/{view}", f"{drawn(view)} && {until}", **how)


_LOOK_UP = """document.querySelector('select').value = 'totals';
document.getElementById('key').value = 'ada';
document.querySelector('form button').click();"""
_HAS_RATES = "main.innerHTML.includes('/s<')"
PICTURES = (
    Picture("applications", "#/", "main.querySelectorAll('tbody tr').length === 2 && !main.innerText.includes('–')"),
    _view("topology", _HAS_RATES),
    _view("topology", _HAS_RATES, name="topology-dark", dark=True),
    _view("tasks", "main.innerText.includes('processed')"),
    _view("members", "main.querySelector('tbody')"),
    _view("topics", "[...main.querySelectorAll('td:last-child')].some((each) => /[1-9]/.test(each.textContent))"),
    _view("stores", "document.getElementById('found').textContent.includes('ada')", before=_LOOK_UP),
    _view("upgrade", "main.querySelectorAll('tbody').length > 1"),
    _view("instances", "main.querySelector('tbody')"),
    Picture("dead-letters", f"#/letters/{LETTERS}", "main.querySelectorAll('tbody').length === 2"),
    _view("tasks", "main.innerText.includes('processed')", name="phone", phone=True),
    _view(
        "topology",
        "main.innerText.includes('/s')",
        before="document.querySelector('svg.graph').scrollIntoView()",
        name="topology-phone",
        phone=True,
    ),
)


def shop(*, version: int) -> Topology:
    """Orders are joined with their customers and added up. The second version also tells large orders."""
    builder = StreamsBuilder()
    customers = builder.table("customers", key=serdes.string, value=serdes.json, store="customers")
    orders = builder.stream("orders", key=serdes.string, value=serdes.json)
    amounts = orders.map_values(lambda order: {**order, "amount": int(order["amount"])}, name="amount")
    by_customer = amounts.select_key(lambda _, order: order["customer"], name="by-customer")
    known = by_customer.join(customers, lambda order, customer: {**order, "city": customer["city"]}, name="with-city")
    totals = known.map_values(lambda order: order["amount"]).group_by_key(value=serdes.long)
    totals.reduce(lambda a, b: a + b, store="totals").to_stream().to("totals", key=serdes.string, value=serdes.long)
    if version > 0:
        known.filter(lambda _, order: order["amount"] > 90).to("large-orders", key=serdes.string, value=serdes.json)
    return builder.build()


def audit() -> Topology:
    builder = StreamsBuilder()
    builder.stream("clicks", key=serdes.string, value=serdes.string).group_by_key().count(store="clicks-by-page")
    return builder.build()


class Scene:
    """A cluster with applications that have something to do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = BundledBroker(folder / "broker")
        self._broker.start()
        self.address = self._broker.bootstrap_servers
        self._network = NetworkThread(ClientConfig(bootstrap_servers=self.address))
        self._network.start()
        self._network.admin.create_topics([NewTopic(name=each, partitions=PARTITIONS) for each in TOPICS])
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write)

    def close(self) -> None:
        self._ended.set()
        self._writer.join()
        self._network.stop()
        self._broker.stop()

    def instance(self, topology: Topology, application: str, name: str, **settings: Any) -> KafkaStreams:
        config = {
            "application.id": application,
            "bootstrap.servers": self.address,
            "state.dir": self._folder / name,
            "group.instance.id": name,
            "http.listen": "127.0.0.1:0",
            "commit.interval.ms": 500,
            "processing.exception.handler": "continue",
            "errors.dead.letter.queue.topic.name": LETTERS,
            **settings,
        }
        return KafkaStreams(topology, config)

    def begin_to_write(self) -> None:
        self._writer.start()

    def _write(self) -> None:
        collector = RecordCollector(self._network.producer.send, lambda _: PARTITIONS)
        cities = [json.dumps({"city": city}).encode() for city in ("Oslo", "Porto") * 4]
        _add(collector, "customers", [name.encode() for name in CUSTOMERS], cities)
        count = 0
        while not self._ended.wait(TURN_S):
            numbers = range(count, count + ORDERS_PER_TURN)
            _add(collector, "orders", [f"order-{number}".encode() for number in numbers], [*map(_order, numbers)])
            _add(collector, "clicks", [b"/", b"/basket"], [b"x", b"x"])
            collector.flush()
            count += ORDERS_PER_TURN


def _add(collector: RecordCollector, topic: str, keys: list[bytes], values: list[bytes]) -> None:
    collector.add(topic, keys, values, [time.time_ns() // 1_000_000] * len(keys))


def _order(number: int) -> bytes:
    order: dict[str, object] = {"customer": CUSTOMERS[number % len(CUSTOMERS)], "amount": str(number % 100)}
    if number % POISON_EVERY == 5:
        order["amount"] = "12,50"
    elif number % POISON_EVERY == 50:
        del order["amount"]
    return json.dumps(order).encode()


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """A console that shows it all: its address."""
    with ExitStack() as stack:
        scene = Scene(folder)
        stack.callback(scene.close)
        scene.begin_to_write()
        for name in ("shop-1", "shop-2"):
            stack.enter_context(scene.instance(shop(version=0), "shop", name))
        stack.enter_context(scene.instance(audit(), "audit", "audit-1"))
        console = ConsoleProcess(scene.address, "--dead-letters", LETTERS)
        stack.callback(console.stop)

        def has_members(count: int) -> bool:
            _, group = console.get("/api/groups/shop")
            return len(group.get("members", ())) == count and all(each["phase"] for each in group["tasks"])

        wait_until(lambda: has_members(2), "both instances run", timeout_s=PATIENCE_S, pause_s=0.5)
        newer = scene.instance(shop(version=1), "shop", "shop-3", **{"topology.epoch": 1})
        stack.enter_context(newer)
        wait_until(lambda: has_members(3), "the new version runs", timeout_s=PATIENCE_S, pause_s=0.5)
        yield console.url


def take(page: Browser, url: str, picture: Picture) -> bytes:
    """One picture, as high as the page is."""
    width = PHONE_WIDTH if picture.phone else WIDTH
    page.look_like(width=width, height=HEIGHT_MAX, dark=picture.dark, phone=picture.phone)
    page.open("about:blank")
    page.open(f"{url}{picture.at}")
    page.wait_for(f"main.ariaBusy === 'false' && ({picture.until.partition(' && ')[0]})")
    if picture.before:
        page.value(f"{{ {picture.before}; 0 }}")
    page.wait_for(picture.until)
    bottom = (
        "Math.max(...[...document.querySelectorAll('main, footer')].map((each) => each.getBoundingClientRect().bottom))"
    )
    height = min(HEIGHT_MAX, int(page.value(bottom)))
    page.look_like(width=width, height=height, dark=picture.dark, phone=picture.phone)
    return page.picture()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as url, Browser(Path(scratch)) as page:
        for picture in PICTURES:
            (folder / f"{picture.name}.png").write_bytes(take(page, url, picture))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
