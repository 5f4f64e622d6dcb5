"""Whatever rows there are: after the move each is in its place, once, with its timestamp and headers."""

from __future__ import annotations

import random

import pytest

from streamsrt.client.values import EARLIEST
from streamsrt.tasks.input.offset_metadata import parse_moving, parse_partition_metadata, partition_metadata
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import Headers
from tests.streamsrt.backfill.repartition.counted_app import topic_of
from tests.streamsrt.backfill.repartition.written import Record, Written, written

NOW_MS = 1_700_000_000_000


class Interrupted(Exception):
    """Ends a move where a test wants it to end."""


def random_records(chance: random.Random) -> list[Record]:
    """Records of a changelog: rows that are overwritten, deleted, and written again."""
    keys = [chance.randbytes(chance.randint(0, 12)) for _ in range(chance.randint(1, 300))]
    found: list[Record] = []
    for number in range(len(keys) * 2):
        headers: Headers = (("name", b"%d" % number),) if chance.random() < 0.2 else ()
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, 40))
        found.append((chance.choice(keys), value, chance.randint(0, NOW_MS), headers))
    return found


def interrupt(written: Written, after: int) -> None:
    left = after

    def on_step(said: str) -> None:
        nonlocal left
        left -= said.endswith("under way")
        if left < 0:
            raise Interrupted

    with written.job(chunk_rows=10) as job:
        survey = job.survey()
        assert survey.blockers == []
        try:
            job.execute(survey, on_step)
        except Interrupted:
            return


@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_in_its_place_once(bootstrap_servers: str, seed: int) -> None:
    chance = random.Random(seed)
    with written(bootstrap_servers, f"seed_{seed}") as scene:
        topic = topic_of(scene.name)
        before = chance.randint(1, 4)
        counts = [before, before + chance.randint(1, 4)]
        scene.create({topic: before, scene.changelog: before})
        records = random_records(chance)
        scene.write_by_key(scene.changelog, before, records)
        scene.write_by_key(topic, before, records)
        times = partition_metadata(17, {"KSTREAM-AGGREGATE": 4})
        scene.commit(scene.ends(topic), times)
        expected = {key: row for rows in scene.rows(scene.changelog).values() for key, row in rows.items()}
        scene.raise_counts({topic: counts[1]})
        if seed % 2:
            # Raised once more while rows lie by two counts.
            interrupt(scene, chance.randint(0, 3))
            committed = scene.network.admin.committed(scene.application_id)
            assert all(parse_moving(committed[topic, index].metadata) for index in range(before, counts[1]))
            counts.append(counts[1] + chance.randint(1, 3))
            scene.raise_counts({topic: counts[2]})
            interrupt(scene, chance.randint(0, 3))
        with scene.job(chunk_rows=chance.randint(1, 50)) as job:
            survey = job.survey()
            assert survey.blockers == []
            assert sum(each.rows for each in survey.stores) == len(expected)
            job.execute(survey)
        after = scene.rows(scene.changelog)
        assert len(after) == counts[-1]
        for partition, rows in after.items():
            assert all(partition_for_key(key, counts[-1]) == partition for key in rows)
        assert {key: row for rows in after.values() for key, row in rows.items()} == expected
        assert sum(map(len, after.values())) == len(expected)
        committed = scene.network.admin.committed(scene.application_id)
        starts = scene.network.admin.list_offsets({(topic, index): EARLIEST for index in range(counts[-1])})
        for tp in starts:
            assert parse_partition_metadata(committed[tp].metadata) == (17, {"KSTREAM-AGGREGATE": 4})
            assert committed[tp].offset == (scene.ends(topic)[tp] if tp[1] < before else 0)
        with scene.job() as job:
            assert job.survey().shape.parts == []
