"""Models that are found by the namespace in each message, and a codec of one's own."""

from typing import Any

import faust
from faust.serializers import codecs
from made_app import make_app, named


class Reversed(codecs.Codec):
    """The bytes from the end to the beginning."""

    def _dumps(self, obj: Any) -> bytes:
        return bytes(reversed(obj))

    def _loads(self, s: bytes) -> bytes:
        return bytes(reversed(s))


codecs.register("reversed", Reversed())
app = make_app("shapes")


class Circle(faust.Record, namespace="shapes.circle"):
    """By its radius."""

    radius: float


class Boxes(faust.Record, namespace="shapes.boxes"):
    """With circles inside."""

    width: int
    inside: list[Circle]


shapes = app.topic(named("shapes-in"), key_type=str, key_serializer="raw")
backwards = app.topic(
    named("shapes-backwards"), key_type=str, key_serializer="raw", value_type=Boxes, value_serializer="json|reversed"
)
out = app.topic(named("shapes-out"), key_type=str, key_serializer="raw", value_serializer="json")


@app.agent(shapes)
async def sort(stream: Any) -> None:
    async for key, shape in stream.items():
        if isinstance(shape, Boxes):
            await backwards.send(key=key, value=shape)
        else:
            await out.send(key=key, value=[type(shape).__name__, shape.radius * 2])


@app.agent(backwards)
async def open_boxes(stream: Any) -> None:
    async for key, boxes in stream.items():
        radii = [each.radius for each in boxes.inside]
        await out.send(key=key, value=[type(boxes).__name__, boxes.width, radii])


if __name__ == "__main__":
    app.main()
