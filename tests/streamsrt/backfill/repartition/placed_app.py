"""Applications that are run twice: moved to more partitions, and with these partitions from the start.

``placed`` has a partitioner of its own, as ``counted_by_value``; ``closed_when_idle`` closes windows by the wall clock.
"""

from __future__ import annotations

from collections import Counter
from threading import Condition
from typing import Any

from topology import SessionWindows, StreamsBuilder, Suppressed, TimeWindows, serdes
from topology.graph.topology import Topology
from topology.spec.windows import Windowed

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WINDOW_MS, DAY_MS = 60_000, 86_400_000
IDLE_MS = 1_000
REGIONS = [f"region-{number}" for number in range(7)]


def by_region(_topic: str, key: str, _value: object, count: int) -> int:
    """Keys begin with their region, and the first region has a partition of its own."""
    region = REGIONS.index(key.partition("/")[0])
    return 0 if region == 0 or count == 1 else 1 + region % (count - 1)


def orders_of(name: str) -> str:
    return f"{name}-orders"


def books_of(name: str) -> str:
    return f"{name}-books"


def authors_of(name: str) -> str:
    return f"{name}-authors"


def placed(name: str) -> Topology:
    """Counts, windows, and a foreign-key join whose left table is placed by region."""
    builder = StreamsBuilder()
    orders = builder.stream(orders_of(name), **TEXT).repartition(name="orders", partitioner=by_region, **TEXT)
    orders.group_by_key().count(store="per-customer")
    orders.group_by_key().windowed_by(TimeWindows(WINDOW_MS, grace=DAY_MS)).count(store="per-minute")
    stream = builder.stream(books_of(name), **TEXT).repartition(name="books", partitioner=by_region, **TEXT)
    books = stream.to_table(store="books", **TEXT)
    authors = builder.table(authors_of(name), **TEXT, store="authors")
    books.join(
        authors, "{} by {}".format, foreign_key=lambda b: b.partition("/")[0], store="shelf", name="shelf", **TEXT
    )
    return builder.build()


def by_size(_topic: str, _key: str, value: str, count: int) -> int:
    return len(value) % count


def counted_by_value(name: str) -> Topology:
    """Counts whose records a partitioner places by their values, which counts don't have."""
    builder = StreamsBuilder()
    orders = builder.stream(orders_of(name), **TEXT).repartition(name="orders", partitioner=by_size, **TEXT)
    orders.group_by_key().count(store="per-customer")
    return builder.build()


class Finals:
    """The final results that an application in this process has shown."""

    def __init__(self) -> None:
        self._changed = Condition()
        self.shown: Counter[tuple[str, str, int, int, int]] = Counter()

    def show(self, of: str, key: Windowed[str], value: int) -> None:
        with self._changed:
            self.shown[of, key.key, key.start_ms, key.end_ms, value] += 1
            self._changed.notify_all()

    def wait_for(self, total: int, timeout_s: float = 60.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.shown.total() >= total, timeout_s), self.shown


def closed_when_idle(name: str, finals: Finals) -> Topology:
    """Tumbling windows, sessions, and suppressed windows."""
    builder = StreamsBuilder()
    orders = builder.stream(orders_of(name), **TEXT).group_by_key()
    windows: Any = TimeWindows(WINDOW_MS, grace=WINDOW_MS // 2)
    sessions: Any = SessionWindows(WINDOW_MS // 4, grace=WINDOW_MS // 2)
    for kind, grouped in (("tumbling", orders.windowed_by(windows)), ("sessions", orders.windowed_by(sessions))):
        closing: Any = grouped.emit_strategy("on_window_close", idle_timeout=IDLE_MS)
        closing.count(store=kind).to_stream().foreach(lambda key, value, kind=kind: finals.show(kind, key, value))
    held = orders.windowed_by(windows).count(store="held-back")
    final = held.suppress(Suppressed.until_window_closes(idle_timeout=IDLE_MS), name="held")
    final.to_stream().foreach(lambda key, value: finals.show("suppressed", key, value))
    return builder.build()


finals = {name: Finals() for name in ("idle-moved", "idle-fresh")}
moved_by_region, fresh_by_region = placed("region-moved"), placed("region-fresh")
moved_by_value = counted_by_value("value-moved")
moved_when_idle, fresh_when_idle = (closed_when_idle(name, finals[name]) for name in ("idle-moved", "idle-fresh"))
