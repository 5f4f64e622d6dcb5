"""What a task keeps beside its stores, handed from one process to the next."""

from __future__ import annotations

from streamsrt.state.snapshots import SnapshotOwners, Values, in_parts


class Counter:
    """An owner that counts."""

    def __init__(self) -> None:
        self.count = 0

    def snapshot(self) -> Values:
        return [self.count] if self.count else []

    def resume_from(self, values: Values) -> None:
        (self.count,) = map(int, values)


def test_an_owner_gets_its_state_whenever_it_is_created() -> None:
    early, late = Counter(), Counter()
    snapshots = SnapshotOwners()
    snapshots.add("early", early)
    snapshots.resume_from({"early": [3], "late": [5]})
    assert early.count == 3
    snapshots.add("late", late)
    assert late.count == 5
    late.count = 6
    assert snapshots.values() == {"early": [3], "late": [6]}


def test_what_nobody_has_asked_for_is_passed_on() -> None:
    snapshots = SnapshotOwners()
    snapshots.resume_from({"unused": [1, "x"]})
    snapshots.add("new", Counter())
    assert snapshots.values() == {"unused": [1, "x"]}


def test_values_in_parts() -> None:
    assert list(in_parts([1, "a", 2, "b"], 2)) == [[1, "a"], [2, "b"]]
    assert list(in_parts([], 2)) == []
