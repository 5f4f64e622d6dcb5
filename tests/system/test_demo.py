"""``python -m examples.demo``: its tables are right, and stopped in the middle it goes on where it was."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.runtime.bundled_broker import find_broker
from tests.system import expected
from tests.system.processes import PATIENCE_S, ROOT, environment, wait_until

LIMIT = 80_000
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


def wait_until_it_has_tasks(folder: Path) -> None:
    network = NetworkThread(ClientConfig(bootstrap_servers=find_broker(folder) or "", client_id="tests"))
    network.start()

    def has_tasks() -> bool:
        (group,) = network.admin.describe_streams_groups([GROUP])
        return any(member.assignment.active_tasks for member in group.members)

    try:
        wait_until(has_tasks, "the application has tasks", pause_s=0.02)
    finally:
        network.stop()


def processed(said: str) -> int:
    """How many records a run says that it processed."""
    found = re.search(r"Processed ([\d,]+) records", said)
    return int(found[1].replace(",", "")) if found else 0


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
    loading = demo(tmp_path)
    wait_until(lambda: find_broker(tmp_path) is not None, "the broker runs")
    loading.send_signal(signal.SIGINT)
    said, _ = loading.communicate(timeout=PATIENCE_S)
    assert loading.returncode == 130, said
    assert "The next run resumes from here." in said
    assert "Traceback" not in said

    stopped = demo(tmp_path)
    wait_until(lambda: find_broker(tmp_path) is not None, "the broker runs")
    wait_until_it_has_tasks(tmp_path)
    stopped.send_signal(signal.SIGINT)
    first = finish(stopped)

    second = finish(demo(tmp_path))
    assert f"Resuming an earlier run: {LIMIT:,} departures are already loaded." in second
    # Together the runs have processed each record once.
    airlines = len(expected.airline_names())
    assert processed(first) + processed(second) == LIMIT + airlines
    table = airlines_table()
    assert [line for line in shown(second) if line in table] == table

    third = finish(demo(tmp_path))
    assert f"Resuming an earlier run: {LIMIT:,} departures are already processed." in third
    assert "Nothing to process" in third
    assert [line for line in shown(third) if line in table] == table
