from __future__ import annotations

import numpy
import pytest

from streamsrt.operators.engine.placement import Choice, checked, is_plain, spread


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (0, 0),
        (2, 2),
        (None, None),
        (True, 1),
        (False, 0),
        (numpy.int64(2), 2),
        ([], []),
        ((1, 1, 0), [1, 0]),
        ({2}, [2]),
        (frozenset({True}), [1]),
    ],
)
def test_what_may_be_chosen_of_three_partitions(choice: object, expected: Choice) -> None:
    found = checked("out", choice, 3)
    assert found == expected
    numbers = found if isinstance(found, list) else [found]
    assert set(map(type, numbers)) <= {int, type(None)}


@pytest.mark.parametrize("choice", [3, -1, 99, [0, 3], (-1,), {1, 99}, numpy.int64(3)], ids=repr)
def test_a_partition_that_the_topic_does_not_have_is_refused(choice: object) -> None:
    with pytest.raises(ValueError, match=r"the partitioner returned .* for topic 'out', whose partitions are 0 to 2$"):
        checked("out", choice, 3)


@pytest.mark.parametrize("choice", ["0", 1.0, [None], [[1]], ["0"], b"1", {1: 1}], ids=repr)
def test_what_is_no_partition_is_refused(choice: object) -> None:
    with pytest.raises(TypeError, match=r"the partitioner returned .* for topic 'out': return a partition's number"):
        checked("out", choice, 3)


def test_records_are_written_once_for_each_of_their_partitions() -> None:
    chosen: list[Choice] = [1, [0, 2], [], None]
    assert spread(chosen) == ([0, 1, 1, 3], [1, 0, 2, None])
    assert not is_plain(chosen)
    assert is_plain([0, None])
