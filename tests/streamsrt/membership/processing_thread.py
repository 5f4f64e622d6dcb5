"""The processing thread beside a session under test: what it says of itself in either protocol, at any time."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from streamsrt.membership.values import Leave, SetTaskOffsets, Task, Tasks

TASKS: list[Task] = [("s", 0), ("s", 1), ("r", 0)]


def in_roles(roles: list[int]) -> Tasks:
    """The tasks by the number of their roles; three: in none."""
    given = list(zip(TASKS, roles, strict=True))
    return Tasks(*(frozenset(task for task, role in given if role == number) for number in range(3)))


task_sets = st.lists(st.integers(0, 3), min_size=3, max_size=3).map(in_roles)


class ProcessingThread(RuleBasedStateMachine):
    """The rules that do not depend on the protocol. Who inherits them brings ``feed`` and ``alive``."""

    session: Any
    now_ms: int

    def feed(self, event: Any) -> None:
        raise NotImplementedError

    def alive(self, session: Any, now_ms: int) -> Any:
        raise NotImplementedError

    @rule(offsets=st.dictionaries(st.sampled_from(TASKS), st.integers(0, 10)), caught_up=st.booleans())
    def knows_offsets(self, offsets: dict[Task, int], caught_up: bool) -> None:
        self.feed(SetTaskOffsets(offsets, offsets if caught_up else dict.fromkeys(offsets, 10)))

    @rule(remain=st.booleans(), chance=st.integers(0, 9))
    def leaves(self, remain: bool, chance: int) -> None:
        if chance == 0:
            self.feed(Leave(remain))

    @rule()
    def polls(self) -> None:
        self.session = self.alive(self.session, self.now_ms)
