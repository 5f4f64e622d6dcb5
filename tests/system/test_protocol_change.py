"""A group goes from the classic protocol to the streams protocol and back, member by member, while it works."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.system import expected
from tests.system.cluster import Cluster
from tests.system.processes import ROOT, AppProcess, run_command, wait_until
from tests.system.test_classic_group import CLASSIC
from tests.system.test_failures import repartition_topic
from tests.system.test_results import PARTITIONS, final_counts

EPOCH = 3


def shown_commands() -> list[list[str]]:
    """Those of the page, in its order."""
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    section = page.partition("\n## Changing the protocol\n")[2].partition("\n## ")[0]
    return [shlex.split(line)[1:] for line in section.splitlines() if line.startswith("    streamsrt ")]


def as_shown(command: list[str], cluster: Cluster, application_id: str) -> list[dict[str, Any]]:
    """What a command of the page prints, asked of this cluster."""
    instead = {"wc": application_id, "127.0.0.1:9092": cluster.address}
    done = run_command(*(instead.get(word, word) for word in command), "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def protocol_of(command: list[str]) -> str:
    """The one setting that the shown command gives."""
    assert command[:2] == ["run", "wordcount:topology"]
    name, _, protocol = command[command.index("--config") + 1].partition("=")
    assert name == "group.protocol"
    return protocol


def parts_of(lines: list[str], count: int) -> Iterator[list[str]]:
    size = -(-len(lines) // count)
    return (lines[start : start + size] for start in range(0, len(lines), size))


@pytest.mark.slow
def test_a_group_changes_its_protocol_member_by_member_and_back(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster = bundled
    to_streams, to_classic, describe, _, _ = shown_commands()
    lines = expected.text_lines()[:4_000]
    parts = parts_of(lines, 8)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    with ExitStack() as stack:

        def started(name: str, protocol: str) -> AppProcess:
            configs = {**CLASSIC, "topology.epoch": EPOCH, "group.protocol": protocol}
            app = AppProcess(tmp_path / name, "examples.wordcount", application_id, cluster.address, configs)
            return stack.enter_context(app)

        names = ("a", "b", "c")
        running = {name: started(name, "classic") for name in names}
        cluster.write("lines", expected.line_rows(next(parts)), PARTITIONS)
        for app in running.values():
            app.wait_running(tasks=1)
        for command in (to_streams, to_classic):
            for name in names:
                cluster.write("lines", expected.line_rows(next(parts)), PARTITIONS)
                assert running[name].terminate() == 0
                running[name] = started(name, protocol_of(command))
                running[name].wait_running(tasks=1)
                members = as_shown(describe, cluster, application_id)
                assert {member["topology_epoch"] for member in members} <= {EPOCH, "-"}, "it rebalances, or goes on"
            (group,) = [each for each in cluster.network.admin.list_groups() if each.group_id == application_id]
            assert group.group_type.lower() == protocol_of(command)
        cluster.write("lines", expected.line_rows(next(parts)), PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        wait_until(
            lambda: [m["topology_epoch"] for m in as_shown(describe, cluster, application_id)] == [EPOCH] * 3,
            "the epoch has gone on",
        )
        for app in running.values():
            assert app.terminate() == 0
    records = cluster.read("word-counts")
    assert final_counts(records) == expected.count_words(lines)
    assert len(records) == expected.count_words(lines).total(), "every update once"


def test_a_group_that_was_stopped_goes_on_with_the_other_protocol(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    *_, state, to_classic = shown_commands()
    lines = expected.text_lines()[:1_000]
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    for protocol, part in zip(("streams", protocol_of(to_classic), "streams"), parts_of(lines, 3), strict=True):
        configs = {**CLASSIC, "topology.epoch": EPOCH, "group.protocol": protocol}
        with AppProcess(tmp_path / "app", "examples.wordcount", application_id, cluster.address, configs) as app:
            cluster.write("lines", expected.line_rows(part), PARTITIONS)
            app.wait_running(tasks=2 * PARTITIONS)
            cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
            assert app.terminate() == 0
        (row,) = as_shown(state, cluster, application_id)
        assert row["state"].lower() == "empty"
    records = cluster.read("word-counts")
    assert final_counts(records) == expected.count_words(lines)
    assert len(records) == expected.count_words(lines).total()
