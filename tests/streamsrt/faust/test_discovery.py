"""``autodiscover=``: modules that nobody imports have agents, tables, timers, tasks and pages, too."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsrt.errors import UserError
from tests.streamsrt.faust.needed import require_faust

require_faust()

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.settings import POLL_MS  # noqa: E402
from tests.kafka_server import free_ports  # noqa: E402
from tests.streamsrt.faust.test_pages import get  # noqa: E402

APP = """
import faust

app = faust.App("found", broker="kafka://localhost:9092", web_bind="127.0.0.1", web_port={port}, {options})
first_in = app.topic("first", value_type=int)


@app.agent(first_in)
async def first(stream):
    async for value in stream:
        pass
"""
OTHERS = """
from found_here.app import app

second_in, doubles = app.topic("second", value_type=int), app.topic("doubles", value_type=int)
totals = app.Table("totals", default=int)
ticks = app.topic("ticks", value_type=int)


@app.agent(second_in)
async def second(stream):
    async for value in stream:
        totals["all"] += value
        await doubles.send(value=value * 2)


@app.timer(0.05)
async def tick():
    await ticks.send(value=1)


@app.page("/total/")
@app.table_route(table=totals, exact_key="all")
async def total(web, request):
    return web.json(dict(totals.items()))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the package ``found_here``, and returns its application."""

    def make(options: str, port: int = 6066) -> Any:
        (tmp_path / "found_here" / "inner").mkdir(parents=True)
        for name, text in (
            ("__init__.py", ""),
            ("app.py", APP.format(options=options, port=port)),
            ("inner/__init__.py", ""),
            ("inner/others.py", OTHERS),
        ):
            (tmp_path / "found_here" / name).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return __import__("found_here.app", fromlist=["app"]).app

    yield make
    for name in [each for each in sys.modules if each.split(".")[0] == "found_here"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "options",
    [
        'autodiscover=True, origin="found_here"',
        'autodiscover=["found_here.inner.others"]',
        'autodiscover=lambda: ["found_here.inner"]',
    ],
)
def test_what_other_modules_declare_runs(package: Any, options: str) -> None:
    (port,) = free_ports(1)
    with TestApp(package(options, port), serves=True) as test:
        test.send("second", value=4)
        test.driver.advance_wall_clock_time(100)
        assert test.received("doubles") == [(None, 8)]
        assert test.table("totals") == {"all": 4}
        assert test.received("ticks") != []
        assert get(test, port, "/total/").endswith('{"all":4}')


def test_the_settings_know_of_it_whoever_asks_first(package: Any) -> None:
    app = package('autodiscover=True, origin="found_here"')
    assert streamsrt.faust.config(app)["poll.ms"] < POLL_MS  # type: ignore[operator]  # a number
    assert set(streamsrt.faust.topology(app).subtopologies[0].source_topics) == {"first", "second"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("autodiscover=True", "autodiscover=True of found (FILE:4) needs origin="),
        ('autodiscover=["found_here.outer"]', "can't be imported: No module named 'found_here.outer'"),
    ],
)
def test_what_can_not_be_found_is_one_message(package: Any, options: str, message: str, tmp_path: Path) -> None:
    app = package(options)
    wanted = message.replace("FILE", str(tmp_path / "found_here" / "app.py"))
    with pytest.raises(UserError, match=re.escape(wanted)):
        streamsrt.faust.topology(app)
