"""Equal keys are one row, whatever bytes they came in, and however the program runs."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from streamsrt import TopologyTestDriver
from streamsrt.operators.engine.canonical_keys import CanonicalKeys
from topology import FixedKeyProcessor, ProcessorContext, Record, StreamsBuilder, TimeWindows, Topology, serdes
from topology.spec import codecs
from topology.spec.codecs import CallableSerde

TEXT, LONG = serdes.string, serdes.long
ID = UUID("12345678-1234-5678-1234-56781234567a")


class Place(BaseModel):
    """A key of two fields."""

    row: int
    seat: str


class AsTheyAre(FixedKeyProcessor[Any, str, str]):
    """Forwards every record."""

    def init(self, context: ProcessorContext[Any, str]) -> None:
        self._forward = context.forward

    def process(self, record: Record[Any, str]) -> None:
        self._forward(record)


def read_or_none(data: bytes) -> str | None:
    return data.decode().lower() or None


ANY_CASE = CallableSerde("any case", lambda value: value.encode(), read_or_none)
KEYS: dict[str, tuple[Any, object, tuple[bytes, ...]]] = {
    "json": (serdes.json, {"a": 1}, (b'{"a":1}', json.dumps({"a": 1}).encode(), b' {"a":1}')),
    "uuid": (serdes.uuid, ID, (str(ID).encode(), str(ID).upper().encode(), ID.hex.encode())),
    "model": (
        serdes.json(Place),
        Place(row=1, seat="b"),
        (b'{"row":1,"seat":"b"}', b'{"seat": "b", "row": 1}', b'{"row":1,"seat":"b","class":2}'),
    ),
    "own serde": (ANY_CASE, "k", (b"k", b"K")),
}
EXACT = [serde for serde in codecs._BY_NAME.values() if codecs.has_one_form(serde)]


def counted(serde: Any, *, window: bool = False) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", key=serde, value=TEXT)
    records.to("copy", key=serde, value=TEXT)
    groups = records.group_by_key()
    table: Any = groups.windowed_by(TimeWindows(100)) if window else groups
    table.count(store="counts")
    return builder.build()


def joined(serde: Any) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", key=serde, value=TEXT)
    records = builder.stream("in", key=serde, value=TEXT)
    records.join(table, lambda value, row: value + row).to("out", key=serde, value=TEXT)
    return builder.build()


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("name", KEYS)
def test_equal_keys_are_one_row(name: str, generate: bool) -> None:
    serde, key, forms = KEYS[name]
    with TopologyTestDriver(counted(serde), generate=generate) as driver:
        for number, raw in enumerate(forms):
            driver.pipe_raw("in", raw, b"v", number)
        store: Any = driver.get_key_value_store("counts")
        assert (store.get(key), list(store.all())) == (len(forms), [(key, len(forms))])
        assert {record.key for record in driver.output_queue("copy")} == {forms[0]}
    with TopologyTestDriver(counted(serde, window=True), generate=generate) as driver:
        for number, raw in enumerate(forms):
            driver.pipe_raw("in", raw, b"v", number)
        windows: Any = driver.get_window_store("counts")
        assert windows.fetch(key, 0) == len(forms)


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("name", KEYS)
def test_rows_are_found_by_other_bytes_of_their_keys(name: str, generate: bool) -> None:
    serde, _, forms = KEYS[name]
    with TopologyTestDriver(joined(serde), generate=generate) as driver:
        driver.pipe_raw("table", forms[1], b"row", 0)
        for number, raw in enumerate(forms):
            driver.pipe_raw("in", raw, b"v", number)
        assert [record.value for record in driver.output_queue("out")] == [b"vrow"] * len(forms)


@pytest.mark.parametrize("name", KEYS)
def test_rows_stay_when_the_program_runs_the_other_way(name: str) -> None:
    serde, _, forms = KEYS[name]
    with TopologyTestDriver(counted(serde), generate=True) as driver:
        driver.pipe_raw("in", forms[1], b"v", 0)
        driver.restart(topology=counted_beside_a_processor(serde))
        driver.pipe_raw("in", forms[1], b"v", 1)
        assert [count for _, count in driver.get_key_value_store("counts").all()] == [2]


def counted_beside_a_processor(serde: Any) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", key=serde, value=TEXT)
    records.to("copy", key=serde, value=TEXT)
    records.group_by_key().count(store="counts")
    records.process_values(AsTheyAre).to("other", key=serde, value=TEXT)
    return builder.build()


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize(("serde", "raw"), [(serdes.json, b"null"), (ANY_CASE, b"")], ids=["json", "own serde"])
def test_bytes_that_are_read_as_none_are_no_key(serde: Any, raw: bytes, generate: bool) -> None:
    with TopologyTestDriver(counted(serde), generate=generate) as driver:
        driver.pipe_raw("in", raw, b"v", 0)
        assert list(driver.get_key_value_store("counts").all()) == []
        assert [record.key for record in driver.output_queue("copy")] == [None]


@given(st.binary(max_size=12), st.sampled_from(EXACT))
def test_some_serdes_have_one_form_of_each_value(data: bytes, serde: Any) -> None:
    try:
        value = serde.deserialize(data)
    except Exception:  # noqa: BLE001  # whatever it raises, it has read nothing
        return
    assert value is not None
    assert value != value or serde.serialize(value) == data  # NaN has many


def test_which_serdes_have_one_form() -> None:
    names = {serde.name for serde in EXACT}
    assert names == {"string", "bytes", "short", "integer", "long", "float", "double", "boolean", "void"}
    assert codecs.has_one_form(serdes.time_windowed(serdes.long, 5))
    assert not codecs.has_one_form(serdes.session_windowed(serdes.uuid))


def test_only_so_many_keys_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsrt.operators.engine.canonical_keys._REMEMBERED", 3)
    keys = CanonicalKeys(serdes.json)
    for number in range(10):
        assert keys[f" {number}".encode()] == f"{number}".encode()
        assert len(keys) <= 3
    assert keys[None] is None
