"""A group machine over a real log: what is on disk, what a failed append leaves, what a load brings back."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.values import CreateInternalTopics, GroupRequest, RequestContext, TopicCreationFailed
from coordinator.log.config import Fsync, LogConfig
from coordinator.log.directory import LogDirectory
from coordinator.log.errors import RecordTooLargeError
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.primitives import NewerRecordError
from streamsrt.wire.records import decode_batches, encode_batch
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from tests.coordinator.group.memory_log import MemoryLog
from tests.coordinator.group.test_machine import commit
from tests.coordinator.group.test_validation import ask, beat, join, shard_with
from tests.coordinator.group.transcript import records_of
from tests.streamsrt.assignment.notation import subtopology

IMAGE = TopicsImage.of(TopicImage(b"1" * 16, "in", 2))
NO_DELAY = GroupConfig.parse({"group.streams.initial.rebalance.delay.ms": "0"})


@pytest.mark.requirement("SG-003", "SG-115", "SG-246", "SG-312")
def test_a_log_on_disk_brings_everything_back(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    log = directory.partition("__consumer_offsets", 0, LogConfig(fsync=Fsync.NEVER))
    shard = Shard(log, NO_DELAY, IMAGE)
    shard.load(0)
    ask(shard, join())
    ask(shard, join(member_id="n", process_id="q"))
    ask(shard, commit(), 10)
    ask(shard, beat(member_epoch=-1))
    state = shard.state
    directory.close()
    directory = LogDirectory(tmp_path)
    log = directory.partition("__consumer_offsets", 0, LogConfig(fsync=Fsync.NEVER))
    again = Shard(log, NO_DELAY, IMAGE)
    outcome = again.load(7000)
    assert again.state == state
    assert (outcome.appended, outcome.end_offset) == (False, log.log_end_offset)
    assert again.next_deadline_ms() == 52_000
    directory.close()


@pytest.mark.requirement("SG-312", "SG-313")
def test_the_last_record_of_each_key_is_enough() -> None:
    shard, log = shard_with(("group.streams.assignment.interval.ms", "0"))
    for name in ("m", "n", "o"):
        ask(shard, join(member_id=name, process_id=name))
    ask(shard, beat(member_epoch=-1))
    ask(shard, beat(member_id="n", member_epoch=3, active_tasks=[], standby_tasks=[], warmup_tasks=[]))
    last: dict[bytes | None, bytes | None] = {}
    for batch in log.batches:
        columns = decode_batches(batch)[0]
        last.update(zip(columns.keys, columns.values, strict=True))
    for keep_tombstones in (True, False):
        kept = {key: value for key, value in last.items() if keep_tombstones or value is not None}
        compacted = MemoryLog()
        compacted.append(encode_batch(list(kept), list(kept.values()), [0] * len(kept)), now_ms=0)
        again = Shard(compacted, NO_DELAY, IMAGE)
        again.load(0)
        assert again.state == shard.state


def test_a_record_of_an_unknown_type_is_reported() -> None:
    log = MemoryLog()
    log.append(encode_batch([b"\x7f\x00rest"], [b"value"], [0]), now_ms=0)
    with pytest.raises(NewerRecordError, match="32512"):
        Shard(log, NO_DELAY).load(0)


@pytest.mark.requirement("SG-250", "GA-049")
def test_a_failed_append_leaves_everything_as_it_was() -> None:
    shard, log = shard_with()
    ask(shard, join())
    state, timers = shard.state, shard.timers.as_dict()
    for request in (join(member_id="n"), beat(member_epoch=-1), beat(process_id="other")):
        log.fail_next = 1
        assert ask(shard, request).error_code == 15
        assert (shard.state, shard.timers.as_dict()) == (state, timers)
        assert shard.state.groups["g"].soft == state.groups["g"].soft
    log.fail_next = 1
    assert ask(shard, commit(), 10).topics[0].partitions[0].error_code == 15
    assert shard.state == state
    log.fail_next = 1
    outcome = shard.tick(46_000)
    assert (outcome.appended, shard.state) == (False, state)
    assert shard.next_deadline_ms() == 47_000
    assert shard.tick(47_000).appended
    assert shard.state.groups["g"].is_empty


@pytest.mark.usefixtures("in_production")
def test_an_unexpected_exception_concerns_one_request(caplog: pytest.LogCaptureFixture) -> None:
    """It closed the client's connection, which then sent its request again and again; a describe of all groups, too."""
    shard, log = shard_with()
    ask(shard, join())
    state, timers = shard.state, shard.timers.as_dict()
    log.failure = lambda batches: ZeroDivisionError("a bug")
    assert ask(shard, beat(member_epoch=-1)).error_code == -1
    assert (shard.state, shard.timers.as_dict()) == (state, timers)
    assert "StreamsGroupHeartbeatRequest to group g from client at /host failed" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text
    log.failure = lambda batches: None
    assert ask(shard, beat(member_epoch=-1)).error_code == 0


@pytest.mark.usefixtures("in_production")
@pytest.mark.parametrize("failure", [ZeroDivisionError("a bug"), RecordTooLargeError("too large")])
def test_a_timer_that_fails_is_tried_again_ever_less_often_and_keeps_no_other_group_waiting(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception ended the broker; a record that is too large was tried each second."""
    shard, log = shard_with()
    ask(shard, join(group_id="bad"))
    ask(shard, join(group_id="good"))
    log.failure = lambda batches: failure if b"bad" in batches else None
    outcome = shard.tick(46_000)
    assert outcome.failed == ("bad",)
    assert shard.state.groups["good"].is_empty
    assert not shard.state.groups["bad"].is_empty
    delays_s, now_ms = [], 46_000
    for _ in range(11):
        due_ms = shard.next_deadline_ms()
        assert due_ms is not None
        delays_s.append((due_ms - now_ms) // 1000)
        now_ms = due_ms
        assert shard.tick(now_ms).failed == ("bad",)
    assert delays_s == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert "group bad: its timer 'session' is handled again in 300 s" in caplog.text
    log.failure = lambda batches: None
    assert shard.tick(now_ms + 300_000).failed == ()
    assert shard.state.groups["bad"].is_empty


def test_deadlines_move_with_the_clock() -> None:
    shard, _ = shard_with()
    ask(shard, join())
    deadline_ms = shard.next_deadline_ms()
    assert deadline_ms is not None
    for by_ms in (3_600_000, -7_200_000):
        shard.move_deadlines(by_ms)
        deadline_ms += by_ms
        assert shard.next_deadline_ms() == deadline_ms
        assert not shard.tick(deadline_ms - 1).appended
    assert shard.tick(deadline_ms).appended


def test_a_member_too_large_for_a_record_is_refused() -> None:
    shard, log = shard_with()
    assert ask(shard, join(process_id="\ud800")).error_code == -1
    assert (shard.state.groups, log.log_end_offset) == ({}, 0)


@pytest.mark.requirement("SG-310", "SG-311")
@pytest.mark.parametrize(
    ("partitions", "changes", "max_bytes"),
    [(2, {"process_id": "p" * 2000}, 1500), (500, {}, 1500), (500, {}, 1 << 20)],
    ids=["member", "target", "both fit"],
)
def test_what_does_not_fit_into_a_batch_changes_nothing(
    tmp_path: Path, partitions: int, changes: dict[str, str], max_bytes: int
) -> None:
    directory = LogDirectory(tmp_path)
    log = directory.partition("__consumer_offsets", 0, LogConfig(fsync=Fsync.NEVER, max_message_bytes=max_bytes))
    shard = Shard(log, NO_DELAY, TopicsImage.of(TopicImage(b"1" * 16, "in", partitions)))
    answer = ask(shard, join(**changes))
    if max_bytes > 1500:
        assert answer.error_code == 0
    else:
        assert (answer.error_code, shard.state.groups, log.log_end_offset) == (-1, {}, 0)
    directory.close()


@pytest.mark.requirement("SG-145", "SG-147", "SG-149")
def test_internal_topics_are_asked_for_once_and_again_after_a_back_off() -> None:
    log = MemoryLog()
    shard = Shard(log, NO_DELAY, IMAGE)
    topology = Heartbeat.Topology(subtopologies=[subtopology("0: source=in changelog=c")])

    def effects(now_ms: int, **changes: object) -> list[object]:
        request = beat(**changes) if now_ms else join(topology=topology)
        return list(shard.execute(GroupRequest(RequestContext(1, "c", "/h", 1), request), now_ms).effects)

    (effect,) = effects(0)
    assert isinstance(effect, CreateInternalTopics)
    (spec,) = effect.topics
    assert (spec.name, spec.partitions, spec.replication_factor) == ("c", 2, -1)
    assert spec.configs == {"cleanup.policy": "compact"}
    assert effects(10) == []
    now_ms, waits = 20, []
    for _ in range(12):
        shard.execute(TopicCreationFailed("g", {"c": "no"}), now_ms)
        start = now_ms
        while not effects(now_ms):
            now_ms += 10
        waits.append(now_ms - start)
    assert 80 <= waits[0] <= 110
    assert 24_000 <= waits[-1] <= 30_010
    assert waits[:8] == sorted(waits[:8])
    shard.set_topics(TopicsImage({**IMAGE, "c": TopicImage(b"2" * 16, "c", 2)}), now_ms)
    assert effects(now_ms) == []
    assert shard.state.groups["g"].soft.creation.errors == {}


@pytest.mark.requirement(
    "SG-289",
    "SG-290",
    "SG-291",
    "SG-293",
    "SG-294",
    "SG-295",
    "SG-296",
    "SG-298",
    "SG-300",
    "SG-306",
    "SG-307",
    "SG-309",
)
def test_the_records_of_a_life() -> None:
    shard, log = shard_with()
    ask(shard, join())
    ask(shard, beat())
    ask(shard, beat(member_epoch=-1))
    first, second = ([r.key.NAME.removeprefix("StreamsGroup") for r in records_of(b)] for b in log.batches)
    assert first == [
        "MemberMetadataKey",
        "TopologyKey",
        "MetadataKey",
        "TargetAssignmentMemberKey",
        "TargetAssignmentMetadataKey",
        "CurrentMemberAssignmentKey",
    ]
    assert second == [
        "CurrentMemberAssignmentKey",
        "TargetAssignmentMemberKey",
        "MemberMetadataKey",
        "MetadataKey",
        "TargetAssignmentMetadataKey",
    ]
    assert [record.value is None for record in records_of(log.batches[1])] == [True, True, True, False, False]
    keys = [key for batch in log.batches for key in decode_batches(batch)[0].keys if key is not None]
    assert [int.from_bytes(key[:2], "big") for key in keys] == [19, 23, 17, 21, 20, 22, 22, 21, 19, 17, 20]
    ask(shard, types.DeleteGroupsRequest(groups_names=["g"]))
    assert shard.state.groups == {}
