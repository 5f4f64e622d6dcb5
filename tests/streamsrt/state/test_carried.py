"""What a task keeps beside its stores, handed from one process to the next."""

from __future__ import annotations

from streamsrt.state.carried import Carried, Values, in_parts


class Counter:
    """An owner that counts."""

    def __init__(self) -> None:
        self.count = 0

    def carried(self) -> Values:
        return [self.count] if self.count else []

    def carry_on(self, values: Values) -> None:
        (self.count,) = map(int, values)


def test_an_owner_gets_its_state_whenever_it_is_created() -> None:
    early, late = Counter(), Counter()
    carried = Carried()
    carried.add("early", early)
    carried.carry_on({"early": [3], "late": [5]})
    assert early.count == 3
    carried.add("late", late)
    assert late.count == 5
    late.count = 6
    assert carried.values() == {"early": [3], "late": [6]}


def test_what_nobody_has_asked_for_is_passed_on() -> None:
    carried = Carried()
    carried.carry_on({"unused": [1, "x"]})
    carried.add("new", Counter())
    assert carried.values() == {"unused": [1, "x"]}


def test_values_in_parts() -> None:
    assert list(in_parts([1, "a", 2, "b"], 2)) == [[1, "a"], [2, "b"]]
    assert list(in_parts([], 2)) == []
