"""Who gets what the console shows, and how a browser has to treat it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from starlette.types import Message

from streamsrt.cli.console.site import Site
from streamsrt.cli.console.snapshots import Snapshots
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig

TOKEN = "0123456789abcdef"


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        return str(json.loads(self.body)["message"])


def get(site: Site, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Got:
    """One request to the application, without a socket."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1:8090", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 8090),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    asyncio.run(site.application()(scope, receive, send))
    start = sent[0]
    return Got(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(each.get("body", b"") for each in sent[1:]),
    )


def site(token: str | None = None, groups: Sequence[str] = ("shop",), *, allows_changes: bool = False) -> Site:
    """Of a cluster that is never asked: what it answers is decided before that."""
    network = NetworkThread(ClientConfig(bootstrap_servers="127.0.0.1:1"))
    snapshots = Snapshots(network, bootstrap_servers="127.0.0.1:1", groups=groups)
    return Site(snapshots, token=token, host="127.0.0.1", allows_changes=allows_changes)


@pytest.mark.parametrize("path", ["/", "/console.css", "/console.js", "/graph.js"])
def test_the_page_needs_nothing_from_elsewhere(path: str) -> None:
    got = get(site(TOKEN), path)
    assert got.status == 200
    assert "default-src 'none'" in got.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in got.headers["content-security-policy"]
    assert got.headers["x-content-type-options"] == "nosniff"
    text = got.body.decode().replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in text
    assert "https://" not in text
    assert "innerHTML" not in text


@pytest.mark.parametrize("given", ["", "Bearer wrong", f"Bearer {TOKEN}x", "Bearer ü"])
def test_without_the_token_nothing_is_shown(given: str) -> None:
    got = get(site(TOKEN), "/api/groups/other", authorization=given)
    assert (got.status, got.message) == (
        401,
        "the token is missing or wrong: open the address that the console printed",
    )


def test_with_the_token_any_name_of_the_host_does() -> None:
    got = get(site(TOKEN), "/api/groups/other", authorization=f"Bearer {TOKEN}", host="console.example")
    assert got.status == 404
    assert "'other' is not shown here" in got.message


HOSTS = {
    "127.0.0.1:8090": 404,
    "localhost:8090": 404,
    "[::1]:8090": 404,
    "": 404,
    "[": 404,
    "[evil.example": 403,
    "evil.example:8090": 403,
    "127.0.0.1.evil.example": 403,
}


@pytest.mark.parametrize(("host", "status"), HOSTS.items())
def test_without_a_token_a_name_that_points_here_is_refused(host: str, status: int) -> None:
    """Another site's page can have its own name resolve to this machine, and ask by it."""
    assert get(site(), "/api/groups/other", host=host).status == status


@pytest.mark.parametrize("path", ["/api/groups", "/api/groups/shop", "/api/letters/dead"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(method: str, path: str) -> None:
    assert get(site(), path, method=method).status == 405


CHANGE: dict[str, str] = {
    "authorization": f"Bearer {TOKEN}",
    "content_type": "application/json",
    "content_length": "20",
}


def change(
    site: Site, body: bytes = b'{"letters": ["0:1"]}', path: str = "/api/letters/dead/replay", **other: str
) -> Got:
    return get(site, path, method="POST", body=body, **{**CHANGE, **other})


@pytest.mark.parametrize("path", ["/api/letters/dead/replay", "/api/letters/dead/drop"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_change_is_refused_where_none_is_allowed(token: str | None, path: str) -> None:
    got = change(site(token), path=path)
    assert (got.status, got.message) == (403, "changes are not allowed: start the console with --allow-changes")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer another"}, 401),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1:8090"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8091"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_length": "70000"}, 413),
        ({"content_length": ""}, 413),
        ({}, 404),
        ({"origin": "http://127.0.0.1:8090"}, 404),
        ({"origin": "https://console.example", "sec_fetch_site": "same-origin"}, 404),
        ({"sec_fetch_site": "same-origin", "content_type": "application/json; charset=utf-8"}, 404),
    ],
)
def test_a_change_comes_from_the_page_itself_with_the_token(headers: dict[str, str], status: int) -> None:
    """The last ones are let through, to where a topic is unknown that the command does not name."""
    assert change(site(TOKEN, allows_changes=True), **headers).status == status


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff", b'{"letters": []}', b'{"letters": [1]}', b'{"letters": ["0"]}', b'{"letters": "0:1"}'],
)
def test_a_change_names_its_letters(body: bytes) -> None:
    got = change(site(TOKEN, allows_changes=True), body)
    assert (got.status, bool(got.message)) == (400, True)


def test_letters_are_shown_of_named_topics_only() -> None:
    got = get(site(), "/api/letters/secrets")
    assert (got.status, "--dead-letters secrets" in got.message) == (404, True)
