"""What one broker remembers of a fetcher's partitions, so that a Fetch names only those that changed (KIP-227).

1. The first request of a session is full. Each one after it names the partitions that are new or continue elsewhere, and
   those that are no longer fetched. What the broker fetches is always what was wanted.
2. A response to such a request leaves out the partitions of which there is no news.
3. After a refusal or a failure nobody knows what the broker remembers. So the next request is full, and begins another
   session.
4. Brokers may have no room for a session, or know none: requests stay full then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from streamsrt.wire.error_codes import ErrorCode

FIRST_VERSION_WITH_SESSIONS = 7
NO_SESSION = 0
FULL, WITHOUT_SESSION = 0, -1
_EPOCH_MAX = (1 << 31) - 1

Place: TypeAlias = tuple[str, bytes, int]
"""A topic, its id, and a partition of it."""

REFUSALS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of a response after which the next, full request succeeds."""


class Asked(NamedTuple):
    """What the next request says. ``places``: the partitions that it names; ``forgotten``: those to be fetched no more."""

    session_id: int
    epoch: int
    places: list[Place]
    forgotten: list[Place]


class FetchSession:
    """Of one fetcher with one broker. One request at a time: each is followed by :meth:`answered` or :meth:`lost`."""

    __slots__ = ("_by_id", "_epoch", "_id", "_positions")

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, FULL
        self._positions: dict[Place, object] = {}
        self._by_id = False

    @property
    def is_open(self) -> bool:
        """Whether the next request may name less than everything."""
        return self._epoch != FULL

    def request(self, wanted: Mapping[Place, object], *, by_id: bool, is_full: bool = False) -> Asked:
        """``wanted``: all partitions to fetch, and from where, which is only compared. ``by_id``: topics are named by their
        ids. ``is_full``: the response must have every partition."""
        if is_full or by_id is not self._by_id:
            self._epoch = FULL
        self._by_id = by_id
        known, self._positions = self._positions, dict(wanted)
        if self._epoch == FULL:
            return Asked(self._id, FULL, list(wanted), [])
        changed = [place for place, position in wanted.items() if known.get(place) != position]
        forgotten = [] if known.keys() == wanted.keys() else [place for place in known if place not in wanted]
        return Asked(self._id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The request succeeded. ``session_id``: of its response; 0 if there is no session any more."""
        self._id = session_id
        if self._id == NO_SESSION:
            self._epoch = FULL
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def lost(self, error_code: int = ErrorCode.NONE) -> None:
        """The request failed. ``error_code``: why, if the broker said so."""
        # A full request with the id of a session ends it, where the broker still has it.
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
        self._epoch = FULL
