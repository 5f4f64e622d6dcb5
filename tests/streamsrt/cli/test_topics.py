"""``streamsrt topics``."""

from __future__ import annotations

from tests.streamsrt.cli.conftest import Command


def test_create_list_describe_delete(on_broker: Command, topic: str) -> None:
    assert on_broker("topics", "create", topic, "--partitions", 3, "--config", "retention.ms=-1").code == 0
    listed = on_broker("topics", "list", "--json")
    assert {"topic": topic, "partitions": 3} in listed.rows

    on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
    described = on_broker("topics", "describe", topic, "--json")
    assert [row["partition"] for row in described.rows] == [0, 1, 2]
    assert sum(row["records"] for row in described.rows) == 3
    assert all(row["end_offset"] - row["start_offset"] == row["records"] for row in described.rows)

    said = on_broker("topics", "delete", topic)
    assert said.code == 0
    assert f"would delete {topic} with all records; use --execute" in said.err
    assert topic in on_broker("topics", "list").out
    assert on_broker("topics", "delete", topic, "--execute").code == 0
    assert topic not in on_broker("topics", "list").out


def test_a_table_for_people(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    lines = on_broker("topics", "list").out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS"]
    assert [topic, "2"] in [line.split() for line in lines]


def test_a_topic_that_is_there(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 1)
    again = on_broker("topics", "create", topic, "--partitions", 1)
    assert again.code == 2
    assert (
        again.err
        == f"streamsrt: Topic '{topic}' was not created: Topic '{topic}' already exists. (TOPIC_ALREADY_EXISTS)\n"
    )
    assert on_broker("topics", "create", topic, "--partitions", 1, "--if-not-exists").code == 0


def test_a_topic_that_is_not_there(on_broker: Command, topic: str) -> None:
    for arguments in (("describe", topic), ("delete", topic, "--execute")):
        done = on_broker("topics", *arguments)
        assert done.code == 2
        assert done.err == f"streamsrt: no such topic: {topic} (streamsrt topics list shows all topics)\n"


def test_a_setting_without_a_value(on_broker: Command, topic: str) -> None:
    done = on_broker("topics", "create", topic, "--config", "retention.ms")
    assert done.code == 2
    assert done.err == "streamsrt: --config retention.ms: expected KEY=VALUE\n"


def test_a_number_that_kafka_has_no_room_for(on_broker: Command, topic: str) -> None:
    done = on_broker("topics", "create", topic, "--partitions", 99_999_999_999)
    assert done.code == 2
    assert done.err.startswith("streamsrt: a number is too large for Kafka's protocol")


def test_more_partitions(on_broker: Command, topic: str) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    assert on_broker("topics", "add-partitions", topic, "--partitions", 5).code == 0
    assert {"topic": topic, "partitions": 5} in on_broker("topics", "list", "--json").rows
    fewer = on_broker("topics", "add-partitions", topic, "--partitions", 3)
    assert fewer.code == 2
    assert f"Topic '{topic}' did not get more partitions" in fewer.err
    missing = on_broker("topics", "add-partitions", f"{topic}-not", "--partitions", 3)
    assert (missing.code, "no such topic" in missing.err) == (2, True)
