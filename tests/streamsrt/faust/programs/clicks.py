"""Windows: tumbling by a field of the model, hopping by the time of the record."""

from typing import Any

import faust
from made_app import make_app, named


class Click(faust.Record):
    """Somebody clicks."""

    button: str
    at: float


app = make_app("clicks")
clicks = app.topic(named("clicks-in"), key_type=str, key_serializer="raw", value_type=Click)
out = app.topic(named("clicks-out"), key_type=str, key_serializer="raw")
by_field = app.Table("by_field", default=int).tumbling(10.0, expires=1e9).relative_to_field(Click.at)
by_time = app.Table("by_time", default=int).hopping(20.0, 10.0, expires=1e9)


@app.agent(clicks)
async def count(stream: Any) -> None:
    async for key, click in stream.items():
        by_field[click.button] += 1
        by_time[click.button] += 1
        now = by_field[click.button].value()
        hops = by_time[click.button]
        await out.send(key=key, value=[click.button, now, hops.current(), hops.delta(20.0)])


if __name__ == "__main__":
    app.main()
