"""Models: each goes through two topics and comes back as Faust makes it, or is passed over where Faust refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, Optional, Union

import orjson
import pytest
from dateutil.parser import parse

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.models.fields import BytesField, DecimalField, FieldDescriptor, IntegerField, StringField  # noqa: E402
from faust.models.tags import Secret, Sensitive, allow_protected_vars  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Part(faust.Record):
    """What others have in them."""

    number: int
    name: str = "none"


class Dated(faust.Record, coerce=True):
    """Times, in every container."""

    one: datetime
    maybe: datetime | None = None
    many: list[datetime] = []  # noqa: RUF012  # a field of a model
    pairs: tuple[datetime, ...] = ()
    named: Mapping[str, datetime] = {}


class OldDates(faust.Record, isodates=True):
    """The former name of that."""

    one: datetime


class Priced(faust.Record, coerce=True):
    """Decimals, in every container."""

    one: Decimal
    many: list[Decimal] = []  # noqa: RUF012  # a field of a model
    distinct: set[Decimal] = set()  # noqa: RUF012  # a field of a model
    named: dict[str, Decimal] = {}  # noqa: RUF012  # a field of a model


class Degrees:
    """A type of the program's own."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __json__(self) -> float:
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Degrees) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class Measured(faust.Record, coercions={Degrees: Degrees}):
    """Has one of those, and several."""

    one: Degrees
    many: list[Degrees] = []  # noqa: RUF012  # a field of a model


class Containing(faust.Record):
    """Models in every container."""

    one: Part
    many: list[Part]
    named: dict[str, Part]
    maybe: Part | None = None
    pair: tuple[Part, int] = None  # type: ignore[assignment]  # as programs write it


class Later(faust.Record):
    """What another names as a text."""

    number: int


class Forward(faust.Record):
    """Names another and itself, as texts."""

    later: Later
    selves: list[Forward] = []  # noqa: RUF012  # a field of a model


class Longer(Part):
    """A model with more fields than another."""

    more: str | None = None


class Constant(faust.Record):
    """What a class has is no field."""

    number: int
    limit: ClassVar[int] = 3


class Counted(faust.Record, include_metadata=False):
    """Makes itself, and something more."""

    x: int
    y: int

    def __init__(self, x: int, y: int, **fields: Any) -> None:
        self._model_init(x, y, **fields)
        self.total = x + y


class AnyOf(faust.Record):
    """A field of whatever kind."""

    a: str | int | None
    b: Optional[Union[list, dict]] = None  # noqa: UP007, UP045  # as programs write it


class Loose(faust.Record):
    """Containers of anything."""

    a: dict
    b: list
    c: tuple
    d: Any = None


class Kinds(faust.Record, polymorphic_fields=True):
    """A field that holds models of several kinds."""

    part: faust.Record


class Old(faust.Record, allow_blessed_key=True):
    """The former name of that."""

    part: Part


class Short(faust.Record):
    """Leaves out what is not there."""

    a: float | None = None
    b: float | None = None

    def _prepare_dict(self, payload: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in payload.items() if value is not None}


class Reserved(faust.Record):
    """Names that Python keeps to itself."""

    place: str = StringField(input_name="in")
    other: str = StringField(required=False, default="none", input_name="from", output_name="to")


class Hidden(faust.Record):
    """A field that is not written."""

    a: str
    b: str = StringField(exclude=True, required=False, default="?")


class Checked(faust.Record, validation=True):
    """Fields with limits."""

    age: int = IntegerField(min_value=18, max_value=200)
    price: Decimal = DecimalField(max_digits=3, required=False, default=Decimal(1))
    name: str = StringField(trim_whitespace=True, required=False, default="none", max_length=10)
    raw: bytes = BytesField(trim_whitespace=True, required=False, default=b"")


class ChoiceField(FieldDescriptor[str]):
    """One of several texts."""

    def __init__(self, choices: list[str], **options: Any) -> None:
        self.choices = choices
        super().__init__(choices=choices, **options)

    def validate(self, value: str) -> Any:
        if value not in self.choices:
            yield self.validation_error(f"{value} is none of {self.choices}")


class Chosen(faust.Record, validation=True):
    """A field of the program's own."""

    side: str = ChoiceField(["left", "right"])


class Parsed(faust.Record, coerce=True, date_parser=parse):
    """Reads times by a parser of the program's own."""

    at: datetime


class Tagged(faust.Record):
    """What is not to be seen in logs."""

    name: str
    phone: Sensitive[str]
    key: Secret[str]


class Hashed(faust.Record):
    """Compares and hashes by itself."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed)


class Optioned(faust.Record):
    """Options as a class."""

    number: int

    class Options:
        coerce = True
        coercions: ClassVar[dict[type, Any]] = {int: int}


class Point(NamedTuple):
    """No model, but with one in it."""

    part: Part
    number: int


class Tupled(faust.Record):
    """A field of such tuples."""

    points: list[Point]


class Family(faust.Record, abstract=True, coerce=True):
    """What is true of all of its kind."""


class Child(Family):
    """One of its kind."""

    at: datetime


PART = {"number": 1, "name": "a"}
ISO = AT.isoformat()
TAKEN: list[tuple[type[faust.Record], dict[str, Any]]] = [
    (Part, PART),
    (Part, {"number": 1}),
    (Part, {**PART, "unknown": [1, {"a": 2}]}),
    (Dated, {"one": ISO}),
    (Dated, {"one": ISO, "maybe": ISO, "many": [ISO, ISO], "pairs": [ISO], "named": {"a": ISO}}),
    (OldDates, {"one": ISO}),
    (Priced, {"one": "1.50", "many": ["1.1", "2.2"], "distinct": ["3.3"], "named": {"a": "4.4"}}),
    (Measured, {"one": 21.5, "many": [1.0, 2.0]}),
    (Containing, {"one": PART, "many": [PART, PART], "named": {"x": PART}}),
    (Containing, {"one": PART, "many": [], "named": {}, "maybe": PART, "pair": [PART, 7]}),
    (Forward, {"later": {"number": 1}, "selves": [{"later": {"number": 2}, "selves": []}]}),
    (Longer, {**PART, "more": "x"}),
    (Longer, PART),
    (Constant, {"number": 1}),
    (Counted, {"x": 1, "y": 2}),
    (AnyOf, {"a": "text", "b": [1]}),
    (AnyOf, {"a": None, "b": {"x": 1}}),
    (Loose, {"a": {"x": 1}, "b": [1], "c": [1, 2], "d": "any"}),
    (Short, {"b": 2.0}),
    (Reserved, {"in": "here", "from": "there"}),
    (Hidden, {"a": "x"}),
    (Checked, {"age": 20, "price": "33.3", "name": "  trimmed  ", "raw": " x "}),
    (Chosen, {"side": "left"}),
    (Parsed, {"at": "Sat Jan 12 00:44:36 +0000 2019"}),
    (Tagged, {"name": "a", "phone": "123", "key": "456"}),
    (Hashed, {"number": 7}),
    (Optioned, {"number": "7"}),
    (Tupled, {"points": [[PART, 1]]}),
    (Child, {"at": ISO}),
]
REFUSED: list[tuple[type[faust.Record], dict[str, Any]]] = [
    (Part, {"name": "a"}),
    (Dated, {"one": "no date"}),
    (Priced, {"one": "no number"}),
    (Checked, {"age": 9}),
    (Checked, {"age": 20, "price": "3333.33"}),
    (Checked, {"age": 20, "name": "far too long a name"}),
    (Chosen, {"side": "up"}),
]


def fields(made: Any) -> Any:
    """What a model holds, however deep."""
    match made:
        case faust.Record():
            return type(made), {name: fields(getattr(made, name)) for name in made._options.fields}
        case dict():
            return {key: fields(value) for key, value in made.items()}
        case list() | tuple():
            return type(made)(*map(fields, made)) if hasattr(made, "_fields") else type(made)(map(fields, made))
    return made.get_value() if hasattr(made, "get_value") else made


@pytest.mark.parametrize(("kind", "data"), TAKEN, ids=[f"{kind.__name__}-{n}" for n, (kind, _) in enumerate(TAKEN)])
def test_a_model_comes_and_goes_as_with_faust(kind: type[faust.Record], data: dict[str, Any]) -> None:
    app = an_app()
    out = app.topic("out", value_type=kind)
    seen: list[Any] = []

    @app.agent(app.topic("in", value_type=kind))
    async def relay(stream: Any) -> None:
        async for value in stream:
            seen.append(value)
            if kind is not Tagged:
                await out.send(value=value)

    @app.agent(out)
    async def back(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    wanted = kind.from_data(orjson.loads(orjson.dumps(data)), preferred_type=kind)
    with TestApp(app) as test:
        test.driver.pipe_raw("in", None, orjson.dumps(data), 0)
        assert not test.driver.counters()["failed_deserialization"]
        rows = [each.value for each in test.driver.producer_history if each.topic == "out"]
    with allow_protected_vars():
        assert fields(seen[0]) == fields(wanted)
    if kind is Tagged:
        return  # Faust can't write it as JSON.
    assert rows == [out.prepare_value(wanted, None)[0]]
    if kind not in (Reserved, Checked):
        assert fields(seen[1]) == fields(wanted)


@pytest.mark.parametrize(("kind", "data"), REFUSED, ids=[f"{kind.__name__}-{n}" for n, (kind, _) in enumerate(REFUSED)])
def test_what_a_model_refuses_is_passed_over(kind: type[faust.Record], data: dict[str, Any]) -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in", value_type=kind))
    async def hear(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    with pytest.raises(Exception, match=r"."):
        kind.from_data(data, preferred_type=kind)
    with TestApp(app) as test:
        test.driver.pipe_raw("in", None, orjson.dumps(data), 0)
        assert test.driver.counters()["failed_deserialization"] == 1
    assert not seen


@pytest.mark.parametrize(
    "value", [Kinds(Part(1)), Kinds(Later(2)), Old(Longer(1, "a", "b"))], ids=["part", "later", "old"]
)
def test_a_field_says_itself_which_model_it_is(value: Any) -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in", value_type=type(value)))
    async def hear(stream: Any) -> None:
        async for each in stream:
            seen.append(each)

    with TestApp(app) as test:
        test.send("in", value=value)
    wanted = app.serializers.loads_value(type(value), value.dumps(serializer="json"), serializer="json")
    assert [fields(each) for each in seen] == [fields(wanted)]


def test_a_topic_without_a_type_has_the_models_that_the_values_name() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in"))
    async def hear(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    with TestApp(app) as test:
        for value in (Part(1), Later(2), {"plain": 3}, 4, "five"):
            test.send("in", value=value)
    assert seen == [Part(1), Later(2), {"plain": 3}, 4, "five"]


def test_models_are_derived_compared_and_shown() -> None:
    async def compare() -> list[Any]:
        seen: list[Any] = []
        app = an_app()

        @app.agent(app.topic("in", value_type=Part))
        async def hear(stream: Any) -> None:
            async for part in stream:
                seen.extend(
                    (part.derive(name="b"), part == Part(1, "a"), part < Part(2, "a"), repr(part), part.asdict())
                )

        with TestApp(app) as test:
            test.send("in", value=Part(1, "a"))
        return seen

    import asyncio

    assert asyncio.run(compare()) == [
        Part(1, "b"),
        True,
        True,
        "<Part: number=1, name='a'>",
        {"number": 1, "name": "a"},
    ]
