"""Deadlines by key."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.machine.values import TimerKey
from coordinator.shard.timers import Timers

KEYS = [TimerKey("session", "g", name) for name in "abc"]
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("pop"), st.sampled_from(KEYS), st.integers(0, 50)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(operations=OPERATIONS)
def test_as_a_dictionary_of_deadlines_would(operations: list[tuple[str, TimerKey, int]]) -> None:
    timers, model = Timers(), dict[TimerKey, int]()
    for operation, key, number in operations:
        if operation == "set":
            timers.set(key, number)
            model[key] = number
        elif operation == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            popped = timers.pop_due(number)
            due = {k: deadline for k, deadline in model.items() if deadline <= number}
            assert (popped is None) == (not due)
            if popped is not None:
                assert model.pop(popped) == min(due.values())
        assert timers.as_dict() == model
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)
