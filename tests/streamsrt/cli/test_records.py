"""``streamsrt produce`` and ``streamsrt consume``."""

from __future__ import annotations

from streamsrt.wire.murmur2 import partition_for_key
from tests.streamsrt.cli.conftest import Command


def test_lines_go_in_and_come_out(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
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
    assert read.out.splitlines() == [f"None\t{line}" for line in lines]
    assert len(on_broker("consume", topic, "--limit", 7).out.splitlines()) == 7


def test_an_empty_topic_has_an_end_too(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    assert on_broker("consume", topic) == (0, "", "")


def test_a_line_without_a_separator_is_named(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    done = on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nnothing\n")
    assert done.code == 2
    assert "line 2 of stdin has no key separator ':'" in done.err


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
    assert f"the value in {topic}-0 at offset 0 is not in the format asked for" in done.err
    assert "give --value another one" in done.err
    assert on_broker("consume", topic, "--value", "bytes").out == "None\t616263\n"


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
