"""What keeps state from being moved is told before anything is changed: what, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from streamsrt.backfill.errors import PlanError
from streamsrt.state.windowed import window_key
from streamsrt.tasks.input.offset_metadata import partition_metadata, running_metadata
from streamsrt.wire.murmur2 import partition_for_key
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.repartition import counted_app
from tests.streamsrt.backfill.repartition.counted_app import WINDOW_MS, topic_of
from tests.streamsrt.backfill.repartition.written import Record, Written, written
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import Aggregate

RECORDS: list[Record] = [(b"key-%d" % number, b"12345678", 1_000, ()) for number in range(30)]
MISPLACED = sum(1 for key, *_ in RECORDS if partition_for_key(key or b"", 2) != partition_for_key(key or b"", 5))

Open = Callable[..., Written]


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
        ("idle", "can't be repartitioned", "up to when windows were closed by the wall clock (idle_timeout)"),
        ("placed", "repartition topic 'placed-repartition'", "is written with a partitioner of the program's"),
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


def test_an_application_that_could_not_run_is_said_so(scene: Open, bundled_broker: BundledBroker) -> None:
    with written(bundled_broker.bootstrap_servers, "missing") as made, made.job() as job, pytest.raises(PlanError):
        job.survey()
