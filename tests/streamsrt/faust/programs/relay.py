"""Through a topic, with a processor before it and a codec of base64 behind it."""

from typing import Any

from made_app import make_app, named

app = make_app("relay")
source = app.topic(named("relay-in"), key_type=str, key_serializer="raw", value_type=int)
middle = app.topic(named("relay-middle"), key_type=str, key_serializer="raw", value_type=int)
out = app.topic(named("relay-out"), key_type=str, key_serializer="raw", value_serializer="json|binary")


@app.agent(source, name="relay.pass")
async def pass_on(stream: Any) -> None:
    async for key, value in stream.through(middle).items():
        await out.send(key=key, value={"value": value * 3})


if __name__ == "__main__":
    app.main()
