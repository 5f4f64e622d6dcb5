"""Pairs of versions that chance makes (tests/upgrades), with real processes under load and exactly once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamsrt.testing.simulator import Output
from tests.system.cluster import Cluster, Row, connected
from tests.system.processes import AppProcess, wait_until
from tests.system.test_classic_group import CLASSIC
from tests.system.test_hand_over import SETTINGS
from tests.upgrades.judging import compared, is_refused_by_group, judged
from tests.upgrades.pairs import Pair, pair
from tests.upgrades.programs import build, key_of, timestamp_of
from tests.upgrades.rolling import ALL_TOPICS, NEW, OLD, TOPICS, Rolled, text_of
from topology.graph.nodes import internal_topic_name
from topology.graph.topology import Topology

AT_ONCE = 150
PAIRS = [1, 3, 5, 10, 20, 53, 57, 77, 79, 80, 335, 377]
"""Removed, ungrouped, renamed and merged tables, joins that come and go, other sources; two that are refused."""


class Run:
    """An upgrade of two instances. Records of all topics are written before each step."""

    def __init__(
        self, cluster: Cluster, folder: Path, application_id: str, seed: int, settings: Mapping[str, Any]
    ) -> None:
        self.cluster, self.application_id = cluster, application_id
        self.pair: Pair = pair(seed)
        self.end = 0
        self._folder, self._settings, self._seed = folder, settings, seed
        self.versions = {OLD: build(self.pair.old, OLD).topology, NEW: build(self.pair.new, NEW).topology}
        self.outputs = {sink.topic for version in self.versions.values() for sink in sinks(version)}
        cluster.make_topics(2, *sorted(self.outputs))
        for topic in sorted(ALL_TOPICS.keys() & (self.pair.old.topics | self.pair.new.topics)):
            cluster.make_topics(ALL_TOPICS[topic], topic)

    def app(self, name: str, version: str) -> AppProcess:
        return AppProcess(
            self._folder / name,
            f"tests.system.pair_app:{version}",
            self.application_id,
            self.cluster.address,
            self._settings,
            surroundings={"PAIR": str(self._seed)},
        )

    def write(self, count: int = AT_ONCE) -> None:
        for topic in sorted(ALL_TOPICS.keys() & (self.pair.old.topics | self.pair.new.topics)):
            times = timestamp_of if topic in TOPICS else int
            rows = [
                Row(key_of(n).encode(), text_of(topic, n).encode(), times(n)) for n in range(self.end, self.end + count)
            ]
            self.cluster.write(topic, rows, ALL_TOPICS[topic])
        self.end += count

    def unread(self, version: str) -> int:
        """In the repartition topics that this version alone has."""
        mine, theirs = (repartition_topics(self.versions[each]) for each in (version, NEW if version == OLD else OLD))
        committed = self.cluster.committed(self.application_id)
        names = [internal_topic_name(self.application_id, name) for name in mine - theirs]
        return sum(end - committed.get(place, 0) for name in names for place, end in self.cluster.ends(name).items())

    def wait_all_read(self, version: str) -> None:
        sources = {topic for part in self.versions[version].subtopologies for topic in part.source_topics}
        sources |= {
            internal_topic_name(self.application_id, name) for name in repartition_topics(self.versions[version])
        }
        self.cluster.wait_all_committed(self.application_id, *sorted(sources), timeout_s=120)

    def judge(self, last: str, refusal: str = "") -> None:
        """Apache Kafka shows what a transaction has written some moments after it is committed."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self._wrong(last, refusal) is None, "all is there", timeout_s=20, pause_s=2)
        assert self._wrong(last, refusal) is None

    def _wrong(self, last: str, refusal: str) -> str | None:
        outputs = {
            topic: [Output(r.partition, r.key, r.value, r.timestamp) for r in self.cluster.read(topic)]
            for topic in sorted(self.outputs)
        }
        topics = self.cluster.network.admin.topics()
        committed = self.cluster.committed(self.application_id)
        known = {name: 0 for name in topics}
        rolled = Rolled(self.application_id, self.end, outputs, refusal, last, known, committed, frozenset())
        return judged(self.pair, compared(self.pair), rolled)


def sinks(topology: Topology) -> Iterator[Any]:
    return (sink for part in topology.subtopologies for sink in part.sinks if sink.topic and not sink.repartition)


def repartition_topics(topology: Topology) -> set[str]:
    return {topic.name for part in topology.subtopologies for topic in part.repartition_source_topics}


def upgrade(run: Run) -> None:
    """Two old instances; a new one beside them; then they go, one after the other."""
    is_refused = is_refused_by_group(run.pair, compared(run.pair))
    with run.app("A", OLD) as a, run.app("B", OLD) as b:
        wait_until(
            lambda: bool(a.tasks("active", "running") and b.tasks("active", "running")), "both work", timeout_s=120
        )
        run.write()
        with run.app("C", NEW) as c:
            if is_refused:
                assert c.wait_end() == 2
                assert "Traceback" not in c.stderr
                run.write()
                run.wait_all_read(OLD)
                assert a.terminate() == b.terminate() == 0
                run.judge(OLD, refusal=c.last_words)
                return
            wait_until(lambda: "STALE_TOPOLOGY" in b.stderr or bool(c.tasks("active", "running")), "it is there")
            run.write()
            assert a.terminate() == 0
            run.write()
            wait_until(lambda: bool(c.tasks("active", "running")) and run.unread(OLD) == 0, "the rest is read")
            run.wait_all_read(NEW)
            assert b.terminate() == 0
            run.write()
            run.wait_all_read(NEW)
            assert c.terminate() == 0
    run.judge(NEW)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[] if seed == 5 else [pytest.mark.full]) for seed in PAIRS])
def test_a_pair_with_processes(bundled: Cluster, tmp_path: Path, application_id: str, seed: int) -> None:
    upgrade(Run(bundled, tmp_path, application_id, seed, SETTINGS))


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", PAIRS)
def test_a_pair_in_a_classic_group_on_an_older_kafka(
    request: pytest.FixtureRequest, tmp_path: Path, application_id: str, seed: int
) -> None:
    with connected(request.getfixturevalue("older_kafka")("3.9.1")) as cluster:
        upgrade(Run(cluster, tmp_path, application_id, seed, CLASSIC))
