"""The command beside an application that runs, on both brokers; and its page in a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.cli.console.snapshots import FRESH_S, NOTHING_LEFT_FRESH_S, REACHED_WITHIN_S, Snapshots
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import CallAbandonedError, ClientConfig
from streamsrt.errors import BrokerError
from tests.browser import Browser
from tests.fixtures_brokers import BundledBroker
from tests.interop.test_other_clients import require
from tests.streamsrt.cli.conftest import Command
from tests.streamsrt.queries.test_application import KEYS, PARTITIONS, Scene
from tests.system.processes import ROOT, environment, wait_until
from topology import StreamsBuilder, serdes

PATIENCE_S = 60.0
PENDING = "'td[data-title=\"Pending calls\"]'"
VIEWS = ("topology", "tasks", "members", "topics", "stores", "upgrade", "instances")


class ConsoleProcess:
    """``streamsrt console`` on a free port."""

    def __init__(self, address: str, *options: str, stderr: int | IO[bytes] = subprocess.DEVNULL) -> None:
        command = [sys.executable, "-m", "streamsrt", "console", "-b", address, "--http", "127.0.0.1:0", *options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT, env=environment(ROOT)
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def get(self, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def cpu_s(self) -> float:
        """What the process has worked so far."""
        told = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        with self._process:
            self._process.terminate()
            return self._process.wait(PATIENCE_S)


class Shown(NamedTuple):
    """An application that has counted, and a console that shows it."""

    console: ConsoleProcess
    scene: Scene
    streams: KafkaStreams

    def group(self) -> dict[str, Any]:
        status, body = self.console.get(f"/api/groups/{self.scene.application_id}")
        return dict(body) if status == 200 else {}


@pytest.fixture
def shown(bootstrap_servers: str, tmp_path: Path) -> Iterator[Shown]:
    yield from showing(bootstrap_servers, tmp_path)


@pytest.fixture
def shown_on_bundled(bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[Shown]:
    yield from showing(bundled_broker.bootstrap_servers, tmp_path)


def showing(address: str, folder: Path) -> Iterator[Shown]:
    network = NetworkThread(ClientConfig(bootstrap_servers=address))
    network.start()
    scene = Scene(address, network, folder)
    scene.write(KEYS)
    console = ConsoleProcess(address, scene.application_id)
    try:
        with scene.instance("one", http_listen="127.0.0.1:0") as streams:
            found = Shown(console, scene, streams)
            wait_until(lambda: all_is_counted(found.group()), "the page has it all", timeout_s=PATIENCE_S, pause_s=0.5)
            yield found
        assert console.stop() == 0
    finally:
        console.stop()
        network.stop()


def all_is_counted(group: dict[str, Any]) -> bool:
    running = [task for task in group.get("tasks", ()) if task["phase"] == "running"]
    return len(running) == PARTITIONS and group["topics"][0]["lag"] == 0


@pytest.mark.slow
def test_an_application_is_shown_with_what_its_instance_tells(shown: Shown) -> None:
    name, source = shown.scene.application_id, shown.scene.source
    status, listed = shown.console.get("/api/groups")
    assert status == 200
    assert [row["group"] for row in listed["groups"]] == [name]
    group = shown.group()
    assert (group["group"], group["topology_epoch"], group["phase"]) == (name, 0, "one version")
    assert sum(task["counters"]["processed"] for task in group["tasks"]) == len(KEYS)
    (member,) = group["members"]
    assert member["endpoint"] == shown.streams.config.application_server
    (part,) = group["parts"]
    assert (part["sources"], part["stores"]) == ([source], ["counts"])
    assert [topic["topic"] for topic in group["topics"]] == [source]
    assert [store["name"] for store in group["stores"]] == ["counts"]

    status, found = shown.console.get(f"/api/groups/{name}/stores/counts/keys/{KEYS[0]}")
    assert (status, found["answer"]["value"]) == (200, 1)
    status, found = shown.console.get(f"/api/groups/{name}/stores/counts/keys/nobody")
    assert (status, found["instance_status"], found["answer"]["error"]) == (200, 404, "KeyNotFound")
    status, found = shown.console.get(f"/api/groups/{name}/stores/missing/keys/a")
    assert (status, found["message"]) == (404, "there is no store 'missing'; the stores are: counts")
    status, found = shown.console.get("/api/groups/another")
    assert status == 404


@pytest.mark.slow
def test_a_look_describes_the_group_once(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    network = NetworkThread(ClientConfig(bootstrap_servers=shown.scene.address))
    network.start()
    admin = network.admin
    for name in ("describe_streams_groups", "describe_classic_groups"):
        ask = getattr(admin, name)
        monkeypatch.setattr(admin, name, lambda names, ask=ask: asked.append(names) or ask(names))
    name = shown.scene.application_id
    snapshots = Snapshots(network, bootstrap_servers=shown.scene.address, groups=[name])
    try:
        assert [task["lag"] for task in snapshots.group(name)["tasks"]] == [0] * PARTITIONS
        assert asked == [[name]]
        assert [row["lag"] for row in snapshots.overview()["groups"]] == [0]
        assert asked == [[name], [name]]
    finally:
        network.stop()


@pytest.mark.slow
def test_a_look_reads_committed_offsets_once_and_what_is_left_only_when_needed(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    network = NetworkThread(ClientConfig(bootstrap_servers=shown.scene.address))
    network.start()
    for name in ("committed", "list_groups"):
        ask = getattr(network.admin, name)
        monkeypatch.setattr(network.admin, name, lambda *words, name=name, ask=ask: asked.update([name]) or ask(*words))
    group, now_s = shown.scene.application_id, 0.0
    snapshots = Snapshots(network, bootstrap_servers=shown.scene.address, groups=[group], clock=lambda: now_s)
    try:
        snapshots.group(group)
        assert asked == {"committed": 1, "list_groups": 2}, "who else has repartition topics is asked once more"
        for _ in range(3):
            now_s += FRESH_S
            snapshots.group(group)
        assert asked == {"committed": 4, "list_groups": 5}
        now_s += NOTHING_LEFT_FRESH_S
        snapshots.group(group)
        assert asked == {"committed": 5, "list_groups": 7}
    finally:
        network.stop()


@pytest.mark.slow
@pytest.mark.system
def test_every_view_is_drawn_in_a_browser(shown_on_bundled: Shown, tmp_path: Path) -> None:
    require("chromium", "chromium")
    name, source = shown_on_bundled.scene.application_id, shown_on_bundled.scene.source
    task = shown_on_bundled.group()["tasks"][0]["task"]
    expected = dict.fromkeys(VIEWS, "")
    expected |= {"topology": "▤ counts", "tasks": task, "members": "streamsrt-", "topics": source}
    expected |= {"stores": "Look up", "upgrade": "joined", "instances": "RUNNING"}
    with Browser(tmp_path) as page:
        for view, text in expected.items():
            page.open(f"{shown_on_bundled.console.url}#/app/{name}/{view}")
            page.wait_for(drawn(view))
            assert text in page.value("main.innerText"), view
            assert page.value("document.getElementById('crumbs').innerText") == name
        page.open(shown_on_bundled.console.url)
        link = f"document.querySelector('main a[href=\"#/app/{name}/topology\"]')"
        page.wait_for(link)
        # The list is drawn anew, and the keyboard stays on the link.
        page.value(f"{link}.wasFirst = true, {link}.focus()")
        page.wait_for(f"!{link}.wasFirst")
        assert page.value(f"document.activeElement === {link}")


@pytest.mark.slow
@pytest.mark.system
def test_tables_fit_on_a_phone_and_hints_are_of_keys_that_do_something(shown_on_bundled: Shown, tmp_path: Path) -> None:
    require("chromium", "chromium")
    name, url = shown_on_bundled.scene.application_id, shown_on_bundled.console.url
    hints = "document.querySelector('footer').innerText"
    with Browser(tmp_path) as page:
        page.look_like(width=1200, height=800)
        page.open(f"{url}#/")
        page.wait_for("main.querySelector('tbody')")
        assert page.value(hints) == "Keys: / filter, g all applications, p pause"
        for view in VIEWS:
            page.look_like(width=1200, height=800)
            page.open(f"{url}#/app/{name}/{view}")
            page.wait_for(drawn(view))
            filters = "/ filter, " if page.value("Boolean(document.getElementById('filter'))") else ""
            assert page.value(hints) == f"Keys: {filters}1–7 views, g all applications, p pause"
            page.look_like(width=390, height=800, phone=True)
            fits = "[...main.querySelectorAll('.scroll')].every((each) => each.scrollWidth <= each.clientWidth)"
            assert page.value(fits), view
            titles = "[...main.querySelectorAll('td')].every((each) => each.dataset.title)"
            assert page.value(titles), view


@pytest.mark.slow
@pytest.mark.system
def test_where_no_instance_tells_what_it_writes_the_drawing_says_so(
    bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    require("chromium", "chromium")
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    scene = Scene(bundled_broker.bootstrap_servers, network, tmp_path)
    console = ConsoleProcess(scene.address, scene.application_id)
    try:
        with scene.instance("silent"), Browser(tmp_path) as page:
            wait_until(lambda: console.get(f"/api/groups/{scene.application_id}")[0] == 200, "the group is there")
            page.open(f"{console.url}#/app/{scene.application_id}/topology")
            page.wait_for("main.querySelector('svg.graph')")
            assert "The topics that it writes to are not drawn" in page.value("main.innerText")
    finally:
        console.stop()
        network.stop()


@pytest.mark.slow
@pytest.mark.system
def test_asynchronous_calls_that_are_pending_are_shown(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    require("chromium", "chromium")
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    scene, answered = Scene(bundled_broker.bootstrap_servers, network, tmp_path), threading.Event()

    async def ask(value: str) -> str:
        await asyncio.to_thread(answered.wait)
        return value

    builder = StreamsBuilder()
    builder.stream(scene.source, key=serdes.string, value=serdes.string).map_async(ask).foreach(lambda *_: None)
    scene.write(KEYS[:3])
    console = ConsoleProcess(scene.address, scene.application_id)
    try:
        with (
            KafkaStreams(builder.build(), scene.config("one", http_listen="127.0.0.1:0")),
            Browser(tmp_path) as page,
        ):
            page.open(f"{console.url}#/app/{scene.application_id}/instances")
            page.wait_for(f"main.querySelector({PENDING})?.textContent === '3'")
            page.value(f"location.hash = '#/app/{scene.application_id}/tasks'")
            page.wait_for(drawn("tasks"))
            counts = page.value(f"[...main.querySelectorAll({PENDING})].map((each) => each.textContent)")
            assert sum(int(each) for each in counts if each != "–") == 3
            answered.set()
            page.wait_for(f"main.querySelector('tbody') && !main.querySelector({PENDING})")
    finally:
        answered.set()
        console.stop()
        network.stop()


def drawn(view: str) -> str:
    """The condition that a view of an application is there."""
    current = "document.querySelector('#tabs [aria-current]')?.textContent"
    return f"{current} === '{view}' && document.getElementById('main').ariaBusy === 'false'"


@pytest.mark.slow
def test_a_cluster_that_is_away_is_told_soon_and_seen_again(tmp_path: Path) -> None:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    network = NetworkThread(ClientConfig(bootstrap_servers=broker.bootstrap_servers))
    network.start()
    now_s = [0.0]
    snapshots = Snapshots(network, bootstrap_servers=broker.bootstrap_servers, clock=lambda: now_s[0])
    try:
        assert snapshots.overview()["groups"] == []
        broker.stop()
        now_s[0] += FRESH_S
        began_s = time.monotonic()
        with pytest.raises(BrokerError, match=r"the cluster can't be reached since \d\d:\d\d:\d\d UTC: ") as first:
            snapshots.overview()
        assert time.monotonic() - began_s < 4 * REACHED_WITHIN_S
        with pytest.raises(BrokerError, match="can't be reached since") as second:
            snapshots.group("who has waited meanwhile does not try as well")
        assert str(second.value) == str(first.value)
        broker.start()
        now_s[0] += FRESH_S
        wait_until(lambda: _is_answered(snapshots, now_s), "it is seen again", timeout_s=PATIENCE_S)
    finally:
        network.stop()
        broker.stop()
    with pytest.raises(CallAbandonedError, match="was closed before"):
        network.admin.cluster()


def _is_answered(snapshots: Snapshots, now_s: list[float]) -> bool:
    now_s[0] += FRESH_S
    try:
        return snapshots.overview()["groups"] == []
    except BrokerError:
        return False


@pytest.mark.slow
def test_it_ends_without_a_traceback_while_the_cluster_is_away(tmp_path: Path) -> None:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    with (tmp_path / "console.err").open("w+b") as said:
        console = ConsoleProcess(broker.bootstrap_servers, stderr=said)
        try:
            assert console.get("/api/groups")[0] == 200
            broker.stop()
            asked = threading.Thread(target=console.get, args=("/api/groups",))
            asked.start()
            assert console.stop() == 0
            asked.join(PATIENCE_S)
        finally:
            console.stop()
            broker.stop()
        said.seek(0)
        text = said.read().decode()
    assert "the console runs" in text
    for trouble in ("Traceback", "never awaited", "ERROR"):
        assert trouble not in text, text


def test_beyond_loopback_it_has_a_token(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("STREAMSRT_CONSOLE_TOKEN", "short")
    done = command("console", "-b", "127.0.0.1:1", "--http", "0.0.0.0:0")
    assert (done.code, done.out) == (2, "")
    assert "STREAMSRT_CONSOLE_TOKEN has 5 characters: give it 16 or more" in done.err
    monkeypatch.setenv("STREAMSRT_CONSOLE_TOKEN", "a token with % and \u20ac")
    done = command("console", "-b", "127.0.0.1:1", "--http", "0.0.0.0:0")
    assert (done.code, "is part of the page's address: give it letters and digits" in done.err) == (2, True)
    said = " ".join(command("console", "--help").out.split())
    assert "STREAMSRT_CONSOLE_TOKEN (at least 16 characters)" in said.replace("│ ", "")


def test_a_wrong_address_is_a_mistake(command: Command) -> None:
    done = command("console", "-b", "127.0.0.1:1", "--http", "nowhere")
    assert done.code == 2
    assert "'nowhere': expected HOST:PORT" in done.err


@pytest.mark.slow
@pytest.mark.system
def test_the_printed_address_can_be_opened_in_the_tab_that_shows_the_page(
    bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    require("chromium", "chromium")
    console = ConsoleProcess(bundled_broker.bootstrap_servers, "--allow-changes")
    plain, _, token = console.url.partition("#")
    try:
        with Browser(tmp_path) as page:
            page.open(plain)
            page.wait_for("main.innerText.startsWith('the token is missing or wrong')")
            page.value(f"window.wasLoadedOnce = true, location.hash = '#{token}'")
            page.wait_for("location.hash === '#/' && !main.innerText.startsWith('the token')")
            assert page.value("window.wasLoadedOnce"), "only the fragment has changed"
    finally:
        console.stop()


@pytest.mark.slow
@pytest.mark.system
def test_another_page_shows_nothing_of_the_last_one(shown_on_bundled: Shown, tmp_path: Path) -> None:
    """The listener of the test comes after the page's: it sees what is there before any response can be."""
    require("chromium", "chromium")
    name = shown_on_bundled.scene.application_id
    goes = (
        "new Promise((seen) => {{ addEventListener('hashchange', () => seen(main.innerText), {{ once: true }}); "
        "location.hash = {!r}; }})"
    )
    with Browser(tmp_path) as page:
        page.open(f"{shown_on_bundled.console.url}#/app/{name}/stores")
        page.wait_for("document.querySelector('#main button')")
        assert page.value(goes.format("#/")) == "Loading…"
        page.wait_for("main.querySelector('tbody')")
        assert page.value(goes.format(f"#/app/{name}/tasks")) == "Loading…"
        page.wait_for(drawn("tasks"))
        assert page.value(goes.format(f"#/app/{name}/members")) != "Loading…", "the same answer has this view"
