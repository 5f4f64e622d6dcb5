"""A chain of agents: what one yields goes to the next one, which forwards with other keys and headers."""

from collections.abc import AsyncIterator
from typing import Any

from made_app import make_app, named

app = make_app("chain")
numbers = app.topic(named("chain-in"), key_type=str, key_serializer="raw", value_type=int)
out = app.topic(named("chain-out"), key_type=str, key_serializer="raw", value_type=int)


@app.agent(app.topic(named("chain-squares"), value_type=int))
async def last(stream: Any) -> None:
    async for event in stream.events():
        await event.forward(out, key=f"key-{event.value % 5}", value=event.value + 1, headers={"by": b"last"})


@app.agent(numbers, sink=[last])
async def square(stream: Any) -> AsyncIterator[int]:
    async for number in stream:
        yield number * number


if __name__ == "__main__":
    app.main()
