"""In slices of its keys a task computes what it computes as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.streamsrt.backfill.slices.replays import Computed, config_of, prevents, sliced, whole
from tests.streamsrt.operators.programs import Piped, build, piped, programs
from tests.streamsrt.operators.test_every_operator import PROGRAMS
from topology import KTable, StreamsBuilder, Topology, serdes
from topology.graph.nodes import Subtopology

TEXT: Any = {"key": serdes.string, "value": serdes.string}
COUNTS = (2, 3)
keyed = st.builds(
    lambda row, key: replace(row, key=row.key and key), piped(), st.sampled_from(("a", "b", "c", "dd", "e", "f", "g"))
)
records = st.lists(keyed, max_size=50)
Parts = Mapping[str, Sequence[Piped]]


def parts_of(subtopology: Subtopology, rows: Sequence[Piped]) -> dict[str, list[Piped]]:
    """The records by topic. Repartition topics, and topics that another program names otherwise, get some, too."""
    topics = sorted(subtopology.source_topics) or [f"app-{each.name}" for each in subtopology.repartition_source_topics]
    named = dict(zip(("in", "t"), (*topics, topics[0])[:2], strict=True))
    return {topic: [row for row in rows if named[row.topic] == topic] for topic in topics}


def assert_slices_are_the_whole(subtopology: Subtopology, parts: Parts, config: Any) -> Computed:
    expected = whole(subtopology, parts, config)
    for count in COUNTS:
        found = sliced(subtopology, parts, config, count)
        assert replace(found, parts=0) == replace(expected, parts=0)
    return expected


@given(programs, records, st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_slices_of_random_programs_are_the_whole(program: Any, rows: list[Piped], cached: bool, generate: bool) -> None:
    steps, end, table_steps = program
    (subtopology,) = build(steps, end, table_steps, cached).subtopologies
    config = config_of(cached=cached, generate=generate)
    assume(prevents(subtopology, config) is None)
    assert_slices_are_the_whole(subtopology, parts_of(subtopology, rows), config)


def told(program: str, tell: Callable[[object, object], None]) -> Topology:
    builder = StreamsBuilder()
    result = PROGRAMS[program](builder)
    if isinstance(result, KTable):
        result = result.to_stream()
    if result is not None:
        result.foreach(tell)
    return builder.build({"topology.optimization": "single.store.self.join"})


ABLE = [
    (program, index)
    for program in PROGRAMS
    for index, part in enumerate(told(program, print).subtopologies)
    if prevents(part, config_of(cached=False)) is None and not part.is_global
]


@pytest.mark.parametrize(("program", "index"), ABLE)
@given(rows=records, generate=st.booleans())
@settings(max_examples=8, deadline=None)
def test_slices_of_every_operation_that_allows_them_are_the_whole(
    program: str, index: int, rows: list[Piped], generate: bool
) -> None:
    seen: list[tuple[str, str]] = []
    part = told(program, lambda key, value: seen.append((repr(key), repr(value)))).subtopologies[index]
    config = config_of(cached=False, generate=generate)
    if not part.source_topics:
        # What stands in a repartition topic of changes only its writer makes.
        rows = []
    parts = parts_of(part, rows)
    of_key: list[dict[str, list[str]]] = []
    for compute in (lambda: whole(part, parts, config), lambda: sliced(part, parts, config, 2)):
        seen.clear()
        compute()
        of_key.append({key: [text for other, text in seen if other == key] for key, _ in seen})
    assert of_key[0] == of_key[1]
    assert_slices_are_the_whole(part, parts, config)
