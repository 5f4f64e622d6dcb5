"""An application whose source topics get more partitions: counts, windows, sessions, a repartition step, joins of tables."""

from __future__ import annotations

from typing import Any

from topology import JoinWindows, SessionWindows, StreamsBuilder, TimeWindows, serdes
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WINDOW_MS, DAY_MS = 60_000, 86_400_000
ORDERS, BOOKS, PRICES, AUTHORS = "moved-orders", "moved-books", "moved-prices", "moved-authors"
BIDS, ASKS, PAIRS, QUOTED = "moved-bids", "moved-asks", "moved-pairs", "moved-quoted"
RAISED = (ORDERS, BOOKS, PRICES, BIDS, ASKS)
TOPICS = (*RAISED, AUTHORS, PAIRS, QUOTED)


def build() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, **TEXT)
    orders.group_by_key().count(store="per-customer")
    orders.group_by_key().windowed_by(TimeWindows(WINDOW_MS, grace=DAY_MS)).count(store="per-minute")
    orders.group_by_key().windowed_by(SessionWindows(WINDOW_MS // 2, grace=DAY_MS)).count(store="sessions")
    orders.group_by(lambda _, item: item, name="by-item", **TEXT).count(store="per-item")
    books = builder.table(BOOKS, **TEXT, store="books")
    prices = builder.table(PRICES, **TEXT, store="prices")
    books.join(prices, "{} for {}".format, store="offers", **TEXT)
    authors = builder.table(AUTHORS, **TEXT, store="authors")
    shelf = books.join(authors, "{} by {}".format, foreign_key=author_of, store="shelf", name="shelf", **TEXT)
    shelf.to_stream()
    bids, asks = builder.stream(BIDS, **TEXT), builder.stream(ASKS, **TEXT)
    pairs = bids.outer_join(asks, "{}+{}".format, JoinWindows(DAY_MS, grace=DAY_MS), store="pairs")
    pairs.to(PAIRS, **TEXT)
    quoted = bids.join_asof(asks, "{}@{}".format, DAY_MS, grace=5 * WINDOW_MS, store="quoted", name="quoted")
    quoted.to(QUOTED, **TEXT)
    return builder.build()


def author_of(book: str) -> str:
    return book.partition("/")[0]


topology = build()
