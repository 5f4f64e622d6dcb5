"""An application whose stores are of every kind that is kept in files, with short and long retention."""

from __future__ import annotations

from typing import Any

from topology import (
    Buffer,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
TOPIC = "kept-events"
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.json}

builder = StreamsBuilder()
events = builder.stream(TOPIC, **TEXT)
by_key = events.group_by_key()
by_key.count(store="counts")
for name, grace_ms in (("late", HOUR_MS), ("strict", 0)):
    kept: dict[str, Any] = {} if grace_ms else {"retention": 24 * HOUR_MS}
    by_key.windowed_by(TimeWindows(5 * MINUTE_MS, advance=2 * MINUTE_MS, grace=grace_ms)).count(
        store=Store(f"windows-{name}", **kept)
    )
    by_key.windowed_by(SlidingWindows(3 * MINUTE_MS, grace=grace_ms)).count(store=Store(f"sliding-{name}", **kept))
    by_key.windowed_by(SessionWindows(2 * MINUTE_MS, grace=grace_ms)).count(store=Store(f"sessions-{name}", **kept))
by_key.windowed_by(TimeWindows(MINUTE_MS, grace=0)).count(store="windows-short")
by_key.windowed_by(SlidingWindows(MINUTE_MS, grace=0)).count(store="sliding-short")
by_key.windowed_by(SessionWindows(MINUTE_MS, grace=0)).count(store="sessions-short")
cached = Store("sessions-cached", caching=True, retention=2 * HOUR_MS)
by_key.windowed_by(SessionWindows(2 * MINUTE_MS, grace=MINUTE_MS)).count(store=cached)
for name, kept in (
    ("versioned-short", {"kind": "versioned", "retention": 10 * MINUTE_MS}),
    ("versioned-long", {"kind": "versioned", "retention": 24 * HOUR_MS}),
    ("expiring-short", {"ttl": 10 * MINUTE_MS}),
    ("expiring-long", {"ttl": 24 * HOUR_MS}),
):
    events.to_table(store=Store(name, **kept))
forever = Store("sessions-logged-forever", retention=2 * HOUR_MS, changelog_config={"retention.ms": -1})
by_key.windowed_by(SessionWindows(2 * MINUTE_MS, grace=HOUR_MS)).count(store=forever)
sides = tuple(
    Store(f"join-{side}", kind="window", retention=20 * MINUTE_MS, window_size=20 * MINUTE_MS, retain_duplicates=True)
    for side in ("this", "other")
)
doubled = events.map_values(lambda value: value)
events.join(doubled, lambda one, _: one, JoinWindows(10 * MINUTE_MS), store=sides)
latest = events.to_table(store="latest")
latest.suppress(Suppressed.until_time_limit(10 * MINUTE_MS, Buffer()), name="held").to_stream().to("kept-out", **TEXT)
topology = builder.build()
