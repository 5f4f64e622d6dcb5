"""The warning about windows whose records are older than their changelog keeps them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from streamsrt.membership.values import Tasks
from streamsrt.wire.records import encode_batch
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import APPLICATION_ID, Rig
from topology import Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.topology import Topology

DAY_MS = 86_400_000
CHANGELOG = "per-minute-changelog"


def counting(*, windowed: bool, additional_ms: int = DAY_MS) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("lines", key=serdes.string, value=serdes.string).group_by_key()
    if windowed:
        grouped.windowed_by(TimeWindows(timedelta(minutes=1))).count(store="per-minute").to_stream().to(
            "out", key=serdes.time_windowed(serdes.string, timedelta(minutes=1)), value=serdes.long
        )
    else:
        grouped.count(store="per-minute").to_stream().to("out", key=serdes.string, value=serdes.long)
    return builder.build().configured({"windowstore.changelog.additional.retention.ms": additional_ms})


def warnings_of(
    folder: Path, caplog: pytest.LogCaptureFixture, topology: Topology, *, age_ms: int, idle_days: int = 0
) -> list[str]:
    """What is logged while three records of that age are counted, and then for so many days without any."""
    topics = {name: 1 for name in ("lines", "out", CHANGELOG, f"{APPLICATION_ID}-{CHANGELOG}")}
    network = InProcessNetwork(topics)
    rig = Rig(folder, topology, network)
    try:
        rig.clock_ms = 1_000 * DAY_MS
        rig.give(Tasks(active=frozenset({(rig.topology.subtopologies[0].id, 0)})))
        rig.iterate(4)
        for _ in range(3):
            network.logs["lines", 0].append(encode_batch([b"k"], [b"v"], [rig.clock_ms - age_ms]), 1)
            rig.clock_ms += 1_000
            rig.iterate(4)
        for _ in range(idle_days):
            rig.clock_ms += DAY_MS
            rig.iterate(4)
    finally:
        rig.close()
    return [each.getMessage() for each in caplog.records if "older than its changelog" in each.getMessage()]


def test_old_windows_are_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(tmp_path, caplog, counting(windowed=True), age_ms=30 * DAY_MS)
    assert CHANGELOG in line
    assert "windowstore.changelog.additional.retention.ms" in line


@pytest.mark.parametrize(
    ("topology", "age_ms"),
    [
        pytest.param(counting(windowed=True), 0, id="records of now"),
        pytest.param(counting(windowed=True, additional_ms=100 * DAY_MS), 30 * DAY_MS, id="a longer retention"),
        pytest.param(counting(windowed=False), 30 * DAY_MS, id="no windows"),
    ],
)
def test_nothing_else_is(topology: Topology, age_ms: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(tmp_path, caplog, topology, age_ms=age_ms) == []


def versioned(lag_ms: int | None = None) -> Topology:
    builder = StreamsBuilder()
    configs = {} if lag_ms is None else {"min.compaction.lag.ms": lag_ms}
    history = Store("per-minute", kind="versioned", retention=timedelta(minutes=1), changelog_config=configs)
    prices = builder.table("lines", key=serdes.string, value=serdes.string, store=history)
    prices.to_stream().to("out", key=serdes.string, value=serdes.string)
    return builder.build()


def test_old_versions_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(tmp_path, caplog, versioned(), age_ms=30 * DAY_MS)
    assert f"keeps their versions ({CHANGELOG}: min.compaction.lag.ms={DAY_MS + 60_000})" in line
    assert "changelog_config={'min.compaction.lag.ms': ...}" in line


def test_a_longer_lag_keeps_old_versions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(tmp_path, caplog, versioned(100 * DAY_MS), age_ms=30 * DAY_MS) == []


def test_windows_of_an_idle_instance_are_not_old(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(tmp_path, caplog, counting(windowed=True), age_ms=0, idle_days=3) == []
