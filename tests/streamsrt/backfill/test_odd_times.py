"""Records whose times a topic does not take: found before a hand-over changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from examples import flights
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.handover import load_state
from streamsrt.backfill.manifest import FileResult, LogResult
from streamsrt.backfill.odd_times import AFTER, BEFORE, check_record_times
from streamsrt.backfill.plan import load_plan
from streamsrt.client.values import NewTopic
from streamsrt.wire.records import encode_batch
from streamsrt.wording import time_text
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures

NOW_MS, HOUR_MS = 1_800_000_000_000, 3_600_000


def written(folder: Path, topic: str, *times_ms: int) -> LogResult:
    """One file with a batch of records of these times, after one that is new."""
    batches = encode_batch([b"k"], [b"v"], [NOW_MS]) + encode_batch(
        [b"k"] * len(times_ms), [b"v"] * len(times_ms), times_ms
    )
    (folder / topic).write_bytes(batches)
    file = FileResult(path=topic, records=1 + len(times_ms), size_bytes=len(batches), digest="")
    return LogResult(topic=topic, partition=0, file=file)


@pytest.mark.parametrize(
    ("configs", "times_ms", "says"),
    [
        ({}, (NOW_MS, NOW_MS + HOUR_MS), None),
        (
            {},
            (NOW_MS, NOW_MS + HOUR_MS + 1, 0),
            "1 hour ahead, .* takes 3600000 ms .message.timestamp.after.max.ms",
        ),
        ({AFTER: "86400000"}, (NOW_MS + 24 * HOUR_MS,), None),
        ({AFTER: "86400000"}, (NOW_MS + 49 * HOUR_MS,), "which is 2 days ahead"),
        ({}, (0,), None),
        (
            {BEFORE: "86400000"},
            (NOW_MS, NOW_MS - 25 * HOUR_MS),
            "25 hours ago, and the topic takes 86400000 ms .*before",
        ),
        ({"message.timestamp.type": "LogAppendTime", AFTER: "1", BEFORE: "1"}, (0, NOW_MS * 2), None),
    ],
)
def test_the_settings_of_a_topic_decide(
    scene: Scene, tmp_path: Path, configs: Mapping[str, str], times_ms: tuple[int, ...], says: str | None
) -> None:
    """Of a topic that is there, and of one that the hand-over will make with these settings."""
    scene.network.admin.create_topics([NewTopic(name="there", partitions=1, configs=dict(configs))])
    for topic in ("there", "later"):
        logs = [written(tmp_path, topic, *times_ms)]
        if says is None:
            check_record_times(scene.network, tmp_path, logs, {"later": configs}, ["delays"], NOW_MS)
            continue
        with pytest.raises(HandOverError, match=rf"a record for {topic}-0 has the time .*{says}"):
            check_record_times(scene.network, tmp_path, logs, {"later": configs}, ["delays"], NOW_MS)
    assert time_text(NOW_MS * 1_000) == f"{NOW_MS * 1_000} ms"


def test_a_record_of_the_future_is_refused_before_anything_is_marked(scene: Scene) -> None:
    admin = scene.network.admin
    admin.alter_topic_configs(flights.DEPARTURES, {AFTER: str(1 << 60)})
    ahead_ms = 50 * 365 * 24 * HOUR_MS
    scene.load([row._replace(timestamp_ms=row.timestamp_ms + ahead_ms) for row in departures(60)])
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id="flights-ahead")
    backfill.run(InProcess())
    for commit in (backfill.check_commit, backfill.commit):
        with pytest.raises(HandOverError, match=r"a record for .*-changelog-\d has the time 20.* days ahead.*raise"):
            commit()
        assert load_state(backfill.directory, load_plan(backfill.directory)).step == "none"
    assert admin.committed("flights-ahead") == {}
    assert not admin.topics(["flights-ahead-delays-per-hour-changelog"])
