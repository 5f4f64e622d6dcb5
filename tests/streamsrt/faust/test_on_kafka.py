"""A view that is a class, a crontab and an answer to ``ask``, on each broker: Apache Kafka 3.9 has classic groups only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_brokers import ROOT
from tests.kafka_server import free_ports
from tests.streamsrt.faust.needed import require_faust
from tests.streamsrt.faust.test_live import PATIENCE_S, wait_for_page

require_faust()

pytestmark = [pytest.mark.system, pytest.mark.slow]

PROGRAM = """
import os

import faust
from faust.web import View

app = faust.App(
    "asked", broker="kafka://" + os.environ["BROKER"], topic_partitions=1, topic_replication_factor=1,
    web_port=int(os.environ["PORT"]), web_bind="127.0.0.1", broker_commit_interval=0.1,
)
found = {"answer": None, "ticks": 0}


@app.agent(app.topic("asked-numbers", value_type=int))
async def square(numbers):
    async for number in numbers:
        yield number * number


@app.task
async def ask():
    found["answer"] = await square.ask(12)


@app.crontab("* * * * * *")
async def tick():
    found["ticks"] += 1


@app.page("/found/")
class Found(View):
    async def get(self, request):
        return self.json({"answer": found["answer"], "ticks": found["ticks"] >= 2})
"""


def test_a_page_shows_an_answer_and_that_a_crontab_runs(any_version: str, tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text(PROGRAM, encoding="utf-8")
    (port,) = free_ports(1)
    environment = {**os.environ, "BROKER": any_version, "PORT": str(port), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "streamsrt", "faust", "run", "asked:app", "--state-dir", "state"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        wait_for_page(process, f"http://127.0.0.1:{port}/found/", b'{"answer":144,"ticks":true}', tmp_path / "log")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
