"""Records made of data: the same as faust makes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.models.fields import StringField  # noqa: E402

from streamsrt.faust.decoding import plain_value  # noqa: E402
from streamsrt.faust.encoding import Encoder  # noqa: E402


class Plain(faust.Record):
    """Nothing but fields."""

    text: str
    number: int
    share: float
    yes: bool = True


class Inner(faust.Record):
    """A part of another one."""

    number: int


class Nested(faust.Record):
    """With another one."""

    inner: Inner
    many: list[Inner]


class Coerced(faust.Record, coerce=True):
    """Values get their types."""

    number: int
    at: datetime | None = None


class Checked(faust.Record, validation=True):
    """Fields are looked at."""

    text: str = StringField(max_length=3)


class Renamed(faust.Record):
    """One of the fields has another name outside."""

    text: str = StringField(field="from")
    number: int = 0


class Told(faust.Record):
    """Does something when it is made."""

    number: int

    def __post_init__(self) -> None:
        self.twice = self.number * 2


class Own(faust.Record):
    """Makes itself."""

    number: int

    @classmethod
    def from_data(cls, data: Any, *, preferred_type: Any = None) -> Own:
        return cls(number=int(data["number"]) + 100)


class Empty(faust.Record):
    """Has no fields."""


class Secret(faust.Record):
    """A field that hides what it holds."""

    text: str = StringField(coerce=True, trim_whitespace=True)


DATA: list[tuple[type[faust.Record], object]] = [
    (Plain, {"text": "a", "number": 1, "share": 0.5, "yes": False}),
    (Plain, {"number": 1, "text": "a", "share": 0.5}),
    (Plain, {"text": "a", "number": 1, "share": 0.5, "yes": None}),
    (Plain, {"text": None, "number": "1", "share": 1, "yes": 1}),
    (Plain, {"text": "a", "number": 1, "share": 0.5, "yes": False, "more": 1}),
    (Plain, {"text": "a"}),
    (Plain, {"number": 3, "__faust": {"ns": f"{__name__}.Inner"}}),
    (Plain, [1, 2]),
    (Plain, "text"),
    (Nested, {"inner": {"number": 1}, "many": [{"number": 2}]}),
    (Coerced, {"number": "1", "at": "2026-01-02T03:04:05"}),
    (Checked, {"text": "abc"}),
    (Checked, {"text": "abcd"}),
    (Renamed, {"from": "a", "number": 1}),
    (Told, {"number": 2}),
    (Own, {"number": "2"}),
    (Empty, {}),
    (Secret, {"text": " a "}),
]


def outcome(call: Any, *arguments: Any) -> object:
    try:
        made = call(*arguments)
    except Exception as error:  # noqa: BLE001  # whatever faust raises
        return type(error), str(error)
    return type(made), vars(made) if hasattr(made, "__dict__") else made


@pytest.mark.parametrize(("kind", "data"), DATA)
def test_a_record_is_what_faust_makes_of_the_data(kind: type[faust.Record], data: object) -> None:
    app = an_app()
    decode = plain_value(app, app.topic("t", value_type=kind).schema)
    raw = orjson.dumps(data)
    assert outcome(decode, raw) == outcome(lambda: kind.from_data(orjson.loads(raw), preferred_type=kind))


def test_records_do_not_share_anything() -> None:
    app = an_app()
    decode: Any = plain_value(app, app.topic("t", value_type=Plain).schema)
    raw = orjson.dumps({"text": "a", "number": 1, "share": 0.5, "yes": True})
    one, other = decode(raw), decode(raw)
    one.text = "b"
    assert (other.text, one == other, decode(raw) == other) == ("a", False, True)
    assert one.asdict() == {"text": "b", "number": 1, "share": 0.5, "yes": True}
    assert repr(other) == "<Plain: text='a', number=1, share=0.5, yes=True>"
    with pytest.raises(AttributeError):
        _ = other.nothing


class Zipped(faust.Record, serializer="json|binary"):
    """Written by two codecs."""

    text: str


class Loud(faust.Record):
    """Writes itself."""

    text: str

    def dumps(self, *, serializer: Any = None) -> bytes:
        return self.text.upper().encode()


@pytest.mark.parametrize(
    "value", [Plain("a", 1, 0.5), Nested(Inner(1), []), Zipped("a"), Loud("a"), {"a": 1}, "a", None]
)
@pytest.mark.parametrize("options", [{}, {"value_type": Plain}, {"value_serializer": "json|binary"}])
def test_values_are_written_as_faust_writes_them(value: object, options: dict[str, Any]) -> None:
    app = an_app()
    topic = app.topic("t", **options)
    encoder = Encoder(app, topic)
    assert [encoder.value(value), encoder.value(value)] == [topic.prepare_value(value, None, None, {})[0]] * 2
