"""Pages of an application, over a real socket."""

from __future__ import annotations

import inspect
import json
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.exceptions import SameNode  # noqa: E402
from faust.web import Blueprint, View  # noqa: E402
from faust.web.apps import router as views  # noqa: E402
from faust.web.exceptions import ServiceUnavailable  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.background import has_pages  # noqa: E402
from streamsrt.faust.pages import LocalRouter  # noqa: E402
from tests.kafka_server import free_ports  # noqa: E402

TICKS_MAX = 2000


def get(test: TestApp, port: int, path: str) -> str:
    """What the page answers; the application goes on with the clock of the driver."""
    for _ in range(TICKS_MAX):
        test.driver.advance_wall_clock_time(10)
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) != 0:
                continue
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
            client.settimeout(0.05)
            return _answer(test, client)
    pytest.fail("nothing is served")


def _answer(test: TestApp, client: socket.socket) -> str:
    found = b""
    for _ in range(TICKS_MAX):
        test.driver.advance_wall_clock_time(10)
        try:
            part = client.recv(65536)
        except TimeoutError:
            continue
        found += part
        if not part:
            return found.decode()
    pytest.fail(f"no answer: {found!r}")


def test_a_page_shows_rows_of_all_partitions() -> None:
    (port,) = free_ports(1)
    app = _with_totals(port)
    totals = app.tables["totals"]

    @app.page("/total/{item}/")
    @app.table_route(table=totals, match_info="item")
    async def total(self: Any, request: Any, item: str) -> Any:
        return self.json({item: totals[item]})

    with TestApp(app, partitions=2, serves=True) as test:
        test.send("orders", key="tea", value=5, partition=1)
        test.send("orders", key="tea", value=4, partition=1)
        answer = get(test, port, "/total/tea/")
        assert answer.startswith("HTTP/1.1 200 OK")
        assert answer.endswith('{"tea":9}')
        assert get(test, port, "/total/milk/").endswith('{"milk":0}')


class Here:
    """A process without partitions, which has all rows or none."""

    def __init__(self, *, has: bool) -> None:
        self._has = has
        self.asked: list[tuple[str, bytes]] = []

    def has_all(self, table: str, key: object) -> bool:
        return self._has

    def reads(self, topic: str, key: bytes) -> bool:
        self.asked.append((topic, key))
        return False

    def of_topics(self) -> list[tuple[str, int]]:
        return []

    def of_tables(self) -> dict[str, list[int]]:
        return {}


@pytest.mark.parametrize(("has", "raised"), [(True, SameNode), (False, ServiceUnavailable)])
def test_a_row_that_may_be_elsewhere_is_not_served(has: bool, raised: type[Exception]) -> None:
    app = faust.App("shop", broker="kafka://localhost:9092")
    routed = LocalRouter(app, Here(has=has)).route_req("totals", "tea", None, None)
    with pytest.raises(raised):
        routed.send(None)


def test_a_key_of_a_topic_is_served_by_the_process_that_reads_its_partition() -> None:
    (port,) = free_ports(1)
    app = faust.App("shop", broker="kafka://localhost:9092", web_port=port, web_bind="127.0.0.1")
    orders = app.topic("orders", key_type=str, value_type=int)
    app.agent(orders)(_read)

    @app.page("/orders/{item}/")
    @app.topic_route(orders, match_info="item")
    async def ordered(self: Any, request: Any, item: str) -> Any:
        return self.json({"item": item})

    @app.page("/others/{item}/")
    @app.topic_route(app.topic("others", key_type=str), match_info="item")
    async def others(self: Any, request: Any, item: str) -> Any:
        return self.json({"item": item})

    with TestApp(app, partitions=2, serves=True) as test:
        test.send("orders", key="tea", value=5, partition=1)
        assert get(test, port, "/orders/tea/").endswith('{"item":"tea"}')
        assert get(test, port, "/others/tea/").startswith("HTTP/1.1 503")


def test_a_key_that_another_process_reads_is_not_served() -> None:
    app = faust.App("shop", broker="kafka://localhost:9092")
    here = Here(has=True)
    router = LocalRouter(app, here)
    for key in ("tea", None):
        with pytest.raises(ServiceUnavailable):
            router.route_topic_req(app.topic("orders", key_type=str), key, None, None).send(None)
        with pytest.raises(KeyError):
            router.external_topic_key_store(app.topic("orders", key_type=str), key)
    assert here.asked == [("orders", b"tea")] * 2


class Totals(View):
    """A view that is a class."""

    async def get(self, request: Any, item: str) -> Any:
        """Shows a row."""
        return self.json({item: self.app.tables["totals"][item]})


def _with_totals(port: int, **options: Any) -> faust.App:
    app = an_app(web_port=port, web_bind="127.0.0.1", **options)
    totals = app.Table("totals", default=int, key_type=str)

    @app.agent(app.topic("orders", key_type=str, value_type=int))
    async def count(stream: Any) -> None:
        async for key, amount in stream.items():
            totals[key] += amount

    return app


def _as_pages(app: faust.App) -> None:
    app.page("/total/{item}/")(Totals)


def _as_views(app: faust.App) -> None:
    class Added(Totals):
        view_name, view_path = "added", "/total/{item}/"

    app.web.add_view(Added)


def _as_blueprints(app: faust.App) -> None:
    blueprint = Blueprint("totals")
    blueprint.route("/{item}/", name="detail")(Totals)
    app.web.blueprints.add("/total", blueprint)


@pytest.mark.parametrize("declare", [_as_pages, _as_views, _as_blueprints])
def test_views_that_are_classes_are_served_however_they_are_declared(declare: Callable[[faust.App], None]) -> None:
    (port,) = free_ports(1)
    app = _with_totals(port)
    declare(app)
    with TestApp(app, serves=True) as test:
        test.send("orders", key="tea", value=5)
        assert get(test, port, "/total/tea/").endswith('{"tea":5}')
        # Pages of Faust's own.
        assert get(test, port, "/table/totals/tea/").endswith("5")
        assert '"totals"' in get(test, port, "/table/")


def body(answer: str) -> Any:
    assert answer.startswith("HTTP/1.1 200 OK"), answer
    return json.loads(answer.partition("\r\n\r\n")[2])


def test_faust_s_own_pages_show_the_partitions_of_this_process() -> None:
    (port,) = free_ports(1)
    app = _with_totals(port, web_host="here", debug=True)
    url, topics, changelog = f"http://here:{port}", {"orders": [0, 1]}, {"shop-totals-changelog": [0, 1]}
    with TestApp(app, partitions=2, serves=True) as test:
        test.send("orders", key="tea", value=5, partition=1)
        assert body(get(test, port, "/router/")) == {url: changelog}
        assert body(get(test, port, "/router/totals/")) == {url: changelog}
        assert body(get(test, port, "/router/totals/tea/")) == url
        assert body(get(test, port, "/router/topics")) == {url: topics}
        assert get(test, port, "/router/nothing/").startswith("HTTP/1.1 404")
        assert get(test, port, "/router/nothing/tea/").startswith("HTTP/1.1 503")
        assert body(get(test, port, "/assignment/")) == {"actives": topics | changelog, "standbys": {}}


def test_the_router_has_each_method_that_faust_s_pages_call() -> None:
    called = set(re.findall(r"router\.(\w+)\(", inspect.getsource(views)))
    assert len(called) >= 4
    assert called <= set(dir(LocalRouter))


@pytest.mark.parametrize("options", [{"web_enabled": True}, {"web_port": 6067}, {"web_bind": "127.0.0.1"}])
def test_faust_s_own_pages_are_served_where_the_application_wants_a_web_server(options: dict[str, Any]) -> None:
    assert has_pages(an_app(**options))
    assert not has_pages(an_app())
    assert not has_pages(an_app(**{**options, "web_enabled": False}))


def test_without_pages_of_its_own_an_application_has_a_status() -> None:
    (port,) = free_ports(1)
    with TestApp(_with_totals(port), serves=True) as test:
        assert body(get(test, port, "/")) == {"status": "OK"}


def test_without_serving_nothing_listens() -> None:
    (port,) = free_ports(1)
    app = faust.App("shop", broker="kafka://localhost:9092", web_port=port, web_bind="127.0.0.1")
    app.agent(app.topic("orders"))(_read)

    @app.page("/")
    async def page(self: Any, request: Any) -> Any:
        return self.text("here")

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(1000)
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass
