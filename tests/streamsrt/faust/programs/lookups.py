"""Waits for something at each event, several at a time."""

import asyncio
from typing import Any

from made_app import make_app, named

app = make_app("lookups")
source = app.topic(named("lookups-in"), key_type=str, key_serializer="raw", value_type=int)
out = app.topic(named("lookups-out"), key_type=str, key_serializer="raw", value_type=int)


async def looked_up(value: int) -> int:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    answer.get_loop().call_later(0.002, answer.set_result, value * 10)
    return await answer


@app.agent(source, concurrency=4)
async def look_up(stream: Any) -> None:
    async for event in stream.events():
        await out.send(key=event.key, value=await looked_up(event.value))


if __name__ == "__main__":
    app.main()
