"""``streamsrt produce`` and ``streamsrt consume``."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of
from streamsrt.client.values import ClientConfig
from streamsrt.dead_letters.topic import connected
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.murmur2 import partition_for_key
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import COMMAND_LINE

FOREVER = ("--config", "retention.ms=-1")


@pytest.mark.parametrize(
    ("config", "is_deleted"),
    [
        ("retention.ms=604800000", True),
        ("retention.ms=-1", False),
        ("cleanup.policy=compact", False),
        ("message.timestamp.type=LogAppendTime", False),
    ],
)
def test_records_that_the_broker_will_soon_delete_are_told(
    on_broker: Command, topic: str, config: str, is_deleted: bool
) -> None:
    on_broker("topics", "create", topic, "--config", config)
    lines = '{"key": "a", "value": "1"}\n{"key": "a", "value": "2", "timestamp": "2020-01-31T12:00:00Z"}\n'
    written = on_broker("produce", topic, "--format", "json", stdin=lines)
    assert written.code == 0
    first, *notes = written.err.splitlines()
    assert first == f"2 records written to {topic}"
    assert len(notes) == is_deleted
    assert not notes or "the oldest one has timestamp 1580472000000, retention.ms is 604800000" in notes[0]
    written = on_broker("produce", topic, "--format", "json", stdin='{"key": "a", "value": "1"}\n')
    assert written.err == f"1 record written to {topic}\n"


def test_lines_go_in_and_come_out(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 2, *FOREVER)
    written = on_broker("produce", topic, "--key-separator", "=", "--timestamp", 42, stdin="a=1\nb=2=3\na=\n")
    assert written.code == 0
    assert written.err == f"3 records written to {topic}\n"
    read = on_broker("consume", topic, "--json")
    assert sorted(read.rows, key=lambda row: (row["partition"], row["offset"])) == sorted(
        [
            {"partition": partition_for_key(b"a", 2), "offset": 0, "timestamp": 42, "key": "a", "value": "1"},
            {
                "partition": partition_for_key(b"b", 2),
                "offset": 1 if partition_for_key(b"a", 2) == partition_for_key(b"b", 2) else 0,
                "timestamp": 42,
                "key": "b",
                "value": "2=3",
            },
            {
                "partition": partition_for_key(b"a", 2),
                "offset": 2 if partition_for_key(b"a", 2) == partition_for_key(b"b", 2) else 1,
                "timestamp": 42,
                "key": "a",
                "value": "",
            },
        ],
        key=lambda row: (int(str(row["partition"])), int(str(row["offset"]))),
    )


def test_many_lines_without_keys(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    lines = [f"line {number}" for number in range(2_500)]
    on_broker("produce", topic, stdin="\n".join(lines) + "\n")
    read = on_broker("consume", topic)
    assert read.out.splitlines() == [f"null\t{line}" for line in lines]
    assert len(on_broker("consume", topic, "--limit", 7).out.splitlines()) == 7


@pytest.mark.parametrize(
    ("input_format", "lines"), [("lines", [b"a\n", b"b\n"]), ("json", [b'{"value": "a"}\n', b'{"value": "b"}\n'])]
)
def test_a_line_does_not_wait_for_the_next_one(
    bundled_broker: BundledBroker, on_broker: Command, topic: str, input_format: str, lines: list[bytes]
) -> None:
    """From a person, or the end of a log. What is there is not lost with Ctrl-C, either."""
    on_broker("topics", "create", topic, "--partitions", 1)
    written: list[bytes | None] = []
    command = (*COMMAND_LINE, "produce", topic, "--format", input_format, "-b", bundled_broker.bootstrap_servers)
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    try:
        network.fetcher.add_partitions({(topic, 0): 0})
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as producing:
            assert producing.stdin is not None
            assert producing.stderr is not None
            for number, line in enumerate(lines, 1):
                producing.stdin.write(line)
                producing.stdin.flush()
                deadline = time.monotonic() + 60
                while len(written) < number and time.monotonic() < deadline:
                    for fetched in network.fetcher.poll(1.0):
                        written += [value for columns in columns_of(fetched) for value in columns.values]
                assert len(written) == number
            producing.send_signal(signal.SIGINT)
            assert producing.wait(60) == 130
            assert producing.stderr.read().decode() == f"2 records written to {topic}\n"
    finally:
        network.stop()
    assert written == [b"a", b"b"]


def test_lines_go_to_the_partition_that_is_given(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 3)
    assert on_broker("produce", topic, "--key-separator", "=", "--partition", 2, stdin="a=1\nb=2\n").code == 0
    own = '{"value": "3", "partition": 0}\n{"value": "4"}\n'
    assert on_broker("produce", topic, "--format", "json", "--partition", 1, stdin=own).code == 0
    assert {(row["partition"], row["value"]) for row in on_broker("consume", topic, "--json").rows} == {
        (2, "1"),
        (2, "2"),
        (0, "3"),
        (1, "4"),
    }
    refused = on_broker("produce", topic, "--partition", 3, stdin="a\n")
    assert (refused.code, refused.err) == (2, f"streamsrt: --partition 3: {topic} has partitions 0 to 2\n")


def test_an_empty_topic_has_an_end_too(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    assert on_broker("consume", topic) == (0, "", "")


def test_a_line_without_a_separator_is_named(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    done = on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nnothing\n")
    assert done.code == 2
    assert "line 2 of stdin has no key separator ':'" in done.err


def test_records_that_the_broker_refuses_are_named_and_all_others_are_written(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1, "--config", "max.message.bytes=2000")
    lines = [f"k{number}={'x' * (5_000 if number in (3, 7) else 20)}" for number in range(10)]
    done = on_broker("produce", topic, "--key-separator", "=", stdin="\n".join(lines) + "\n")
    assert done.code == 5
    assert f"8 records written to {topic}" in done.err
    assert "not written: key 'k3' (2 bytes), value 'xxx" in done.err
    assert "(5,000 bytes). The broker refuses a record for" in done.err
    assert done.err.endswith("streamsrt: the broker refused 2 records; all others are written\n")
    done = on_broker("consume", topic)
    assert [line.partition("\t")[0] for line in done.out.splitlines()] == [
        f"k{n}" for n in range(10) if n not in (3, 7)
    ]


def test_an_empty_separator_is_refused(on_broker: Command, topic: str) -> None:
    done = on_broker("produce", topic, "--key-separator", "", stdin="a:1\n")
    assert (done.code, "--key-separator is empty" in done.err) == (2, True)


def test_a_topic_that_is_not_there(on_broker: Command, topic: str) -> None:
    for name in ("produce", "consume"):
        done = on_broker(name, topic)
        assert done.code == 2
        assert f"no such topic: {topic}" in done.err


def test_bytes_in_another_format_are_named(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    on_broker("produce", topic, stdin="abc\n")
    done = on_broker("consume", topic, "--value", "long")
    assert done.code == 5
    assert f"not printed: the value in {topic}-0 at offset 0 is not in the given format" in done.err
    assert "give --value another one" in done.err
    assert on_broker("consume", topic, "--value", "bytes").out == "null\t616263\n"


def test_a_key_without_room_for_a_window_is_named(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    on_broker("produce", topic, "--key-separator", ":", stdin="c1:v\nabcdefg:v\n12345678:v\n")
    done = on_broker("consume", topic, "--key", "windowed")
    assert (done.code, done.out) == (5, f"@{int.from_bytes(b'12345678', 'big')}\tv\n")
    assert f"not printed: the key in {topic}-0 at offset 0 is not in the given format" in done.err
    assert "a windowed key has at least 8 bytes, not 7" in done.err


def test_records_that_can_not_be_decoded_keep_no_others_from_being_printed(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    on_broker("produce", topic, "--key-separator", "=", stdin="a=1\nb={\nc=3\n\nd=4\n".replace("\n\n", "\nx=[\n"))
    read = on_broker("consume", topic, "--value", "json")
    assert (read.code, read.out) == (5, "a\t1\nc\t3\nd\t4\n")
    named = read.err.splitlines()
    assert [f"value in {topic}-0 at offset {offset} " in line for offset, line in zip((1, 3), named, strict=False)] == [
        True,
        True,
    ]
    assert named[2:] == [
        f"streamsrt: 2 records of {topic} not printed: not in the given format. Give --key or --value another one, "
        "e.g. bytes, or --skip-message-on-error to exit with 0 nevertheless"
    ]
    skipping = on_broker("consume", topic, "--value", "json", "--skip-message-on-error", "--json")
    assert (skipping.code, [row["value"] for row in skipping.rows]) == (0, [1, 3, 4])
    assert skipping.err.splitlines()[-1] == f"2 records of {topic} not printed"
    # As with Kafka's console consumer, the limit counts what was read.
    assert on_broker("consume", topic, "--value", "json", "--max-messages", 3).out == "a\t1\nc\t3\n"


def test_many_records_that_can_not_be_decoded_are_counted(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    on_broker("produce", topic, stdin="x\n" * 500)
    read = on_broker("consume", topic, "--value", "long")
    assert (read.code, read.out) == (5, "")
    assert len(read.err.splitlines()) == 22
    assert f"streamsrt: 500 records of {topic} not printed: " in read.err


def test_null_is_printed_as_kafkas_console_consumer_does(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    on_broker("produce", topic, "--format", "json", stdin='{"value": null}\n{"key": "a", "value": "b"}\n')
    assert on_broker("consume", topic).out == "null\tnull\na\tb\n"
    assert on_broker("consume", topic, "--null-literal", "(none)").out == "(none)\t(none)\na\tb\n"
    assert on_broker("consume", topic, "--null-literal", "(none)", "--json").rows[0]["value"] is None


def test_json_keeps_its_digits(on_broker: Command, topic: str) -> None:
    copy = f"{topic}-copy"
    on_broker("topics", "create", topic, copy, "--partitions", 1)
    values = [
        "9007199254740993",
        "-123456789012345678901234567890",
        '{"id":18446744073709551617,"text":"a  \\" : b","list":[1,2]}',
        "0.1000000000000000055511151231257827",
        '"text"',
        "null",
    ]
    spread = values[2].replace(",", " ,\t").replace(":1", " : 1")
    on_broker("produce", topic, stdin="\n".join([*values[:2], spread, *values[3:]]))
    as_key_too = on_broker("consume", topic, "--value", "json")
    assert as_key_too.out.splitlines() == [f"null\t{value}" for value in values]
    read = on_broker("consume", topic, "--value", "json", "--json")
    assert [line.rpartition('"value":')[2] for line in read.out.splitlines()] == [f"{value}}}" for value in values]
    # Whole numbers come through a copy as they are.
    whole = "".join(f"{line}\n" for line in read.out.splitlines()[:3])
    assert on_broker("produce", copy, "--format", "json", "--value", "json", stdin=whole).code == 0
    again = on_broker("consume", copy, "--value", "json", "--json")
    assert again.out == whole


def test_an_unknown_format_is_refused(on_broker: Command, topic: str) -> None:
    done = on_broker("consume", topic, "--value", "xml")
    assert done.code == 2
    assert "unknown format 'xml': give one of string, json" in done.err


def test_lines_are_bytes(on_broker: Command, topic: str) -> None:
    """What is not UTF-8 is written as it is; a line that ends as on Windows has no carriage return."""
    on_broker("topics", "create", topic)
    on_broker("produce", topic, "--key-separator", "=", stdin=b"a\xff=\xfe\r\nb=2")
    read = on_broker("consume", topic, "--key", "bytes", "--value", "bytes", "--json")
    assert [(row["key"], row["value"]) for row in read.rows] == [("61ff", "fe"), ("62", "32")]
    refused = on_broker("produce", topic, "--key-separator", "=", stdin=b"\xff\xfe\n")
    assert refused.code == 2
    assert "line 1 of stdin has no key separator '=': '\\\\xff\\\\xfe'" in refused.err


# ------------------------------------------------------------------------------------------------- JSON lines and CSV


def test_what_consume_prints_as_json_can_be_produced_again(on_broker: Command, topic: str) -> None:
    copy = f"{topic}-copy"
    on_broker("topics", "create", topic, copy, "--partitions", 3, *FOREVER)
    rows = [
        '{"key": "a", "value": 1, "timestamp": 42, "headers": {"h": "1", "none": null}}',
        '{"key": null, "value": -7, "timestamp": "2026-01-31T12:00:00", "partition": 2}',
        '{"value": "12", "partition": 1}',
        '{"key": "gone", "value": null, "timestamp": 43, "headers": [["h", "1"], ["h", "2"]]}',
    ]
    written = on_broker(
        "produce", topic, "--format", "json", "--value", "long", "--timestamp", 7, stdin="\n".join(rows) + "\n\n"
    )
    assert (written.code, written.err) == (0, f"4 records written to {topic}\n")
    read = on_broker("consume", topic, "--json", "--headers", "--value", "long")
    by_value = {row["value"]: row for row in read.rows}
    assert by_value[1]["headers"] == [["h", "1"], ["none", None]]
    assert by_value[None]["headers"] == [["h", "1"], ["h", "2"]]
    assert (by_value[-7]["partition"], by_value[-7]["timestamp"]) == (2, 1_769_860_800_000)
    assert (by_value[12]["partition"], by_value[12]["timestamp"]) == (1, 7)
    assert on_broker("produce", copy, "--format", "json", "--value", "long", stdin=read.out).code == 0
    again = on_broker("consume", copy, "--json", "--headers", "--value", "long")
    by_place = [sorted(done.rows, key=lambda row: (row["partition"], row["offset"])) for done in (read, again)]
    assert by_place[0] == by_place[1]


def test_rows_of_csv_are_objects(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic)
    text = 'id,at,note\r\n7,1000,"a, ""b"""\r\n8,2026-01-31T12:00:00Z,\r\n'
    options = (
        "--format",
        "csv",
        "--key-column",
        "id",
        "--timestamp-column",
        "at",
        "--key",
        "long",
        "--header",
        "from=csv",
    )
    assert on_broker("produce", topic, *options, stdin=text).code == 0
    read = on_broker("consume", topic, "--key", "long", "--value", "json", "--headers", "--json")
    assert [(row["key"], row["timestamp"], row["value"]["note"], row["headers"]) for row in read.rows] == [
        (7, 1_000, 'a, "b"', [["from", "csv"]]),
        (8, 1_769_860_800_000, "", [["from", "csv"]]),
    ]
    assert on_broker("consume", topic, "--key", "long", "--headers", "-n", 1).out.startswith('[["from", "csv"]]\t7\t')


@pytest.mark.parametrize(
    ("options", "line", "why"),
    [
        (("--format", "json"), "[1]", "line 2 of stdin is not a record (no value)"),
        (("--format", "json"), '{"value": 1, "topic": "t"}', "unknown: topic"),
        (("--format", "json"), "{", "line 2 of stdin is not JSON"),
        (("--format", "json"), '{"value": 1, "timestamp": "soon"}', "the timestamp in line 2 of stdin is 'soon'"),
        (("--format", "json"), '{"value": 1, "timestamp": true}', "the timestamp in line 2"),
        (("--format", "json"), '{"value": 1, "timestamp": "\u00b2"}', "the timestamp in line 2 of stdin is '\u00b2'"),
        (("--format", "json"), f'{{"value": 1, "timestamp": "{"9" * 5000}"}}', "the timestamp in line 2 of stdin"),
        (("--format", "json"), '{"value": 1, "timestamp": "1969-01-01"}', "the timestamp in line 2 of stdin"),
        (("--format", "json"), '{"value": 1, "headers": {"\\ud800": "a"}}', "the headers in line 2 of stdin are"),
        (("--format", "json"), f'{{"value": {"[" * 100_000}', "line 2 of stdin is not JSON"),
        (("--value", "json"), "[" * 100_000, "the value in line 2 of stdin is not in the given format"),
        (("--format", "json"), '{"value": 1, "partition": -1}', "the partition in line 2 of stdin is -1"),
        (
            ("--format", "json"),
            '{"value": 1, "partition": 1}',
            "the partition in line 2 of stdin is 1: give a number from 0 to 0",
        ),
        (("--format", "json"), '{"value": NaN}', "the value in line 2 of stdin is not in the given format"),
        (("--format", "json", "--value", "double"), '{"value": 1e400}', 'write "inf", as text'),
        (("--format", "json"), '{"value": 1, "headers": {"h": {"hex": "f"}}}', "the headers in line 2 of stdin are"),
        (("--format", "json"), '{"value": 1, "headers": {"h": 1}}', "the headers in line 2 of stdin are"),
        (
            ("--format", "json", "--value", "long"),
            '{"value": "x"}',
            "the value in line 2 of stdin is not in the given format",
        ),
        (
            ("--format", "json", "--value", "integer"),
            '{"value": 2147483648}',
            "the value in line 2 of stdin is not in the given format",
        ),
        (("--value", "json"), "{", "the value in line 2 of stdin is not in the given format"),
        (("--value", "bytes"), "xy", "the value in line 2 of stdin is not in the given format"),
    ],
)
def test_what_stands_before_an_unreadable_line_is_written(
    on_broker: Command, topic: str, options: tuple[str, ...], line: str, why: str
) -> None:
    on_broker("topics", "create", topic)
    good = '{"value": 1}' if "json" in options and "--format" in options else "11"
    done = on_broker("produce", topic, *options, stdin=f"{good}\n{line}\n{good}\n")
    assert done.code == 2
    assert why in done.err
    assert f"1 record written to {topic}" in done.err
    assert len(on_broker("consume", topic, "--json", "--value", "bytes").rows) == 1


def test_csv_that_is_none_is_refused(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic)
    short = on_broker("produce", topic, "--format", "csv", stdin="a,b\n1\n")
    assert (short.code, "line 2 of stdin does not have 2 fields" in short.err) == (2, True)
    absent = on_broker("produce", topic, "--format", "csv", "--key-column", "c", stdin="a,b\n1,2\n")
    assert (absent.code, "--key-column c: there is no such column; the columns are: a, b" in absent.err) == (2, True)
    binary = on_broker("produce", topic, "--format", "csv", stdin=b"a,b\n\xff,2\n")
    assert (binary.code, "is not CSV in UTF-8" in binary.err) == (2, True)
    assert on_broker("produce", topic, "--key-column", "a").code == 2
    assert on_broker("produce", topic, "--format", "xml").code == 2
    assert on_broker("produce", topic, "--value", "windowed").code == 2
    assert on_broker("produce", topic, "--header", "=x").code == 2


def test_numbers_and_headers_that_json_does_not_have_are_copied_as_they_were(
    on_broker: Command, bundled_broker: BundledBroker, topic: str
) -> None:
    copy = f"{topic}-copy"
    on_broker("topics", "create", topic, copy)
    rows = [
        f'{{"value": "{text}", "headers": {{"h": {{"hex": "fffe00"}}}}}}' for text in ("NaN", "Infinity", "-inf", "1.5")
    ]
    assert on_broker("produce", topic, "--format", "json", "--value", "double", stdin="\n".join(rows)).code == 0
    read = on_broker("consume", topic, "--value", "double", "--json", "--headers")
    assert [row["value"] for row in read.rows] == ["NaN", "Infinity", "-Infinity", 1.5]
    assert read.rows[0]["headers"] == [["h", {"hex": "fffe00"}]]
    assert on_broker("produce", copy, "--format", "json", "--value", "double", stdin=read.out).code == 0
    assert on_broker("consume", copy, "--value", "double", "--json", "--headers").out == read.out
    raw = [on_broker("consume", each, "--value", "bytes", "--json").rows for each in (topic, copy)]
    assert [row["value"] for row in raw[0]] == [row["value"] for row in raw[1]]


def test_the_last_records_are_records_and_not_the_ends_of_transactions(
    on_broker: Command, bundled_broker: BundledBroker, topic: str
) -> None:
    on_broker("topics", "create", topic)
    with connected(bundled_broker.bootstrap_servers, topic, writes=True) as network:
        collector = RecordCollector(network.producer.send, lambda _name: 1, transactional=True)
        for number in range(6):
            collector.add(topic, [None], [str(number).encode()], [number])
            collector.flush()
            network.transactions.commit("", {}, member_id="", member_epoch=-1, timeout_s=30.0)
    for count in (1, 2, 5, 6, 9):
        read = on_broker("consume", topic, "--from-offset", -count, "--json")
        assert [int(row["value"]) for row in read.rows] == list(range(max(0, 6 - count), 6))


def test_a_file_of_a_spreadsheet_begins_with_a_mark(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic)
    assert on_broker("produce", topic, "--format", "csv", "--key-column", "id", stdin="\ufeffid,v\n1,2\n").code == 0
    assert on_broker("consume", topic, "--value", "json", "--json").rows[0]["value"] == {"id": "1", "v": "2"}
    twice = on_broker("produce", topic, "--format", "csv", stdin="id,id\n1,2\n")
    assert (twice.code, "line 1 of stdin has a column twice: id" in twice.err) == (2, True)


def test_who_has_read_enough_may_close_the_pipe(bundled_broker: BundledBroker, on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic)
    on_broker("produce", topic, stdin="".join(f"{number:0100}\n" for number in range(20_000)))
    servers = bundled_broker.bootstrap_servers
    reading = subprocess.Popen(
        [sys.executable, "-m", "streamsrt", "consume", topic, "-b", servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    with reading.stdout, reading.stderr:
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""
    assert reading.wait(60) == 0


def test_reading_begins_where_it_is_told_to(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    rows = [f'{{"value": "{number}", "partition": {number % 2}, "timestamp": {number * 1000}}}' for number in range(10)]
    on_broker("produce", topic, "--format", "json", stdin="\n".join(rows))

    def values(*options: object) -> list[int]:
        done = on_broker("consume", topic, "--json", *options)
        assert done.code == 0, done.err
        return sorted(int(row["value"]) for row in done.rows)

    assert values("--from-beginning") == list(range(10))
    assert values("--partition", 1) == [1, 3, 5, 7, 9]
    assert values("--partition", 1, "--from-offset", 3) == [7, 9]
    assert values("--from-offset", -2) == [6, 7, 8, 9]
    assert values("--from-offset", 99) == []
    assert values("--from-offset", -99) == list(range(10))
    assert values("--from", "1970-01-01T00:00:06") == [6, 7, 8, 9]
    assert values("--from", "1971-01-01") == []
    assert len(values("--max-messages", 3)) == 3
    assert values("--isolation-level", "read_committed") == list(range(10))
    for wrong in (("--partition", 2), ("--from-offset", 1, "--from-beginning"), ("--isolation-level", "none")):
        assert on_broker("consume", topic, *wrong).code == 2
