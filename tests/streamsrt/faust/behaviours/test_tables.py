"""Tables: rows, keys, values, and who may change them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.streamsrt.faust.apps import an_app, counting
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from tests.streamsrt.faust.behaviours.hearing import heard  # noqa: E402


class Place(faust.Record):
    """A key, or a value."""

    town: str
    number: int


def test_a_row_that_is_not_there_has_the_default_or_is_an_error() -> None:
    app = an_app()
    counts, plain = app.Table("counts", default=int), app.Table("plain")

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            seen.append((counts[value], value in counts, len(counts)))
            with pytest.raises(KeyError, match=value):
                seen.append(plain[value])
            with pytest.raises(KeyError, match=value):
                del plain[value]
            seen.append((plain.get(value), plain.get(value, 3), plain.pop(value, 4)))

    assert heard(work, "a", app=app) == [(0, False, 0), (None, 3, 4)], "a default is no row"


def test_rows_are_set_read_deleted_and_cleared() -> None:
    app = an_app()
    table = app.Table("rows")

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            table[value] = {"number": 1}
            seen.append((value in table, table[value], len(table), list(table)))
            del table[value]
            seen.append((value in table, len(table)))
            table.update(a=1, b=2)
            table.clear()
            seen.append(list(table.items()))

    assert heard(work, "a", app=app) == [(True, {"number": 1}, 1, ["a"]), (False, 0), []]


@pytest.mark.parametrize(
    ("key", "options", "raw"),
    [
        (("a", 1), {}, b'["a",1]'),
        (("a", ("b", 2)), {}, b'["a",["b",2]]'),
        (7, {"key_type": int}, b"7"),
        (b"\xff", {"key_type": bytes}, b"\xff"),
        ("a", {"key_type": str}, b'"a"'),
        (Place("x", 1), {"key_type": Place}, None),
    ],
    ids=["tuple", "nested", "int", "bytes", "str", "model"],
)
def test_keys_of_any_type_are_there_after_a_restart(key: Any, options: Any, raw: bytes | None) -> None:
    app = an_app()
    table = app.Table("rows", **options)

    @app.agent(app.topic("in"))
    async def keep(stream: Any) -> None:
        async for value in stream:
            table[key] = value

    with TestApp(app) as test:
        test.send("in", value=7)
        test.driver.restart()
        assert test.table("rows") == {key: 7}
        (log,) = [each for each in test.driver.producer_history if each.topic == "shop-rows-changelog"]
    assert raw in (None, log.key)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (Place("x", 1), {"value_type": Place}),
        (Place("x", 1), {}),
        ({"a": [1, None]}, {}),
        ("text", {"value_type": str}),
        (3.5, {"value_type": float}),
    ],
    ids=["model", "any model", "data", "str", "float"],
)
def test_values_of_any_type_are_there_after_a_restart(value: Any, options: Any) -> None:
    app = an_app()
    table = app.Table("rows", **options)

    @app.agent(app.topic("in"))
    async def keep(stream: Any) -> None:
        async for _ in stream:
            table["a"] = value

    with TestApp(app) as test:
        test.send("in", value=1)
        test.driver.restart()
        assert test.table("rows") == {"a": value}


def test_a_value_that_is_changed_in_place_is_kept_when_it_is_set_again() -> None:
    app = an_app()
    lists = app.Table("lists", default=list)

    @app.agent(app.topic("in"))
    async def gather(stream: Any) -> None:
        async for value in stream:
            row = lists["a"]
            row.append(value)
            lists["a"] = row

    with TestApp(app) as test:
        for number in range(3):
            test.send("in", value=number)
        test.driver.restart()
        assert test.table("lists") == {"a": [0, 1, 2]}


def test_tables_are_changed_by_agents_only() -> None:
    app = an_app()
    totals = counting(app)
    with pytest.raises(TypeError, match="outside"):
        totals["a"] = 1
    told: list[str] = []

    @app.timer(1.0)
    async def change() -> None:
        try:
            totals["a"] = 1
        except Exception as error:
            told.append(str(error))
            raise

    with TestApp(app) as test:
        test.send("orders", value="tea")
        with pytest.raises(Exception, match="only agents change tables"):
            test.driver.advance_wall_clock_time(1500)
    assert told


def test_a_table_is_drawn_for_a_terminal() -> None:
    app = an_app()
    table = app.Table("rows", default=int)

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            table[value] += 1
            seen.append(table.as_ansitable(title="Rows", key="item", value="count"))

    (drawn,) = heard(work, "tea", app=app)
    assert "Rows" in drawn
    assert "tea" in drawn


def test_tables_have_names_a_changelog_and_a_hash() -> None:
    app = an_app()
    table = app.Table("rows", default=int)
    assert (table.changelog_topic_name, table.label.split("@")[0]) == ("shop-rows-changelog", "Table: rows")
    assert hash(table) == hash(table)
    assert app.tables["rows"] is table
    assert table.clone(name="more").name == "more"
    with pytest.raises(ValueError, match="rows"):
        app.Table("rows")


def test_what_is_restored_is_told_before_the_first_record() -> None:
    app, seen = an_app(), []
    table = app.Table("rows", default=int)

    @table.on_recover
    async def recovered() -> None:
        seen.append(dict(table.items()))

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for value in stream:
            seen.append(value)
            table[value] += 1

    with TestApp(app) as test:
        test.send("in", value="a")
        test.driver.restart()
        test.send("in", value="b")
    assert seen == [{}, "a", {"a": 1}, "b"]


def test_one_agent_changes_several_tables_in_one_commit() -> None:
    app = an_app()
    counts, last = app.Table("counts", default=int), app.Table("last")

    @app.agent(app.topic("in", key_type=str))
    async def work(stream: Any) -> None:
        async for key, value in stream.items():
            counts[key] += 1
            last[key] = value
            if value == 3:
                raise ValueError("no luck")

    with TestApp(app) as test:
        for value in (1, 2, 3):
            test.send("in", key="k", value=value)
        assert (test.table("counts"), test.table("last")) == ({"k": 3}, {"k": 3}), "what was written before stays"


def test_extra_settings_of_the_changelog_are_kept() -> None:
    app = an_app()
    app.Table("rows", extra_topic_configs={"min.compaction.lag.ms": 1000})

    @app.agent(app.topic("in"))
    async def quiet(stream: Any) -> None:
        async for _ in stream:
            pass

    from streamsrt.faust.tables import store_of

    store: Any = store_of(app.tables["rows"])
    assert store.changelog_config == {"min.compaction.lag.ms": "1000"}


def test_json_is_as_faust_writes_it() -> None:
    app = an_app()
    table = app.Table("rows")

    @app.agent(app.topic("in"))
    async def keep(stream: Any) -> None:
        async for value in stream:
            table["a"] = Place("x", value)

    with TestApp(app) as test:
        test.send("in", value=1)
        (log,) = [each for each in test.driver.producer_history if each.topic == "shop-rows-changelog"]
    assert log.key == b'"a"'
    assert orjson.loads(log.value or b"") == {"town": "x", "number": 1, "__faust": {"ns": Place._options.namespace}}
