"""Applications of Faust in the simulator: instances that are killed, cut off and frozen by seeds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streamsrt.testing.simulator import Faults, Input, SimulationFailure
from streamsrt.testing.simulator.running import simulate_seeds
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402

AT_ONCE = 10
"""Seeds of one test: those of a program are shared between the processes that run tests."""
ORDERS = {
    "orders": [
        Input(b"k%d" % (number % 5), b'{"item":"i%d","amount":%d}' % (number % 3, number), 1000 + number)
        for number in range(60)
    ],
    "out": [],
}


class Order(faust.Record):
    """What is ordered."""

    item: str
    amount: int


def an_exact_app() -> faust.App:
    return an_app(processing_guarantee="exactly_once", topic_partitions=2)


def counting() -> faust.App:
    """Sums by key."""
    app = an_exact_app()
    totals = app.Table("totals", default=int)
    out = app.topic("out", key_type=str, value_type=int)

    @app.agent(app.topic("orders", key_type=str, value_type=Order))
    async def count(orders: Any) -> None:
        async for key, order in orders.items():
            totals[key] += order.amount
            await out.send(key=key, value=totals[key])

    return app


def grouping() -> faust.App:
    """Sums by a field, in windows that all have room for each other."""
    app = an_exact_app()
    totals = app.Table("totals", default=int).tumbling(1e9, expires=1e10)
    out = app.topic("out", key_type=str, value_type=int)

    @app.agent(app.topic("orders", value_type=Order), name="group")
    async def group(orders: Any) -> None:
        async for order in orders.group_by(Order.item, partitions=2):
            totals[order.item] += order.amount
            await out.send(key=order.item, value=order.amount)

    return app


def settings(app: faust.App) -> dict[str, object]:
    """Those of the application, but the address of a real cluster."""
    return {name: value for name, value in streamsrt.faust.config(app).items() if name != "bootstrap.servers"}


def seeds(count: int) -> list[Any]:
    """A few that always run, and ``count``, in parts, of which a run with long tests has a share."""
    marks = [pytest.mark.long, pytest.mark.share(10)]
    parts = [range(first, first + AT_ONCE) for first in range(0, count, AT_ONCE)]
    return [range(4), *(pytest.param(part, marks=marks) for part in parts)]


def killed(app: faust.App, seeds: range) -> Counter[str]:
    """What happened; the results of each seed are those of a run without faults."""
    counts: Counter[str] = Counter()
    for result in simulate_seeds(streamsrt.faust.topology(app), seeds=seeds, inputs=ORDERS, config=settings(app)):
        counts.update(result.counts)
    return counts


def values_only(found: Any, expected: Any) -> str | None:
    """What is sent to a topic of group_by comes by chance in its order: all of it counts, and nothing else."""
    of, wanted = (
        {topic: Counter((row.key, row.value) for row in rows) for topic, rows in each.items()}
        for each in (found, expected)
    )
    return None if of == wanted else f"{of} and not {wanted}"


@pytest.mark.parametrize("seeds", seeds(200))
def test_a_count_is_exact_whatever_is_killed(seeds: range) -> None:
    counts = killed(counting(), seeds)
    assert sum(count for text, count in counts.items() if text.endswith("is killed")) >= len(seeds) // 2


@pytest.mark.parametrize("seeds", seeds(100))
def test_a_group_by_loses_and_doubles_nothing(seeds: range) -> None:
    app = grouping()
    for _ in simulate_seeds(
        streamsrt.faust.topology(app),
        seeds=seeds,
        inputs=ORDERS,
        config=settings(app),
        check=values_only,
    ):
        """It raises where something is wrong."""


def test_results_are_committed_soon_after_a_broker_was_away() -> None:
    """Seed 220: a commit that had waited eight seconds for the broker put off the next one by as much."""
    app = grouping()
    list(
        simulate_seeds(
            streamsrt.faust.topology(app),
            seeds=[220],
            inputs=ORDERS,
            faults=Faults(midway=0),
            config=settings(app),
            check=values_only,
        )
    )


def test_what_counts_twice_is_found_out() -> None:
    app = counting()
    at_least_once = {**settings(app), "processing.guarantee": "at_least_once", "commit.interval.ms": 1000}
    runs = simulate_seeds(
        streamsrt.faust.topology(app), seeds=range(30), inputs=ORDERS, config=at_least_once, compare="each"
    )
    with pytest.raises(SimulationFailure, match=r"seed \d+: out, key "):
        list(runs)
