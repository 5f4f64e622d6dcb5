"""Joins by hand: one agent keeps accounts in a table of models, another one looks payments up there."""

from typing import Any

import faust
from made_app import make_app, named


class Account(faust.Record):
    """Whose it is, and what it has."""

    owner: str
    balance: int = 0
    tags: list[str] = []  # noqa: RUF012  # as users write it


class Payment(faust.Record):
    """Money for an account."""

    account: str
    amount: int


app = make_app("payments")
events = app.topic(named("payments-in"), key_type=str, key_serializer="raw", value_type=Payment)
out = app.topic(named("payments-out"), key_type=str, key_serializer="raw", value_type=Account)
accounts = app.Table("accounts", key_type=str, value_type=Account, default=lambda: Account(owner="nobody"))


@app.agent(events)
async def book(stream: Any) -> None:
    async for payment in stream:
        account = accounts[payment.account]
        account.owner = payment.account.upper()
        account.balance += payment.amount
        account.tags = [*account.tags[-2:], str(payment.amount)]
        accounts[payment.account] = account
        if payment.amount == 13:
            accounts.pop(payment.account)
        await out.send(key=payment.account, value=account)


if __name__ == "__main__":
    app.main()
