"""Agents are asked by a task, with answers in the order of the questions."""

from collections.abc import AsyncIterator
from typing import Any

from made_app import make_app, named

app = make_app("asks")
out = app.topic(named("asks-out"), key_type=str, key_serializer="raw", value_type=int)


@app.agent(app.topic(named("asks-in"), value_type=int))
async def double(numbers: Any) -> AsyncIterator[int]:
    async for number in numbers:
        yield number * 2


@app.task
async def ask() -> None:
    await out.send(key="one", value=await double.ask(21))
    for value in await double.join(range(20)):
        await out.send(key="many", value=value)


if __name__ == "__main__":
    app.main()
