"""Two versions of an application with equal topics and stores, but other steps between them, that start at one moment."""

from __future__ import annotations

import pytest

from coordinator.group.streams import heartbeat
from streamsrt.errors import StreamsError, TopologyMismatchError
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.testing.simulator import NO_FAULTS
from streamsrt.testing.simulator.instance import Instance
from streamsrt.testing.simulator.simulation import Simulation
from tests.streamsrt.testing.simulator.programs import AT_LEAST_ONCE, LINES, word_count
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology


def long_words() -> Topology:
    """The word count, but for short words."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(lambda line: line.split())
        .filter(lambda _, word: len(word) > 2)
        .group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
        .count(store="counts")
        .to_stream()
        .to("word-counts", key=serdes.string, value=serdes.long)
    )
    return builder.build()


class TwoVersions(Simulation):
    """Each of two instances starts once, with a version of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            word_count(),
            LINES,
            seed=seed,
            instances=2,
            faults=NO_FAULTS,
            config=AT_LEAST_ONCE,
            partitions=2,
            broker_config={},
            chaos_s=20.0,
            settle_s=1.0,
        )
        self.processed: dict[str, int] = {}
        self.refused: dict[str, StreamsError | None] = {}

    def start(self, instance: Instance) -> None:
        if not instance.starts:
            version = word_count() if instance.name == "i1" else long_words()
            instance.start(version.with_default_serdes(serdes.bytes, serdes.bytes), 0, self.config)

    def ended(self, instance: Instance, error: StreamsError | None) -> None:
        self.refused[instance.name] = error

    def turned(self, instance: Instance) -> None:
        """Whether two versions do each other's work is looked at afterwards."""

    def note_processed(self, name: str, records: int) -> None:
        self.processed[name] = self.processed.get(name, 0) + records


def both_started(seed: int, monkeypatch: pytest.MonkeyPatch) -> TwoVersions:
    """What became of them."""
    simulation = TwoVersions(seed)
    process = StreamThread._process

    def counted(thread: StreamThread, limit_records: int) -> None:
        before = thread.processed_records
        process(thread, limit_records)
        if thread.processed_records > before:
            simulation.note_processed(thread.member_id, thread.processed_records - before)

    monkeypatch.setattr(StreamThread, "_process", counted)
    try:
        simulation.run()
    finally:
        simulation.clear_away()
    return simulation


@pytest.mark.parametrize("seed", range(8))
def test_one_is_refused_before_it_processes_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = both_started(seed, monkeypatch)
    (error,) = run.refused.values()
    assert isinstance(error, TopologyMismatchError)
    assert "runs another topology under the same topology epoch 0" in str(error)
    assert (len(run.processed), sum(run.processed.values()) > 60) == (1, True)


@pytest.mark.parametrize("seed", range(8))
def test_where_the_coordinator_compares_topics_only_not_both_of_them_run(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache Kafka does. Each may see the other, so that both are refused."""
    monkeypatch.setattr(heartbeat, "TOPOLOGY_DIGEST", "no such tag")
    run = both_started(seed, monkeypatch)
    assert run.refused
    assert all(isinstance(error, TopologyMismatchError) for error in run.refused.values())
    assert len(run.processed) <= 1
