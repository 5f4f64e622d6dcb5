"""A program of two subtopologies: records are keyed anew, and counted per window of the new key.

``DIE_ON`` in the environment names a file; the first function that sees the record ``die`` deletes it and kills its process.
``HOLD_AT`` names a folder with two FIFOs: the function that sees the record ``hold`` writes the number of its process to
``held``, which it leaves open, and goes on when it can read ``go``.
The record ``varies`` gets another key each time: what a program should not do.
"""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

from topology import StreamsBuilder, TimeWindows, serdes

WINDOW_MS = 100
_calls = itertools.count()


_held: list[int] = []


def hold(folder: Path) -> None:
    # Open for as long as the process lives.
    _held.append(os.open(folder / "held", os.O_WRONLY))
    os.write(_held[-1], b"%d\n" % os.getpid())
    with open(folder / "go", "rb") as go:
        go.read()


def word_of(_key: str, value: str) -> str:
    marker = os.environ.get("DIE_ON")
    if value == "die" and marker is not None and Path(marker).exists():
        if not Path(marker).read_text().strip():
            Path(marker).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if value == "hold" and "HOLD_AT" in os.environ:
        hold(Path(os.environ["HOLD_AT"]))
    if value == "fail":
        raise ValueError("this record fails")
    if value == "varies":
        return str(next(_calls))
    return value[:1]


builder = StreamsBuilder()
(
    builder.stream("lines", key=serdes.string, value=serdes.string)
    .select_key(word_of)
    .group_by_key(key=serdes.string, value=serdes.string)
    .windowed_by(TimeWindows(WINDOW_MS, grace=30))
    .count(store="counts")
    .to_stream()
    .to("counts", key=serdes.time_windowed(serdes.string, WINDOW_MS), value=serdes.long)
)
topology = builder.build()
