"""Asynchronous calls, as an environment knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from topology.graph.operations import MapAsync


class CallOutcome(NamedTuple):
    """The outcome of the call with that number: a value, or the exception that it raised."""

    number: int
    value: object
    error: BaseException | None


class NotBegunError(Exception):
    """The outcome of a call that was withdrawn before it began."""


class Calls(Protocol):
    """Calls of an operation's function."""

    def begin(self, first: int, arguments: Sequence[tuple[object, ...]], /) -> None:
        """Calls it with each of the arguments, numbered from ``first``; returns at once."""

    def withdraw(self) -> None:
        """Withdraws those that have not begun, which are the last ones: their outcome is NotBegunError."""

    def cancel(self) -> None:
        """Cancels them; their results are not reported any more."""


OpenCalls = Callable[[MapAsync, Callable[[CallOutcome], None]], Calls]
"""Creates the :class:`Calls` of an operation. The given function receives each outcome, on any thread."""


class Window(Protocol):
    """Calls that are under way at a node (:class:`streamsrt.operators.kinds.call_windows.CallWindow`)."""

    @property
    def is_calling(self) -> bool: ...
    @property
    def unfinished(self) -> int: ...
    @property
    def queued(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def under_way(self) -> str: ...
    def advance(self, wait_s: float | None = 0.0) -> bool: ...
    def cancel(self) -> None: ...
