"""What a member tells of the settings of its stores: all of it, in few bytes, and nothing that was not told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.membership.state_marks import MOST_STORES, marks_of, name_mark
from streamsrt.membership.state_settings import MOST_UPCASTS, settings_text, state_tags, told_state
from streamsrt.wire.client_tags import STORE_MARKS, STORE_SETTINGS
from topology import Store, StreamsBuilder, TimeWindows, Upcast, serdes
from topology.graph.misread import Kept, KeptSettings, kept_by
from topology.graph.origins import Origin
from topology.graph.outline import outline

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
TIMES = st.none() | st.integers(0, 2**62)
FORMAT = {
    "kind": "key-value",
    "key_serde": "string",
    "value_serde": "long",
    "timestamped": True,
    "plain_rows": False,
    "window_size_ms": None,
    "retain_duplicates": False,
}


def kept(settings: KeptSettings | None, upcasts: dict[int, str | None]) -> Kept[Origin]:
    return Kept(is_generated=False, origin=None, format=FORMAT, version=20, upcasts=upcasts, settings=settings)


SETTINGS = st.builds(
    KeptSettings,
    persistent=st.booleans(),
    retention_ms=TIMES,
    segment_interval_ms=TIMES,
    ttl_ms=TIMES,
    advance_ms=TIMES,
)


@given(
    found=st.dictionaries(
        st.text(max_size=5),
        st.tuples(
            SETTINGS, st.dictionaries(st.integers(1, 30), st.none() | st.text(max_size=3), max_size=MOST_UPCASTS)
        ),
        max_size=5,
    )
)
def test_it_is_read_as_it_was_told(found: dict[str, tuple[KeptSettings, dict[int, str | None]]]) -> None:
    stores = {name: kept(*each) for name, each in found.items()}
    assert told_state(state_tags(stores)) == marks_of(stores)


def test_a_store_of_a_program() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", **TEXT).group_by_key()
    words.windowed_by(TimeWindows(60_000, 20_000, grace=0)).count(store="hops")
    words.reduce(
        max, store=Store("last", ttl=timedelta(hours=1), version=2, upcast={1: Upcast(str, serde=serdes.long)})
    )
    told = told_state(state_tags(kept_by(outline(builder.build()))))
    hops, last = told[name_mark("hops")], told[name_mark("last")]
    assert hops.settings is not None
    assert (hops.settings.advance_ms, hops.windows) == (20_000, "fixed")
    assert last.settings is not None
    assert (last.settings.ttl_ms, last.settings.retention_ms) == (3_600_000, None)
    assert list(last.upcasts) == [1]


@pytest.mark.parametrize("text", ["", "ä", "1*", "1abc", "2AAAAAAAAAA", "1" + "_" * 9])
def test_another_tag_says_nothing(text: str) -> None:
    tags = state_tags({"a": kept(KeptSettings(persistent=True), {})})
    (mark,) = told_state({**tags, STORE_SETTINGS: text}).values()
    assert (mark.settings, mark.upcasts) == (None, {})
    assert told_state({STORE_SETTINGS: tags[STORE_SETTINGS]}) == {}, "settings of what has no mark"


def test_it_is_bounded() -> None:
    upcasts: dict[int, str | None] = {version: f"serde {version}" for version in range(1, 20)}
    settings = KeptSettings(persistent=True, retention_ms=10**10, segment_interval_ms=10**9, ttl_ms=10**9)
    stores = {f"{number:03}": kept(settings, upcasts) for number in range(MOST_STORES + 10)}
    tags = state_tags(stores)
    told = told_state(tags)
    assert told.keys() == told_state({STORE_MARKS: tags[STORE_MARKS]}).keys()
    assert len(told) == MOST_STORES
    assert list(told[name_mark("000")].upcasts) == list(range(19, 19 - MOST_UPCASTS, -1)), "the latest ones"
    assert len(settings_text(stores)) <= MOST_STORES * 75
    usual = {name: kept(settings, {}) for name in stores}
    assert len(settings_text(usual)) <= MOST_STORES * 32
    assert len(settings_text({name: kept(KeptSettings(persistent=True), {}) for name in stores})) <= MOST_STORES * 10
