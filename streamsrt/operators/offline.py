"""How a backfill treats an operation: one of these values stands in each row of :mod:`streamsrt.operators.table`.

``as live``     offline up to some record and live from there is, byte for byte, one live run: stores, changelogs, outputs
``again``       as live, and the function is called for every record of the history, with whatever it does
``one order``   as live in one of the orders that a live run may have
``as of plan``  as live if the application had been started when the plan was made
``refused``     the plan says why, and what can be done instead
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["as live", "again", "one order", "as of plan", "refused"]


@dataclass(frozen=True, slots=True)
class Offline:
    """The answer for one kind of operation."""

    outcome: Outcome
    note: str = ""


AS_LIVE = Offline("as live")
_HELD = (
    "in the changelog of what is held back, records have the time at which the plan was made, where a live run writes the "
    "current time; nothing is computed from it"
)
ONE_ORDER = Offline(
    "one order",
    "what waits for a match may be shown earlier after the hand-over, as after a restart; a record without a value takes no "
    "sequence number",
)
NO_FOREIGN_KEY_JOIN = Offline(
    "refused",
    "the two sides of a foreign-key join ask and answer each other through topics, so neither can be computed before the "
    "other. Key one table by what they are joined on (group_by and reduce) and join the two by key, or let the application "
    "read its topics from the beginning without a backfill. The state of another application can be taken over (--state-of)",
)
AS_OF_PLAN = Offline(
    "as of plan",
    "it joins every record with what the global table holds when the plan is made, as an application does that is started "
    "then. A table of the same partitions (builder.table) is replayed by time instead",
)
AGAIN = Offline("again")
AGAIN_AS_OF_NOW = Offline("again", "it asks what it asks now, not what was true at the time of the record")
WALL_CLOCK_STANDS = Offline(
    "as live", "punctuations by stream time run as live; the wall clock stands still, so those by it don't run"
)
HELD_BACK = Offline(
    "as live",
    f"{_HELD}; behind a repartition topic, records that are held back have offsets in the order of the backfill",
)
WAITING = Offline("as live", _HELD)
