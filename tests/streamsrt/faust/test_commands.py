"""``@app.command`` by ``streamsrt faust command``: a client of the topics that the agents read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import ROOT, BundledBroker
from tests.streamsrt.faust.committed import committed_rows
from tests.streamsrt.faust.needed import require_faust
from tests.warm_processes import run_python

require_faust()

pytestmark = [pytest.mark.system, pytest.mark.slow]

PROGRAM = """
import os

import faust
from faust.cli import argument, option

app = faust.App(
    "commanded", broker="kafka://" + os.environ.get("BROKER", "localhost:1"), web_enabled=False, topic_partitions=2,
    topic_replication_factor=1,
)
options = {"key_type": str, "key_serializer": "raw", "value_type": int}
orders, doubles = app.topic("commanded-orders", **options), app.topic("commanded-doubles", **options)


@app.agent(orders, isolated_partitions=True)
async def double(stream):
    async for item, amount in stream.items():
        assert stream.active_partitions == {stream.current_event.message.tp}
        await doubles.send(key=item, value=amount * 2)


@app.command(argument("item"), option("--times", type=int, default=1))
async def order(self, item, times):
    for number in range(times):
        await orders.send(key=f"{item}-{number}", value=number + 1)
    self.say(f"{times} of {item}")
"""
PATIENCE_S = 120


def run(folder: Path, *arguments: str, broker: str = "localhost:1") -> subprocess.CompletedProcess[str]:
    (folder / "commanded.py").write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "BROKER": broker, "PYTHONPATH": str(ROOT)}
    command = ["-m", "streamsrt", "faust", *arguments]
    return run_python(command, cwd=folder, environment=environment, timeout_s=PATIENCE_S)


def test_a_command_sends_what_the_agents_process(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    broker = bundled_broker.bootstrap_servers
    topics = [NewTopic(name, 2, 1) for name in ("commanded-orders", "commanded-doubles")]
    admin = AdminClient({"bootstrap.servers": broker})
    for each in admin.create_topics(topics).values():
        each.result(PATIENCE_S)
    sent = run(tmp_path, "command", "commanded:app", "order", "tea", "--times", "3", broker=broker)
    assert (sent.returncode, sent.stdout) == (0, "3 of tea\n"), sent.stderr
    done = run(tmp_path, "run", "commanded:app", "--until", "quiet", "--state-dir", "state", broker=broker)
    assert done.returncode == 0, done.stderr
    found = sorted((key, value) for rows in committed_rows(broker, "commanded-doubles") for key, value, _ in rows)
    assert found == [(b"tea-0", b"2"), (b"tea-1", b"4"), (b"tea-2", b"6")]


def test_a_worker_of_faust_is_no_command(tmp_path: Path) -> None:
    refused = run(tmp_path, "command", "commanded:app", "worker")
    assert refused.returncode == 2
    assert refused.stderr == (
        "streamsrt: faust command commanded:app worker: this would run a worker of faust-streaming, which cannot be in the"
        " group together with instances of streamsrt. Run streamsrt faust run commanded:app\n"
    )
