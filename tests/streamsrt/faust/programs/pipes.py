"""A channel in memory between two agents, the second of which waits at each message."""

import asyncio
from typing import Any

from made_app import make_app, named

app = make_app("pipes")
source = app.topic(named("pipes-in"), key_type=str, key_serializer="raw", value_type=int)
out = app.topic(named("pipes-out"), key_type=str, key_serializer="raw", value_type=int)
odd = app.channel()


@app.agent(odd)
async def add(stream: Any) -> None:
    async for event in stream.events():
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.get_loop().call_later(0.002, done.set_result, event.value + 1)
        await out.send(key=event.key, value=await done)


@app.agent(source)
async def choose(stream: Any) -> None:
    async for key, value in stream.items():
        if value % 2:
            await odd.send(key=key, value=value)


if __name__ == "__main__":
    app.main()
