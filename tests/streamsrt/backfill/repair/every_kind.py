"""An application with a store of every kind that a backfill can compute; several are computed from others."""

from __future__ import annotations

from typing import Any

from examples.sqlite_store import SqliteStore
from topology import SessionWindows, Store, StreamsBuilder, Suppressed, TimeWindows, serdes
from topology.spec.processor import Processor, ProcessorContext, Record

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WORDS, NAMES, OTHERS = "kind-words", "kind-names", "kind-others"
HELD = "held-store"


class Remember(Processor[str, str, str, str]):
    """Puts each record into two stores, one of which has the other's earlier value."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.last: Any = context.get_state_store("remembered")
        self.before: Any = context.get_state_store("before")

    def process(self, record: Record[str, str]) -> None:
        self.before.put(record.key, self.last.get(record.key))
        self.last.put(record.key, record.value)


builder = StreamsBuilder()
stream = builder.stream(WORDS, **TEXT)
words = stream.group_by_key()
words.count(store="counts")
words.count(store=Store("plain", plain_rows=True))
words.count(store=Store("in-memory", in_memory=True))
words.count(store=Store("own", supplier=SqliteStore))
words.count(store=Store("last", max_entries=2))
words.count(store=Store("short-lived", ttl=2 * MINUTE_MS))
words.count(store=Store("renamed", renamed_from="first-name"))
words.count(store=Store("of-version-2", version=2, upcast={1: lambda count: count}))
words.reduce(lambda _, new: new, store=Store("history", kind="versioned", retention=HOUR_MS))
windows = TimeWindows(MINUTE_MS, grace=0)
words.windowed_by(windows).count(store="minutes")
words.windowed_by(SessionWindows(1_000, grace=HOUR_MS)).count(store="sessions")
held = words.windowed_by(windows).count(store="to-be-held").suppress(Suppressed.until_window_closes(), name="held")
released = held.to_stream().select_key(lambda key, _: key.key).group_by_key(key=serdes.string, value=serdes.long)
released.reduce(lambda one, other: one + other, store="released")
stream.process(Remember, stores=[Store("remembered", **TEXT), Store("before", **TEXT)])
names = builder.table(NAMES, **TEXT, store="names")
both = names.left_join(
    builder.table(OTHERS, **TEXT, store="others"), lambda one, other: f"{one}{other}", store=Store("both", **TEXT)
)
by_name = both.group_by(lambda key, value: (value, key), **TEXT)
by_name.count(store="keys-of-names")
joined = stream.join(names, lambda word, name: f"{word}{name}", key=serdes.string, value=serdes.string)
joined.group_by_key(**TEXT).reduce(lambda _, new: new, store="joined")
topology = builder.build()
STORES = sorted(spec.name for each in topology.subtopologies for spec in each.stores)
