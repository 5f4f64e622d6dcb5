"""In slices of its keys a task computes what it computes as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.streamsrt.backfill.slices.replays import config_of, prevents, sliced, whole
from tests.streamsrt.operators.programs import Piped, build, piped, programs
from tests.streamsrt.operators.test_every_operator import PROGRAMS, topology_of
from topology import SessionWindows, Store, StreamsBuilder, Suppressed, TimeWindows, Topology, serdes
from topology.graph.nodes import Subtopology

records = st.lists(piped(), max_size=50)


def assert_slices_agree(
    subtopology: Subtopology, rows: list[Piped], config: Any, counts: tuple[int, ...] = (2, 3)
) -> None:
    parts = {topic: [row for row in rows if row.topic == topic] for topic in subtopology.source_topics}
    expected = whole(subtopology, parts, config)
    for count in counts:
        found = sliced(subtopology, parts, config, count)
        assert replace(found, parts=0) == replace(expected, parts=0)


@given(programs, records, st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_slices_of_random_programs_are_the_whole(program: Any, rows: list[Piped], cached: bool, generate: bool) -> None:
    steps, end, table_steps = program
    (subtopology,) = build(steps, end, table_steps, cached).subtopologies
    config = config_of(cached=cached, generate=generate)
    assume(prevents(subtopology, config) is None)
    assert_slices_agree(subtopology, rows, config)
