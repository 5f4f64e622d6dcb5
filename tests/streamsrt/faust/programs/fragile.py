"""Raises at some events, and meets some that can't be decoded: both go on behind them."""

from typing import Any

import faust
from made_app import make_app, named


class Item(faust.Record, coerce=True):
    """What has a number."""

    number: int
    note: str = "none"


app = make_app("fragile")
source = app.topic(named("fragile-in"), key_type=str, key_serializer="raw", value_type=Item)
out = app.topic(named("fragile-out"), key_type=str, key_serializer="raw", value_type=Item)


@app.agent(source)
async def copy(stream: Any) -> None:
    async for key, item in stream.items():
        if item.number == 50:
            raise ValueError(f"no luck with {item}")
        await out.send(key=key, value=item)


if __name__ == "__main__":
    app.main()
