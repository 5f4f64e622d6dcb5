"""Values of types, read in C, beside what pydantic makes of the same bytes."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from datetime import date
from typing import Annotated, Any, Generic, Literal, NotRequired, Optional, TypeVar, cast

import pydantic.dataclasses
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_validator,
)
from typing_extensions import TypedDict

from topology import serdes
from topology.spec import model_reading
from topology.spec.model_reading import ModelsInC, plan_of, reader_of

T = TypeVar("T")


@pytest.fixture(scope="session")
def native(load_native: Callable[[str], object]) -> ModelsInC:
    """The module in C, whether or not the tests run with it."""
    return cast(ModelsInC, load_native(model_reading.MODULE))


@contextmanager
def using(native: ModelsInC | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model_reading, "native", native)
        yield


# ------------------------------------------------------------------------------------------------------- types


class Place(BaseModel):
    city: str
    zip: int


class Order(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: int
    price: float
    paid: bool
    nothing: None
    place: Place
    places: list[Place]
    tags: list[list[str]]
    note: str | None = None
    count: int = 1
    more: list[int] = Field(default_factory=list)
    named: str = Field(default="", alias="called")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> float:
        return self.price * 2


class Generics(BaseModel, Generic[T]):
    inner: T


@dataclass
class Part:
    number: int
    weight: float = 0.5


@dataclass(slots=True, frozen=True)
class Slotted:
    text: str
    part: Part
    parts: list[Part] = field(default_factory=list)


@dataclass
class Whole(Part):
    slotted: Slotted | None = None
    place: Optional[Place] = None  # noqa: UP045  # both ways to write it


@pydantic.dataclasses.dataclass
class Checked:
    number: int
    part: Part


class Named:
    @property
    def named(self) -> str:
        raise AssertionError

    @named.setter
    def named(self, value: str) -> None:
        raise AssertionError


@dataclass
class Renamed(Named):
    named: str  # type: ignore[assignment]


class Row(TypedDict):
    id: int
    part: Part
    rows: list[Inner]


class Inner(TypedDict, total=False):
    a: int
    b: float | None


class Sometimes(TypedDict):
    a: NotRequired[str]
    b: int
    place: NotRequired[Place]


TAKEN: list[Any] = [Order, Generics[int], Generics[Part], Part, Slotted, Whole, Checked, Row, Sometimes, list[Place]]


# ------------------------------------------------------------------------------------------------------- comparison


def shown(value: object) -> object:
    """All that can be told of it: types, order, what pydantic knows of it."""
    if isinstance(value, BaseModel):
        slots = [getattr(value, name) for name in ("model_fields_set", "__pydantic_extra__", "__pydantic_private__")]
        return type(value), [(name, shown(each)) for name, each in vars(value).items()], slots
    if is_dataclass(value):
        names = list(vars(value)) if hasattr(value, "__dict__") else [each.name for each in fields(value)]
        return type(value), [(name, shown(getattr(value, name))) for name in names]
    if isinstance(value, dict):
        return dict, [(name, shown(each)) for name, each in value.items()]
    if isinstance(value, list):
        return list, [shown(each) for each in value]
    return type(value), repr(value)


def outcome(read: Callable[[bytes], object], data: bytes) -> object:
    try:
        return shown(read(data))
    except ValidationError as error:
        return error.errors(include_url=False, include_context=False).__repr__()


class Beside:
    """Reads with both, and compares. ``declined``: how often pydantic was asked in the end."""

    def __init__(self, native: ModelsInC, kind: Any) -> None:
        adapter: Any = TypeAdapter(kind)
        self.declined = 0
        self._pydantic = adapter.validator.validate_json

        def otherwise(data: bytes) -> object:
            self.declined += 1
            return self._pydantic(data)

        plan = plan_of(adapter.core_schema)
        assert plan is not None, "it is made in C"

        # A new one for each value, as one that has refused some does not try others.
        def new() -> Callable[[bytes], object]:
            return native.Reader(plan, otherwise).read

        self._new = new

    def check(self, *of: bytes) -> object:
        """``of``: values that one reader reads in turn; each is read twice, as it knows more then. Returns the last."""
        read = self._new()
        for data in of:
            found, want = [outcome(read, data), outcome(read, data)], outcome(self._pydantic, data)
            assert found == [want, want]
        return want


def decline(data: bytes) -> object:
    raise AssertionError(data)


def is_made_in_c(native: ModelsInC, kind: Any, data: bytes) -> bool:
    beside = Beside(native, kind)
    beside.check(data)
    return beside.declined == 0


# ------------------------------------------------------------------------------------------------------- documents


PLAIN = ["null", "true", "0", "-3", "1.0", "1e400", "1" * 25, "-0.0", "NaN", '"1"', '"1.5"', '"true"', '""', "2e-7"]
ODD = ["[]", "{}", "[[],{}]", '{"a":{"b":[1]}}', '{"city":"a","zip":1}', "[1", '"\x01"', '"\\ud800"', '"2020-01-01"']
OTHER = st.sampled_from([*PLAIN, *ODD])
"""What a field may have instead of what fits."""


@st.composite
def documents(draw: st.DrawFn, core_schema: Any) -> str:
    """JSON that fits a schema, or nearly: fields out of order, missing, twice, unknown, of another type."""

    def of(schema: Any) -> str:
        if draw(st.integers(0, 30)) == 0:
            return draw(OTHER)
        match schema["type"]:
            case "str":
                return json.dumps(draw(st.text(max_size=5)), ensure_ascii=draw(st.booleans()))
            case "int":
                return str(draw(st.integers(-(1 << 65), 1 << 65) | st.integers(-9, 9)))
            case "float":
                return draw(st.floats().map(json.dumps) | st.integers(-(1 << 60), 1 << 60).map(str) | st.just("-0"))
            case "bool":
                return draw(st.sampled_from(["true", "false"]))
            case "none":
                return "null"
            case "nullable":
                return "null" if draw(st.booleans()) else of(schema["schema"])
            case "list":
                return "[" + ",".join(of(schema["items_schema"]) for _ in range(draw(st.integers(0, 3)))) + "]"
            case "definitions":
                known.update({each["ref"]: each for each in schema["definitions"]})
                return of(schema["schema"])
            case "definition-ref":
                return of(known[schema["schema_ref"]])
            case "default":
                return of(schema["schema"])
            case _:
                return of_fields(schema)

    def of_fields(schema: Any) -> str:
        inner = schema.get("schema", schema)["fields"]
        named = inner.items() if isinstance(inner, dict) else [(each["name"], each) for each in inner]
        pairs = [(each.get("validation_alias", name), of(each["schema"])) for name, each in named]
        change = draw(st.sampled_from(["nothing", "nothing", "order", "missing", "twice", "unknown", "alias"]))
        if change == "order":
            pairs = draw(st.permutations(pairs))
        elif change == "missing":
            pairs = [pair for pair in pairs if draw(st.integers(0, 3))]
        elif change == "twice":
            pairs.insert(draw(st.integers(0, len(pairs))), (draw(st.sampled_from(pairs))[0], draw(OTHER)))
        elif change == "unknown":
            pairs.insert(draw(st.integers(0, len(pairs))), (draw(st.text(max_size=3)), draw(OTHER)))
        elif change == "alias":
            pairs = [(name, text) for (name, _), (_, text) in zip(named, pairs, strict=True)]
        return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in pairs) + "}"

    known: dict[str, Any] = {}
    text = of(core_schema)
    return text.replace(":", draw(st.sampled_from([":", " : "])))


@pytest.mark.parametrize("kind", TAKEN, ids=lambda kind: re.sub(r"\W+", " ", str(kind)).split()[-1])
def test_what_is_read_is_what_pydantic_reads(native: ModelsInC, kind: Any) -> None:
    beside = Beside(native, kind)

    @given(st.lists(documents(TypeAdapter(kind).core_schema), min_size=1, max_size=3))
    @settings(max_examples=40)
    def check(texts: list[str]) -> None:
        of = [text.encode("utf-8", "surrogatepass") for text in texts]
        beside.check(*of)
        beside.check(*of[-1:])

    check()


@given(data=st.data())
@settings(max_examples=60)
def test_damaged_bytes_are_read_or_refused_as_pydantic_does(native: ModelsInC, data: st.DataObject) -> None:
    beside = Beside(native, Whole)
    whole = b'{"number":1,"weight":1.5,"slotted":{"text":"a","part":{"number":2}},"place":{"city":"b","zip":3}}'
    at = data.draw(st.integers(0, len(whole)))
    some = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"}", b"[", b",", b"\\u", b"\\ud800", b"e9"]))
    beside.check(whole[:at] + some + whole[at + data.draw(st.integers(0, 3)) :])


# ------------------------------------------------------------------------------------------------------- what is taken


PART = b'{"number":1,"weight":2.5}'


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Part, PART),
        (Part, b'{"weight":2.5,"number":1}'),
        (Part, b'{"number":1}'),
        (Part, b'{"number":-0,"weight":-0}'),
        (Part, b'{"number":-0,"weight":-0.0}'),
        (Part, b'{"number":1,"weight":2,"other":{"number":[]}}'),
        (Slotted, b'{"text":"a","part":' + PART + b',"parts":[' + PART + b"]}"),
        (Whole, b'{"number":1,"weight":1.5,"slotted":null}'),
        (Checked, b'{"number":1,"part":' + PART + b"}"),
        (Generics[Part], b'{"inner":' + PART + b"}"),
        (Sometimes, b'{"b":1}'),
        (Sometimes, b'{"b":1,"a":"c"}'),
        (Place, b'{"city":"\\u00e9","zip":9223372036854775807}'),
        (
            Order,
            b'{"id":1,"price":0.1,"paid":true,"nothing":null,"place":{"city":"b","zip":3},"places":[],"tags":[["a"],[]],'
            b'"more":[],"called":"x"}',
        ),
        (list[Place], b'[{"zip":3,"city":"b"}]'),
    ],
)
def test_such_bytes_are_made_in_c(native: ModelsInC, kind: Any, data: bytes) -> None:
    assert is_made_in_c(native, kind, data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"number":"1","weight":2.5}',
        b'{"number":1.0,"weight":2.5}',
        b'{"number":true,"weight":2.5}',
        b'{"number":9223372036854775808000,"weight":2.5}',
        b'{"number":1,"weight":9223372036854775808000}',
        b'{"number":1,"weight":NaN}',
        b'{"number":1,"weight":1e999}',
        b'{"number":1,"other":' + b"[" * 199 + b"]" * 199 + b"}",
        b'{"number":1,"other":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"number":1,"other":"\\ud800"}',
        b'{"number":1,"other":"\xff"}',
        b'{"weight":1}',
        b"[]",
        b"",
        b"{",
        PART + b" 1",
        b"\xef\xbb\xbf" + PART,
    ],
)
def test_such_bytes_are_left_to_pydantic(native: ModelsInC, data: bytes) -> None:
    assert not is_made_in_c(native, Part, data)


def test_many_brackets_are_not_deep(native: ModelsInC) -> None:
    many = b"[" + b",".join([b'{"city":"[{[{","zip":1}'] * 200) + b"]"
    assert is_made_in_c(native, list[Place], many)


class Constrained(BaseModel):
    number: Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    number: int


class Forbids(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


class Allows(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True)
    number: int = Field(alias="no")


class Validated(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def positive(cls, number: int) -> int:
        return abs(number)


class Private(BaseModel):
    number: int
    _hidden: int = 3


class Initialised(BaseModel):
    number: int

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


class MadeSpecially(BaseModel):
    number: int

    def __new__(cls, *_: object, **__: object) -> MadeSpecially:
        return super().__new__(cls)


class Root(RootModel[list[int]]):
    pass


@dataclass
class Finished:
    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclass
class Uninitialised:
    number: int
    other: int = field(init=False, default=1)


class Tree(BaseModel):
    below: list[Tree]


@pytest.mark.parametrize(
    "kind",
    [
        Constrained,
        Strict,
        Forbids,
        Allows,
        ByName,
        Validated,
        Private,
        Initialised,
        MadeSpecially,
        Root,
        Finished,
        Uninitialised,
        Tree,
        date,
        Literal["a"],
        dict[str, int],
        tuple[int, ...],
        int | str,
        Any,
        list,
        bytes,
    ],
    ids=str,
)
def test_such_types_are_left_to_pydantic(kind: Any) -> None:
    assert plan_of(TypeAdapter(kind).core_schema) is None


@pytest.mark.parametrize("kind", TAKEN, ids=str)
def test_such_types_are_taken(kind: Any) -> None:
    assert plan_of(TypeAdapter(kind).core_schema) is not None


# ------------------------------------------------------------------------------------------------------- the rest


def test_serdes_read_with_it(native: ModelsInC) -> None:
    with using(native):
        own = serdes.json(Whole)
    assert type(own.deserialize).__name__ == "builtin_function_or_method"
    assert type(getattr(own.deserialize, "__self__", None)).__name__ == "Reader"
    assert own.deserialize(b'{"number":"7"}') == Whole(7)
    with pytest.raises(ValidationError, match="number"):
        own.deserialize(b'{"number":"x"}')
    with using(None):
        assert serdes.json(Whole).deserialize(b'{"number":"7"}') == Whole(7)


def test_an_interrupt_of_pydantic_is_raised(native: ModelsInC) -> None:
    def otherwise(data: bytes) -> object:
        raise KeyboardInterrupt

    with using(native), pytest.raises(KeyboardInterrupt):
        reader_of(TypeAdapter(Part).core_schema, otherwise)(b"{")


def test_only_bytes_are_taken(native: ModelsInC) -> None:
    with using(native):
        read: Callable[[Any], object] = reader_of(TypeAdapter(Part).core_schema, lambda data: data)
    for other in (PART.decode(), bytearray(PART), 7, None):
        assert read(other) is other


@pytest.mark.parametrize("plan", [(), ("x", 1), ("t",), ("l",), ("s", ("s",)), ("d", int, ()), (1,), ("m", int, ())])
def test_what_is_no_plan_is_refused(native: ModelsInC, plan: tuple[object, ...]) -> None:
    if plan == ("d", int, ()):
        assert native.Reader(plan, lambda data: data).read(b"[]") == b"[]"
    else:
        with pytest.raises((ValueError, TypeError)):
            native.Reader(plan, bytes)


def test_attributes_are_set_past_the_code_of_the_class(native: ModelsInC) -> None:
    data = b'{"named":"a"}'
    beside = Beside(native, Renamed)
    with using(native):
        made = reader_of(TypeAdapter(Renamed).core_schema, bytes)(data)
    assert vars(made) == vars(TypeAdapter(Renamed).validate_json(data)) == {"named": "a"}
    assert beside.declined == 0


def test_values_do_not_share_what_can_change(native: ModelsInC) -> None:
    with using(native):
        read = cast(Callable[[bytes], Order], reader_of(TypeAdapter(Place).core_schema, bytes))
    one, other = read(b'{"city":"a","zip":1}'), read(b'{"city":"a","zip":1}')
    one.model_fields_set.clear()
    assert other.model_fields_set == {"city", "zip"}


@dataclass
class Many(Part):
    at_0: str = ""
    at_1: list[int] | None = None
    at_2: Part | None = None
    at_3: int = 3
    at_4: int = 4
    at_5: int = 5


@pytest.mark.parametrize("kind", [Part, Many, Place, Whole, Sometimes])
def test_each_object_is_as_one_that_the_program_makes(native: ModelsInC, kind: Any) -> None:
    data = b'{"number":1,"weight":1.5,"city":"a","zip":2,"at_1":[1],"at_2":{"number":2},"a":"b","b":3}'
    adapter: Any = TypeAdapter(kind)
    with using(native):
        read = cast(Callable[[bytes], Any], reader_of(adapter.core_schema, decline))
    made = [read(data) for _ in range(6)]
    want = adapter.validate_json(data)
    assert all(each == want and shown(each) == shown(want) for each in made)
    assert all(shown(copy.deepcopy(each)) == shown(pickle.loads(pickle.dumps(each))) == shown(want) for each in made)
    if kind is Sometimes:
        return
    name = next(iter(vars(want)))
    made[0].__dict__[name] = object()
    del made[1].__dict__[name]
    delattr(made[2], name)
    made[3].__dict__["of this one only"] = True
    assert not hasattr(made[2], "of this one only")
    assert all(name not in vars(each) for each in made[1:3])
    assert shown(made[4]) == shown(made[5]) == shown(read(data)) == shown(want)


def test_a_class_that_changes_is_read(native: ModelsInC) -> None:
    @dataclass
    class Changing:
        number: int
        text: str

    data = b'{"number":1,"text":"a"}'
    with using(native):
        read = cast(Callable[[bytes], Any], reader_of(TypeAdapter(Changing).core_schema, decline))
    for at in range(60):
        made = read(data)
        assert vars(made) == {"number": 1, "text": "a"}
        setattr(made, f"of_one_{at}", at)
        delattr(made, "text")
        made.text = "b"
        assert list(vars(made)) == ["number", f"of_one_{at}", "text"]


def test_more_fields_than_objects_share_are_read(native: ModelsInC) -> None:
    kind = make_dataclass("Wide", [(f"field_{at}", int) for at in range(60)])
    data = json.dumps({f"field_{at}": at * 1000 for at in range(60)}).encode()
    beside = Beside(native, kind)
    beside.check(data, data, data)
    assert beside.declined == 0


def test_nothing_is_left_behind(native: ModelsInC) -> None:
    kept = [Place, Part, Slotted, Whole, Order]
    data = [
        b'{"number":1,"weight":1.5,"slotted":{"text":"a","part":{"number":2}},"place":{"city":"b","zip":3},"x":[{}]}',
        b'{"place":{"zip":3,"city":"b"},"number":1}',
        b'{"number":1,"place":{"zip":3,"city":5}}',
        b'{"number":1,"slotted":{"text":"a","part":{"number":2},"parts":[{"number":1},{"number":"x"}]}}',
    ]

    def work() -> None:
        with using(native):
            read = reader_of(TypeAdapter(Whole).core_schema, lambda data: None)
        for _ in range(200):
            for each in data:
                read(each)

    def told() -> tuple[int, ...]:
        gc.collect()
        return sys.getallocatedblocks(), len(gc.get_objects()), *map(sys.getrefcount, kept)

    work()
    before = told()
    work()
    grown = [after - earlier for earlier, after in zip(before, told(), strict=True)]
    assert max(grown[1:]) <= 5
    assert grown[0] < 200
