"""An application with a store of every kind that there is. Topics: ``every-words``, ``every-table``, ``every-global``."""

from __future__ import annotations

from typing import Any

from examples.sqlite_store import SqliteStore
from topology import JoinWindows, SessionWindows, Store, StreamsBuilder, Suppressed, TimeWindows, serdes
from topology.spec.processor import Processor, ProcessorContext, Record

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
ALL, LAST, GLOBAL, UNLOGGED = "added", "last", "everywhere", "unlogged"
WORDS, TABLE, EVERYWHERE = "every-words", "every-table", "every-global"


class Remember(Processor[str, str, str, str]):
    """Puts each record into stores that the Processor API makes."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.rows: Any = [context.get_state_store(name) for name in (ALL, UNLOGGED)]
        self.windows: Any = context.get_state_store("added-windows")

    def process(self, record: Record[str, str]) -> None:
        for store in self.rows:
            store.put(record.key, record.value)
        self.windows.put(record.key, record.value, record.timestamp)


def build(optimization: str | None = None) -> Any:
    builder = StreamsBuilder()
    for name in (ALL, UNLOGGED):
        builder.add_state_store(Store(name, **TEXT, logging=name == ALL))
    builder.add_state_store(
        Store("added-windows", kind="window", **TEXT, retention=HOUR_MS, window_size=MINUTE_MS, retain_duplicates=True)
    )
    stream = builder.stream(WORDS, **TEXT)
    words = stream.group_by_key()
    words.count(store="counts")
    words.count(store=Store("plain", plain_rows=True))
    words.count(store=Store("in-memory", in_memory=True))
    words.count(store=Store("own", supplier=SqliteStore))
    words.count(store=Store(LAST, max_entries=2))
    words.count(store=Store("short-lived", ttl=2 * MINUTE_MS))
    words.count(store=Store("uncached", caching=False))
    words.count(store=Store("renamed", renamed_from="first-name"))
    words.count(store=Store("of-version-2", version=2, upcast={1: lambda count: count}))
    windows = TimeWindows(MINUTE_MS, grace=HOUR_MS)
    words.windowed_by(windows).count(store="minutes")
    words.windowed_by(windows).count(store=Store("minutes-in-memory", in_memory=True))
    sessions = SessionWindows(1_000, grace=HOUR_MS)
    words.windowed_by(sessions).count(store="sessions")
    words.windowed_by(sessions).count(store=Store("sessions-in-memory", in_memory=True))
    words.windowed_by(sessions).count(store=Store("sessions-headers", keeps_headers=True))
    held = words.windowed_by(windows).count(store="to-be-held")
    held.suppress(Suppressed.until_window_closes(), name="held").to_stream().foreach(lambda _k, _v: None)
    stream.left_join(
        builder.stream(TABLE, **TEXT), lambda one, other: f"{one}{other}", JoinWindows(5, grace=HOUR_MS), name="both"
    ).foreach(lambda _k, _v: None)
    stream.process(Remember, stores=[ALL, UNLOGGED, "added-windows"])
    history = words.reduce(lambda _, new: new, store=Store("history", kind="versioned", retention=HOUR_MS))
    history.to_stream().foreach(lambda _k, _v: None)
    builder.global_table(EVERYWHERE, **TEXT, store=GLOBAL)
    table = builder.table("every-rows", **TEXT, store="rows")
    table.join(
        builder.table("every-others", **TEXT, store="others"),
        lambda one, other: f"{one}{other}",
        foreign_key=lambda _value: "key-1",
        store=Store("joined", value=serdes.string),
    )
    return builder.build({"topology.optimization": optimization} if optimization else None)


topology = build()
optimised = build("reuse.ktable.source.topics")
