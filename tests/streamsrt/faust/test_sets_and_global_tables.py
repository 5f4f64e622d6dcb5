"""Tables of sets, and tables whose rows every process has."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streamsrt.errors import ProcessingError, UserError
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.tables import GlobalRows  # noqa: E402


def visits(app: faust.App, change: Any) -> Any:
    """A table of sets, whose set of the record's key is changed by its value."""
    seen = app.SetTable("seen")

    @app.agent(app.topic("visits", key_type=str, value_serializer="json"))
    async def visit(stream: Any) -> None:
        async for key, value in stream.items():
            change(seen, key, value)

    return seen


def test_sets_grow_shrink_and_are_restored() -> None:
    app = an_app()
    told: list[Any] = []

    def change(seen: Any, key: str, value: Any) -> None:
        action, *members = value
        told.append((key in seen, len(seen[key]), sorted(seen)))
        if action in ("add", "discard"):
            getattr(seen[key], action)(members[0])
        else:
            getattr(seen[key], action)(set(members))

    visits(app, change)
    with TestApp(app) as test:
        for value in (["add", 1], ["add", 2], ["add", 2], ["update", 3, 4], ["discard", 1]):
            test.send("visits", key="a", value=value)
        test.send("visits", key="b", value=["add", 9])
        test.driver.restart()
        test.send("visits", key="a", value=["difference_update", 4])
        test.send("visits", key="b", value=["intersection_update", 7])
        test.driver.restart()
        assert test.table("seen") == {"a": {2, 3}, "b": set()}
        log = [each for each in test.driver.producer_history if each.topic == "shop-seen-changelog"]
    assert told[0] == (False, 0, [])
    assert told[-1] == (True, 1, ["a", "b"])
    assert log[-1].key == b'[15.0,"b"]'
    assert log[-1].value == b"[[],[]]"


def test_faust_restores_the_sets_from_what_is_written_here() -> None:
    app = an_app()
    visits(app, lambda seen, key, value: seen[key].add(value))
    with TestApp(app) as test:
        for value in (1, 2):
            test.send("visits", key="a", value=value)
        test.driver.commit()
        log = [each for each in test.driver.producer_history if each.topic == "shop-seen-changelog"]
    other = an_app()
    theirs = other.SetTable("seen")
    for each in log:
        operation, key = orjson.loads(each.key or b"")
        theirs.data[key].apply_changelog_event(operation, orjson.loads(each.value or b""))
    assert set(theirs["a"]) == {1, 2}


FAUSTS = [
    (b'[1,"a"]', b"1"),
    (b'[1,"a"]', b"2"),
    (b'[15, "a"]', b"[[3,4],[1]]"),
    (b'[1,"b"]', b"9"),
    (b'[2,"a"]', b"4"),
    (b'[15,"b"]', b"[[],[9]]"),
]
"""A changelog as Faust writes it."""


def logged(test: TestApp, *entries: tuple[bytes, bytes]) -> None:
    for key, value in entries:
        test.driver._produced.add("shop-seen-changelog", [key], [value], [0], None, 0)


def test_changes_that_faust_has_written_are_taken_over() -> None:
    app = an_app()
    visits(app, lambda seen, key, value: seen[key].add(value))
    with TestApp(app) as test:
        logged(test, *FAUSTS)
        test.driver.restart()
        assert test.table("seen") == {"a": {2, 3}, "b": set()}
        test.send("visits", key="a", value=5)
        assert test.table("seen") == {"a": {2, 3, 5}, "b": set()}


def test_sets_that_are_taken_over_survive_the_compaction_of_their_changes() -> None:
    app = an_app()
    visits(app, lambda seen, key, value: seen[key].add(value))
    with TestApp(app) as test:
        logged(test, *FAUSTS)
        test.driver.restart()
        test.driver.advance_wall_clock_time(1_000)
        test.driver.commit()
        log = [each for each in test.driver.producer_history if each.topic == "shop-seen-changelog"]
        compacted = {each.key: each.value for each in log}
        assert {key for key in compacted if key and key.startswith(b"[15.0")} == {b'[15.0,"a"]', b'[15.0,"b"]'}
    other = an_app()
    visits(other, lambda seen, key, value: seen[key].add(value))
    with TestApp(other) as test:
        logged(test, *((key, value) for key, value in compacted.items() if key and value))
        test.driver.restart()
        assert test.table("seen") == {"a": {2, 3}, "b": set()}


def test_faust_may_run_again_between_two_runs_here() -> None:
    app = an_app()
    visits(app, lambda seen, key, value: seen[key].add(value))
    with TestApp(app) as test:
        test.send("visits", key="a", value=1)
        logged(test, (b'[1,"a"]', b"2"), (b'[2,"a"]', b"1"))
        test.driver.restart()
        assert test.table("seen") == {"a": {2}}


def test_windows_of_sets_that_faust_has_written_are_taken_over() -> None:
    app = an_app()
    seen = app.SetTable("seen").tumbling(10, expires=60)

    @app.agent(app.topic("visits", key_type=str, value_type=int))
    async def visit(stream: Any) -> None:
        async for key, value in stream.items():
            seen[key].add(value)

    with TestApp(app) as test:
        logged(test, (b'[1,["a",[0.0,9.9]]]', b"1"), (b'[1,["a",[0.0,9.9]]]', b"2"))
        test.driver.restart()
        assert test.table("seen") == {("a", (0.0, 9.9)): {1, 2}}
        test.driver.advance_wall_clock_time(75_000)
        assert test.table("seen") == {}


def test_a_change_that_cannot_be_read_stops_the_application() -> None:
    app = an_app()
    visits(app, lambda seen, key, value: seen[key].add(value))
    with TestApp(app) as test:
        logged(test, (b'[1,"a"]', b"{"))
        with pytest.raises((UserError, ProcessingError), match=r"a row of table seen.* can't be read"):
            test.driver.restart()


@pytest.mark.parametrize("key", [b'[1,"b"]', b'[2, "b"]', b'[15,"b"]'])
def test_a_table_of_all_partitions_refuses_what_faust_has_written(key: bytes) -> None:
    app = an_app()
    seen = app.SetGlobalTable("seen")

    @app.agent(app.topic("visits", key_type=str, value_serializer="json"))
    async def visit(stream: Any) -> None:
        async for key, value in stream.items():
            seen[key].add(value)

    with TestApp(app) as test:
        test.send("visits", key="a", value=1)
        logged(test, (key, b"5"))
        with pytest.raises(
            (UserError, ProcessingError), match="changelog shop-seen-changelog of table seen holds changes"
        ):
            test.driver.restart()


def test_sets_that_are_written_here_are_not_read_at_the_start() -> None:
    app = an_app()
    table = visits(app, lambda seen, key, value: seen[key].add(value))
    found: list[object] = []
    to_key = table._to_key

    def read(key: object) -> object:
        found.append(key)
        return to_key(key)

    table._to_key = read
    with TestApp(app) as test:
        for number in range(50):
            test.send("visits", key=f"k{number}", value=1)
        test.driver.restart()
        assert not found
        assert len(test.table("seen")) == len(found) == 50


def test_windows_of_sets_by_the_time_of_the_record() -> None:
    app = an_app()
    seen = app.SetTable("seen").tumbling(10, expires=60)

    @app.agent(app.topic("visits", key_type=str, value_type=int))
    async def visit(stream: Any) -> None:
        async for key, value in stream.items():
            seen[key].add(value)

    with TestApp(app) as test:
        for value, at in ((1, 1), (2, 2), (3, 11)):
            test.send("visits", key="a", value=value, timestamp=at)
        assert test.table("seen") == {("a", (0.0, 9.9)): {1, 2}, ("a", (10.0, 19.9)): {3}}
        test.driver.restart()
        test.driver.advance_wall_clock_time(75_000)
        assert test.table("seen") == {("a", (10.0, 19.9)): {3}}


def test_sets_are_changed_through_their_manager() -> None:
    app = an_app()
    seen = app.SetTable("seen", start_manager=True, key_type=str)

    @app.agent(app.topic("visits", key_type=str, value_type=int))
    async def visit(stream: Any) -> None:
        async for key, value in stream.items():
            if value:
                await seen.manager.add(key, value)
            else:
                await seen.manager.clear(key)

    with TestApp(app) as test:
        for key, value in (("a", 1), ("a", 2), ("b", 3), ("b", 0)):
            test.send("visits", key=key, value=value)
        test.driver.commit()
        assert test.table("seen") == {"a": {1, 2}, "b": set()}


def test_a_global_table_has_the_rows_of_all_partitions() -> None:
    app, seen = an_app(), []
    rates = app.GlobalTable("rates", default=int, key_type=str)

    @app.agent(app.topic("rates-in", key_type=str, value_type=int))
    async def learn(stream: Any) -> None:
        async for key, value in stream.items():
            rates[key] = value
            assert rates[key] == value, "its own changes are there at once"

    @app.agent(app.topic("orders", key_type=str))
    async def use(stream: Any) -> None:
        async for event in stream.events():
            key = event.key
            seen.append((key, rates[key], key in rates, sorted(rates.items()), len(rates)))

    @app.timer(10.0)
    async def tell() -> None:
        seen.append(sorted(rates.items()))

    with TestApp(app, partitions=2) as test:
        test.send("rates-in", key="a", value=1, partition=0)
        test.send("rates-in", key="b", value=2, partition=1)
        test.driver.commit()
        for partition in (0, 1):
            test.send("orders", key="a", partition=partition)
            test.send("orders", key="x", partition=partition)
        test.driver.advance_wall_clock_time(10_000)
    both = [("a", 1), ("b", 2)]
    assert seen == [("a", 1, True, both, 2), ("x", 0, False, both, 2)] * 2 + [both]


def test_a_deleted_row_of_a_global_table_does_not_come_back() -> None:
    """The changelog brings the deletion later, when it is committed."""
    app, seen = an_app(), []
    counts = app.GlobalTable("counts", default=int, key_type=str)

    @app.agent(app.topic("orders", key_type=str, value_type=int))
    async def count(stream: Any) -> None:
        async for key, number in stream.items():
            if number:
                counts[key] += number
            else:
                del counts[key]
                seen.append((key in counts, list(counts.items())))

    with TestApp(app) as test:
        test.send("orders", key="a", value=5)
        test.driver.commit()
        (task,) = test.driver._tasks
        task.add_batch("orders", 0, RecordColumns([b"a"] * 3, [b"0", b"1", b"0"], [0] * 3, 1, 3))
        task.process(100, 0, finishes=False)
        test.send("orders", key="a", value=2)
        test.driver.commit()
        assert test.table("counts") == {"a": 2}
    assert seen == [(False, [])] * 2


def test_deletions_that_have_come_back_are_forgotten() -> None:
    shared = dict.fromkeys(range(10_000), 1)

    class Kept:
        def __init__(self, rows: dict[Any, Any]) -> None:
            self.rows = rows

        def get(self, key: object, /) -> object:
            return self.rows.get(key)

        def put(self, key: object, value: object, /) -> None: ...

        def all(self) -> Any:
            return iter(self.rows.items())

        def approximate_num_entries(self) -> int:
            return len(self.rows)

    rows = GlobalRows(Kept({}), Kept(shared))
    for key in range(10_000):
        rows.put(key, None)
        assert rows.get(key) is None
        del shared[key]
    assert len(rows._deleted) < 2_000


def test_several_sets_have_a_manager() -> None:
    """Faust gives their agents one name, and forgets all but the last."""
    app = an_app()
    seen, known = (app.SetTable(name, start_manager=True, key_type=str) for name in ("seen", "known"))

    @app.agent(app.topic("orders", value_type=str))
    async def change(orders: Any) -> None:
        async for order in orders:
            await seen.manager.add("all", order)
            await known.manager.add("all", order.upper())

    with TestApp(app) as test:
        test.send("orders", value="tea")
        test.driver.commit()
        assert test.table("seen") == {"all": {"tea"}}
        assert test.table("known") == {"all": {"TEA"}}
