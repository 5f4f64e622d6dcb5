"""Counts words: one agent splits lines and sends words to the next, which has a table."""

from typing import Any

from made_app import make_app, named

app = make_app("words")
lines = app.topic(named("words-in"), value_type=str, value_serializer="raw")
counted = app.topic(named("words-out"), key_type=str, key_serializer="raw", value_type=int)
counts = app.Table("counts", default=int, key_type=str, value_type=int)


@app.agent(app.topic(named("words-each"), key_type=str, key_serializer="raw", value_type=str))
async def count(words: Any) -> None:
    async for word in words:
        counts[word] += 1
        await counted.send(key=word, value=counts[word])


@app.agent(lines)
async def split(texts: Any) -> None:
    async for text in texts:
        for word in text.split():
            await count.send(key=word, value=word)


if __name__ == "__main__":
    app.main()
