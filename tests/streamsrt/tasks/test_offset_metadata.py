from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.client.values import OffsetAndMetadata
from streamsrt.tasks.offset_metadata import (
    BackfillRunningError,
    done_metadata,
    parse_mark,
    parse_partition_metadata,
    partition_metadata,
    refuse_running_backfill,
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
    refuse_running_backfill("app", {("t", 0): done, ("t", 1): OffsetAndMetadata(1, "other")})
    running = OffsetAndMetadata(0, running_metadata("b"))
    with pytest.raises(BackfillRunningError, match=r"backfill b .*t-1.*backfill abort --execute"):
        refuse_running_backfill("app", {("t", 0): done, ("t", 1): running})


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


def test_metadata_stays_within_what_a_broker_takes() -> None:
    many = {f"KSTREAM-AGGREGATE-{number:010d}": number for number in range(200)}
    assert parse_partition_metadata(partition_metadata(7, many)) == (7, {})
