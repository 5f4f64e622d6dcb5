"""An outline stands for a release without its code."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from topology import Store, StreamsBuilder, TimeWindows, Topology, serdes
from topology.graph.nodes import StoreSpec
from topology.graph.outline import StoreOutline, TopologyOutline, outline


def program(epoch: int = 3) -> Topology:
    builder = StreamsBuilder()
    names = builder.table("names", key=serdes.string, value=serdes.string, store="names")
    (
        builder.stream("visits", key=serdes.string, value=serdes.json)
        .group_by(lambda _key, value: value["page"], key=serdes.string, value=serdes.json, name="by-page")
        .windowed_by(TimeWindows(timedelta(minutes=5), grace=timedelta(minutes=1)))
        .count(store="visits-per-page")
    )
    builder.stream("orders", key=serdes.string, value=serdes.string).join(names, lambda order, _name: order).to("out")
    builder.stream("plain", key=serdes.string, value=serdes.string).group_by_key().count(
        store=Store("unlogged", logging=False, in_memory=True)
    )
    return builder.build(epoch=epoch)


def test_it_comes_back_from_json_as_it_was() -> None:
    made = outline(program())
    assert TopologyOutline.from_json(json.loads(json.dumps(made.to_json()))) == made


NOT_COMPARED = {
    "bare_values": "ttl_ms tells it",
    "caching": "rows are the same",
    "changelog_configs": "of these the outline has changelog_retention_ms",
    "default_persistence": "the application's setting, which persistent has",
    "keeps_headers": "rows without headers are read as well",
    "logging": "changelog tells it",
    "site": "where the program says it",
    "source_topic": "changelog tells it",
    "supplier": "the store is restored from its changelog",
}


def test_every_option_of_a_store_is_in_the_outline_or_does_not_change_its_rows() -> None:
    """``topology diff``, ``lock`` and ``upgrade plan`` see of a store what its outline has."""
    options = {each.name for each in fields(StoreSpec)} - {each.name for each in fields(StoreOutline)}
    assert options == set(NOT_COMPARED), "give StoreOutline a field for the option, or say here why not"


def test_two_builds_give_one_outline() -> None:
    assert outline(program()) == outline(program())


def test_it_says_what_matters_to_the_state() -> None:
    topology = program()
    made = outline(topology)
    assert (made.epoch, made.digest) == (3, topology.digest)
    assert made.repartition_topics == {"by-page-repartition": None}
    stores = {store.name: store for store in made.stores}
    assert list(stores) == ["names", "unlogged", "visits-per-page"]
    windowed = stores["visits-per-page"]
    assert (windowed.kind, windowed.key_serde, windowed.changelog) == ("window", "string", "visits-per-page-changelog")
    assert windowed.window_size_ms == 300_000
    assert (stores["unlogged"].changelog, stores["unlogged"].persistent) == (None, False)
    parts = {part.id: part for part in made.subtopologies}
    assert [part.number for part in made.subtopologies] == list(range(len(parts)))
    assert {part.id: part.digest for part in topology.subtopologies} == {
        part.id: part.digest for part in parts.values()
    }
    (counting,) = (part for part in made.subtopologies if part.repartition_source_topics)
    assert counting.stores == ("visits-per-page",)
    assert counting.repartition_source_topics == ("by-page-repartition",)


def without(key: str) -> dict[str, Any]:
    value = outline(program()).to_json()
    del value[key]
    return value


def with_a_broken_store() -> dict[str, Any]:
    value = outline(program()).to_json()
    del value["stores"][0]["kind"]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"format": 99},
        {"format": 1},
        without("format"),
        without("digest"),
        without("stores"),
        with_a_broken_store(),
        {**outline(program()).to_json(), "subtopologies": [1]},
        {**outline(program()).to_json(), "repartition_topics": "ab"},
        *({**outline(program()).to_json(), "epoch": epoch} for epoch in ("1", None, 1.0, True, -1)),
    ],
)
def test_what_is_no_outline_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not the outline of a topology"):
        TopologyOutline.from_json(value)
