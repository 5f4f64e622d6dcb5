"""What keeps state from being moved is told before anything is changed: what, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from streamsrt.backfill.errors import PlanError
from streamsrt.state.windowed import window_key
from streamsrt.tasks.input.offset_metadata import partition_metadata, running_metadata
from streamsrt.wire.murmur2 import partition_for_key
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.repartition import counted_app
from tests.streamsrt.backfill.repartition.counted_app import WINDOW_MS, topic_of
from tests.streamsrt.backfill.repartition.written import Record, Written, closed_mark, written
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import Aggregate

RECORDS: list[Record] = [(b"key-%d" % number, b"12345678", 1_000, ()) for number in range(30)]
MISPLACED = sum(1 for key, *_ in RECORDS if partition_for_key(key or b"", 2) != partition_for_key(key or b"", 5))

Open = Callable[..., Written]
Partitioner = Callable[[str, str, str, int], Any]


@pytest.fixture
def scene(bundled_broker: BundledBroker) -> Iterator[Open]:
    """Opens an application's scene whose source has two partitions, all of which is processed."""
    with ExitStack() as stack:

        def opened(
            name: str, *, rows: list[Record] = RECORDS, metadata: str = "", after: int = 5, partitions: int = 2
        ) -> Written:
            made = stack.enter_context(written(bundled_broker.bootstrap_servers, name))
            topic = topic_of(name)
            made.create({topic: partitions, made.changelog: partitions})
            if rows:
                made.write_by_key(made.changelog, partitions, rows)
            made.write_by_key(topic, partitions, RECORDS)
            made.commit(made.ends(topic), metadata)
            if after > 2:
                made.raise_counts({topic: after})
            return made

        yield opened


def only(refusals: list[str]) -> str:
    assert len(refusals) == 1, refusals
    return refusals[0]


def test_nothing_is_to_be_done_where_counts_fit(scene: Open) -> None:
    assert scene("counted", after=2).refusals() == []


def test_records_that_wait_where_their_keys_are_no_more(scene: Open) -> None:
    made = scene("unread")
    made.write_by_key(topic_of("unread"), 2, RECORDS)
    # What was written after the raise is where it belongs.
    made.write_by_key(topic_of("unread"), 5, RECORDS)
    text = only(made.refusals())
    assert f"{MISPLACED} records of topic repartitioned-unread are not processed yet" in text
    assert "stop the producers" in text
    assert made.network.admin.partitions_for([made.changelog]) == {made.changelog: 2}


def test_another_partitioner(scene: Open) -> None:
    made = scene("by_others", rows=[])
    made.write((made.changelog, 1), RECORDS)
    text = only(made.refusals())
    wrong = sum(1 for key, *_ in RECORDS if partition_for_key(key or b"", 2) != 1)
    assert f"store 'counts': {wrong} of 30 rows lie in other partitions" in text
    assert f"in {made.changelog}-1" in text


def test_keys_of_a_programs_own_are_proven_by_many_rows_only(scene: Open) -> None:
    """In one partition each row lies where its key puts it, whatever the key is of."""
    made = scene("from_few", rows=RECORDS[:19])
    text = only(made.refusals())
    assert "19 rows in 2 partitions do not prove" in text
    assert "--record-keys counts" in text
    with made.job(record_keys=["counts"]) as job:
        assert job.survey().blockers == []
    made.write_by_key(made.changelog, 2, RECORDS[:20])
    assert made.refusals() == []


def test_a_programs_own_keys_in_one_partition(scene: Open) -> None:
    made = scene("from_one", partitions=1)
    assert "30 rows in 1 partition do not prove" in only(made.refusals())
    made = scene("counted_from_one", partitions=1)
    assert made.refusals() == [], "an aggregate has the keys of its records"


def test_a_repartition_topic_with_records_in_flight(scene: Open) -> None:
    made = scene("regrouped")
    between = f"{made.application_id}-by-item-repartition"
    made.create({between: 2})
    made.write_by_key(between, 2, RECORDS[:4])
    text = only(made.refusals())
    assert f"4 records of repartition topic {between} are not processed yet" in text
    made.commit(made.ends(between))
    with made.job() as job:
        survey = job.survey()
        assert survey.blockers == []
        job.execute(survey)
    assert made.network.admin.partitions_for([between, made.changelog]) == {between: 5, made.changelog: 5}
    assert made.refusals() == []


def test_sources_with_unlike_counts(scene: Open) -> None:
    made = scene("from_two", after=2)
    made.create({topic_of("other"): 2})
    made.raise_counts({topic_of("from_two"): 5})
    text = only(made.refusals())
    assert "repartitioned-from_two has 5, repartitioned-other has 2" in text
    assert "raise all to 5 (streamsrt topics add-partitions" in text


def test_counts_that_went_down(scene: Open) -> None:
    made = scene("in_use", after=2)
    made.raise_counts({made.changelog: 3})
    assert "has 3 partitions and needs 2 now: Kafka can't remove partitions" in only(made.refusals())
    made.raise_counts({topic_of("in_use"): 5})
    made.commit({(topic_of("in_use"), 0): 1}, running_metadata("b1"))
    assert "backfill b1 is writing the state" in only(made.refusals())


@pytest.mark.parametrize(
    ("name", "what", "why"),
    [
        ("versioned", "store 'counts' can't be repartitioned", "it is versioned"),
        ("unlogged", "store 'counts' can't be repartitioned", "it has no changelog (logging=False)"),
        (
            "read_again",
            "store 'counts' can't be repartitioned",
            "it is restored from topic repartitioned-read_again itself",
        ),
    ],
)
def test_what_can_not_be_moved_is_refused_with_a_way_out_and_nothing_is_written(
    scene: Open, name: str, what: str, why: str
) -> None:
    made = scene(name)

    def all_there_is() -> object:
        return (
            made.network.admin.partitions_for([topic_of(name), made.changelog]),
            made.ends(made.changelog),
            made.network.admin.committed(made.application_id),
        )

    there = all_there_is()
    text = only(made.refusals())
    assert what in text
    assert why in text
    assert "ead its topics again, or run it under another application id" in text
    assert all_there_is() == there


def test_windows_that_would_never_be_emitted(scene: Open) -> None:
    operator = next(
        node.name
        for part in counted_app.final.subtopologies
        for node in part.nodes
        if isinstance(node, ProcessorNode) and isinstance(node.operation, Aggregate)
    )
    now_ms = 1_700_000_040_000
    start_ms = now_ms - now_ms % WINDOW_MS
    rows: list[Record] = [(window_key(b"key", start_ms), b"12345678", start_ms, ())]
    made = scene("final", rows=[])
    place = partition_for_key(b"key", 2)
    made.write((made.changelog, place), rows)
    ends = {(topic_of("final"), index): made.ends(topic_of("final"))[topic_of("final"), index] for index in range(2)}

    def at(partition: int, time_ms: int) -> None:
        tp = topic_of("final"), partition
        made.commit({tp: ends[tp]}, partition_metadata(time_ms, {operator: time_ms}))

    at(place, start_ms + 1)
    at(1 - place, start_ms + WINDOW_MS)
    assert "1 rows are of windows that are still open in their partition" in only(made.refusals())
    at(1 - place, start_ms + WINDOW_MS - 1)
    assert made.refusals() == []
    at(place, start_ms + 2 * WINDOW_MS)
    assert made.refusals() == []


def test_windows_that_the_wall_clock_closed_do_not_count_as_open(scene: Open) -> None:
    """As above, where the wall clock closed them in their partition: the stream time of the commit does not say that."""
    operator = next(
        node.name
        for part in counted_app.idle_open.subtopologies
        for node in part.nodes
        if isinstance(node, ProcessorNode) and isinstance(node.operation, Aggregate)
    )
    now_ms = 1_700_000_040_000
    start_ms = now_ms - now_ms % WINDOW_MS
    made = scene("idle_open", rows=[])
    place = partition_for_key(b"key", 2)
    marks = made.closed_marks
    made.create({marks: 2})
    made.write((made.changelog, place), [(window_key(b"key", start_ms), b"12345678", start_ms, ())])
    ends = made.ends(topic_of("idle_open"))
    for partition, time_ms in ((place, start_ms + 1), (1 - place, start_ms + WINDOW_MS)):
        tp = topic_of("idle_open"), partition
        made.commit({tp: ends[tp]}, partition_metadata(time_ms, {operator: time_ms}))
    text = only(made.refusals())
    assert "1 rows are of windows that are still open in their partition" in text
    assert "until its idle_timeout has closed all windows" in text
    made.write((marks, place), [closed_mark(start_ms + WINDOW_MS)])
    assert made.refusals() == []


def test_the_latest_mark_of_what_the_wall_clock_closed_is_for_all_partitions(scene: Open) -> None:
    made = scene("idle", rows=[])
    marks = made.closed_marks
    made.create({marks: 2})
    for partition, at_ms in ((0, 1_700_000_000_000), (1, 1_700_000_060_000)):
        made.write((marks, partition), [closed_mark(at_ms)])
    with made.job() as job:
        survey = job.survey()
        assert survey.blockers == []
        assert [(each.of.changelog, each.rows, each.moves) for each in survey.stores if each.of.has_marks] == [
            (marks, 2, 4)
        ]
        assert job.execute(survey) == 4
    key, value, time_ms, headers = closed_mark(1_700_000_060_000)
    assert made.rows(marks) == {index: {key: (value, time_ms, headers)} for index in range(5)}
    assert made.refusals() == []


# ------------------------------------------------------------------------------------------- partitioners of the program's


def by_partitioner(records: list[Record], partitioner: Partitioner, count: int) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for record in records:
        key, value = (record[0] or b"").decode(), (record[1] or b"").decode()
        found.setdefault(partitioner("", key, value, count), []).append(record)
    return found


def placed(scene: Open, name: str, partitioner: Partitioner, records: list[Record] = RECORDS) -> Written:
    """Opens the scene of an application whose rows are where a partitioner puts them."""
    made = scene(name, rows=[])
    made.create({f"{made.application_id}-placed-repartition": 2})
    for partition, rows in by_partitioner(records, partitioner, 2).items():
        made.write((made.changelog, partition), rows)
    return made


def move(made: Written, *record_keys: str) -> dict[int, set[bytes]]:
    """Moves what there is; the keys in each partition."""
    with made.job(record_keys=record_keys) as job:
        survey = job.survey()
        assert survey.blockers == []
        job.execute(survey)
    assert made.refusals() == []
    return {partition: set(rows) for partition, rows in made.rows(made.changelog).items()}


def keys(records: list[Record], partitioner: Partitioner) -> dict[int, set[bytes]]:
    found = by_partitioner(records, partitioner, 5)
    return {partition: {key or b"" for key, *_ in found.get(partition, [])} for partition in range(5)}


def test_rows_go_where_the_programs_partitioner_puts_their_keys(scene: Open) -> None:
    made = placed(scene, "placed", counted_app.by_last)
    assert move(made) == keys(RECORDS, counted_app.by_last)
    between = f"{made.application_id}-placed-repartition"
    assert made.network.admin.partitions_for([between]) == {between: 5}


def test_rows_that_are_not_where_the_programs_partitioner_puts_them(scene: Open) -> None:
    made = scene("placed_astray", rows=[])
    made.write((made.changelog, 1), RECORDS)
    text = only(made.refusals())
    assert "store 'counts': 15 of 30 rows lie in other partitions than the partitioner by_last (" in text
    assert (
        f"counted_app.py:{counted_app.by_last.__code__.co_firstlineno}) of topic {made.application_id}-placed" in text
    )


def test_a_table_has_the_values_that_the_partitioner_needs(scene: Open) -> None:
    records: list[Record] = [(b"key-%d" % number, b"x" * number, 1_000, ()) for number in range(30)]
    made = placed(scene, "placed_table", counted_app.by_value, records)
    assert move(made) == keys(records, counted_app.by_value)


def test_a_key_in_two_partitions_has_no_last_row(scene: Open) -> None:
    records: list[Record] = [(b"key", b"x" * number, 1_000 + number, ()) for number in (1, 2)]
    made = placed(scene, "placed_twice", counted_app.by_value, records)
    text = only(made.refusals())
    assert "several partitions have rows of one key, the first is b'key'" in text
    assert "partitioner by_value (" in text


@pytest.mark.parametrize(
    ("name", "partitioner", "why"),
    [
        ("valued", counted_app.by_value, "needs the values of the records, and the rows do not have them"),
        ("several", lambda *_: 0, "sends a record to 5 partitions"),
        ("failing", counted_app.up_to_two, "fails for key b'key-0' and 5 partitions: KeyError: 5"),
    ],
)
def test_a_partitioner_that_names_no_place_is_refused_with_what_to_do(
    scene: Open, name: str, partitioner: Partitioner, why: str
) -> None:
    made = placed(scene, name, partitioner)
    text = only(made.refusals())
    assert "store 'counts' can't be repartitioned: the partitioner " in text
    assert why in text
    assert "streamsrt backfill" in text or "do this again" in text
    assert made.network.admin.partitions_for([made.changelog]) == {made.changelog: 2}


def test_a_programs_own_keys_are_never_proven_by_its_own_partitioner(scene: Open) -> None:
    """It may prefer some partitions, so that a place says little."""
    made = placed(scene, "placed_once", counted_app.by_last)
    assert "30 rows in 2 partitions do not prove" in only(made.refusals())
    assert move(made, "counts") == keys(RECORDS, counted_app.by_last)


def test_partitioners_of_what_is_merged_must_agree(scene: Open) -> None:
    made = placed(scene, "placed_by_two", counted_app.by_last)
    made.create({topic_of("merged"): 5, f"{made.application_id}-other-repartition": 2})
    text = only(made.refusals())
    assert "key b'key-10' has no one place among 5 partitions: the partitioner" not in text
    assert "has no one place among 5 partitions" in text
    assert "Topics that one step reads need the same partitioner" in text


def test_unread_records_of_a_topic_that_the_program_writes_are_judged_by_its_partitioner(scene: Open) -> None:
    name = "written_by_itself"
    made = scene(name, rows=[])
    made.create({"raw": 1})
    for partition, rows in by_partitioner(RECORDS, counted_app.by_last, 2).items():
        made.write((made.changelog, partition), rows)
    for partition, rows in by_partitioner(RECORDS, counted_app.by_last, 5).items():
        made.write((topic_of(name), partition), rows)
    assert made.refusals() == []
    for partition, rows in by_partitioner(RECORDS, counted_app.by_last, 2).items():
        made.write((topic_of(name), partition), rows)
    texts = [(key or b"").decode() for key, *_ in RECORDS]
    away = sum(counted_app.by_last("", key, "", 5) != counted_app.by_last("", key, "", 2) for key in texts)
    assert f"{away} records of topic {topic_of(name)} are not processed yet" in only(made.refusals())
    made.commit(made.ends(topic_of(name)))
    assert move(made) == keys(RECORDS, counted_app.by_last)


def test_an_application_that_could_not_run_is_said_so(scene: Open, bundled_broker: BundledBroker) -> None:
    with written(bundled_broker.bootstrap_servers, "missing") as made, made.job() as job, pytest.raises(PlanError):
        job.survey()
