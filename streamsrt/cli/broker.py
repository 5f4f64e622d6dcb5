"""``streamsrt broker``: the bundled broker in the foreground."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamsrt.cli.session import HOME
from streamsrt.runtime.bundled_broker import ADDRESS_FILE, DATA_FOLDER, make_directory

_PORT_MAX = 65535


def _address(given: str | None) -> str | None:
    """Refused here: the broker's own usage has other options."""
    host, _, port = (given or "").rpartition(":")
    if given is not None and not (host and port.isdecimal() and int(port) <= _PORT_MAX):
        raise typer.BadParameter(f"{given} is not an address: give HOST:PORT, with a port of 0 to {_PORT_MAX}")
    return given


def broker(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="directory of the logs")] = HOME / DATA_FOLDER,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="port to listen on, 0 for a free one", min=0, max=_PORT_MAX)
    ] = 9092,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="KEY=VALUE with Kafka's setting names; repeatable")
    ] = None,
    properties: Annotated[
        Path | None, typer.Option("--properties", help="a Java properties file with settings")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="listen beyond loopback without security")] = False,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="HOST:PORT at which metrics for Prometheus are served", callback=_address),
    ] = None,
    truncate_corrupt: Annotated[
        bool, typer.Option("--truncate-corrupt", help="truncate a corrupt log at the corruption, and start")
    ] = False,
) -> None:
    """Run the bundled broker until it is stopped; its address is the first line on stdout.

    Commands in the same directory find it without --bootstrap-servers, unless --data-dir names another directory.

    Exit codes: 0 stopped; 1 the broker or its disk failed; 2 a setting or an option is wrong; 3 the address can't be
    listened on; 4 the data directory can't be used; 130 Ctrl-C before it served, or a second one.
    """
    command = [sys.executable, "-m", "coordinator", "--data-dir", str(data_dir), "--host", host, "--port", str(port)]
    if data_dir == HOME / DATA_FOLDER:
        # So that commands of this directory that name no cluster find it.
        make_directory(HOME, "or give --data-dir")
        command += ["--address-file", str(HOME / ADDRESS_FILE)]
    for pair in config or ():
        command += ["--config", pair]
    if properties is not None:
        command += ["--properties", str(properties)]
    if metrics is not None:
        command += ["--metrics", metrics]
    if insecure:
        command.append("--insecure")
    if truncate_corrupt:
        command.append("--truncate-corrupt")
    os.execv(sys.executable, command)
