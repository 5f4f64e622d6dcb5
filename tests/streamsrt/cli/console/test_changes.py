"""Letters that are replayed and dropped by the page of a console that allows it."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamsrt.cli.console.changes import NOT_WAITING, change_letters
from streamsrt.dead_letters.letters import LetterOutcome
from tests.browser import Browser
from tests.fixtures_brokers import BundledBroker
from tests.interop.test_other_clients import require
from tests.streamsrt.cli.conftest import Command
from tests.streamsrt.cli.console.test_console import ConsoleProcess


class Letters:
    """A dead-letter topic with eight letters of seven records of another topic."""

    def __init__(self, on_broker: Command, topic: str) -> None:
        self._command = on_broker
        self.orders, self.topic = f"{topic}-orders", topic
        on_broker("topics", "create", self.orders, topic, "--partitions", 1)
        lines = [
            {
                "value": str(min(number, 6)),
                "headers": {
                    "__streams.errors.topic": self.orders,
                    "__streams.errors.partition": "0",
                    "__streams.errors.offset": str(min(number, 6)),
                    "__streams.errors.exception": "KeyError",
                },
            }
            for number in range(8)
        ]
        stdin = "".join(f"{json.dumps(line)}\n" for line in lines)
        assert on_broker("produce", topic, "--format", "json", stdin=stdin).code == 0

    def states(self) -> Counter[str]:
        rows: list[dict[str, Any]] = self._command("dlq", "list", self.topic, "--all", "--json").rows
        return Counter(row["state"] for row in rows)

    def replayed(self) -> list[str]:
        return [row["value"] for row in self._command("consume", self.orders, "--json").rows]


@pytest.fixture
def letters(on_broker: Command, topic: str) -> Letters:
    return Letters(on_broker, topic)


def test_only_named_letters_are_changed_and_each_once(letters: Letters, bundled_broker: BundledBroker) -> None:
    address = bundled_broker.bootstrap_servers

    def change(outcome: LetterOutcome, *named: tuple[int, int]) -> tuple[int, int]:
        """How many are done, and how many are left."""
        found = change_letters(address, letters.topic, outcome, named)
        assert all(each["why"] == NOT_WAITING for each in found["left"])
        return found["done"], sum(each["letters"] for each in found["left"])

    named = (0, 1), (0, 2), (0, 99)
    assert change(LetterOutcome.REPLAYED, *named) == (2, 1)
    assert change(LetterOutcome.REPLAYED, *named) == (0, 3)
    assert letters.replayed() == ["1", "2"]
    assert change(LetterOutcome.DROPPED, (0, 2), (0, 6), (0, 7)) == (2, 1)
    assert letters.states() == {"replayed": 2, "dropped": 2, "waiting": 4}


@pytest.mark.slow
@pytest.mark.system
def test_letters_are_chosen_in_the_page(letters: Letters, bundled_broker: BundledBroker, tmp_path: Path) -> None:
    require("chromium", "chromium")
    console = ConsoleProcess(
        bundled_broker.bootstrap_servers, "no-application", "--dead-letters", letters.topic, "--allow-changes"
    )
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[\w-]{32}", console.url), "on loopback, too"
        assert console.get(f"/api/letters/{letters.topic}")[0] == 401
        with Browser(tmp_path) as page:
            page.open(console.url)
            page.wait_for("location.hash === '#/'")
            page.value(f"location.hash = '#/letters/{letters.topic}'")
            page.wait_for("main.querySelectorAll('input[type=checkbox]').length === 8")
            assert page.value("document.getElementById('Replay').disabled")
            page.value("document.getElementById('letter 0:3').click()")
            press(page, "Replay", "1 dead letter")
            page.wait_for("document.getElementById('told').textContent === '1 done'")
            page.wait_for("main.querySelectorAll('input[type=checkbox]').length === 7")
            assert letters.states() == {"replayed": 1, "waiting": 7}
            page.value("document.getElementById('all').click()")
            press(page, "Drop", "7 dead letters")
            page.wait_for("!main.querySelector('input[type=checkbox]')")
        assert letters.states() == {"replayed": 1, "dropped": 7}
        assert letters.replayed() == ["3"]
        assert posted_from_elsewhere(console.url, letters.topic) == 403
    finally:
        console.stop()


def press(page: Browser, verb: str, what: str) -> None:
    """Once to ask, once to do it."""
    for text in (f"{verb} {what}", f"Press again to {verb.lower()} {what}"):
        page.wait_for(f"document.getElementById('{verb}').textContent === '{text}'")
        page.value(f"document.getElementById('{verb}').click()")


def posted_from_elsewhere(url: str, topic: str) -> int:
    """As a browser sends what another site's page asks for, with the right token."""
    headers = {"Authorization": f"Bearer {url.partition('#token=')[2]}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60.0)
    try:
        body = json.dumps({"letters": ["0:0"]})
        connection.request("POST", f"/api/letters/{topic}/replay", body, {**headers, "Sec-Fetch-Site": "cross-site"})
        return connection.getresponse().status
    finally:
        connection.close()
