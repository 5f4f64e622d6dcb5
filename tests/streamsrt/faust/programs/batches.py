"""Lists of values, as many as come in time."""

from typing import Any

from made_app import make_app, named

app = make_app("batches")
source = app.topic(named("batches-in"), key_type=str, key_serializer="raw", value_type=int)
out = app.topic(named("batches-out"), value_type=int)


@app.agent(source)
async def double(stream: Any) -> None:
    async for values in stream.take(7, within=0.2):
        for value in values:
            await out.send(value=value * 2)


if __name__ == "__main__":
    app.main()
