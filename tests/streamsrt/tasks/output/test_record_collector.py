from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.errors import ProductionError
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire import kernels
from streamsrt.wire.compression import Compression
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import decode_batches
from streamsrt.wire.records.texts import Texts, read_texts

Batch = tuple[str, int, bytes, int]


def collector(batches: list[Batch], partitions: int = 3, least: int = 1000) -> RecordCollector:
    return RecordCollector(lambda *sent: batches.append(sent), lambda topic: partitions, batch_records_first=least)


def rows(batches: list[Batch], partition: int) -> list[tuple[bytes | None, bytes | None, int]]:
    found = []
    for _, where, batch, count in batches:
        if where == partition:
            (columns,) = decode_batches(batch)
            assert len(columns) == count
            found += list(zip(columns.keys, columns.values, columns.timestamps, strict=True))
    return found


def test_records_go_to_the_partitions_of_the_java_client_in_their_order() -> None:
    batches: list[Batch] = []
    out = collector(batches)
    keys = [b"user-%d" % (i % 7) for i in range(50)]
    values = [b"%d" % i for i in range(50)]
    out.add("out", keys, values, list(range(50)))
    assert batches == []
    out.flush()
    expected = list(zip(keys, values, range(50), strict=True))
    for partition in range(3):
        assert rows(batches, partition) == [row for row in expected if partition_for_key(row[0], 3) == partition]


def test_a_partition_is_encoded_when_it_holds_enough() -> None:
    batches: list[Batch] = []
    out = collector(batches, least=10)
    out.add("log", [b"k"] * 9, [b"v"] * 9, [1] * 9, None, 2)
    assert batches == []
    out.add("log", [b"k"], [b"v"], [1], None, 2)
    assert [(topic, partition, count) for topic, partition, _, count in batches] == [("log", 2, 10)]
    out.flush()
    assert len(batches) == 1


def test_what_could_not_be_sent_is_sent_by_the_next_flush_in_the_order_of_partitions() -> None:
    sent: list[int] = []
    refused = {1}

    def sink(topic: str, partition: int, batch: bytes, count: int) -> None:
        if partition in refused:
            raise ProductionError("no", topic, partition)
        sent.append(partition)

    out = RecordCollector(sink, lambda topic: 3)
    for partition in (2, 1, 0):
        out.add("log", [b"k"], [b"v"], [1], None, partition)
    with pytest.raises(ProductionError):
        out.flush()
    refused.clear()
    out.flush()
    out.flush()
    assert sent == [0, 1, 2]
    out.add("log", [b"k"], [b"v"], [1], None, 2)
    out.discard()
    out.flush()
    assert sent == [0, 1, 2]


def test_batches_grow_or_shrink_to_a_size_in_bytes() -> None:
    batches: list[Batch] = []
    out = RecordCollector(
        lambda *sent: batches.append(sent),
        lambda topic: 1,
        batch_records_first=10,
        batch_records_max=40,
        batch_bytes=1000,
    )
    for _ in range(400):
        out.add("short", [b"k"], [b"v"], [1])
    assert [count for *_, count in batches[:3]] == [10, 40, 40]
    batches.clear()
    for _ in range(40):
        out.add("long", [b"k"], [b"v" * 300], [1])
    assert [count for *_, count in batches[:4]] == [10, 3, 3, 3]


def test_what_comes_at_once_is_cut_into_batches_of_equal_length() -> None:
    batches: list[Batch] = []
    out = collector(batches, partitions=1, least=10)
    out.add("out", [b"%d" % i for i in range(32)], [b"v"] * 32, [1] * 32)
    assert [count for *_, count in batches] == [10, 11, 11]
    assert [key for key, _, _ in rows(batches, 0)] == [b"%d" % i for i in range(32)]


def test_headers_are_kept_beside_records_without_any() -> None:
    batches: list[Batch] = []
    out = collector(batches, partitions=1)
    out.add("out", [b"a"], [b"1"], [1])
    out.add("out", [b"b"], [b"2"], [2], [(("h", b"x"),)])
    out.add("out", [b"c"], [b"3"], [3])
    out.flush()
    (columns,) = decode_batches(batches[0][2])
    assert columns.headers == [(), (("h", b"x"),), ()]


def test_records_without_a_key_stay_together_and_move_on_with_the_next_call() -> None:
    batches: list[Batch] = []
    out = collector(batches)
    for _ in range(3):
        out.add("out", [None, None], [b"1", b"2"], [1, 1])
    out.flush()
    assert [len(rows(batches, partition)) for partition in range(3)] == [2, 2, 2]


def test_a_record_may_open_a_topic_while_others_are_sent() -> None:
    """A refused record is handled while results are sent: its dead letter may be the first of its topic."""
    sent: list[str] = []

    def sink(topic: str, *_batch: object) -> None:
        sent.append(topic)
        if topic == "a":
            out.send_alone("letters", None, b"refused", 1, ())

    out = RecordCollector(sink, lambda topic: 1)
    for topic in ("a", "b"):
        out.add(topic, [b"k"], [b"v"], [1])
    out.flush()
    assert sent == ["a", "letters", "b"]


def test_a_partitioner_may_choose_for_some_records_only() -> None:
    batches: list[Batch] = []
    out = collector(batches)
    out.add("out", [b"a", b"b"], [b"1", b"2"], [1, 2], None, [2, None])
    out.flush()
    assert (b"a", b"1", 1) in rows(batches, 2)
    assert (b"b", b"2", 2) in rows(batches, partition_for_key(b"b", 3))


def test_windowed_keys_are_partitioned_by_their_inner_key() -> None:
    batches: list[Batch] = []
    out = collector(batches)
    out.add("out", [b"a" + bytes(8)], [b"1"], [1], partition_keys=[b"a"])
    out.flush()
    assert batches[0][1] == partition_for_key(b"a", 3)


def test_nothing_is_written_to_a_partition_that_does_not_exist() -> None:
    out = collector([])
    with pytest.raises(ProductionError, match="3 partitions, a record was sent to partition 3"):
        out.add("out", [b"a"], [b"1"], [1], None, [3])


def test_a_partitioner_may_choose_several_partitions_or_none() -> None:
    batches: list[Batch] = []
    out = collector(batches)
    headers = [(("h", key),) for key in (b"a", b"b", b"c", b"d")]
    out.add("out", [b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", b"4"], [1, 2, 3, 4], headers, [[0, 2], [], 2, None])
    out.flush()
    placed = {partition: rows(batches, partition) for partition in range(3)}
    a, c, d = (b"a", b"1", 1), (b"c", b"3", 3), (b"d", b"4", 4)
    expected = {0: [a], 1: [], 2: [a, c]}
    expected[partition_for_key(b"d", 3)].append(d)
    assert placed == expected
    assert out.unplaced_records == 1
    for _, partition, batch, _ in batches:
        (columns,) = decode_batches(batch)
        assert columns.headers == [(("h", key),) for key, _, _ in placed[partition]]


def texts_of(raw: list[bytes]) -> Texts:
    texts = read_texts(b"\0".join(raw))
    assert texts is not None
    return texts


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("order", ["texts", "records first", "records behind"])
def test_texts_are_written_as_keys_and_values_in_their_order(partitions: int, order: str) -> None:
    batches: list[Batch] = []
    out = collector(batches, partitions, least=150)
    raw = [b"word-%d" % (i * i) for i in range(400)]
    expected: list[tuple[bytes, bytes, int]] = []
    for start in range(0, 400, 100):
        some, times = raw[start : start + 100], list(range(start, start + 100))
        if (order == "records first" and start == 0) or (order == "records behind" and start == 300):
            out.add("out", some, some, times)
        else:
            # The last ones take times that the quick writer leaves to the other one.
            times = times if start < 300 else [time << 40 for time in times]
            out.add_texts("out", texts_of(some), np.array(times))
        expected += zip(some, some, times, strict=True)
    assert out.take_produced("out")[0] == 400
    sampled = out.take_produced("out")
    assert sampled == (0, [])
    out.flush()
    for partition in range(partitions):
        assert rows(batches, partition) == [
            row for row in expected if partition_for_key(row[0], partitions) == partition
        ]


def test_texts_are_sampled_and_dropped_as_other_records_are() -> None:
    batches: list[Batch] = []
    out = collector(batches, 1)
    out.add_texts("out", texts_of([b"a", b"b", b"c"]), np.array([1, 2, 3]))
    out.add_texts("out", texts_of([b"longer than eight"]), np.array([4]))
    assert out.take_produced("out") == (4, [1, 2, 3, 4])
    out.discard()
    out.flush()
    assert batches == []
    assert out.take_produced("out") == (0, [])


_items = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"", bytes(63), bytes(64), bytes(700)]))
_times = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.sampled_from([-1, 0, 1 << 61, (1 << 62) + 5]))
_rows = st.lists(st.tuples(_items, _items, _times), min_size=1, max_size=70)
_steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["by key", "by value", "0", "1", "chosen", "headers", "bytearray"]), _rows),
        st.tuples(
            st.just("texts"), st.lists(st.sampled_from([b"a", b"bc", b"a longer text"]), min_size=1, max_size=70)
        ),
        st.tuples(st.sampled_from(["flush", "discard", "produced", "refuse", "take"]), st.none()),
    ),
    max_size=25,
)


def outcome(steps: list[tuple[str, Any]], partitions: int, options: dict[str, Any]) -> list[object]:
    """All that a collector writes, answers and raises."""
    found: list[object] = []
    refusing = False

    def sink(*sent: object) -> None:
        if refusing:
            raise ProductionError("refused")
        found.append(sent)

    out = RecordCollector(sink, lambda topic: partitions, **options)
    for what, given_rows in steps:
        try:
            if what in ("refuse", "take"):
                refusing = what == "refuse"
            elif what == "flush":
                out.flush()
            elif what == "discard":
                out.discard()
            elif what == "produced":
                found.append(out.take_produced("out"))
            elif what == "texts":
                out.add_texts("out", texts_of(given_rows), np.arange(len(given_rows)))
            else:
                add_rows(out, what, given_rows, partitions)
        except ProductionError as error:
            found.append(str(error))
    return found


def add_rows(out: RecordCollector, what: str, some: list[tuple[Any, Any, int]], partitions: int) -> None:
    keys, values, times = map(list, zip(*some, strict=True))
    match what:
        case "by value":
            out.add("out", keys, values, times, partition_keys=values)
        case "0" | "1":
            out.add("out", keys, values, times, None, min(int(what), partitions - 1))
        case "chosen":
            out.add("out", keys, values, times, None, [len(value or b"") % partitions for value in values])
        case "headers":
            out.add("out", keys, values, times, [(("h", key),) if key else () for key in keys])
        case "bytearray":
            out.add("out", keys, [bytearray(value or b"") for value in values], times)  # type: ignore[misc]
        case _:
            out.add("out", keys, values, times)


@given(
    steps=_steps,
    partitions=st.integers(1, 3),
    first=st.sampled_from([1, 20, 1000]),
    limit=st.sampled_from([600, 1_000_000]),
    codec=st.sampled_from([Compression.NONE, Compression.SNAPPY]),
)
def test_with_the_loops_in_c_the_same_batches_are_sent(
    load_native: Callable[[str], object],
    steps: list[tuple[str, Any]],
    partitions: int,
    first: int,
    limit: int,
    codec: Compression,
) -> None:
    options: dict[str, Any] = {
        "batch_records_first": first,
        "batch_records_max": 60,
        "batch_bytes": 2000,
        "batch_bytes_max": limit,
        "compression": codec,
        "transactional": first == 20,
    }
    outcomes = []
    for native in (load_native(kernels.MODULE), None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(kernels, "native", native)
            outcomes.append(outcome([*steps, ("take", None), ("flush", None)], partitions, options))
    assert outcomes[0] == outcomes[1]
