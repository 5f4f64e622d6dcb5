"""JSON as the standard library or orjson writes it: chosen by the environment, and keys in the other form are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

from faust.serializers.codecs import get_codec  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.json_form import OTHER_KEYS_VARIABLE, VARIABLE, use_form  # noqa: E402

STANDARD_KEY, ORJSON_KEY = rb'"caf\u00e9"', '"café"'.encode()
CHANGELOG = "shop-totals-changelog"


@pytest.fixture(autouse=True)
def a_form(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(OTHER_KEYS_VARIABLE, raising=False)
    yield
    monkeypatch.undo()
    use_form()


def an_app_that_counts() -> Any:
    app = an_app()
    totals = app.Table("totals", default=int)

    @app.agent(app.topic("orders", value_type=str))
    async def count(orders: Any) -> None:
        async for order in orders:
            totals[order] += 1

    return app


def test_keys_have_the_form_of_faust_without_orjson() -> None:
    with TestApp(an_app_that_counts()) as test:
        test.send("orders", value="café")
        keys = [each.key for each in test.driver.producer_history if each.topic == CHANGELOG]
    assert keys == [STANDARD_KEY]


def test_keys_have_the_form_of_orjson_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "orjson")
    with TestApp(an_app_that_counts()) as test:
        test.send("orders", value="café")
        keys = [each.key for each in test.driver.producer_history if each.topic == CHANGELOG]
    assert keys == [ORJSON_KEY]


@pytest.mark.parametrize(("form", "own"), [("json", STANDARD_KEY), ("orjson", ORJSON_KEY)])
def test_rows_in_the_own_form_are_restored(monkeypatch: pytest.MonkeyPatch, form: str, own: bytes) -> None:
    monkeypatch.setenv(VARIABLE, form)
    with TestApp(an_app_that_counts()) as test:
        test.driver._produced.add(CHANGELOG, [own], [b"41"], [0], None, 0)
        test.driver.restart()
        test.send("orders", value="café")
        assert test.table("totals") == {"café": 42}


@pytest.mark.parametrize(("form", "other"), [("json", ORJSON_KEY), ("orjson", STANDARD_KEY)])
def test_rows_in_the_other_form_are_refused(monkeypatch: pytest.MonkeyPatch, form: str, other: bytes) -> None:
    monkeypatch.setenv(VARIABLE, form)
    wanted = "json" if form == "orjson" else "orjson"
    with TestApp(an_app_that_counts()) as test:
        test.driver._produced.add(CHANGELOG, [b'"tea"', other], [b"1", b"41"], [0, 0], None, 0)
        with pytest.raises((UserError, ProcessingError), match=rf"{VARIABLE}={wanted}.*{OTHER_KEYS_VARIABLE}=ignore"):
            test.driver.restart()


def test_rows_in_the_other_form_can_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OTHER_KEYS_VARIABLE, "ignore")
    with TestApp(an_app_that_counts()) as test:
        test.driver._produced.add(CHANGELOG, [ORJSON_KEY], [b"41"], [0], None, 0)
        test.driver.restart()
        test.send("orders", value="café")
        keys = [each.key for each in test.driver.producer_history if each.topic == CHANGELOG]
    assert keys[-1] == STANDARD_KEY


def test_keys_that_both_write_alike_are_nobodys() -> None:
    """Among them control characters, what looks like an escape, deleted rows, and keys that are bytes."""
    alike = [json.dumps(each).encode() for each in ("tea", "a\nb\x01", "\\u00e9")]
    with TestApp(an_app_that_counts()) as test:
        test.driver._produced.add(CHANGELOG, alike, [b"1"] * len(alike), [0] * len(alike), None, 0)
        test.driver._produced.add(CHANGELOG, [ORJSON_KEY, b"\xff\x00"], [None, b"1"], [0, 0], None, 0)
        test.driver.restart()
        test.send("orders", value="tea")
        assert test.table("totals")["tea"] == 2


def test_windows_in_the_other_form_are_refused() -> None:
    app = an_app()
    totals = app.Table("totals", default=int).tumbling(10.0, expires=100.0)

    @app.agent(app.topic("orders", value_type=str))
    async def count(orders: Any) -> None:
        async for order in orders:
            totals[order] += 1

    with TestApp(app) as test:
        test.driver._produced.add(CHANGELOG, ['["café",[0.0,9.9]]'.encode()], [b"41"], [0], None, 0)
        with pytest.raises((UserError, ProcessingError), match=f"{VARIABLE}=orjson"):
            test.driver.restart()


def test_sets_in_the_other_form_are_refused() -> None:
    app = an_app()
    seen = app.SetTable("totals")

    @app.agent(app.topic("orders", value_type=str))
    async def count(orders: Any) -> None:
        async for order in orders:
            seen[order].add(order)

    with TestApp(app) as test:
        test.driver._produced.add(CHANGELOG, ['[15.0,"café"]'.encode()], [b'[["a"],[]]'], [0], None, 0)
        with pytest.raises((UserError, ProcessingError), match=f"{VARIABLE}=orjson"):
            test.driver.restart()


def test_a_form_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "simplejson")
    with pytest.raises(UserError, match=f"{VARIABLE} is 'simplejson': it can be json or orjson"):
        use_form()


VALUES = """
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

class Size(Enum):
    LARGE = "l"

VALUES = [
    {"text": "\\u00e9\\u2028\\x7f", "number": 1e16, "huge": 2**70, "none": None, "flags": [True, False]},
    {"at": datetime(2024, 1, 2, 3, 4, 5, 678, UTC), "day": date(2024, 1, 2), "id": UUID(int=7), "sum": Decimal("1.50")},
    {"size": Size.LARGE, "set": {1}, "tuple": (1, "a")},
    float("inf"),
]
"""
WITHOUT_ORJSON = f"""
import sys
sys.modules["orjson"] = None
from faust.serializers.codecs import get_codec
{VALUES}
sys.stdout.write(repr([get_codec("json").dumps(each) for each in VALUES]))
"""


def test_the_standard_form_is_that_of_faust_without_orjson() -> None:
    use_form()
    made: dict[str, Any] = {}
    exec(VALUES, made)
    ours = [get_codec("json").dumps(each) for each in made["VALUES"]]
    theirs = subprocess.run([sys.executable, "-c", WITHOUT_ORJSON], capture_output=True, text=True, check=True)
    assert repr(ours) == theirs.stdout
    assert get_codec("json").loads(ours[0])["huge"] == 2**70
