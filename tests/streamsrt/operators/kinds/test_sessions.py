"""Session counts on their shortest way, against the merging of sessions that every aggregation goes through."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.ways import Run
from topology import SessionWindows, Store, StreamsBuilder, Topology, serdes

GAP_MS = 5
Step = tuple[str, int] | str
"""A record's key and how far it is ahead of stream time; or a commit, or a restart."""


def program(grace_ms: int, *, own_counter: bool) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    windowed = grouped.windowed_by(SessionWindows(GAP_MS, grace=grace_ms))
    store = Store("counts", value=serdes.long)
    if own_counter:
        counts = windowed.aggregate(
            int, lambda key, value, count: count + 1, lambda key, one, other: one + other, store=store
        )
    else:
        counts = windowed.count(store=store)
    counts.to_stream().to("out", key=serdes.session_windowed(serdes.string), value=serdes.long)
    return builder.build()


BEYOND_RETENTION: list[Step] = [("a", 0), ("b", 9), ("a", -4), "commit", ("a", 0)]
"""A session of b's time is the newest; a's own last one is near the record, but beyond retention."""
GROWN: list[Step] = [("a", 20), "commit", ("a", 3), ("a", 3), "commit", ("a", -4), ("a", 9), "restart", ("a", 2)]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["commit", "restart"]) | st.tuples(st.sampled_from("ab"), st.integers(-15, 12)), max_size=30
    ),
    st.integers(0, 9),
    st.booleans(),
)
@example(BEYOND_RETENTION, 0, True)
@example(GROWN, 3, False)
def test_a_count_is_the_aggregation_that_counts(script: list[Step], grace_ms: int, generate: bool) -> None:
    """Outputs and changelog are the same, byte by byte and in the same order."""
    runs = [Run(program(grace_ms, own_counter=own), generate=generate) for own in (False, True)]
    time_ms = 0
    for step in [*script, "commit"]:
        if not isinstance(step, str):
            row = Piped("in", step[0], "x", max(0, time_ms + step[1]), ())
            time_ms = max(time_ms, row.timestamp)
        for run in runs:
            if not isinstance(step, str):
                run.feed([row])
                continue
            run.commit()
            if step == "restart":
                run.restart()
    assert runs[0].written.topics == runs[1].written.topics
