"""``python -m coordinator``: starts the bundled broker.

The first line on stdout is the bootstrap address, printed once connections are accepted; everything else goes to stderr.
SIGTERM and SIGINT drain: no new connection, requests that arrived are answered, logs are synced and closed, exit code 0.

==========  ====================================================================================
exit code   meaning
==========  ====================================================================================
0           drained and closed
1           the disk failed while the broker ran
2           a setting or argument is wrong
3           the data directory can't be used: locked, of another format, or corrupt
4           the address can't be bound
==========  ====================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from coordinator.broker.broker import Broker, Surroundings
from coordinator.broker.config_definitions import BROKER_CONFIGS, InvalidConfigError, Value, nearest_key
from coordinator.group.config import BROKER_SETTINGS, GroupConfig
from coordinator.group.config import InvalidConfigError as InvalidGroupConfigError
from coordinator.log import CorruptLogError, LogDirectory, LogDirectoryError
from coordinator.server.dispatch import Dispatcher
from coordinator.server.tcp import Connection
from streamsrt.wire.messages import warm
from streamsrt.wire.schema import ApiKey

logger = logging.getLogger("coordinator.server")

DRAIN_TIMEOUT_S = 10.0
_HOT = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.API_VERSIONS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the broker until it is told to stop; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        configs, group_config = read_configs(options.properties, options.config)
        _check_host(options.host, insecure=options.insecure)
    except (InvalidConfigError, InvalidGroupConfigError, OSError) as error:
        print(f"coordinator: {error}", file=sys.stderr)
        return 2
    try:
        directory = _open_directory(options.data_dir, configs, repair=options.truncate_corrupt)
    except (LogDirectoryError, OSError) as error:
        print(f"coordinator: {error}", file=sys.stderr)
        return 3
    return asyncio.run(_serve(options, directory, configs, group_config))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coordinator", description="A durable single-node broker that speaks Kafka's protocol."
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="where the logs live; made if missing")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=9092, help="port to listen on, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting by Kafka's name; repeatable"
    )
    parser.add_argument("--properties", type=Path, help="a Java properties file of settings; --config goes over it")
    parser.add_argument(
        "--insecure", action="store_true", help="listen on an address that is not loopback, without security"
    )
    parser.add_argument(
        "--truncate-corrupt",
        action="store_true",
        help="where a log is corrupt in the middle, drop its records from there on and start",
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def read_configs(properties: Path | None, pairs: Sequence[str]) -> tuple[dict[str, Value], GroupConfig]:
    """The broker's settings and the group coordinator's. Raises InvalidConfigError or InvalidGroupConfigError."""
    texts = _read_properties(properties) if properties is not None else {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise InvalidConfigError(f"--config {pair}: expected KEY=VALUE")
        texts[key.strip()] = value.strip()
    broker = {key: text for key, text in texts.items() if key in BROKER_CONFIGS}
    group = {key: text for key, text in texts.items() if key not in BROKER_CONFIGS}
    known = [*BROKER_CONFIGS, *BROKER_SETTINGS]
    for key in group:
        if key not in BROKER_SETTINGS:
            raise InvalidConfigError(f"Unknown broker config name: {key}.{nearest_key(key, known)}")
    configs = {key: definition.default for key, definition in BROKER_CONFIGS.items()}
    configs.update({key: BROKER_CONFIGS[key].parse(text) for key, text in broker.items()})
    return configs, GroupConfig.parse(group)


def _read_properties(path: Path) -> dict[str, str]:
    rows: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise InvalidConfigError(f"{path}:{number}: expected key=value, found {text!r}")
        rows[key.strip()] = value.strip()
    return rows


def _check_host(host: str, *, insecure: bool) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and not insecure:
        raise InvalidConfigError(
            f"--host {host} is reachable from other machines and this broker has no security configured: "
            "listen on 127.0.0.1, or give --insecure if the network is trusted"
        )


def _open_directory(path: Path, configs: Mapping[str, Value], *, repair: bool) -> LogDirectory:
    interval_ms = configs["log.fsync.interval.ms"]
    assert isinstance(interval_ms, int)
    directory = LogDirectory(path, fsync_interval_ms=interval_ms)
    if repair:
        for topic, partition in directory.partitions():
            done = directory.repair(topic, partition)
            if done is not None:
                logger.warning("repaired %s-%d: %s", topic, partition, done)
    return directory


async def _serve(
    options: argparse.Namespace, directory: LogDirectory, configs: Mapping[str, Value], group_config: GroupConfig
) -> int:
    broker = Broker(directory, configs, group_config, Surroundings())
    try:
        broker.load()
    except CorruptLogError as error:
        print(f"coordinator: {error}", file=sys.stderr)
        return 3
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    connections: set[Connection] = set()
    dispatcher = Dispatcher(broker)
    warm(_HOT)
    frame_bytes_max = broker.integer("socket.request.max.bytes")
    try:
        server = await loop.create_server(
            lambda: Connection(dispatcher.handle, connections, frame_bytes_max),
            options.host,
            options.port,
            backlog=1024,
        )
    except OSError as error:
        print(f"coordinator: can't listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        broker.close()
        return 4
    _advertise(broker, server, options.host)
    gc.collect()
    gc.freeze()
    print(f"{broker.host}:{broker.port}", flush=True)
    housekeeping = [loop.create_task(_tick_groups(broker)), loop.create_task(_apply_retention(broker))]
    await stopping.wait()
    await _drain(server, connections)
    for task in housekeeping:
        task.cancel()
    await asyncio.gather(*housekeeping, return_exceptions=True)
    broker.close()
    return 0


def _advertise(broker: Broker, server: asyncio.Server, host: str) -> None:
    bound: socket.socket = server.sockets[0]
    advertised = broker.configs["advertised.host"]
    broker.host = str(advertised) if advertised else host
    broker.port = bound.getsockname()[1]


async def _drain(server: asyncio.Server, connections: set[Connection]) -> None:
    server.close()
    for connection in list(connections):
        connection.drain()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DRAIN_TIMEOUT_S
    while connections and loop.time() < deadline:
        await asyncio.sleep(0.01)
    for connection in list(connections):
        connection.close()


async def _tick_groups(broker: Broker) -> None:
    """Lets the timers of the groups expire when they are due."""
    while True:
        delay_ms = broker.groups.tick()
        await broker.groups.timer_changed(delay_ms)


async def _apply_retention(broker: Broker) -> None:
    interval_s = broker.integer("log.retention.check.interval.ms") / 1000
    while True:
        await asyncio.sleep(interval_s)
        broker.run_retention()
