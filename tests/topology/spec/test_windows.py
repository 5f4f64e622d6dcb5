from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from topology import TimeWindows, WindowError


def test_durations_are_timedeltas_or_milliseconds() -> None:
    assert TimeWindows(timedelta(hours=1), grace=timedelta(minutes=1)) == TimeWindows(3_600_000, 3_600_000, 60_000)
    assert TimeWindows(10, 4).advance_ms == 4


def test_tumbling_windows_without_grace_are_the_default() -> None:
    windows = TimeWindows(5000)
    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (5000, 5000, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "greater than 0 ms"),
        ((-5,), "greater than 0 ms"),
        ((10, 0), "0 < advance <= size"),
        ((10, 11), "0 < advance <= size"),
        ((10, 5, -1), "negative"),
        ((1.5,), "timedelta or an int"),
        ((True,), "timedelta or an int"),
    ],
)
def test_windows_that_make_no_sense(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(WindowError, match=message) as raised:
        TimeWindows(*arguments)
    assert __file__ in str(raised.value)
