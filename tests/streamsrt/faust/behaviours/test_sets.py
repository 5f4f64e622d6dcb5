"""Tables of sets: what a set does, their manager, their windows, and those of all partitions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.tables.sets import SetAction, SetManagerOperation  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.program import declared_changelogs  # noqa: E402
from tests.streamsrt.faust.behaviours.hearing import heard  # noqa: E402


class Member(faust.Record):
    """What is in a set."""

    name: str


def test_a_set_does_what_sets_do() -> None:
    app = an_app()
    table = app.SetTable("sets")

    async def work(stream: Any, seen: list[Any]) -> None:
        async for _ in stream:
            row = table["k"]
            row.add(1)
            row.update({2, 3, 4})
            row.discard(9)
            row.discard(4)
            row |= {5, 6}
            row -= {6}
            row &= {1, 2, 5, 7}
            row ^= {5, 8}
            seen.append((sorted(table["k"]), 2 in table["k"], len(table["k"]), row == {1, 2, 8}, sorted(row | {0})))
            row.symmetric_difference_update({1, 9})
            row.intersection_update({2, 9})
            row.difference_update({9})
            seen.append((sorted(table["k"]), row.pop(), sorted(table["k"])))
            row.add(1)
            row.clear()
            seen.append(("k" in table, sorted(table["k"]), sorted(table["other"])))

    assert heard(work, 1, app=app) == [
        ([1, 2, 8], True, 3, True, [0, 1, 2, 8]),
        ([2], 2, []),
        (True, [], []),
    ]


def test_a_set_is_neither_set_nor_deleted_as_a_whole() -> None:
    app = an_app()
    table = app.SetTable("sets")

    async def work(stream: Any, seen: list[Any]) -> None:
        async for _ in stream:
            with pytest.raises(TypeError):
                table["k"] = {1}
            with pytest.raises(TypeError):
                del table["k"]
            seen.append(sorted(table))

    assert heard(work, 1, app=app) == [[]]


def test_members_may_be_models() -> None:
    app = an_app()
    table = app.SetTable("sets", value_type=Member)

    @app.agent(app.topic("in"))
    async def keep(stream: Any) -> None:
        async for value in stream:
            table["k"].add(Member(value))

    with TestApp(app) as test:
        test.send("in", value="a")
        test.driver.restart()
        test.send("in", value="b")
        assert test.table("sets") == {"k": {Member("a"), Member("b")}}


def test_every_operation_of_the_manager() -> None:
    app = an_app()
    table = app.SetTable("sets", start_manager=True, key_type=str)

    @app.agent(app.topic("in"))
    async def change(stream: Any) -> None:
        async for name, *members in stream:
            await getattr(table.manager, name)("k", *members)

    with TestApp(app) as test:

        def after(name: str, *members: Any) -> Any:
            test.send("in", value=[name, *members])
            test.driver.commit()
            return sorted(test.table("sets")["k"])

        assert after("add", 1) == [1]
        for number in (2, 3, 4):
            after("add", number)
        assert after("discard", 4) == [1, 2, 3]
        assert after("difference_update", [1, 9]) == [2, 3]
        assert after("intersection_update", [2, 3, 9]) == [2, 3]
        assert after("symmetric_difference_update", [3, 5]) == [2, 5]
        assert after("clear") == []


def test_the_manager_takes_an_iterator_and_its_topic_has_a_name() -> None:
    app = an_app()
    table = app.SetTable("sets", start_manager=True, manager_topic_suffix="-changes")
    other = app.SetTable("others", start_manager=False, manager_topic_name="elsewhere")
    assert (table.manager_topic_name, other.manager_topic_name) == ("sets-changes", "elsewhere")

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            await table.manager.difference_update("k", iter([value]))
            with pytest.raises(RuntimeError, match="start_manager=False"):
                await other.manager.add("k", value)
            seen.append("sent")

    assert heard(work, 1, app=app) == ["sent"]


def test_an_operation_that_nobody_knows_changes_nothing() -> None:
    app = an_app()
    table = app.SetTable("sets", start_manager=True, key_type=str)

    @app.agent(app.topic("in"))
    async def change(stream: Any) -> None:
        async for value in stream:
            await table.manager.add("k", value)
            operation = SetManagerOperation(action=SetAction.ADD, members=[9])
            operation.action = "NOTHING"
            await table.manager.topic.send(key="k", value=operation)

    with TestApp(app) as test:
        test.send("in", value=1)
        test.driver.commit()
        assert test.table("sets") == {"k": {1}}


def test_windows_of_sets_gain_and_lose_members() -> None:
    app = an_app()
    table = app.SetTable("sets").hopping(10, 5)

    @app.agent(app.topic("in", key_type=str))
    async def change(stream: Any) -> None:
        async for value in stream:
            getattr(table["k"], "add" if value > 0 else "discard")(abs(value))

    with TestApp(app) as test:
        for value, at in ((1, 6), (2, 6), (-1, 11)):
            test.send("in", value=value, timestamp=at)
        assert test.table("sets") == {
            ("k", (0.0, 9.9)): {1, 2},
            ("k", (5.0, 14.9)): {2},
            ("k", (10.0, 19.9)): set(),
        }


def test_sets_of_all_partitions() -> None:
    app, seen = an_app(), []
    table = app.SetGlobalTable("sets", key_type=str)

    @app.agent(app.topic("in", key_type=str))
    async def change(stream: Any) -> None:
        async for key, value in stream.items():
            table[key].add(value)
            assert value in table[key], "its own changes are there at once"

    @app.agent(app.topic("questions", key_type=str))
    async def look(stream: Any) -> None:
        async for event in stream.events():
            seen.append((event.message.partition, sorted((key, sorted(row)) for key, row in table.items())))

    @app.timer(10.0)
    async def tell() -> None:
        seen.append(sorted(table["a"]))

    both = [("a", [1, 2]), ("b", [3])]
    with TestApp(app, partitions=2) as test:
        for key, value, partition in (("a", 1, 0), ("a", 2, 0), ("b", 3, 1)):
            test.send("in", key=key, value=value, partition=partition)
        test.driver.commit()
        for partition in (0, 1):
            test.send("questions", key="a", partition=partition)
        test.driver.restart()
        test.send("questions", key="a", partition=1)
        test.driver.advance_wall_clock_time(10_000)
    assert seen == [(0, both), (1, both), (1, both), [1, 2]]


def test_a_set_of_another_partition_is_added_to_and_not_changed_behind_it() -> None:
    app = an_app()
    table = app.SetGlobalTable("sets", key_type=str)
    seen: list[Any] = []

    @app.agent(app.topic("in", key_type=str))
    async def change(stream: Any) -> None:
        async for key, value in stream.items():
            seen.append((value, sorted(table[key])))
            table[key].add(value)

    with TestApp(app, partitions=2) as test:
        for value, partition in ((1, 0), (2, 1)):
            test.send("in", key="a", value=value, partition=partition)
            test.driver.commit()
        assert (test.table("sets"), test.table("sets", partition=1)) == ({"a": {1}}, {"a": {1, 2}})
    assert seen == [(1, []), (2, [1])]


def test_the_manager_changes_sets_of_all_partitions_where_their_key_is() -> None:
    app = an_app()
    table = app.SetGlobalTable("sets", start_manager=True, key_type=str)

    @app.agent(app.topic("in"))
    async def change(stream: Any) -> None:
        async for value in stream:
            await table.manager.add("k", value)

    with TestApp(app, partitions=2) as test:
        for value in (1, 2, 3):
            test.send("in", value=value, partition=value % 2)
            test.driver.commit()
        assert {1, 2, 3} in (test.table("sets").get("k"), test.table("sets", partition=1).get("k"))


def test_every_process_reads_the_changelog_of_such_sets() -> None:
    app = an_app()
    app.SetGlobalTable("sets", extra_topic_configs={"retention.ms": 1})

    @app.agent(app.topic("in"))
    async def quiet(stream: Any) -> None:
        async for _ in stream:
            pass

    (changelog,) = declared_changelogs(app, {"in": 3})
    assert (changelog.name, changelog.partitions, changelog.configs) == (
        "shop-sets-changelog",
        3,
        {"cleanup.policy": "compact"},
    )
