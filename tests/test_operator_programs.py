"""What the benchmark of operators makes of the marks that programs print, and its word count."""

from __future__ import annotations

import math

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.bench.bench_operators_end_to_end import RECORDS, TITLES, Pass, beyond, options, second_half
from tests.bench.peer_programs import Mark
from tests.bench.peers import operator_data, ours_operators
from topology import serdes


def looks(*pairs: tuple[int, float]) -> list[Mark]:
    return [Mark(records, cpu_s, 0.0) for records, cpu_s in pairs]


def passed(records: int, cpu_s: float) -> Pass:
    return Pass(records, cpu_s, 0.0, None, 0, "", 0)


def test_the_second_half_begins_with_the_first_look_behind_half_of_the_records() -> None:
    seen = looks((0, 1.0), (49, 4.0), (60, 5.0), (90, 5.5), (100, 6.0))
    assert second_half(seen, Mark(100, 7.0, 0.0)) == 20


@pytest.mark.parametrize("seen", [looks(), looks((49, 4.0), (100, 6.0))])
def test_there_is_no_second_half_where_no_look_was_within_it(seen: list[Mark]) -> None:
    assert second_half(seen, Mark(100, 7.0, 0.0)) is None


def test_what_two_runs_tell_of_the_second_half_is_their_difference() -> None:
    assert beyond(passed(100, 10.0), passed(50, 8.0)) == 25
    assert math.isnan(beyond(passed(100, 8.0), passed(50, 8.0)))


def test_every_operator_has_a_title_and_a_number_of_records() -> None:
    assert RECORDS.keys() == TITLES.keys()


def test_an_unknown_operator_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(["--operators", "words,wrods"])
    assert "--operators: wrods is none of stream-stream, " in capsys.readouterr().err


def test_the_word_count_counts_the_words() -> None:
    with TopologyTestDriver(ours_operators.build("words", "lines", "sink")) as driver:
        lines = driver.create_input_topic("lines", serdes.bytes, serdes.bytes)
        for keys, values, _ in operator_data.lines(40):
            lines.pipe_key_values(zip(keys, values, strict=True))
        pairs = driver.create_output_topic("sink", serdes.bytes, serdes.bytes).read_key_values_to_list()
    messages = [(key, value) for key, value in pairs if key is not None and value is not None]
    outputs, counts = operator_data.summarised("ours", "words", [messages])
    assert outputs == len(pairs)
    assert counts == operator_data.expected("words", 40)
    assert sum(counts.values()) == 40 * operator_data.LINE_WORDS
