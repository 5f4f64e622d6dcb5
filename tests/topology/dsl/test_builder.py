"""Where a topology begins: the topics that a program names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamsrt.assignment.topic_pattern import matching
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import StreamsBuilder, Topology, TopologyBuilder, TopologyError, serdes


def reading(pattern: re.Pattern[Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream(pattern, key=serdes.string, value=serdes.string).to("out", key=serdes.string, value=serdes.string)
    return builder.build()


@pytest.mark.parametrize("pattern", [re.compile("orders-.*", re.IGNORECASE | re.DOTALL), re.compile("(?i)orders-.*")])
def test_a_pattern_may_ignore_case(pattern: re.Pattern[str]) -> None:
    topology = reading(pattern)
    (told,) = topology.subtopologies[0].source_topic_patterns
    assert told == "(?i)orders-.*"
    assert matching(told, ["Orders-EU", "orders-us", "returns"]) == {"Orders-EU", "orders-us"}
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("Orders-EU", serdes.string, serdes.string).pipe_input("k", "v")
        assert driver.create_output_topic("out", serdes.string, serdes.string).read_value() == "v"


@pytest.mark.parametrize("pattern", [re.compile("orders - .*", re.VERBOSE), re.compile(b"orders-.*")])
def test_a_pattern_that_the_group_does_not_understand_is_refused(pattern: re.Pattern[Any]) -> None:
    for read in (reading, lambda found: TopologyBuilder().add_source("s", found)):
        with pytest.raises(TopologyError, match=r"re\.VERBOSE|bytes"):
            read(pattern)
