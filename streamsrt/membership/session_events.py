"""The events that the sessions of both protocols, streams and classic, share."""

from __future__ import annotations

from dataclasses import dataclass

from streamsrt.errors import StreamsError
from streamsrt.membership.values import Tasks


@dataclass(frozen=True, slots=True)
class OwnedReported:
    """A ReportOwned that the processing thread sent after it had handled the first ``seen`` events."""

    tasks: Tasks
    seen: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No response to a heartbeat or to leaving (timeout, disconnect), or no coordinator was found."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker can't serve this client."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class Tick:
    """Tells the machine that time has passed."""
