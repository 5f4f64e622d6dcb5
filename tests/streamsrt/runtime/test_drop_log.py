"""Dropped records in the log: by task and reason, with the count, and not one line each."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from streamsrt.client.values import RecordRefusedError, RefusalAnswer, RefusedRecord
from streamsrt.membership.values import LeftGroup, Tasks
from streamsrt.operators.engine.handlers import ExceptionHandlers, handler_of
from streamsrt.runtime.drop_log import INTERVAL_MS, DropLog, Drops, has_drops, late_records_advice
from streamsrt.runtime.values import State, total_of
from streamsrt.tasks.output.refused_records import RefusedRecords
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.conftest import MakeRig
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, Rig, number
from topology import KTable, Store, StreamsBuilder, TimeWindows, serdes

NULL = "their key or value is null. A record counts in each step that drops it"
LATE = (
    "they came after their window had closed, or are older than what their store keeps. Where late() is called, it has the "
    "former"
)


def test_a_reason_is_told_at_most_once_an_interval_with_the_count() -> None:
    log = DropLog()

    def lines(late: int, null: int, now_ms: int) -> list[str]:
        return log.lines([Drops("task a_0", " of in-0", {"dropped_late": late, "dropped_null": null})], now_ms)

    assert lines(0, 0, 0) == []
    assert lines(3, 0, 100) == [f"task a_0: dropped 3 records of in-0: {LATE}"]
    assert lines(9, 0, INTERVAL_MS) == []
    assert lines(9, 4, INTERVAL_MS + 1) == [f"task a_0: dropped 4 records of in-0: {NULL}"]
    assert lines(10, 4, INTERVAL_MS + 100) == [f"task a_0: dropped 7 records of in-0: {LATE}"]
    assert lines(10, 4, 9 * INTERVAL_MS) == []


def test_a_task_has_drops_where_there_is_something_to_log() -> None:
    assert not has_drops({"processed": 5, "dropped_late": 0, "dropped": 0})
    assert has_drops({"processed": 5, "dropped_late": 1, "dropped": 1})


def test_a_task_that_is_opened_again_counts_from_zero() -> None:
    log = DropLog()
    assert len(log.lines([Drops("task a_0", " of in-0", {"dropped_null": 5})], 0)) == 1
    again = log.lines([Drops("task a_0", " of in-0", {"dropped_null": 2})], INTERVAL_MS)
    assert again == [f"task a_0: dropped 2 records of in-0: {NULL}"]


def test_what_was_not_told_yet_is_told_at_the_end() -> None:
    log = DropLog()
    log.lines([Drops("task a_0", " of in-0", {"dropped_late": 3})], 0)
    last = Drops("task a_0", " of in-0", {"dropped_late": 5, "dropped_null": 1})
    assert log.rest(last) == [
        f"task a_0: dropped 1 record of in-0: {NULL}",
        f"task a_0: dropped 2 records of in-0: {LATE}",
    ]
    again = Drops("task a_0", " of in-0", {"dropped_late": 1})
    assert log.lines([again], 0) == [f"task a_0: dropped 1 record of in-0: {LATE}"]


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "dropped" in line]


def test_the_loop_tells_what_its_tasks_dropped(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.network.write(("in", 0), [(None, number(1)), (None, number(2)), (b"a", number(1))])
    rig.give(Tasks(active=rig.tasks(0)))
    for _ in range(5):
        rig.clock_ms += 1_000
        rig.iterate()
    task = next(iter(rig.manager))
    assert dropped(caplog) == [f"task {task}: dropped 2 records of in-0: {NULL}"]


def test_a_task_that_goes_away_leaves_nothing_untold(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.network.write(("in", 0), [(None, number(1))])
    rig.give(Tasks(active=rig.tasks(0)))
    for _ in range(5):
        rig.clock_ms += 1_000
        rig.iterate()
    rig.network.write(("in", 0), [(None, number(1)), (None, number(2))])
    rig.iterate(2)
    assert len(dropped(caplog)) == 1
    task = next(iter(rig.manager))
    rig.give(Tasks(active=rig.tasks(1)))
    rig.iterate()
    assert dropped(caplog)[1:] == [f"task {task}: dropped 2 records of in-0: {NULL}"]


def test_a_stream_of_poison_is_one_line_with_the_last_of_it(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig(handlers=ExceptionHandlers(deserialization=handler_of("continue")))
    rig.network.write(("in", 0), [(b"\xff", number(at)) for at in range(50)])
    rig.give(Tasks(active=rig.tasks(0)))
    for _ in range(5):
        rig.clock_ms += 1_000
        rig.iterate()
    (line,) = dropped(caplog)
    assert ": dropped 50 records of in-0: they can't be deserialized and the deserialization handler continues" in line
    assert "The last one: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff" in line
    assert "(at in-0 offset 49, in node " in line


def test_records_that_the_cluster_does_not_take_are_one_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    refused = RefusedRecords(ExceptionHandlers(production=handler_of("continue")), rig.collector, {})
    for size in range(1_000):
        error = RecordRefusedError(
            f"a record of {size} bytes is too large", "out", 0, error_code=ErrorCode.MESSAGE_TOO_LARGE
        )
        assert refused(RefusedRecord("out", 0, b"k", b"v", 0, (), error)) is RefusalAnswer.DROP
    rig.iterate()
    assert dropped(caplog) == [
        "the producer: dropped 1,000 records: the cluster refuses them and the production handler continues. "
        "The last one: a record of 999 bytes is too large"
    ]


def test_dead_letters_that_were_shortened_are_one_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.collector.shortened_letters, rig.collector.last_shortened = 7, "too large"
    rig.iterate()
    (line,) = [each for each in caplog.messages if "dead letters" in each]
    assert line.startswith(
        "the producer: 7 dead letters that are too large for their topic were written without their value"
    )
    assert line.endswith("The last one: too large")
    assert rig.manager.counters()["shortened_letters"] == 7


def test_what_the_cluster_did_not_take_at_last_is_told_at_the_end(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.iterate()
    rig.collector.dropped_records, rig.collector.last_refusal = 7, "too large"
    rig.member.waiting.append(LeftGroup())
    rig.thread.run()
    assert [line.partition(":")[2] for line in dropped(caplog)] == [
        " dropped 7 records: the cluster refuses them and the production handler continues. The last one: too large"
    ]


def test_of_changes_that_were_overtaken_is_said_which_result_they_may_lack() -> None:
    """An answer of a foreign-key join may be the one that would have deleted a result."""
    (line,) = DropLog().lines([Drops("task 0_1", "", {"dropped_outdated": 3})], 0)
    assert "dropped 3 records: a newer change of the same key superseded them" in line
    assert "inner join by foreign key may then keep an outdated result" in line
    assert "use left_join and filter" in line
    assert "nothing is missing" not in line


@pytest.mark.parametrize(("late", "processed"), [(99, 100), (4_999, 100_000), (0, 0)])
def test_few_late_records_are_worth_no_advice(late: int, processed: int) -> None:
    assert late_records_advice({"0": {"dropped_late": late, "processed": processed}}) == ""


def test_changes_that_were_overtaken_are_neither_late_nor_worth_an_advice() -> None:
    """No grace period helps against a newer change of the same key."""
    builder = StreamsBuilder()
    versioned = Store("rows", kind="versioned", retention=1_000)
    rows: KTable[str, str] = builder.table("rows", key=serdes.string, value=serdes.string, store=versioned)
    names: KTable[str, str] = builder.table("names", key=serdes.string, value=serdes.string)
    rows.join(names, lambda row, name: row + name).to_stream().to("out", key=serdes.string, value=serdes.string)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("rows", serdes.string, serdes.string)
        for timestamp in (500, *range(200)):
            topic.pipe_input("a", "x", timestamp)
        counters = driver.counters()
    assert (counters["dropped_outdated"], counters["dropped_late"], counters["dropped"]) == (200, 0, 200)
    assert late_records_advice({"0": counters}) == ""


def test_who_dropped_many_records_as_late_is_told_why_and_what_helps() -> None:
    advice = late_records_advice({"counts": {"dropped_late": 8_500, "processed": 10_000}})
    assert advice.startswith(
        "8,500 of 10,000 records in subtopology counts (85%) came after their window had closed and were not counted"
    )
    assert "grace=" in advice
    assert "late()" in advice


@pytest.mark.parametrize("is_closed", [False, True])
def test_late_records_are_a_share_of_what_their_own_subtopology_processed(tmp_path: Path, is_closed: bool) -> None:
    """Most records here are dropped before the repartition topic; those behind it are late."""
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.integer)
        .filter(lambda key, value: value > 0)
        .group_by(lambda key, value: key, key=serdes.string, value=serdes.integer, name="by_key")
        .windowed_by(TimeWindows(size=100, grace=0))
        .count(store="counts")
    )
    topology = builder.build()
    network = InProcessNetwork({"in": 1, "app-by_key-repartition": 1, CHANGELOG: 1})
    first, second = (Rig(tmp_path / str(at), topology, network, partitions=1, subtopology=at) for at in (0, 1))
    with closing(first), closing(second):
        network.write(("in", 0), [(b"a", number(0))] * 700, timestamp=100_000)
        network.write(("in", 0), [(b"a", number(1))], timestamp=100_000)
        network.write(("in", 0), [(b"a", number(1))] * 299, timestamp=5)
        for rig in (first, second):
            rig.give(Tasks(active=rig.tasks(0)))
            rig.clock_ms += 1_000
            rig.iterate(10)
            rig.commit()
            if is_closed:
                rig.give(Tasks())
            rig.clock_ms += 1_000
            rig.iterate()
        done = total_of(State.RUNNING, [first.thread.progress, second.thread.progress])
    assert (done.counters["processed"], done.counters["dropped_late"]) == (1_300, 299)
    assert late_records_advice(done.subtopology_counters).startswith("299 of 300 records in subtopology")
