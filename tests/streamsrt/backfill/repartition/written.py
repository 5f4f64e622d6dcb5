"""State that a test has written into changelogs itself, so that no application needs to run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.repartition.job import StateRepartition
from streamsrt.backfill.sources import connected
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, NewTopic, OffsetAndMetadata, TopicPartition
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import Headers, encode_batch
from topology import serdes
from topology.build.materialize import closed_store_name

_NUMBERS = itertools.count()

Record = tuple[bytes | None, bytes | None, int, Headers]


@dataclass
class Written:
    """An application of :mod:`counted_app` by its name there. Source topics have names of this scene's own."""

    network: NetworkThread
    servers: str
    name: str
    application_id: str = field(default_factory=lambda: f"written-{next(_NUMBERS)}")

    @property
    def changelog(self) -> str:
        return f"{self.application_id}-counts-changelog"

    @property
    def closed_marks(self) -> str:
        """The changelog of the marks of what the wall clock closed."""
        return f"{self.application_id}-{closed_store_name('counts')}-changelog"

    def create(self, counts: Mapping[str, int]) -> None:
        topics = [
            NewTopic(name=name, partitions=count, configs={"retention.ms": "-1"}) for name, count in counts.items()
        ]
        for error in self.network.admin.create_topics(topics).values():
            assert error is None, error

    def raise_counts(self, counts: Mapping[str, int]) -> None:
        for error in self.network.admin.create_partitions(counts).values():
            assert error is None, error

    def write(self, tp: TopicPartition, records: Sequence[Record]) -> None:
        keys, values, times, headers = map(list, zip(*records, strict=True))
        self.network.producer.send(*tp, encode_batch(keys, values, times, headers=headers), len(keys))
        self.network.producer.flush()

    def write_by_key(self, topic: str, count: int, records: Sequence[Record]) -> None:
        by_partition: dict[int, list[Record]] = {}
        for record in records:
            by_partition.setdefault(partition_for_key(record[0] or b"", count), []).append(record)
        for partition, some in by_partition.items():
            self.write((topic, partition), some)

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        self.network.admin.commit(
            self.application_id, {tp: OffsetAndMetadata(offset, metadata) for tp, offset in offsets.items()}
        )

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        count = self.network.admin.partitions_for([topic])[topic]
        partitions = {(topic, index): LATEST for index in range(count)}
        return {tp: at.offset for tp, at in self.network.admin.list_offsets(partitions, read_committed=True).items()}

    def rows(self, topic: str) -> dict[int, dict[bytes, tuple[bytes, int, Headers]]]:
        """What a restore finds, by partition."""
        found: dict[int, dict[bytes, tuple[bytes, int, Headers]]] = {}
        for tp, end in self.ends(topic).items():
            rows = found[tp[1]] = {}
            for columns in read_log(self.network, tp, 0, end):
                headers = columns.headers or [()] * len(columns)
                for key, value, time, each in zip(
                    columns.keys, columns.values, columns.timestamps, headers, strict=True
                ):
                    assert key is not None
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = value, time, each
        return found

    def refusals(self) -> list[str]:
        """Why the state is not moved."""
        with self.job() as job:
            survey = job.survey()
            if survey.blockers:
                with pytest.raises(HandOverError):
                    job.execute(survey)
            return survey.blockers

    def job(self, chunk_rows: int = 2_000, record_keys: Sequence[str] = ()) -> StateRepartition:
        return StateRepartition(
            f"tests.streamsrt.backfill.repartition.counted_app:{self.name}",
            self.application_id,
            bootstrap_servers=self.servers,
            chunk_rows=chunk_rows,
            record_keys=record_keys,
        )


def closed_mark(at_ms: int) -> Record:
    """The mark that windows were closed up to that stream time."""
    return b"closed", serdes.long.serialize(at_ms), at_ms, ()


@contextmanager
def written(servers: str, name: str) -> Iterator[Written]:
    with connected(servers) as network:
        yield Written(network, servers, name)
