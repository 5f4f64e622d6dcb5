"""The loops in C beside the Python code that they stand in for."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from google.protobuf import wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.schema_registry import SchemaRegistry
from streamsrt.wire import kernels
from streamsrt.wire.kernels import RECORDS_MAX, KeyNumbers, Native, UnreadItems, add_counts, key_numbers, read_records
from streamsrt.wire.murmur2 import PartitionMemo, partition_for_key
from streamsrt.wire.primitives import EncodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Headers,
    decode_batch,
    encode_batch,
    iter_columns,
    read_header,
    rewrite_log_append_time,
)
from streamsrt.wire.records.columns import LazyColumns
from streamsrt.wire.records.encoding import encode_records
from streamsrt.wire.records.uniform import RECORDS_MIN
from tests.streamsrt.wire.records.reference import Columns, check_damaged, check_whole

T0 = 1_700_000_000_000
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def loops(load_native: Callable[[str], object]) -> Native:
    """The module in C, whether or not the tests run with it."""
    return cast(Native, load_native(kernels.MODULE))


@contextmanager
def using(native: Native | None) -> Iterator[None]:
    """In here, the code runs with these loops, or with none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernels, "native", native)
        yield


def read(batch: bytes) -> Columns | None:
    header = read_header(batch)
    found = read_records(memoryview(batch)[HEADER_SIZE_BYTES:], header.records_count, header.base_timestamp)
    if found is None:
        return None
    times, keys, values = found.times.tolist(), found.keys(), found.values()
    assert (found.low_ms, found.high_ms) == (min(times), max(times))
    assert (found.has_null_keys, found.has_null_values) == (None in keys, None in values)
    return keys, values, times


items = st.one_of(
    st.none(), st.binary(max_size=20), st.sampled_from([b"", bytes(63), bytes(64), bytes(8191), bytes(8192)])
)
times = st.one_of(
    st.integers(T0 - 100, T0 + 10_000),
    st.sampled_from([-1, 0, 1, 1 << 61, (1 << 62) - 1, 1 << 62, -(1 << 62), 1 << 63]),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    rows = draw(st.lists(st.tuples(items, items, st.integers(T0 - 100, T0 + 10_000)), min_size=1, max_size=150))
    keys, values, stamps = map(list, zip(*rows, strict=True))
    headers: list[Headers] | None = None
    if draw(st.integers(0, 9)) == 0:
        headers = [()] * len(rows)
        headers[draw(st.integers(0, len(rows) - 1))] = (("name", b"value"),)
    return encode_batch(keys, values, stamps, headers=headers)


class TestRead:
    @given(batch=batches())
    def test_records_are_the_same(self, loops: Native, batch: bytes) -> None:
        with using(loops):
            check_whole(read, batch)
            assert read(batch) is not None or decode_batch(batch).headers is not None

    @given(
        whole=batches(),
        changes=st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=4),
        missing=st.integers(0, 3),
    )
    @settings(max_examples=300)
    def test_what_is_damaged_is_read_as_records_one_by_one_or_not_at_all(
        self, loops: Native, whole: bytes, changes: list[tuple[int, int]], missing: int
    ) -> None:
        with using(loops):
            check_damaged(read, whole, changes, missing)

    @given(noise=st.binary(max_size=60), count=st.integers(1, 9))
    @settings(max_examples=500)
    def test_noise_never_reads_beyond_its_end(self, loops: Native, noise: bytes, count: int) -> None:
        records = memoryview(noise + b"\x0e\x00\x00\x00\x01\x01\x00")[: len(noise)]
        with using(loops):
            found = read_records(records, count, T0)
        assert found is None or len(found.keys()) == len(found.values()) == count

    def test_more_records_than_may_keep_other_threads_waiting_are_left_to_others(self, loops: Native) -> None:
        batch = encode_batch([None] * (RECORDS_MAX + 1), [None] * (RECORDS_MAX + 1), [T0] * (RECORDS_MAX + 1))
        with using(loops):
            assert read(batch) is None
            assert len(decode_batch(batch)) == RECORDS_MAX + 1

    def test_a_compacted_batch_is_left_to_others(self, loops: Native) -> None:
        batch = encode_batch([b"a", b"b"], [b"1", b"2"], [T0, T0], offsets=[3, 9])
        with using(loops):
            assert read(batch) is None
            assert decode_batch(batch).offsets == [3, 9]

    def test_arguments_of_other_types_are_refused(self, loops: Native) -> None:
        module: Any = loops
        rooms = bytearray(8), bytearray(4), bytearray(4)
        with pytest.raises(ValueError, match="room"):
            module.read_records(memoryview(bytes(70)), 10, 0, np.empty(9, np.int64), *[np.empty(10, np.uint32)] * 2)
        with pytest.raises(ValueError, match="room"):
            module.read_records(memoryview(bytes(70)), 10, 0, np.empty(10, np.int64), *[np.empty(9, np.uint32)] * 2)
        for arguments in (
            (),
            (b"", "1", 0, *rooms),
            ("", 1, 0, *rooms),
            (b"", 1, 0, b"12345678", *rooms[1:]),
            (b"", 1, 0, rooms[0], b"1234", rooms[2]),
            (b"", 1, 0, *rooms[:2], b"1234"),
        ):
            with pytest.raises((TypeError, BufferError)):
                module.read_records(*arguments)

    def test_positions_outside_of_the_records_are_refused(self, loops: Native) -> None:
        for position in (3, 4, 1 << 31):
            with pytest.raises(ValueError, match="no key or value at this position"):
                loops.read_items(memoryview(b"\0\0\x80"), np.array([0, position], np.uint32))

    @pytest.mark.parametrize("records", [2, 500])
    @pytest.mark.parametrize("in_c", [False, True])
    def test_columns_that_are_read_lazily_are_equal_to_those_of_other_readers(
        self, loops: Native, records: int, in_c: bool
    ) -> None:
        keys, values = [b"a"] * records, [b"1"] * records
        batch = encode_batch(keys, values, [T0 + 5, *[T0] * (records - 1)], base_offset=7)
        with using(None):
            expected = decode_batch(batch)
            expected.timestamp_bounds = T0, T0 + 5
        with using(loops if in_c else None):
            (columns,) = iter_columns(batch, lazily=True)
            columns.timestamp_bounds = T0, T0 + 5
        assert isinstance(columns, LazyColumns) is (in_c or records >= RECORDS_MIN)
        assert columns.has_nulls == expected.has_nulls == (False, False)
        assert columns.first_timestamp == expected.first_timestamp == T0 + 5
        assert (columns.timestamp_min, columns.timestamp_max) == (T0, T0 + 5)
        assert len(columns) == records
        assert columns == expected
        assert pickle.loads(pickle.dumps(columns)) == expected
        assert columns.cut(1) == expected.cut(1)
        assert columns.from_offset(8) == expected.from_offset(8)
        assert columns != batch

    def test_nulls_are_known_before_values_are_read(self, loops: Native) -> None:
        batch = encode_batch([b"a", None], [None, b"2"], [T0, T0])
        with using(loops):
            (columns,) = iter_columns(batch, lazily=True)
        assert columns.has_nulls == (True, True)
        assert columns.values == [None, b"2"]
        assert columns.keys == [b"a", None]

    @pytest.mark.parametrize("lazily", [False, True])
    def test_the_brokers_time_is_every_records_timestamp(self, loops: Native, lazily: bool) -> None:
        batch = rewrite_log_append_time(encode_batch([b"a", b"b"], [b"", b""], [T0, T0 + 1]), 9999)
        with using(loops):
            (columns,) = iter_columns(batch, lazily=lazily)
        assert columns.timestamps == [9999] * 2
        assert (columns.first_timestamp, columns.timestamp_min, columns.timestamp_max) == (9999, 9999, 9999)


class TestWritten:
    @given(rows=st.lists(st.tuples(items, items, times), min_size=1, max_size=80), base=times)
    @settings(max_examples=300)
    def test_the_bytes_are_those_of_the_codec(
        self, loops: Native, rows: list[tuple[bytes | None, bytes | None, int]], base: int
    ) -> None:
        keys, values, stamps = map(list, zip(*rows, strict=True))

        def written() -> bytes | None:
            try:
                return bytes(encode_records(keys, values, stamps, None, range(len(rows)), base))
            except (EncodeError, OverflowError):
                return None

        with using(None):
            expected = written()
        with using(loops):
            assert written() == expected

    @pytest.mark.parametrize(
        ("keys", "values", "stamps"),
        [
            (["text"], [b""], [T0]),
            ([b""], [bytearray(3)], [T0]),
            ([b""], [b""], [1.5]),
            ([b""], [b""], [1 << 80]),
            ([b"", b""], [b""], [T0]),
            ((b"",), [b""], [T0]),
        ],
    )
    def test_what_is_no_column_of_bytes_is_left_to_others(
        self, loops: Native, keys: Any, values: Any, stamps: Any
    ) -> None:
        assert not loops.WrittenRecords().add(keys, values, stamps, 0, len(keys))

    def test_what_can_not_be_written_has_the_same_error(self, loops: Native) -> None:
        wrong: Any = ["text"]
        for each in (loops, None):
            with using(each), pytest.raises(EncodeError, match="can't be encoded"):
                encode_batch(wrong, [b""], [T0])


class TestPartitions:
    @given(keys=st.lists(st.one_of(st.none(), st.binary(max_size=40))), count=st.integers(1, 2000))
    def test_each_key_goes_where_kafkas_partitioner_sends_it(
        self, loops: Native, keys: list[bytes | None], count: int
    ) -> None:
        expected = [-1 if key is None else partition_for_key(key, count) for key in keys]
        assert loops.partitions(keys, count, -1) == expected
        assert loops.partitions(tuple(keys), count, -1) == expected

    def test_other_sequences_and_counts_are_left_to_others(self, loops: Native) -> None:
        others: Any = [["text"], [bytearray(2)], iter([b"a"])]
        assert [loops.partitions(each, 3, -1) for each in others] == [None] * 3
        assert loops.partitions([b"a"], 0, -1) is None

    def test_a_topic_without_partitions_is_refused_as_before(self, loops: Native) -> None:
        with using(loops), pytest.raises(ValueError, match="at least 1 partition"):
            PartitionMemo().partitions([b"a"], 0)

    @given(chosen=st.lists(st.integers(-1, 4), max_size=60))
    def test_each_partition_gets_its_records_in_order(self, loops: Native, chosen: list[int]) -> None:
        keys: list[bytes | None] = [b"%d" % index for index in range(len(chosen))]
        values, stamps = [None] * len(chosen), list(range(len(chosen)))
        parts = loops.split(chosen, 4, keys, tuple(values), stamps)
        if any(not 0 <= partition < 4 for partition in chosen):
            assert parts is None
            return
        at = [[index for index, partition in enumerate(chosen) if partition == which] for which in range(4)]
        assert parts == [([keys[i] for i in each], [None] * len(each), each) for each in at]

    def test_columns_of_other_lengths_are_left_to_others(self, loops: Native) -> None:
        assert loops.split([0, 0], 1, [b"a"], [b"b"], [1]) is None
        assert loops.split([0], 1 << 20, [b"a"], [b"b"], [1]) is None


class TestNumbers:
    @given(runs=st.lists(st.lists(st.one_of(st.binary(max_size=3), st.binary(min_size=7, max_size=17)), max_size=200)))
    def test_keys_have_the_same_numbers_as_in_a_dictionary(self, loops: Native, runs: list[list[bytes]]) -> None:
        ours, expected = loops.KeyNumbers(), KeyNumbers()
        for keys in runs:
            got, wanted = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
            assert ours.numbers(keys, got) == expected.numbers(keys, wanted)
            assert got.tolist() == wanted.tolist()
            assert len(ours) == len(expected)
            assert [ours.get(key) for key in keys] == got.tolist()
        assert ours.get(b"another one") is None

    def test_many_keys_of_all_sizes(self, loops: Native) -> None:
        numbers = loops.KeyNumbers()
        keys = [b"%d" % (index * 7919) * (1 + index % 9) for index in range(50_000)]
        got = np.empty(len(keys), np.int64)
        assert numbers.numbers(keys, got) == list(dict.fromkeys(keys))
        assert numbers.numbers(keys[::-1], got) == []
        assert [numbers.get(key) for key in keys[:1000]] == got[::-1][:1000].tolist()

    def test_keys_that_are_no_bytes_are_refused_and_change_nothing(self, loops: Native) -> None:
        numbers = loops.KeyNumbers()
        wrong: Any = [1]
        with pytest.raises(TypeError, match="a key is bytes, not int"):
            numbers.numbers(wrong, np.empty(1, np.int64))
        with pytest.raises(ValueError, match="room"):
            numbers.numbers([b"a", b"b"], np.empty(1, np.int64))
        assert len(numbers) == 0

    @given(runs=st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=100)), in_c=st.booleans())
    def test_keys_that_are_not_read_have_the_same_numbers(
        self, loops: Native, runs: list[list[bytes]], in_c: bool
    ) -> None:
        with using(loops if in_c else None):
            numbers = key_numbers()
        expected = KeyNumbers()
        for keys in runs:
            with using(loops):
                (columns,) = iter_columns(encode_batch(keys, [None] * len(keys), [T0] * len(keys)), lazily=True)
            unread, middle = columns.quick_keys, len(keys) // 2
            assert isinstance(unread, UnreadItems)
            for start, stop in ((0, middle), (middle, len(keys))):
                got, wanted = np.empty(stop - start, np.int64), np.empty(stop - start, np.int64)
                part = unread[start:stop]
                assert (len(part), list(part)) == (stop - start, keys[start:stop])
                assert part.numbered(numbers, got) == expected.numbers(keys[start:stop], wanted)
                assert got.tolist() == wanted.tolist()
            assert columns.keys == keys == columns.quick_keys

    def test_a_null_among_keys_that_are_not_read_is_refused(self, loops: Native) -> None:
        with using(loops):
            (columns,) = iter_columns(encode_batch([None], [b""], [T0]), lazily=True)
        keys: Any = columns.quick_keys
        with pytest.raises(TypeError, match="a key is bytes, not None"):
            keys.numbered(loops.KeyNumbers(), np.empty(1, np.int64))

    @given(
        records=st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9), st.integers(0, 99)), max_size=40),
        first=st.one_of(st.none(), st.integers(0, 50)),
    )
    def test_counts_are_those_of_numpy(
        self, loops: Native, records: list[tuple[int, int, int]], first: int | None
    ) -> None:
        numbers, times, positions = np.array(records, np.int64).reshape(-1, 3).T.copy()
        found = []
        for each in (loops, None):
            rows = [np.full(6, start, np.int64) for start in (0, -1, -1)]
            with using(each):
                add_counts(numbers, times, positions if first is None else first, *rows)
            found.append([row.tolist() for row in rows])
        assert found[0] == found[1]

    def test_counts_of_rows_that_there_are_not_are_refused(self, loops: Native) -> None:
        rows = np.zeros((3, 2), np.int64)
        for number in (-1, 2):
            with pytest.raises(IndexError, match="no such row"):
                loops.add_counts(np.array([number]), np.zeros(1, np.int64), 0, *rows)
        with pytest.raises(ValueError, match="room"):
            loops.add_counts(np.zeros(2, np.int64), np.zeros(1, np.int64), 0, *rows)
        with pytest.raises(ValueError, match="room"):
            loops.add_counts(np.zeros(1, np.int64), np.zeros(1, np.int64), 0, rows[0], rows[1], rows[2, :1])

    @given(times=st.lists(st.integers(-3, 3), max_size=8))
    def test_whether_times_ascend_is_known_with_and_without_the_loops(self, loops: Native, times: list[int]) -> None:
        for each in (loops, None):
            with using(each):
                # One of them has a gap between its entries.
                for column in (np.array(times, np.int64), np.repeat(np.array(times, np.int64), 2)[::2]):
                    assert kernels.are_ascending(column) == (times == sorted(times))

    def test_the_dictionary_is_used_without_the_loops(self, loops: Native) -> None:
        with using(None):
            assert isinstance(key_numbers(), KeyNumbers)
        with using(loops):
            assert isinstance(key_numbers(), loops.KeyNumbers)


@pytest.mark.slow
def test_the_loops_are_found_unless_they_are_not_wanted(native_folder: Path) -> None:
    program = (
        "from streamsrt.avro import kernels as avro; from streamsrt.wire import kernels as records; "
        "from topology.spec import model_reading as models; "
        "print(records.native is not None, avro.native is not None, models.native is not None)"
    )

    def said(**more: str) -> str:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{native_folder}", "STREAMSRT_PURE": "0", **more}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    assert said() == "True True True"
    assert said(STREAMSRT_PURE="1") == "False False False"


# ------------------------------------------------------------------------------------------- values of a registry


def outcome(read: Callable[[bytes], object], data: bytes) -> object:
    try:
        return read(data)
    except Exception as error:  # noqa: BLE001  # whatever Protobuf raises
        return type(error), str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\0\0\0\1",
        b"\0\0\0\0\1\0",
        b"\0\0\0\0\1\0\x0a\2ab",
        b"\0\1\2\3\4\0\x0a\0",
        b"\0\0\0\0\1\2\0\x0a\2ab",
        b"\0\0\0\0\1\4\2",
        b"\1\0\0\0\1\0\x0a\2ab",
        b"\0\0\0\0\1\0\x0a\x7fab",
        b"\0\0\0\0\1\0\x0a\2\xff\xff",
        bytearray(b"\0\0\0\0\1\0\x0a\2ab"),
        "\0\0\0\0\1\0\x0a\2ab",
        None,
    ],
)
def test_messages_and_errors_are_those_of_python(loops: Native, data: bytes) -> None:
    def reader() -> Callable[[bytes], object]:
        return SchemaRegistry("http://localhost").protobuf("s", wrappers_pb2.StringValue, "").deserialize

    with using(None):
        pure = reader()
    with using(loops):
        native = reader()
    assert native is not pure
    assert type(native) is not type(pure)
    assert outcome(native, data) == outcome(pure, data)
