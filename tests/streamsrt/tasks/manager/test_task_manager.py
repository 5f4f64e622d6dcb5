"""Tasks come, go and change roles; where they start; what is done when the cluster or a store can't be relied on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamsrt.client.values import (
    FetchError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    StaleMemberEpochError,
)
from streamsrt.errors import (
    ChangelogLostError,
    DeserializationError,
    MissingTopicError,
    ProcessingError,
    StateError,
    TopologyMismatchError,
    UserError,
)
from streamsrt.membership.values import NOTHING, Tasks
from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.manager.lost_changelogs import WATCH_INTERVAL_MS
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import read_header
from tests.coordinator.broker.odd_batches import CASES
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, MakeRig, Rig, number, two_sources
from topology import Processor, Record, Store, StreamsBuilder, Topology, serdes


def keys(*names: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), number(1)) for name in names]


# ------------------------------------------------------------------------------------------------------- assignment


def test_tasks_start_at_the_committed_offsets_or_at_the_beginning(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b", "a"))
    opened = rig.start(Tasks(active=rig.tasks(0, 1)))
    assert opened == Tasks(active=rig.tasks(0, 1))
    assert rig.phases() == {0: "active running", 1: "active running"}
    assert rig.move() == 3
    rig.commit()
    assert rig.counts() == {"a": 2, "b": 1}
    assert rig.network.admin.offsets["in", 0].offset == 3

    # They go and come back: what was committed is not read again.
    assert rig.start(NOTHING) == NOTHING
    rig.start(Tasks(active=rig.tasks(0)))
    rig.network.write(("in", 0), keys("a"))
    assert rig.move() == 1
    rig.commit()
    assert rig.counts() == {"a": 3, "b": 1}


@pytest.mark.parametrize("name", ["garbage", "count 2, one record", "broken gzip", "codec 5", "wrong checksum"])
def test_a_batch_that_can_not_be_read_is_named_with_what_to_do(rig: Rig, name: str) -> None:
    rig.network.write(("in", 0), keys("a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.move() == 2
    records = CASES[name].records
    rig.network.logs["in", 0].append(records, read_header(records).records_count)
    with pytest.raises(DeserializationError) as caught:
        rig.move()
    error, behind = caught.value, 2 + read_header(records).records_count
    assert (error.topic, error.partition, error.offset) == ("in", 0, 2)
    assert str(error).startswith("in-0 has a record batch at or after offset 2 that can't be read: ")
    assert f"reset-offsets APPLICATION_ID --topic in:0 --to-offset {behind} --execute" in str(error)


def test_a_task_that_stays_is_not_touched(rig: Rig) -> None:
    rig.start(Tasks(active=rig.tasks(0)))
    before = list(rig.manager)
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert [owned for owned in rig.manager if owned.key[1] == 0] == before
    assert rig.phases() == {0: "active running", 1: "active running"}


def test_what_goes_is_committed_first(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "a"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    rig.move()
    rig.start(Tasks(active=rig.tasks(1)))
    assert rig.network.admin.offsets["in", 0].offset == 2
    assert rig.counts() == {"a": 2}


def test_tasks_of_another_version_of_the_application_are_left_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    of_another = frozenset({("of-another-version", 0)})
    assert rig.start(Tasks(active=rig.tasks(0), standby=of_another)) == Tasks(active=rig.tasks(0))
    assert rig.phases() == {0: "active running"}
    assert "of-another-version_0" in caplog.text
    assert rig.start(Tasks(warmup=of_another)) == NOTHING


def test_an_active_task_of_another_version_of_the_application_is_not_held(rig: Rig) -> None:
    with pytest.raises(TopologyMismatchError, match="the group gave task of-another-version_0"):
        rig.start(Tasks(active=frozenset({("of-another-version", 0)})))


def test_a_commit_that_opens_tasks_anew_does_not_confuse_an_assignment(rig: Rig) -> None:
    rig.start(Tasks(active=rig.tasks(0, 1)))
    opened = rig.manager.assign(Tasks(active=rig.tasks(1)), lambda _leaving: rig.manager.restart_all())
    assert opened == Tasks(active=rig.tasks(1))
    assert not rig.directory.is_open("counts", 0)
    assert rig.directory.is_open("counts", 1)


def test_a_task_can_be_closed_while_it_restores(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.network.write((CHANGELOG, 0), [(b"a", (5).to_bytes(8, "big"))])
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active restoring"}
    assert rig.start(NOTHING) == NOTHING
    assert rig.network.restorer.positions == {}
    assert not rig.directory.is_open("counts", 0)


def test_a_new_standby_is_promoted_before_it_began(rig: Rig) -> None:
    rig.network.is_away = True
    rig.start(Tasks(standby=rig.tasks(0)))
    assert rig.phases() == {0: "standby created"}
    rig.network.is_away = False
    rig.clock_ms += 1_000
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active running"}


def test_a_standby_follows_and_takes_over_with_what_it_has(make_rig: MakeRig) -> None:
    one = make_rig()
    one.start(Tasks(active=one.tasks(0)))
    two = make_rig(network=one.network)
    two.start(Tasks(standby=two.tasks(0)))
    assert two.phases() == {0: "standby standby"}

    one.network.write(("in", 0), keys("a", "b", "a"))
    one.move()
    one.commit()
    two.move()
    one.network.write(("in", 0), keys("b", "c"))
    one.move()
    one.commit()
    one.start(NOTHING)

    two.start(Tasks(active=two.tasks(0)))
    assert two.phases() == {0: "active restoring"}
    two.move()
    assert two.phases() == {0: "active running"}
    # Two changes of the first commit were there already; two of the second one were missing.
    assert two.manager.restored_records == 2
    one.network.write(("in", 0), keys("a", "b", "c"))
    two.move()
    two.commit()
    assert two.counts() == {"a": 3, "b": 3, "c": 2}


def test_an_active_task_becomes_a_standby(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.move()
    assert rig.start(Tasks(standby=rig.tasks(0))) == Tasks(standby=rig.tasks(0))
    assert rig.phases() == {0: "standby standby"}
    assert rig.network.admin.offsets["in", 0].offset == 1
    assert rig.network.fetcher.positions == {}
    assert rig.network.restorer.positions == {(CHANGELOG, 0): 1}


def test_caches_share_the_memory(make_rig: MakeRig) -> None:
    rig = make_rig(cache_max_bytes=1_000)
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert {owned.task.config.cache_max_bytes for owned in rig.manager} == {500}
    rig.manager.restart_all()
    assert {owned.task.config.cache_max_bytes for owned in rig.manager} == {500}
    rig.start(Tasks(active=rig.tasks(1)))
    assert {owned.task.config.cache_max_bytes for owned in rig.manager} == {1_000}


def test_what_waits_for_a_commit_is_bounded_over_all_tasks(make_rig: MakeRig) -> None:
    rig = make_rig(partitions=4, cache_max_bytes=0)
    rig.start(Tasks(active=rig.tasks(0, 1, 2, 3)))
    assert {owned.task.config.write_buffer_max_bytes for owned in rig.manager} == {4 << 20}
    rig.start(Tasks(active=rig.tasks(1)))
    assert {owned.task.config.write_buffer_max_bytes for owned in rig.manager} == {16 << 20}


# --------------------------------------------------------------------------------------------------------- starting


def test_tasks_wait_for_the_cluster(rig: Rig) -> None:
    rig.network.is_away = True
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active created"}
    rig.network.is_away = False
    rig.manager.start_tasks(rig.clock_ms + 1, "member", 1)
    assert rig.phases() == {0: "active created"}, "not before the back-off is over"
    rig.manager.start_tasks(rig.clock_ms + 1_000, "member", 1)
    assert rig.phases() == {0: "active running"}


def test_tasks_do_not_wait_for_ever(make_rig: MakeRig) -> None:
    rig = make_rig(task_timeout_ms=10_000)
    rig.network.is_away = True
    rig.start(Tasks(active=rig.tasks(0)))
    rig.manager.start_tasks(rig.clock_ms + 9_999, "member", 1)
    with pytest.raises(RequestTimedOutError):
        rig.manager.start_tasks(rig.clock_ms + 10_500, "member", 1)


def recounting() -> Topology:
    """Counts words, by a repartition topic: its first subtopology writes it, the second reads it."""
    builder = StreamsBuilder()
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    words.group_by(lambda _, word: word, key=serdes.string, value=serdes.string, name="by-word").count(store="counts")
    return builder.build()


def recounting_rig(make_rig: MakeRig) -> Rig:
    """It runs the task that reads the repartition topic."""
    topics = dict.fromkeys(("in", "app-by-word-repartition", CHANGELOG), 1)
    reader = next(i for i, part in enumerate(recounting().subtopologies) if part.repartition_source_topics)
    return make_rig(topology=recounting(), network=InProcessNetwork(topics), subtopology=reader)


def test_where_a_repartition_topic_begins_is_committed_before_anything_is_read_of_it(make_rig: MakeRig) -> None:
    rig = recounting_rig(make_rig)
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.network.admin.commits == [{("app-by-word-repartition", 0): 0}]
    # Where it is committed already, nothing is.
    rig.start(NOTHING)
    rig.start(Tasks(active=rig.tasks(0)))
    assert len(rig.network.admin.commits) == 1


def test_a_task_waits_until_the_begin_of_its_repartition_topic_is_committed(make_rig: MakeRig) -> None:
    rig = recounting_rig(make_rig)
    rig.network.admin.refusals = [StaleMemberEpochError("the group rebalances", int(ErrorCode.STALE_MEMBER_EPOCH), {})]
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active created"}
    assert rig.network.admin.commits == []
    rig.clock_ms += 1_000
    rig.iterate()
    assert rig.phases() == {0: "active running"}
    assert rig.network.admin.commits == [{("app-by-word-repartition", 0): 0}]


def test_tasks_do_not_start_without_a_membership(rig: Rig) -> None:
    rig.manager.assign(Tasks(active=rig.tasks(0)), lambda _leaving: None)
    rig.manager.start_tasks(rig.clock_ms, "member", -1)
    assert rig.phases() == {0: "active created"}


def test_tasks_wait_for_their_internal_topics(make_rig: MakeRig) -> None:
    rig = make_rig(network=InProcessNetwork({"in": 1, "out": 1}))
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active created"}
    rig.network.make_topic(CHANGELOG, 1)
    rig.manager.start_tasks(rig.clock_ms + 1_000, "member", 1)
    assert rig.phases() == {0: "active running"}


def test_a_task_does_not_start_without_one_of_its_sources(make_rig: MakeRig) -> None:
    rig = make_rig(topology=two_sources(), network=InProcessNetwork({"wide": 2, "out": 1}))
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active created"}
    rig.network.make_topic("narrow", 2)
    rig.manager.start_tasks(rig.clock_ms + 1_000, "member", 1)
    assert set(rig.network.fetcher.positions) == {("wide", 0), ("narrow", 0)}


def test_a_source_may_have_fewer_partitions_than_there_are_tasks(make_rig: MakeRig) -> None:
    rig = make_rig(topology=two_sources(), network=InProcessNetwork({"wide": 2, "narrow": 1, "out": 1}))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert rig.phases() == {0: "active running", 1: "active running"}
    assert set(rig.network.fetcher.positions) == {("wide", 0), ("narrow", 0), ("wide", 1)}
    rig.network.write(("wide", 1), [(b"k", b"v")])
    assert rig.move() == 1


def test_an_output_topic_that_is_gone_is_named(make_rig: MakeRig) -> None:
    rig = make_rig(network=InProcessNetwork({"in": 1, CHANGELOG: 1}))
    with pytest.raises(MissingTopicError, match=r"out.*streamsrt topics create out"):
        rig.start(Tasks(active=rig.tasks(0)))


# ---------------------------------------------------------------------------------------------------------- restore


def test_a_store_is_restored_from_its_changelog(make_rig: MakeRig) -> None:
    one = make_rig()
    one.network.write(("in", 0), keys("a", "b", "a"))
    one.start(Tasks(active=one.tasks(0)))
    one.move()
    one.commit()

    two = make_rig(network=one.network)
    two.start(Tasks(active=two.tasks(0)))
    two.network.write(("in", 0), keys("a", "c"))
    two.move()
    two.commit()
    assert two.manager.restored_records == 2
    assert two.counts() == {"a": 3, "b": 1, "c": 1}


@pytest.mark.parametrize(("records", "standby"), [(100_000, False), (100_000, True), (90_000, False)])
def test_a_store_is_told_of_a_long_restore_and_of_its_end(rig: Rig, records: int, standby: bool) -> None:
    for first in range(0, records, 10_000):
        rig.network.write((CHANGELOG, 0), [(b"%d" % first, (1).to_bytes(8, "big"))] * 10_000)
    rig.start(Tasks(warmup=rig.tasks(0)) if standby else Tasks(active=rig.tasks(0)))
    for _ in range(20):
        rig.move()
    assert rig.phases() == {0: "warmup standby" if standby else "active running"}
    log = (rig.directory.store_path("counts", 0) / "LOG").read_text()
    # RocksDB notes its options when it is opened, and each change of them twice.
    noted = [
        line.split(": ")[-1].strip() for line in log.splitlines() if "level0_file_num_compaction_trigger: " in line
    ]
    assert noted == (["4", "16", "16", "4", "4"] if records == 100_000 else ["4"])
    assert rig.directory.is_open("counts", 0)


def test_a_store_that_is_ahead_of_its_changelog_is_wiped(make_rig: MakeRig) -> None:
    rig = make_rig("state")
    rig.network.write(("in", 0), keys("a", "a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.move()
    rig.commit()
    rig.close()

    # Another cluster: its changelog is shorter than what the store on disk stands for.
    other = make_rig("state", network=InProcessNetwork({"in": 2, "out": 2, CHANGELOG: 2}))
    other.network.write((CHANGELOG, 0), [(b"a", (7).to_bytes(8, "big"))])
    other.network.write(("in", 0), keys("a", "b"))
    other.start(Tasks(active=other.tasks(0)))
    assert other.phases() == {0: "active created"}
    other.manager.start_tasks(other.clock_ms, "member", 1)
    other.move()
    other.commit()
    assert other.counts() == {"a": 8, "b": 1}


def with_state(make_rig: MakeRig) -> Rig:
    """An instance that has committed counts, with its task started over."""
    rig = make_rig("state")
    rig.network.write(("in", 0), keys("a", "a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.move()
    rig.commit()
    return rig


def begin(rig: Rig, after_ms: int = 0) -> None:
    rig.clock_ms += after_ms
    rig.manager.start_tasks(rig.clock_ms, "member", 1)


def test_a_changelog_that_was_deleted_under_its_rows_ends_the_application(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = with_state(make_rig)
    for partition in (0, 1):
        del rig.network.logs[CHANGELOG, partition]
    rig.manager.restart_all()
    for _ in range(4):
        begin(rig, after_ms=900)
    # It may be a new topic that not every broker knows; once is enough to say so.
    assert (
        caplog.text.count("tasks can't start yet, trying again: the cluster does not have app-counts-changelog yet")
        == 1
    )
    assert rig.manager.waiting() == ("tasks can't start yet: the cluster does not have app-counts-changelog yet",)
    with pytest.raises(
        ChangelogLostError, match=r"task .*_0: .*app-counts-changelog was deleted.* offset 2.*state export"
    ):
        begin(rig, after_ms=2_000)


def watch(rig: Rig, after_ms: int) -> None:
    rig.clock_ms += after_ms
    for _ in range(2):
        rig.manager.changelog_watch.check(rig.clock_ms)


def test_a_changelog_that_is_deleted_under_an_idle_task_ends_the_application_after_a_while(make_rig: MakeRig) -> None:
    rig = with_state(make_rig)
    watch(rig, 0)
    watch(rig, WATCH_INTERVAL_MS)
    logs = {tp: rig.network.logs.pop(tp) for tp in list(rig.network.logs) if tp[0] == CHANGELOG}
    watch(rig, WATCH_INTERVAL_MS)
    # A broker that has just started does not know it yet.
    watch(rig, 3_000)
    rig.network.logs |= logs
    watch(rig, 3_000)
    rig.network.is_away = True
    watch(rig, WATCH_INTERVAL_MS)
    rig.network.is_away = False
    for tp in logs:
        del rig.network.logs[tp]
    watch(rig, WATCH_INTERVAL_MS)
    with pytest.raises(ChangelogLostError, match=r"app-counts-changelog was deleted.* offset 2"):
        watch(rig, 4_000)


def test_a_broker_that_does_not_know_the_input_either_says_nothing_about_changelogs(make_rig: MakeRig) -> None:
    rig = with_state(make_rig)
    watch(rig, 0)
    rig.network.logs.clear()
    for _ in range(3):
        watch(rig, WATCH_INTERVAL_MS)


def test_a_missing_changelog_without_rows_is_waited_for(make_rig: MakeRig) -> None:
    rig = make_rig()
    kept = {tp: rig.network.logs.pop(tp) for tp in list(rig.network.logs) if tp[0] == CHANGELOG}
    rig.start(Tasks(active=rig.tasks(0)))
    begin(rig, after_ms=20_000)
    rig.network.logs.update(kept)
    begin(rig, after_ms=1_000)
    assert rig.phases() == {0: "active running"}
    assert rig.manager.waiting() == ()


def test_a_changelog_that_no_leader_creates_beside_java_shows_another_topology(make_rig: MakeRig) -> None:
    rig = make_rig(may_be_beside_java=True)
    for tp in [tp for tp in rig.network.logs if tp[0] == CHANGELOG]:
        del rig.network.logs[tp]
    rig.start(Tasks(active=rig.tasks(0)))
    begin(rig, after_ms=5_000)
    expected = (
        r"'app' has given task .*_0 .*app-counts-changelog does not exist.*with other stores than counts.*describe"
    )
    with pytest.raises(TopologyMismatchError, match=expected) as caught:
        begin(rig, after_ms=6_000)
    assert caught.value.exit_code == 2


def test_a_changelog_that_was_created_again_under_its_rows_ends_the_application(make_rig: MakeRig) -> None:
    rig = with_state(make_rig)
    rig.network.logs[CHANGELOG, 0] = type(rig.network.logs[CHANGELOG, 0])()
    rig.manager.restart_all()
    with pytest.raises(
        ChangelogLostError, match="app-counts-changelog is empty, and store counts has rows up to offset 2"
    ):
        begin(rig)

    # The application was reset: everything is read again.
    rig.network.admin.offsets.clear()
    begin(rig)
    begin(rig)
    assert rig.phases() == {0: "active running"}


def test_a_cluster_that_goes_away_while_a_task_is_about_to_start_is_waited_for(make_rig: MakeRig) -> None:
    rig = with_state(make_rig)
    rig.network.logs[CHANGELOG, 0] = type(rig.network.logs[CHANGELOG, 0])()
    rig.manager.restart_all()
    asked = 0

    def count() -> None:
        nonlocal asked
        asked += 1

    rig.network.admin.before_answer = count
    with pytest.raises(ChangelogLostError):
        begin(rig)
    for answered in range(asked):
        left = iter(range(answered))

        def goes_away(left: Iterator[int] = left) -> None:
            rig.network.is_away = next(left, None) is None

        rig.network.admin.before_answer = goes_away
        begin(rig, after_ms=1_000)
        assert rig.phases() == {0: "active created"}


def test_a_changelog_that_is_created_again_between_two_commits_ends_the_application(make_rig: MakeRig) -> None:
    rig = with_state(make_rig)
    rig.network.logs[CHANGELOG, 0] = type(rig.network.logs[CHANGELOG, 0])()
    rig.network.write(("in", 0), keys("a"))
    rig.move()
    with pytest.raises(
        ChangelogLostError, match="ended at offset 2 and now ends at 1: it was deleted and created again"
    ):
        rig.commit()


def test_a_changelog_that_lost_its_beginning_is_restored_from_where_it_begins(rig: Rig) -> None:
    for count in (1, 2, 3):
        rig.network.write((CHANGELOG, 0), [(b"a", count.to_bytes(8, "big"))])
    rig.start(Tasks(active=rig.tasks(0)))
    rig.network.logs[CHANGELOG, 0].start = 2
    rig.move()
    rig.manager.start_tasks(rig.clock_ms, "member", 1)
    rig.move()
    assert rig.phases() == {0: "active running"}
    rig.network.write(("in", 0), keys("a"))
    rig.move()
    rig.commit()
    assert rig.counts() == {"a": 4}


def test_a_changelog_that_can_not_be_read_is_an_error_and_costs_no_store(rig: Rig) -> None:
    rig.network.write((CHANGELOG, 0), [(b"a", (1).to_bytes(8, "big"))])
    rig.start(Tasks(active=rig.tasks(0)))
    rig.network.restorer.errors[CHANGELOG, 0] = FetchError("no rights", 29)
    with pytest.raises(FetchError, match="no rights"):
        rig.move()
    assert rig.phases() == {0: "active restoring"}


# ------------------------------------------------------------------------------------------------------------ input


def test_what_was_fetched_before_an_offset_went_out_of_range_is_processed(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    for fetched in rig.network.fetcher.poll():
        rig.manager.add_input(fetched, rig.clock_ms)
    rig.network.write(("in", 0), keys("lost"))
    rig.network.write(("in", 0), keys("c"))
    rig.network.logs["in", 0].start = 3
    assert rig.move() == 3
    rig.commit()
    assert rig.counts() == {"a": 1, "b": 1, "c": 1}
    assert rig.network.admin.offsets["in", 0].offset == 4


def test_positions_follow_a_log_that_was_emptied(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b"))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.network.logs["in", 0].start = 2
    rig.move()
    assert rig.manager.positions() == {("in", 0): 2}
    rig.commit()
    assert rig.network.admin.offsets["in", 0].offset == 2


def test_it_goes_on_where_the_records_of_a_log_are_no_longer_those_that_were_read(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    rig.network.write(("in", 0), keys("b"))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.move()
    error = OffsetOutOfRangeError("records were lost", 1)
    error.diverged_at = 1
    rig.network.fetcher.errors["in", 0] = error
    rig.move()
    rig.commit()
    assert rig.counts() == {"a": 1, "b": 2}
    assert rig.network.admin.offsets["in", 0].offset == 2


def test_a_source_that_can_not_be_read_is_an_error(rig: Rig) -> None:
    rig.start(Tasks(active=rig.tasks(0)))
    rig.network.fetcher.errors["in", 0] = FetchError("no rights", 29)
    with pytest.raises(FetchError, match="no rights"):
        rig.move()


def test_a_full_buffer_pauses_its_partition_only(make_rig: MakeRig) -> None:
    rig = make_rig(input_buffer_bytes=100)
    for _ in range(3):
        rig.network.write(("in", 0), keys(*"abcdef"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    for fetched in rig.network.fetcher.poll():
        rig.manager.add_input(fetched, rig.clock_ms)
    assert rig.network.fetcher.paused == {("in", 0)}
    assert rig.manager.has_work()
    rig.move()
    assert rig.network.fetcher.paused == set()
    assert not rig.manager.has_work()
    assert rig.manager.counters()["processed"] == 18


@pytest.mark.parametrize(
    ("input_buffer_bytes", "all_input_bytes"), [(20_000, 64 << 20), (1 << 20, 1)], ids=["its own", "its share"]
)
def test_fetches_of_a_few_records_fill_a_buffer(
    make_rig: MakeRig, input_buffer_bytes: int, all_input_bytes: int
) -> None:
    """With what they take beside their records; else an application that is behind grows by it, record by record."""
    rig = make_rig(input_buffer_bytes=input_buffer_bytes, all_input_bytes=all_input_bytes)
    rig.network.fetcher.batches_at_once = 1
    rig.network.write(("in", 1), keys("z"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    fetches = fetched_bytes = 0
    while not rig.network.fetcher.paused:
        assert fetches < 100
        rig.network.write(("in", 0), keys("a"))
        for fetched in rig.network.fetcher.poll():
            rig.manager.add_input(fetched, rig.clock_ms)
            fetches += 1
            fetched_bytes += len(fetched.buffer)
    assert rig.network.fetcher.paused == {("in", 0)}
    assert fetched_bytes < min(input_buffer_bytes, 32 << 10) / 2
    rig.move()
    assert rig.network.fetcher.paused == set()
    assert rig.manager.counters()["processed"] == fetches


def test_partitions_without_input_take_no_share_from_the_others(make_rig: MakeRig) -> None:
    """An instance with many partitions, of which few are behind, fetches these in large pieces."""
    rig = make_rig(partitions=8, all_input_bytes=64 << 10)
    rig.network.fetcher.batches_at_once = 1
    rig.start(Tasks(active=rig.tasks(*range(8))))

    def fill(*partitions: int) -> int:
        held_bytes = 0
        while not rig.network.fetcher.paused:
            for partition in partitions:
                rig.network.write(("in", partition), keys("a"))
            for fetched in rig.network.fetcher.poll():
                rig.manager.add_input(fetched, rig.clock_ms)
                held_bytes += fetched.held_bytes
        rig.move()
        assert rig.network.fetcher.paused == set()
        return held_bytes

    assert 60 << 10 < fill(3) < 80 << 10
    assert 60 << 10 < fill(4, 5) < 80 << 10
    assert 60 << 10 < fill(6) < 80 << 10


def test_partitions_that_fill_one_after_another_stay_within_the_memory_for_all(make_rig: MakeRig) -> None:
    """The first ones may have more than their share is when others have input, too."""
    all_bytes, count = 1 << 20, 24
    rig = make_rig(partitions=count, input_buffer_bytes=all_bytes // 4, all_input_bytes=all_bytes)
    rig.network.fetcher.batches_at_once = 1
    rig.start(Tasks(active=rig.tasks(*range(count))))
    held_bytes = largest_bytes = 0
    for partition in range(count):
        while ("in", partition) not in rig.network.fetcher.paused:
            rig.network.write(("in", partition), keys("a"))
            for fetched in rig.network.fetcher.poll():
                rig.manager.add_input(fetched, rig.clock_ms)
                held_bytes += fetched.held_bytes
                largest_bytes = max(largest_bytes, fetched.held_bytes)
    assert all_bytes < held_bytes < all_bytes + count * ((32 << 10) + largest_bytes)
    rig.move()
    assert rig.network.fetcher.paused == set()


def test_counters_outlive_their_tasks(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a", "b"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    rig.move()
    rig.start(Tasks(active=rig.tasks(1)))
    assert rig.manager.counters()["processed"] == 2
    known = [(owned.key[0], owned.task.counters()) for owned in rig.manager]
    assert rig.manager.subtopology_counters(known) == rig.manager.subtopology_counters()
    rig.start(NOTHING)
    assert rig.manager.counters()["processed"] == 2


# ---------------------------------------------------------------------------------------------------------- closing


def test_state_of_tasks_that_went_elsewhere_is_deleted_after_a_while(rig: Rig) -> None:
    rig.network.write(("in", 0), keys("a"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    rig.move()
    rig.start(Tasks(active=rig.tasks(1)))
    changed_at_ms = (
        max(path.stat().st_mtime_ns for path in rig.directory.store_path("counts", 0).rglob("*")) // 1_000_000
    )
    rig.manager.clean_up(changed_at_ms)
    rig.manager.clean_up(changed_at_ms + 59_000)
    assert rig.directory.store_path("counts", 0).exists()
    rig.manager.clean_up(changed_at_ms + 10_000_000)
    assert not rig.directory.store_path("counts", 0).exists()
    assert rig.directory.is_open("counts", 1)


class FailsAtTheEnd(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)

    def close(self) -> None:
        raise RuntimeError("in the user's close()")


def test_stores_close_even_where_the_users_code_fails_at_the_end(make_rig: MakeRig) -> None:
    builder = StreamsBuilder()
    store = Store("counts", kind="key_value", key=serdes.string, value=serdes.long)
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .process(FailsAtTheEnd, stores=[store])
        .to("out", key=serdes.string, value=serdes.string)
    )
    rig = make_rig(topology=builder.build())
    rig.start(Tasks(active=rig.tasks(0)))
    (owned,) = rig.manager.running()
    owned.task.punctuate(0)
    assert rig.directory.is_open("counts", 0)
    with pytest.raises(ProcessingError, match=r"close of a processor raised RuntimeError: in the user.s close"):
        rig.start(NOTHING)
    assert not rig.directory.is_open("counts", 0)
    assert len(rig.manager) == 0


# ------------------------------------------------------------------------------------- source topics that are changelogs


def latest_of_two(folder_rig: MakeRig, folder: str, network: InProcessNetwork) -> Rig:
    builder = StreamsBuilder()
    table = builder.table("in", key=serdes.string, value=serdes.integer, store="rows")
    table.filter(lambda key, value: value > 1, store="big").to_stream().to("out", value=serdes.integer)
    topology = builder.build({"topology.optimization": "reuse.ktable.source.topics"})
    return folder_rig(folder, topology=topology, network=network)


def test_a_table_is_restored_from_its_topic_as_far_as_it_was_processed(make_rig: MakeRig) -> None:
    network = InProcessNetwork({"in": 1, "out": 1, "app-big-changelog": 1})
    first = latest_of_two(make_rig, "first", network)
    network.write(("in", 0), [(b"a", number(1)), (None, number(9)), (b"b", number(5))])
    first.start(Tasks(active=first.tasks(0)))
    assert first.move() == 3
    first.commit()
    first.start(NOTHING)

    # Somewhere else, with input that nobody has processed yet.
    network.write(("in", 0), [(b"a", number(7)), (b"c", number(8))])
    second = latest_of_two(make_rig, "second", network)
    second.start(Tasks(standby=second.tasks(0)))
    second.move()
    (key,) = second.tasks(0)
    assert second.manager.task_offsets().end_offsets == {key: network.logs["app-big-changelog", 0].end}
    second.start(Tasks(active=second.tasks(0)))
    (owned,) = second.manager
    second.restore()
    rows = owned.task.caches["rows"]
    assert [(entry.key, entry.value) for entry in rows.rows(None, None)] == [(b"a", 1), (b"b", 5)]
    assert second.move() == 2
    second.commit()
    assert owned.stores["rows"].changelog_offset() == 5
    assert [(entry.key, entry.value) for entry in rows.rows(None, None)] == [(b"a", 7), (b"b", 5), (b"c", 8)]


def passing(**options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer, **options).to("out")
    return builder.build()


def test_without_a_committed_offset_a_source_begins_as_long_ago_as_it_says(make_rig: MakeRig) -> None:
    rig = make_rig(topology=passing(offset_reset=timedelta(seconds=10)))
    rig.network.write(("in", 0), keys("old"), timestamp=rig.clock_ms - 10_001)
    rig.network.write(("in", 0), keys("young"), timestamp=rig.clock_ms - 10_000)
    rig.network.write(("in", 1), keys("old"), timestamp=rig.clock_ms - 10_001)
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert rig.move() == 1


def test_a_source_that_must_have_a_committed_offset_does_not_begin_without(make_rig: MakeRig) -> None:
    rig = make_rig(topology=passing(offset_reset="none"))
    with pytest.raises(UserError, match="no offset is committed for in-0"):
        rig.start(Tasks(active=rig.tasks(0)))
    rig.network.admin.offsets["in", 0] = OffsetAndMetadata(0)
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active running"}


def lost(rig: Rig, *timestamps: int) -> None:
    """Has the task read the first record, of those with these times, where the log begins with the second one."""
    for timestamp in timestamps:
        rig.network.write(("in", 0), keys("a"), timestamp=timestamp)
    rig.network.admin.offsets["in", 0] = OffsetAndMetadata(0)
    rig.network.logs["in", 0].start = 1
    rig.start(Tasks(active=rig.tasks(0)))


def test_a_source_whose_position_is_lost_goes_on_as_long_ago_as_it_says(make_rig: MakeRig) -> None:
    rig = make_rig(topology=passing(offset_reset=timedelta(seconds=10)))
    # The machine's clock was set, by which records have their timestamps.
    rig.manager.clock.ahead_ms = 100_000
    now_ms = rig.clock_ms + 100_000
    lost(rig, now_ms - 20_000, now_ms - 15_000, now_ms - 10_000, now_ms)
    assert rig.move() == 2


def test_a_source_that_must_have_a_committed_offset_does_not_go_on_where_its_position_is_lost(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(topology=passing(offset_reset="none"))
    lost(rig, 1, 2, 3)
    says = "in-0: offset 0 is not in the log, .* reset-offsets app --topic in:0 --to-earliest --execute"
    with pytest.raises(UserError, match=says):
        rig.move()


def test_where_to_go_on_is_asked_again_while_the_cluster_does_not_answer(make_rig: MakeRig) -> None:
    rig = make_rig(topology=passing(), task_timeout_ms=1_000)
    lost(rig, 1, 2, 3)
    items = rig.network.fetcher.poll()
    rig.network.is_away = True
    for fetched in items:
        rig.manager.add_input(fetched, rig.clock_ms)
    for after_ms in (0, 600):
        assert rig.manager.process(10, rig.clock_ms + after_ms) == 0
    rig.network.is_away = False
    rig.clock_ms += 1_200
    assert rig.move() == 2

    # Another one, and the cluster stays away.
    rig.network.write(("in", 0), keys("a"))
    rig.network.logs["in", 0].start = rig.network.logs["in", 0].end + 1
    items = rig.network.fetcher.poll()
    rig.network.is_away = True
    for fetched in items:
        rig.manager.add_input(fetched, rig.clock_ms)
    with pytest.raises(RequestTimedOutError):
        rig.manager.process(10, rig.clock_ms + 1_000)
    # Whoever stops reading stops asking.
    rig.manager.close_all()
    assert rig.manager.process(10, rig.clock_ms + 5_000) == 0


class UnreadStore(MemoryStore):
    """Can't be read when it is opened for the first time."""

    is_readable = False

    def changelog_offset(self) -> int | None:
        if not UnreadStore.is_readable:
            raise StateError("the disk does not answer")
        return super().changelog_offset()


def test_a_store_that_can_not_be_read_does_not_stay_open(make_rig: MakeRig) -> None:
    """Else the thread that takes the place of the failed one would find it in use for ever."""
    builder = StreamsBuilder()
    own = Store("counts", supplier=UnreadStore)
    builder.stream("in", key=serdes.string, value=serdes.integer).group_by_key().count(store=own)
    rig = make_rig(topology=builder.build())
    with pytest.raises(StateError, match="does not answer"):
        rig.start(Tasks(active=rig.tasks(0)))
    assert not rig.directory.is_open("counts", 0)
    UnreadStore.is_readable = True
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.phases() == {0: "active running"}
