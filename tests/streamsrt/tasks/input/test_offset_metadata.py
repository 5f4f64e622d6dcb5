from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.client.values import OffsetAndMetadata
from streamsrt.tasks.input.offset_metadata import (
    BackfillRunningError,
    RepartitionRunningError,
    done_metadata,
    full_names,
    moving_metadata,
    parse_mark,
    parse_moving,
    parse_partition_metadata,
    partition_metadata,
    refuse_half_written_state,
    running_metadata,
)

operators = st.dictionaries(st.text(min_size=1, max_size=12).filter(lambda name: name != "st"), st.integers(-1, 2**50))


@given(st.integers(-1, 2**60), operators)
def test_a_mark_comes_back_as_it_was(time: int, times: dict[str, int]) -> None:
    mark = parse_mark(done_metadata("abc", time, times))
    assert mark is not None
    assert (mark.backfill_id, mark.is_done, mark.partition_time_ms) == ("abc", True, time)
    assert mark.operator_times_ms == times


@pytest.mark.parametrize("text", ["", "AgAAAAAAAAAB", "srt:backfill:x:other", "srt:backfill:x:done;st=soon", "srt"])
def test_other_metadata_is_no_mark(text: str) -> None:
    assert parse_mark(text) is None


def test_only_a_running_backfill_is_refused() -> None:
    done = OffsetAndMetadata(5, done_metadata("a", 1, {}))
    refuse_half_written_state("app", {("t", 0): done, ("t", 1): OffsetAndMetadata(1, "other")})
    running = OffsetAndMetadata(0, running_metadata("b"))
    with pytest.raises(BackfillRunningError, match=r"backfill b .*t-1.*backfill abort --execute"):
        refuse_half_written_state("app", {("t", 0): done, ("t", 1): running})


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_state_that_is_being_moved_is_refused(counts: list[int]) -> None:
    metadata = moving_metadata(counts)
    assert parse_moving(metadata) == tuple(counts)
    assert parse_mark(metadata) is None
    with pytest.raises(RepartitionRunningError, match=r"t-3.*state repartition MODULE:TOPOLOGY -a app --execute"):
        refuse_half_written_state("app", {("t", 3): OffsetAndMetadata(0, metadata)})


@pytest.mark.parametrize(
    "text", ["", "srt:repartition:2:done", "srt:repartition:two:running", "srt:backfill:2:running"]
)
def test_other_metadata_says_nothing_of_a_move(text: str) -> None:
    assert parse_moving(text) == ()


@given(st.integers(-1, 2**62), st.dictionaries(st.text(max_size=20), st.integers(-1, 2**62), max_size=5))
def test_partition_and_operator_times_go_through_the_metadata(time: int, operators: dict[str, int]) -> None:
    assert parse_partition_metadata(partition_metadata(time, operators)) == (time, operators)


def test_metadata_of_kafka_streams_is_read() -> None:
    # Base64 of TopicPartitionMetadata(7, {"s": 5}) and of its first version.
    assert parse_partition_metadata("AgAAAAAAAAAHAAAAAQAAAAFzAAAAAAAAAAU=") == (7, {"s": 5})
    assert parse_partition_metadata("AQAAAAAAAAAH") == (7, {})
    assert partition_metadata(7, {"s": 5}) == "AgAAAAAAAAAHAAAAAQAAAAFzAAAAAAAAAAU="


@pytest.mark.parametrize(
    "other", ["", "not such metadata", "AwAAAAAAAAAH", "AgAAAAAAAAAHAAAAAg==", "srt:backfill:x:running"]
)
def test_other_metadata_is_none(other: str) -> None:
    assert parse_partition_metadata(other) is None


def read_back(metadata: str) -> tuple[int, Mapping[str, int]]:
    """What is read of either kind of metadata."""
    mark, times = parse_mark(metadata), parse_partition_metadata(metadata)
    if mark is not None:
        return mark.partition_time_ms, mark.operator_times_ms
    assert times is not None
    return times


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=3), st.integers(64, 480))
def test_hashes_stand_for_names_where_those_of_many_operators_have_no_room(times: list[int], count: int) -> None:
    names = [f"KSTREAM-AGGREGATE-{number:010d}" for number in range(count)]
    operators = {name: times[number % len(times)] for number, name in enumerate(names)}
    for metadata in (partition_metadata(5, operators), done_metadata("a" * 12, 5, operators)):
        assert len(metadata) <= 4096
        read_ms, read = read_back(metadata)
        assert read_ms == 5
        assert full_names(read, [*names, "another"]) == operators


def test_of_too_many_operators_the_latest_times_are_kept() -> None:
    operators = {f"an-operator-with-a-long-name-{number}": number for number in range(1_000)}
    for metadata in (partition_metadata(5, operators), done_metadata("a" * 12, 5, operators)):
        assert len(metadata) <= 4096
        kept = full_names(read_back(metadata)[1], operators)
        assert len(kept) > 150
        assert kept == {name: time for name, time in operators.items() if time >= 1_000 - len(kept)}


def test_names_that_fit_stay_as_they_are() -> None:
    assert full_names({"a": 1, "~nobody": 2}, ["a", "b"]) == {"a": 1}
    assert full_names({"a": 1}, []) == {"a": 1}
