"""``app.stop()``: the instance ends as it does after SIGTERM, wherever the application calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamsrt.membership.values import Tasks
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from tests.fixtures_brokers import ROOT, BundledBroker
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.committed import committed_rows
from tests.streamsrt.faust.needed import require_faust
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import MakeRig

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402

PATIENCE_S = 120
ROUNDS = 50


def by_agent(app: faust.App) -> None:
    @app.agent(app.topic("stops"))
    async def stop(stream: Any) -> None:
        async for _ in stream:
            await app.stop()


def by_task(app: faust.App) -> None:
    @app.task
    async def stop() -> None:
        await app.stop()


def by_timer(app: faust.App) -> None:
    @app.timer(0.01)
    async def stop() -> None:
        await app.stop()


def by_signal(app: faust.App) -> None:
    @app.on_partitions_assigned.connect(weak=False)
    async def stop(_: Any, *__: Any, **___: Any) -> None:
        await app.stop()


def copying(declare: Callable[[faust.App], None]) -> faust.App:
    app = an_app(web_enabled=False)
    out = app.topic("out", value_serializer="raw", value_type=bytes)

    @app.agent(app.topic("in", value_serializer="raw", value_type=bytes))
    async def copy(stream: Any) -> None:
        async for value in stream:
            await next_turn()
            await out.send(value=value, partition=0)

    declare(app)
    return app


def run_until_stopped(make_rig: MakeRig, app: faust.App) -> InProcessNetwork:
    """The application gets five records, and runs until it ends itself, or too long."""
    network = InProcessNetwork({"in": 1, "out": 1})
    rig = make_rig(topology=streamsrt.faust.topology(app), network=network)
    network.write(("in", 0), [(None, b"%d" % number) for number in range(5)])
    rig.give(Tasks(active=rig.tasks(0)))
    rounds = count()

    def is_over(_: object) -> bool:
        rig.clock_ms += 20
        return next(rounds) > ROUNDS

    # It waits for no answer of the coordinator.
    rig.thread.leaving = GroupMembershipOperation.REMAIN_IN_GROUP
    rig.thread.run(is_over)
    assert rig.thread.is_stopped_by_program
    return network


@pytest.mark.parametrize("declare", [by_task, by_timer, by_signal])
def test_the_instance_ends_and_loses_nothing(make_rig: MakeRig, declare: Callable[[faust.App], None]) -> None:
    app = copying(declare)
    network = run_until_stopped(make_rig, app)
    done = [value for _, value in network.read("out")]
    assert done == [b"%d" % number for number in range(len(done))]
    committed = network.admin.offsets.get(("in", 0))
    assert len(done) == (0 if committed is None else committed.offset)


def test_an_agent_may_stop_it_in_the_middle_and_its_record_counts(make_rig: MakeRig) -> None:
    app = an_app(web_enabled=False)
    out = app.topic("out", value_serializer="raw", value_type=bytes)

    @app.agent(app.topic("in", value_serializer="raw", value_type=bytes))
    async def copy(stream: Any) -> None:
        async for value in stream:
            if value == b"2":
                await app.stop()
                assert app.should_stop
            await out.send(value=value, partition=0)

    network = run_until_stopped(make_rig, app)
    assert [value for _, value in network.read("out")] == [b"0", b"1", b"2", b"3", b"4"]
    assert network.admin.offsets["in", 0].offset == 5
    assert not app.should_stop, "it can run again"


PROGRAM = """
import os

import faust

app = faust.App(
    "stops", broker="kafka://" + os.environ["BROKER"], web_enabled=False, topic_partitions=2, topic_replication_factor=1,
)
out = app.topic("stops-out", value_type=int)


@app.agent(app.topic("stops-in", value_type=int))
async def copy(stream):
    async for number in stream:
        await out.send(value=number, partition=0)
        if number == 7:
            await app.stop()
"""


@pytest.mark.system
@pytest.mark.slow
def test_all_stream_threads_of_an_instance_end(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    servers = {"bootstrap.servers": bundled_broker.bootstrap_servers}
    admin = AdminClient(servers)
    for each in admin.create_topics([NewTopic(name, 2, 1) for name in ("stops-in", "stops-out")]).values():
        each.result(PATIENCE_S)
    producer = Producer(servers)
    for number in range(20):
        producer.produce("stops-in", str(number), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    (tmp_path / "stops.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "streamsrt", "faust", "run", "stops:app", "--state-dir", "state", "--threads", "2"],
        cwd=tmp_path,
        env={**os.environ, "BROKER": bundled_broker.bootstrap_servers, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [
        int(value or b"") for rows in committed_rows(servers["bootstrap.servers"], "stops-out") for _, value, _ in rows
    ]
    assert 7 in found
    assert len(found) == len(set(found))
    assert "it is replaced" not in done.stderr
