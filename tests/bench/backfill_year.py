"""The whole year: eleven months by a backfill, December live, against one live run over the year; byte for byte.

    python -m tests.bench.backfill_year [--engine local,spark] [--broker bundled,kafka]

The months come from a Parquet archive, but for the last 20,000 departures before December, still in the log. Stores,
changelogs and outputs are compared; a difference ends the script with an AssertionError. Apache Kafka is started by Maven.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from examples import flights
from streamsrt.backfill.engine_local import LocalEngine
from streamsrt.backfill.job import Engine
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import open_session
from streamsrt.runtime.bundled_broker import BundledBroker
from tests.fixtures_brokers import QUICK_GROUPS
from tests.kafka_server import KafkaServer
from tests.streamsrt.backfill.one_live_run import assert_one_live_run
from tests.streamsrt.backfill.scene import open_scene

DECEMBER_MS = int(datetime(2013, 12, 1, tzinfo=UTC).timestamp() * 1000)
LOGGED = 20_000
TIMEOUT_S = 900


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.backfill_year")
    parser.add_argument("--engine", default="local,spark")
    parser.add_argument("--broker", default="bundled,kafka")
    options = parser.parse_args()
    rows = list(flights.read_departures())
    before = sum(row.timestamp_ms < DECEMBER_MS for row in rows)
    rows.sort(key=lambda row: row.timestamp_ms >= DECEMBER_MS)
    for broker in options.broker.split(","):
        for name in options.engine.split(","):
            with tempfile.TemporaryDirectory(prefix="backfill-year-") as folder, contextlib.ExitStack() as stack:
                engine = chosen_engine(name, stack)
                address = stack.enter_context(running(broker, Path(folder)))
                for scene in open_scene(address, Path(folder)):
                    started = time.perf_counter()
                    assert_one_live_run(
                        scene, engine, rows, archived=before - LOGGED, logged=LOGGED, timeout_s=TIMEOUT_S
                    )
                    seconds = time.perf_counter() - started
                    print(
                        f"{broker:8} {name:6} {len(rows):,} departures, {before:,} before December: equal ({seconds:.0f} s)"
                    )


def chosen_engine(name: str, stack: contextlib.ExitStack) -> Engine:
    if name == "local":
        return LocalEngine(2)
    session = open_session("local[2]")
    stack.callback(session.close)
    return SparkEngine()


@contextlib.contextmanager
def running(broker: str, folder: Path) -> Iterator[str]:
    """The address of a broker of that kind, as long as it is needed."""
    if broker == "bundled":
        with BundledBroker(
            folder / "broker", configs=[f"{key}={value}" for key, value in QUICK_GROUPS.items()]
        ) as bundled:
            yield bundled.address
        return
    server = KafkaServer(folder / "kafka", QUICK_GROUPS)
    server.start()
    try:
        yield server.bootstrap_servers
    finally:
        server.kill()


if __name__ == "__main__":
    main()
