"""The command ``streamsrt console``: what is shown, and where a browser finds it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import threading
from typing import Annotated

import typer

from streamsrt.cli.console.snapshots import Snapshots
from streamsrt.cli.output import note
from streamsrt.cli.session import BootstrapServers, bootstrap
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, FetchConfig
from streamsrt.errors import ConfigError

TOKEN = "STREAMSRT_CONSOLE_TOKEN"
_CONNECT_S = 10.0


def console(
    groups: Annotated[list[str] | None, typer.Argument(help="application ids (default: all)")] = None,
    bootstrap_servers: BootstrapServers = None,
    http: Annotated[
        str, typer.Option("--http", help="HOST:PORT of the page; port 0 picks a free port")
    ] = "127.0.0.1:8090",
    dead_letters: Annotated[
        list[str] | None, typer.Option("--dead-letters", help="a dead-letter topic to show; repeatable")
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="the page may replay and drop dead letters; it then needs a token")
    ] = False,
) -> None:
    """Show the applications of a cluster in a browser: topology, tasks, restore progress, upgrades. Ctrl-C stops it.

    The page is read-only without --allow-changes. With it, or if the page does not listen on loopback, it requires a token,
    which is printed with its address: STREAMSRT_CONSOLE_TOKEN (at least 16 characters), or a random one. There is no
    encryption: put a proxy in front of it.
    """
    try:
        from streamsrt.cli.console.site import Site
        from streamsrt.http.names import is_loopback
        from streamsrt.http.server import HttpServer, bound_socket
    except ImportError as error:
        raise ConfigError(f"the console needs pip install 'streamsrt[http]' ({error})") from error
    host = http.rpartition(":")[0]
    token = _token(is_open=is_loopback(host) and not allow_changes)
    ended = _ended_by_signals()
    with bound_socket(http) as listening, bootstrap(bootstrap_servers) as servers:
        committed = FetchConfig(isolation_level="read_committed", max_wait_ms=20)
        network = NetworkThread(ClientConfig(bootstrap_servers=servers, client_id="streamsrt-console", fetch=committed))
        network.start(timeout_s=_CONNECT_S)
        try:
            snapshots = Snapshots(
                network, bootstrap_servers=servers, groups=groups or (), letter_topics=dead_letters or ()
            )
            port = listening.getsockname()[1]
            site = Site(snapshots, token=token, host=host.strip("[]"), allows_changes=allow_changes)
            server = HttpServer(site.application(), listening)
            typer.echo(f"http://{_shown(host)}:{port}/" + (f"#token={token}" if token else ""))
            sys.stdout.flush()
            note("the console runs; Ctrl-C ends it")
            ended.wait()
            # First, so that no request goes on waiting for a broker that does not answer.
            network.stop()
            server.stop()
        finally:
            network.stop()


def _ended_by_signals() -> threading.Event:
    """Set by SIGINT and SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended


_TOKEN_TEXT = re.compile(r"[A-Za-z0-9._~-]+")


def _token(*, is_open: bool) -> str | None:
    given = os.environ.get(TOKEN)
    if given is not None and len(given) < 16:
        raise ConfigError(f"{TOKEN} has {len(given)} characters: give it 16 or more, or leave it out for a random one")
    if given is not None and _TOKEN_TEXT.fullmatch(given) is None:
        raise ConfigError(
            f"{TOKEN} is part of the page's address: give it letters and digits of ASCII and - . _ ~ only, or leave it out "
            "for a random one"
        )
    return given or (None if is_open else secrets.token_urlsafe(24))


def _shown(host: str) -> str:
    """A wildcard address is none that a browser can open."""
    return {"0.0.0.0": "localhost", "[::]": "localhost"}.get(host, host)
