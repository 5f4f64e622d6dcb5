"""The events that the sessions of both protocols, streams and classic, share."""

from __future__ import annotations

from dataclasses import dataclass

from streamsrt.errors import StreamsError
from streamsrt.membership.values import Tasks


@dataclass(frozen=True, slots=True)
class OwnedReported:
    """A ReportOwned of a processing thread that had heard of the first ``seen`` events when it sent it."""

    tasks: Tasks
    seen: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer to a heartbeat or to leaving (timeout, disconnect), or no coordinator to be found."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker can't serve this client at all."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""
