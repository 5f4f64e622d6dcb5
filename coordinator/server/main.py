"""``python -m coordinator``: starts the bundled broker.

The first line on stdout is the bootstrap address, printed once connections are accepted; everything else goes to stderr.
SIGTERM and SIGINT drain: no new connection, waiting requests are answered at once, requests that arrived are answered,
logs are synced and closed, exit code 0.

==========  ====================================================================================
exit code   meaning
==========  ====================================================================================
0           drained and closed
1           the disk failed, or the broker did: the logs are checked at the next start
2           a setting or argument is wrong
3           the address can't be bound
4           the data directory can't be used: locked, of another format, corrupt or not accessible
130         Ctrl-C before it served, or a second one: the logs are checked at the next start
==========  ====================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coordinator.broker.broker import Broker, of_this_machine
from coordinator.broker.config_definitions import Value
from coordinator.group.settings import InvalidConfigError
from coordinator.group.state import UnknownRecordError
from coordinator.log import LogDirectory, LogError
from coordinator.server.dispatch import Dispatcher
from coordinator.server.listener import Listener
from coordinator.server.metrics_endpoint import MetricsEndpoint
from coordinator.server.security import add_scram, check_host, handlers, limits_of, open_doors, tls_context
from coordinator.server.settings import read_configs
from streamsrt.wire.messages import warm
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.schema import ApiKey
from streamsrt.wording import address_text

logger = logging.getLogger("coordinator.server")

_HOT = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.API_VERSIONS,
)
_PORT_MAX = 65535
_ADDRESS, _DIRECTORY = 3, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the broker until it is told to stop; the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        configs, group_config = read_configs(options.properties, options.config)
        check_host(options.host, configs, insecure=options.insecure)
        tls = tls_context(configs)
        for door in open_doors(options.host, options.metrics and options.metrics[0], configs):
            logger.warning("%s", door)
    except (InvalidConfigError, OSError) as error:
        return _stop(2, error)
    _raise_file_limit()
    try:
        directory = _open_directory(options.data_dir, configs, repair=options.truncate_corrupt)
    except (LogError, OSError) as error:
        return _stop(_DIRECTORY, _unusable(options.data_dir, error))
    try:
        broker = Broker(directory, configs, group_config, of_this_machine())
        broker.load()
        for entry in options.add_scram:
            add_scram(broker, entry)
        new_handler, limits = handlers(broker, Dispatcher(broker).handle), limits_of(broker)
    except InvalidConfigError as error:
        return _stop(2, error)
    except (LogError, OSError) as error:
        return _stop(_DIRECTORY, _unusable(options.data_dir, error))
    except (DecodeError, UnknownRecordError) as error:
        return _stop(
            _DIRECTORY, ValueError(f"data directory {options.data_dir} holds records that can't be read: {error}")
        )
    listener = Listener(new_handler, limits, broker.memory, tls=tls)
    code = asyncio.run(_serve(options, broker, listener))
    try:
        broker.close()
    except LogError as error:
        return _stop(1, error)
    return code


def _stop(code: int, error: Exception) -> int:
    print(f"broker: {error}", file=sys.stderr)
    return code


def _unusable(path: Path, error: LogError | OSError) -> Exception:
    """What is said of a data directory: a LogError says it itself."""
    if isinstance(error, LogError):
        return error
    where = f" ({error.filename})" if error.filename is not None and str(error.filename) != str(path) else ""
    return OSError(
        f"data directory {path} can't be used: {error.strerror or error}{where}. Give a --data-dir that this user "
        "can create and write to"
    )


def _raise_file_limit() -> None:
    """Each partition keeps a file open, each connection a socket; the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coordinator", description="A durable single-node broker that speaks Kafka's protocol."
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="directory of the logs; created if missing")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=9092, help="port to listen on, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting, with Kafka's name; repeatable"
    )
    parser.add_argument("--properties", type=Path, help="a Java properties file with settings; --config overrides it")
    parser.add_argument(
        "--insecure", action="store_true", help="listen on an address that is not loopback, without security"
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        help="set a SCRAM password, as kafka-storage does; repeatable",
    )
    parser.add_argument(
        "--truncate-corrupt",
        action="store_true",
        help="if a log is corrupt in the middle, truncate it there and start",
    )
    parser.add_argument(
        "--metrics", type=_address, metavar="HOST:PORT", help="serve metrics for Prometheus at http://HOST:PORT/metrics"
    )
    parser.add_argument(
        "--address-file", type=Path, metavar="FILE", help="a file that holds the address while the broker runs"
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give 0 to {_PORT_MAX}")
    return int(text)


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not host:
        raise argparse.ArgumentTypeError(f"{text} is not an address: give HOST:PORT")
    return host.strip("[]"), _port(port)


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


async def _serve(options: argparse.Namespace, broker: Broker, listener: Listener) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    warm(_HOT)
    try:
        address, broker.port = await listener.start(options.host, options.port)
    except OSError as error:
        advice = "give another --port (0: a free one), or stop what listens there, perhaps another broker"
        return _stop(_ADDRESS, OSError(f"can't listen on {options.host}:{options.port}: {error.strerror}; {advice}"))
    metrics = MetricsEndpoint(broker.metrics_text)
    if options.metrics is not None:
        host, port = options.metrics
        try:
            logger.info("metrics at %s", await metrics.start(host, port))
        except OSError as error:
            return _stop(
                _ADDRESS, OSError(f"can't listen on {host}:{port}: {error.strerror}; give another address as --metrics")
            )
    broker.port = broker.integer("advertised.port") or broker.port
    broker.host = str(broker.configs["advertised.host"]) or (address if options.host == "localhost" else options.host)
    gc.collect()
    gc.freeze()
    bootstrap = address_text(broker.host, broker.port)
    with _announced(bootstrap, options.address_file):
        print(bootstrap, flush=True)
        code = await serve(broker, listener, stopping)
    metrics.close()
    return code


@contextlib.contextmanager
def _announced(bootstrap: str, file: Path | None) -> Iterator[None]:
    """The address stands in the file meanwhile."""
    if file is None:
        yield
        return
    file.write_text(bootstrap + "\n", encoding="utf-8")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


async def serve(broker: Broker, listener: Listener, stopping: asyncio.Event) -> int:
    """Serves until ``stopping`` is set; the exit code.

    What fails for one group, transaction or partition is left to it. A chore that fails as a whole ends the broker: nothing
    else would notice.
    """
    loop = asyncio.get_running_loop()
    chores = [
        loop.create_task(_tick_groups(broker)),
        loop.create_task(_tick_transactions(broker)),
        loop.create_task(_apply_retention(broker)),
        loop.create_task(_compact(broker)),
        loop.create_task(_expire_offsets(broker)),
        loop.create_task(listener.close_idle(broker.integer("connections.max.idle.ms"))),
        loop.create_task(listener.close_stalled()),
    ]
    stopped = loop.create_task(stopping.wait())
    done, _ = await asyncio.wait([stopped, *chores], return_when=asyncio.FIRST_COMPLETED)
    broker.purgatory.close()
    broker.groups.release()
    await listener.drain()
    for task in (stopped, *chores):
        task.cancel()
    failures = [task.exception() for task in done - {stopped}]
    await asyncio.gather(stopped, *chores, return_exceptions=True)
    for failure in failures:
        logger.critical("the broker stops: a part of it failed", exc_info=failure)
    return 1 if failures else 0


async def _tick_groups(broker: Broker) -> None:
    """Lets the timers of the groups expire when they are due."""
    while True:
        delay_ms = broker.groups.tick()
        await broker.groups.timer_changed(delay_ms)


async def _tick_transactions(broker: Broker) -> None:
    """Ends the transactions that last too long, when they are due."""
    while True:
        delay_ms = broker.transactions.tick()
        await broker.transactions.deadlines.wait(delay_ms)


async def _expire_offsets(broker: Broker) -> None:
    while True:
        await asyncio.sleep(broker.integer("offsets.retention.check.interval.ms") / 1000)
        await broker.groups.expire(broker.integer("offsets.retention.minutes") * 60_000)


async def _compact(broker: Broker) -> None:
    await broker.run_cleaner()
    await asyncio.Event().wait()


async def _apply_retention(broker: Broker) -> None:
    interval_s = broker.integer("log.retention.check.interval.ms") / 1000
    while True:
        await asyncio.sleep(interval_s)
        broker.run_retention()
