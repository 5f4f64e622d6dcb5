"""Whatever rows there are: after the move each is in its place, once, with its timestamp and headers."""

from __future__ import annotations

import random

import pytest

from streamsrt.client.values import EARLIEST
from streamsrt.state.windowed import window_key
from streamsrt.tasks.input.offset_metadata import parse_moving, parse_partition_metadata, partition_metadata
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import Headers
from tests.streamsrt.backfill.repartition.counted_app import WINDOW_MS, topic_of
from tests.streamsrt.backfill.repartition.written import Record, Written, closed_mark, written

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


def finish(written: Written) -> None:
    with written.job(chunk_rows=4) as job:
        survey = job.survey()
        assert survey.blockers == []
        assert survey.shape.is_begun
        job.execute(survey)


def test_rows_of_a_partitioner_of_the_programs_are_moved_on_after_an_interruption(bootstrap_servers: str) -> None:
    keys = [b"key-%d" % number for number in range(40)]
    with written(bootstrap_servers, "placed_interrupted") as scene:
        topic = topic_of(scene.name)
        scene.create({topic: 2, scene.changelog: 2, f"{scene.application_id}-placed-repartition": 2})
        for partition in range(2):
            rows = [key for key in keys if int(key[-1:]) % 2 == partition]
            scene.write((scene.changelog, partition), [(key, b"12345678", NOW_MS, ()) for key in rows])
        for count in (5, 7):
            scene.raise_counts({topic: count})
            interrupt(scene, 1)
        finish(scene)
        after = scene.rows(scene.changelog)
        assert {partition: set(rows) for partition, rows in after.items()} == {
            partition: {key for key in keys if int(key[-1:]) % 7 == partition} for partition in range(7)
        }


@pytest.mark.parametrize("name", ["final_interrupted", "idle_interrupted"])
def test_closed_windows_are_moved_on_after_an_interruption(bootstrap_servers: str, name: str) -> None:
    """Their rows lie in partitions whose stream time is not known yet, as if they had been open there."""
    start_ms = NOW_MS - NOW_MS % WINDOW_MS
    rows = {b"key-%d" % number: window_key(b"key-%d" % number, start_ms) for number in range(40)}
    is_idle = name.startswith("idle")
    with written(bootstrap_servers, name) as scene:
        topic = topic_of(name)
        scene.create({topic: 2, scene.changelog: 2, **({scene.closed_marks: 2} if is_idle else {})})
        for partition in range(2):
            keys = [row for key, row in rows.items() if partition_for_key(key, 2) == partition]
            scene.write((scene.changelog, partition), [(key, b"12345678", start_ms, ()) for key in keys])
            if is_idle:
                scene.write((scene.closed_marks, partition), [closed_mark(start_ms + WINDOW_MS)])
        time_ms = start_ms + (1 if is_idle else WINDOW_MS)
        scene.commit(scene.ends(topic), partition_metadata(time_ms, {"@counts": time_ms}))
        scene.raise_counts({topic: 5})
        interrupt(scene, 1)
        finish(scene)
        assert {row: partition for partition, each in scene.rows(scene.changelog).items() for row in each} == {
            row: partition_for_key(key, 5) for key, row in rows.items()
        }
        if is_idle:
            marks = scene.rows(scene.closed_marks)
            assert [list(each) for each in marks.values()] == [[b"closed"]] * 5


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
