"""``python -m examples.demo``: its tables are right, and stopped in the middle it goes on where it was."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from examples import flights
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.errors import StreamsError
from streamsrt.runtime.bundled_broker import find_broker
from tests.system import expected
from tests.system.processes import PATIENCE_S, ROOT, environment, wait_until

LIMIT = 150_000
GROUP = "flights"


def demo(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--directory", str(folder), "--limit", str(LIMIT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**environment(ROOT), "COLUMNS": "140", "TERM": "dumb"},
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    return said


def wait_until_something_is_committed(folder: Path) -> None:
    wait_until(lambda: find_broker(folder) is not None, "the broker runs")
    network = NetworkThread(ClientConfig(bootstrap_servers=find_broker(folder) or "", client_id="tests"))
    network.start()

    def some() -> bool:
        try:
            committed = network.admin.committed(GROUP)
        except StreamsError:
            return False  # there is no such group yet
        return any(at.offset for (topic, _), at in committed.items() if topic == flights.DEPARTURES)

    try:
        wait_until(some, "something is committed", pause_s=0.02)
    finally:
        network.stop()


def airlines_table() -> list[str]:
    """The rows of the demo's table of airlines, computed from the file."""
    names = expected.airline_names()
    delays: dict[str, list[int]] = defaultdict(list)
    for row in expected.departures(LIMIT):
        if row.delay is not None:
            delays[names[row.airline]].append(row.delay)
    return [
        f"{airline} {len(found):,} {sum(delay >= 15 for delay in found) / len(found):.1%} {sum(found) / len(found):.1f}"
        for airline, found in sorted(delays.items(), key=lambda item: -len(item[1]))
    ]


def shown(said: str) -> list[str]:
    """Its lines without the borders of tables, with single spaces."""
    return [" ".join(line.replace("│", " ").split()) for line in said.splitlines()]


def test_the_demo_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = demo(tmp_path)
    wait_until_something_is_committed(tmp_path)
    first.send_signal(signal.SIGINT)
    said = finish(first)
    assert f"Loaded {LIMIT:,} departures" in said

    said = finish(demo(tmp_path))
    assert f"Going on from an earlier run: {LIMIT:,} departures are loaded already." in said
    found = re.search(r"Going on from an earlier run: ([\d,]+) departures are processed already\.", said)
    assert found is not None
    before = int(found[1].replace(",", ""))
    assert 0 < before < LIMIT
    assert f"Processed {LIMIT - before:,} records" in said
    table = airlines_table()
    assert [line for line in shown(said) if line in table] == table

    said = finish(demo(tmp_path))
    assert f"Going on from an earlier run: {LIMIT:,} departures are processed already." in said
    assert "Nothing new to process" in said
    assert [line for line in shown(said) if line in table] == table
