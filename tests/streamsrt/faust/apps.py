"""Small applications that several tests run."""

from __future__ import annotations

from typing import Any

from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

_KEPT: list[faust.App] = []
"""Faust's signals know an application by its hash, its address: a later one at the same address would get its listeners."""


def an_app(**options: Any) -> faust.App:
    """One without agents."""
    app = faust.App("shop", broker="kafka://localhost:9092", **options)
    _KEPT.append(app)
    return app


def counting(app: faust.App) -> Any:
    """A table that counts what comes."""
    totals = app.Table("totals", default=int)

    @app.agent(app.topic("orders", value_type=str, value_serializer="raw"))
    async def count(stream: Any) -> None:
        async for item in stream:
            totals[item] += 1

    return totals


def summing(app: faust.App, totals: Any, kind: type[faust.Record]) -> None:
    """An agent that adds up the amounts of each item. ``kind``: a model with the fields ``item`` and ``amount``."""

    @app.agent(app.topic("orders", value_type=kind))
    async def count(orders: Any) -> None:
        async for order in orders:
            totals[order.item] += order.amount
