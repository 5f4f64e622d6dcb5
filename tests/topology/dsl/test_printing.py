"""What print() and print_table() write."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import KStream, StreamsBuilder, TopologyError, serdes


def run(printing: Any, records: list[tuple[str, Any]], *, wall_clock_ms: int = 0) -> None:
    builder = StreamsBuilder()
    printing(builder.stream("in", key=serdes.string, value=serdes.json))
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        source.pipe_key_values(records)
        driver.advance_wall_clock_time(wall_clock_ms)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_records_are_printed_under_the_name_of_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    run(lambda stream: stream.print(), [("a", 1), ("b", None)])
    assert capsys.readouterr().out == "[KSTREAM-PRINTER-0000000001]: a, 1\n[KSTREAM-PRINTER-0000000001]: b, None\n"


def test_label_text_and_output_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "printed.txt"

    def text(key: str, value: int) -> str:
        return f"{key} has {value}"

    with path.open("w") as file:
        run(lambda stream: stream.print("orders", mapper=text, to=file, name="shown"), [("a", 1), ("b", 2)])
    assert path.read_text() == "[orders]: a has 1\n[orders]: b has 2\n"


def test_a_sample_is_the_first_record_and_each_nth() -> None:
    out = io.StringIO()
    run(lambda stream: stream.print("n", to=out, every=3), [("k", number) for number in range(8)])
    assert out.getvalue() == "[n]: k, 0\n[n]: k, 3\n[n]: k, 6\n"


def test_a_printer_is_a_node_with_kafka_streams_name() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in")
    stream.print("x")
    stream.print(name="own")
    described = builder.build().describe()
    assert "Processor: KSTREAM-PRINTER-0000000001 (stores: [])" in described
    assert "Processor: own (stores: [])" in described


def test_a_table_is_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    run(lambda stream: stream.print_table(title="orders", to=out), [("a", {"n": 1, "of": "x" * 50}), ("b", 2)])
    assert out.getvalue() == "orders: key=a  n=1  of=" + "x" * 37 + "...\norders: key=b  value=2\n"


def test_a_table_is_redrawn_in_place_on_a_terminal() -> None:
    terminal = Terminal()
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.json).print_table(2, title="t", to=terminal)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        source.pipe_key_values([("a", {"n": 1}), ("b", {"n": 22}), ("c", {"n": 3})])
        assert terminal.getvalue() == ""
        driver.advance_wall_clock_time(250)
        first = "t\nkey  n\n---  --\nb    22\nc    3\n"
        assert terminal.getvalue() == first
        driver.advance_wall_clock_time(250)
        assert terminal.getvalue() == first
        source.pipe_input("d", {"m": 4})
    assert terminal.getvalue() == first + "\x1b[5F\x1b[Jt\nkey  n  m\n---  -  -\nc    3\nd       4\n"


def test_all_tasks_share_one_table() -> None:
    terminal = Terminal()
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.json).print_table(5, by_key=True, title="t", to=terminal)
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        for partition, key in enumerate("abc"):
            source.pipe_input(key, partition, partition=partition)
        driver.advance_wall_clock_time(250)
        first = "t\nkey  value\n---  -----\na    0\nb    1\nc    2\n"
        assert terminal.getvalue() == first
        source.pipe_input("b", 7, partition=1)
        second = "\x1b[6F\x1b[J" + first.replace("1", "7")
    assert terminal.getvalue() == first + second


def test_tables_of_one_terminal_are_drawn_together() -> None:
    terminal = Terminal()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.json)
    stream.print_table(1, title="all", to=terminal)
    stream.filter(lambda _, value: value > 1).print_table(1, title="large", to=terminal)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        source.pipe_input("a", 1)
        driver.advance_wall_clock_time(250)
        small = "all\nkey  value\n---  -----\na    1\n"
        assert terminal.getvalue() == small
        source.pipe_input("b", 2)
    both = "all\nkey  value\n---  -----\nb    2\n\nlarge\nkey  value\n---  -----\nb    2\n"
    drawn = terminal.getvalue().removeprefix(small)
    assert drawn.split("\x1b[J")[-1] == both
    assert drawn.startswith("\x1b[4F\x1b[J")


def test_a_second_run_begins_a_table_of_its_own() -> None:
    terminal = Terminal()
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.json).print_table(2, title="t", to=terminal)
    topology = builder.build()
    for value in (1, 2):
        with TopologyTestDriver(topology) as driver:
            driver.create_input_topic("in", serdes.string, serdes.json).pipe_input("a", value)
    assert terminal.getvalue() == "t\nkey  value\n---  -----\na    1\nt\nkey  value\n---  -----\na    2\n"


def test_a_table_by_key_has_a_row_for_each() -> None:
    terminal = Terminal()
    run(
        lambda stream: stream.print_table(2, by_key=True, title="t", to=terminal),
        [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2)],
        wall_clock_ms=250,
    )
    assert terminal.getvalue() == "t\nkey  value\n---  -----\nb    2\nc    1\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda stream: stream.print(every=0), "1 prints all records"),
        (lambda stream: stream.print(mapper=lambda key: key), "print.. calls a function with .key, value."),
        (lambda stream: stream.print_table(0), "at least 1 row"),
        (lambda stream: stream.print_table(name=""), "'' can't be the name of a step"),
    ],
)
def test_mistakes_are_found_when_the_program_is_built(wrong: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        wrong(StreamsBuilder().stream("in"))
