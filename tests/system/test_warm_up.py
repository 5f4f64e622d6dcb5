"""A new instance joins a group with state: its tasks warm up while the old owner goes on, and then move with what they have.

Only the bundled broker hands out warm-up tasks; Apache Kafka's coordinator moves a task first and lets it restore then.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system import expected
from tests.system.cluster import Cluster
from tests.system.processes import AppProcess, wait_until
from tests.system.test_failures import repartition_topic, word_count
from tests.system.test_results import PARTITIONS, final_counts


def when(app: AppProcess, what: str) -> dict[str, str]:
    """Task -> when the log first says this of it."""
    found = re.findall(rf"^(\S+ \S+) INFO \S+ task (\S+): {what}: .+$", app.stderr, re.MULTILINE)
    return {task: moment for moment, task in reversed(found)}


@pytest.mark.requirement("SG-192", "SG-200", "SG-231")
def test_tasks_move_once_their_state_is_there(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines()
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    inputs = ("lines", repartition_topic(application_id))
    bundled.make_topics(PARTITIONS, "lines", "word-counts")
    # A warm-up task has caught up at the very end only, and they come one by one.
    settings = {"streams.acceptable.recovery.lag": "0", "streams.num.warmup.replicas": "1"}
    bundled.network.admin.alter_group_configs(application_id, settings)
    bundled.write("lines", expected.line_rows(first), PARTITIONS)
    a, b = (word_count(bundled, tmp_path / name, application_id) for name in ("a", "b"))
    with a:
        a.wait_running(tasks=2 * PARTITIONS)
        bundled.wait_all_committed(application_id, *inputs)
        with b:
            b.wait_for(lambda line: len(line["tasks"]) >= PARTITIONS, "b has its share")
            bundled.write("lines", expected.line_rows(second), PARTITIONS)
            wait_until(
                lambda: len(a.tasks("active", "running")) == len(b.tasks("active", "running")) == PARTITIONS,
                "both have half of the tasks",
                timeout_s=300,
            )
            bundled.wait_all_committed(application_id, *inputs)
            warmed, closed = when(b, "opened as warmup"), when(a, "closed")
            promoted = when(b, "promoted from warmup")
            # b has never had such a task in another way, and a closed none of them before b had begun to warm it up.
            assert promoted.keys() == warmed.keys() != set()
            assert all(warmed[task] <= closed[task] for task in warmed)
            assert not promoted.keys() & when(b, "opened as active").keys()
            assert a.terminate() == 0
            b.wait_running(tasks=2 * PARTITIONS)
            assert b.terminate() == 0
    assert final_counts(bundled.read("word-counts")) == expected.count_words(lines)
