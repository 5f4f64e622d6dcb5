"""Errors in a topology. They are mistakes of the program, found before anything runs.

::

    TopologyError                 exit code 2
    ├── NameInUseError            a step, store or branch name is given twice
    ├── IllegalNameError          a name that Kafka would not accept
    ├── UnknownStoreError         a processor refers to a store that was not added
    ├── TopicInUseError           a topic is read by two sources that can't be merged
    ├── CopartitionError          joined topics can't have equal partition counts
    ├── CycleError                records would be written to the topic they were read from
    ├── MissingSerdeError         a key or value must be serialized and has no serde
    ├── WindowError               a window or retention out of bounds
    └── UnsupportedError          valid in Kafka Streams, not available here

A message says what is wrong, at which line of the user's program, and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class CallSite(NamedTuple):
    """The line of the user's program that called an operator."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_OURS = ("topology", "streamsrt")


_WRITTEN_AT: ContextVar[CallSite | None] = ContextVar("_WRITTEN_AT", default=None)


@contextmanager
def written_at(site: CallSite | None) -> Iterator[None]:
    """What is built inside belongs to that line of the user's program, wherever it is called. None: as without it."""
    token = _WRITTEN_AT.set(site)
    try:
        yield
    finally:
        _WRITTEN_AT.reset(token)


def call_site() -> CallSite:
    """The innermost line of the current call stack that is the user's: outside of this package and of the runtime.

    Inside of :func:`written_at`, its line.
    """
    given = _WRITTEN_AT.get()
    if given is not None:
        return given
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno)


class TopologyError(Exception):
    """The program describes a topology that can't run. ``site`` is the line in the user's program, if it is known."""

    exit_code = 2

    def __init__(self, message: str, site: CallSite | None = None) -> None:
        super().__init__(f"{site}: {message}" if site else message)
        self.site = site


class NameInUseError(TopologyError):
    """A name of a step, store or branch is given twice. Rename one of the two."""


class IllegalNameError(TopologyError):
    """A name of a step, store or topic is empty, too long or has characters that Kafka does not allow. Use letters,
    digits, ``.``, ``_`` and ``-``."""


class UnknownStoreError(TopologyError):
    """A processor is connected to a store that was never added. Add it with ``add_state_store``, or correct the
    name."""


class TopicInUseError(TopologyError):
    """A topic is read by two sources that can't be merged. Read it once, and use the stream twice."""


class CopartitionError(TopologyError):
    """Topics that are joined must have the same number of partitions, but different numbers were given. Give both
    the same number, or repartition one side with ``repartition()``."""


class CycleError(TopologyError):
    """Every record would be written back to the topic that it was read from, in an endless loop. Write to another
    topic."""


class MissingSerdeError(TopologyError):
    """A key or value must be serialized, but no serde is known for it. Pass one where the message says, or set
    ``default.key.serde`` and ``default.value.serde``."""


class WindowError(TopologyError):
    """A window's size, advance, grace or retention is out of bounds. The message says which bound."""


class UnsupportedError(TopologyError):
    """Kafka Streams supports this, but this version does not. The message says what to do instead."""
