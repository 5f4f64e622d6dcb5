"""The program of two subtopologies once more, for workers that get nothing but what is shipped: a copy of this file, under
another name, is all that there is of it.

``STRIKE`` in the environment names a file. The first function that sees the record ``strike`` takes it away and kills what
it says: ``executor``, the JVM that runs this worker, with the worker, or the process of that number. Where it says
``meet``, nobody is killed: that attempt at the task waits for another one to come to the same record, at ``STRIKE.met``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from topology import StreamsBuilder, TimeWindows, serdes

WINDOW_MS = 100


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


def word_of(_key: str, value: str) -> str:
    if value == "strike" and "STRIKE" in os.environ:
        marker = Path(os.environ["STRIKE"])
        if marker.exists():
            target = marker.read_text(encoding="ascii")
            marker.unlink()
            if target == "meet":
                _meeting_place(marker).read_text()
                return value[:1]
            # Above this process is the one that forked it, and above that the executor.
            os.kill(_parent(os.getppid()) if target == "executor" else int(target), signal.SIGKILL)
            if target == "executor":
                # It would go on to the end of its task.
                os.kill(os.getpid(), signal.SIGKILL)
        elif _meeting_place(marker).exists():
            _meeting_place(marker).write_text("")
            _meeting_place(marker).unlink()
    return value[:1]


def _meeting_place(marker: Path) -> Path:
    """A named pipe: who reads waits for one who writes."""
    return marker.with_name(f"{marker.name}.met")


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
