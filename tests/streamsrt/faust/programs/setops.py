"""All operations of a table of sets, with what each returns."""

from typing import Any

from made_app import make_app, named

app = make_app("setops")
asked = app.topic(named("setops-in"), key_type=str, key_serializer="raw", value_serializer="json")
out = app.topic(named("setops-out"), key_type=str, key_serializer="raw", value_serializer="json")
sets = app.SetTable("sets", key_type=str, value_type=str)


@app.agent(asked)
async def change(stream: Any) -> None:
    async for key, (operation, names) in stream.items():
        found = sets[key]
        if operation == "clear":
            result = found.clear()
        else:
            result = getattr(found, operation)(names[0] if operation in ("add", "discard") else set(names))
        answer = sorted(result) if isinstance(result, set) else result
        await out.send(key=key, value=[operation, answer, sorted(sets[key]), len(sets[key]), "a" in sets[key]])


if __name__ == "__main__":
    app.main()
