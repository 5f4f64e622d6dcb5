"""Repartition topics that go away while records come all the time: what is in flight in them is read, and counted once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamsrt.assignment import handover
from tests.upgrades.judging import WrongPairError, roll
from tests.upgrades.pairs import Pair
from tests.upgrades.programs import Part, Program, Via
from tests.upgrades.rolling import CLASSIC, SETTINGS, Plan

UNDER_LOAD = Plan(instances=3, fails_at=None, kills=1, is_sent_back=False, load_s=40.0, records=300)


def counted(name: str) -> Part:
    """A table by another key."""
    return Part(label="p", topics=("a",), store="kept", via=Via(name))


BESIDE = Part(label="q", topics=("b",), store="beside")
PAIRS = {
    "a repartition": Pair(1, Program(parts=(counted("by-x"),)), Program(parts=(counted("by-y"),)), ()),
    "a circle that gets another name": Pair(
        2, Program(parts=(BESIDE,), circle="circle"), Program(parts=(BESIDE,), circle="ring"), ()
    ),
    "a circle that goes": Pair(3, Program(parts=(BESIDE,), circle="circle"), Program(parts=(BESIDE,)), ()),
}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(pytest.param(name, SETTINGS, id=f"{name}-streams") for name in PAIRS),
        pytest.param("a repartition", CLASSIC, id="a repartition-classic"),
        *(
            pytest.param(name, CLASSIC, id=f"{name}-classic", marks=pytest.mark.full)
            for name in PAIRS
            if "circle" in name
        ),
    ],
)
def test_under_constant_load_nothing_in_flight_is_lost(name: str, settings: Mapping[str, Any]) -> None:
    assert roll(PAIRS[name], UNDER_LOAD, settings=settings) == "upgraded"


def test_without_draining_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last old instance, which alone could read it, waits for ever."""
    monkeypatch.setattr(handover, "draining", lambda *_: {})
    with pytest.raises(WrongPairError, match="the last instance of the old version may go"):
        roll(PAIRS["a repartition"], UNDER_LOAD)
