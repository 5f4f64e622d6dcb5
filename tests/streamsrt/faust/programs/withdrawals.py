"""Alerts of large withdrawals: times and decimals in models, a filter, an echo, and a sink."""

from collections.abc import AsyncIterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import faust
from made_app import make_app, named


class Withdrawal(faust.Record, isodates=True, coerce=True):
    """Money leaves an account."""

    account: str
    amount: Decimal
    at: datetime
    country: str | None = None


class Alert(faust.Record):
    """What is said of it."""

    account: str
    amount: Decimal
    day: str


app = make_app("withdrawals")
withdrawals = app.topic(named("withdrawals-in"), key_type=str, key_serializer="raw", value_type=Withdrawal)
alerts = app.topic(named("withdrawals-out"), value_type=Alert)
copies = app.topic(named("withdrawals-copies"), value_type=Withdrawal)


@app.agent(withdrawals, sink=[alerts])
async def watch(stream: Any) -> AsyncIterator[Alert]:
    async for each in stream.filter(lambda each: each.amount > 500).echo(copies):
        yield Alert(account=each.account, amount=each.amount * 2, day=each.at.date().isoformat())


if __name__ == "__main__":
    app.main()
