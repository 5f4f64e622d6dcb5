"""Every public name of faust's classes works here or is refused, with a message."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from mode import Service

import streamsrt
from streamsrt.errors import ProcessingError, UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.agents.agent import Agent  # noqa: E402
from faust.streams import Stream  # noqa: E402
from faust.tables.base import Collection  # noqa: E402
from faust.tables.table import Table  # noqa: E402
from faust.topics import Topic  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.names import REFUSED, REFUSED_ATTRIBUTES, REFUSED_METHODS, refused_in  # noqa: E402
from streamsrt.faust.streams import AgentStream  # noqa: E402

DOCS = Path(streamsrt.__file__).parent.parent / "docs" / "faust.md"
WORKS = {
    faust.App: """
        BootStrategy GlobalTable SCAN_CATEGORIES SetGlobalTable SetTable Settings Table Worker actor agent cache
        channel client_only command conf config_from_object configured create_event discover finalize finalized
        http_client is_leader main maybe_start_client maybe_start_producer monitor on_after_configured on_before_configured
        on_before_shutdown on_configured on_init_extra_service on_partitions_assigned on_partitions_revoked
        on_produce_message on_rebalance_complete on_started_init_extra_services on_started_init_extra_tasks
        on_started_init_web_server on_webserver_init on_worker_init page producer producer_only router send
        serializers service start_client stream table_route tables topic topic_route trace traced tracer web
        web_server_driver_version web_server_url worker_init worker_init_post_autodiscover
    """,
    Agent: """
        add_sink ask ask_nowait cast channel clone get_topic_names info join kvjoin kvmap map send test_context
    """,
    Table: """
        WindowWrapper as_ansitable call_recover_callbacks changelog_topic changelog_topic_name clear clone fromkeys
        get hopping info is_global items keys on_recover on_window_close pop popitem setdefault tumbling update
        using_window values
    """,
    Topic: """
        clone declare derive derive_topic get_topic_name has_prefix maybe_declare partitions pattern prepare_headers
        prepare_key prepare_value send send_soon
    """,
}
"""Those that work: what declares, and what is faust's own code over that."""

app = faust.App("names", broker="kafka://localhost:9092")
things = app.topic("things")
rows = app.Table("rows", default=int)


@app.agent(things)
async def other(stream: Any) -> None:
    """An agent that others use."""
    async for _ in stream:
        pass


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and not hasattr(Service, name)}


def own_names(kind: type) -> set[str]:
    """The refused names that the class does not have from mode: test_services.py has those."""
    return {name for name in REFUSED[kind] if not hasattr(Service, name)}


@pytest.mark.parametrize(
    ("kind", "refused"), [(faust.App, faust.App), (Agent, Agent), (Table, Collection), (Topic, Topic)]
)
def test_each_name_works_or_is_refused(kind: type, refused: type) -> None:
    works = set(WORKS[kind].split())
    assert public(kind) == works | own_names(refused)
    assert not works & set(REFUSED[refused])


def test_each_name_of_a_stream_works_or_is_refused() -> None:
    assert public(Stream) == public(AgentStream) - {"event_now", "unwrap", "channel", "app"} | own_names(Stream)
    assert not public(AgentStream) & set(REFUSED[Stream])


def test_the_page_has_each_name_that_is_refused() -> None:
    words = set(re.findall(r"`(?:\w+\.)?(\w+)`", DOCS.read_text()))
    # Of a stream, all that comes from mode is refused: the page says that in one word.
    assert {name for kind in REFUSED for name in (own_names(Stream) if kind is Stream else REFUSED[kind])} <= words


async def _joins(stream: Any) -> None:
    async for _ in stream:
        stream.join(rows)


async def _reads(stream: Any) -> None:
    async for _ in stream:
        await things.get()


async def _looks(stream: Any) -> None:
    async for _ in stream:
        print(app.consumer)


async def _logs(stream: Any) -> None:
    async for _ in stream:
        rows.send_changelog(0, 1, 2)


@pytest.mark.parametrize(
    ("fun", "use", "line"),
    [
        (_joins, "stream.join", 2),
        (_reads, "things.get", 2),
        (_looks, "app.consumer", 2),
        (_logs, "rows.send_changelog", 2),
    ],
)
def test_a_use_is_one_message_at_the_start_which_names_the_line(fun: Any, use: str, line: int) -> None:
    own = an_app()
    own.agent(own.topic("in"))(fun)
    place = rf"{re.escape(__file__)}:{fun.__code__.co_firstlineno + line}"
    with pytest.raises(
        UserError, match=rf"^{use} \({place}\) in agent {fun.__name__} is not supported .*: .+\. docs.faust.md lists"
    ):
        streamsrt.faust.topology(own)


def test_what_timers_and_tasks_use_is_seen_too() -> None:
    for declare in (lambda own: own.timer(1.0), lambda own: own.task):
        own = an_app()
        own.agent(own.topic("in"))(_quiet)

        async def look() -> None:
            await things.get()

        declare(own)(look)
        with pytest.raises(UserError, match=r"things\.get \(.*\) in the (timer|task) "):
            streamsrt.faust.topology(own)


async def _quiet(stream: Any) -> None:
    """Uses names that mean something else here, and what works."""
    app = things = stream
    async for value in stream.events():
        await other.send(value=value, callback=None) if value else None
        print(app.channel, "x".join([]), things.events, rows.get(value))


def test_other_names_are_left_alone() -> None:
    assert list(refused_in(_quiet, of_stream=True)) == []
    assert list(refused_in(eval("lambda: app.consumer"))) == [], "its text is not known"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own: setattr(own, "client_only", True), "client_only of shop"),
        (lambda own: setattr(own, "producer_only", True), "producer_only of shop"),
        (lambda own: setattr(own, "tracer", object()), "the tracer .* of shop"),
        (lambda own: own.sensors.add(faust.Sensor()), "the sensor .* of shop"),
    ],
)
def test_what_would_do_nothing_is_refused(change: Any, message: str) -> None:
    own = an_app()
    own.agent(own.topic("in"))(_quiet)
    change(own)
    with pytest.raises(UserError, match=rf"^{message} is not supported"):
        streamsrt.faust.topology(own)


def test_a_stream_is_asked_for_what_it_has_not() -> None:
    own = an_app()

    @own.agent(own.topic("in"))
    async def sly(stream: Any) -> None:
        async for _ in stream:
            getattr(stream, "outer_" + "join")(rows)

    with (
        TestApp(own) as test,
        pytest.raises(UserError, match=r"stream\.outer_join of agent .*sly .*is not supported .*: faust"),
    ):
        test.send("in", value=1)


def test_a_stream_of_a_topic_by_hand_is_refused() -> None:
    own = an_app()
    own.agent(own.topic("in"))(_quiet)
    with TestApp(own) as test:
        test.send("in", value=1)
        assert own.stream(own.channel())
        with pytest.raises(UserError, match=r"app\.stream of topic in \(.*\) is not supported"):
            own.stream(own.topic("in"))
    assert own.stream(own.topic("in"))


class Reached:
    """A part of the program that the search at the start does not read."""

    def __init__(self, own: faust.App) -> None:
        self.own = own

    async def commit(self) -> None:
        await self.own.commit(["in"])

    async def pause(self) -> None:
        self.own.consumer.pause_partitions([])

    async def stream(self) -> None:
        self.own.stream(self.own.topic("other"))


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("name", ["commit", "pause", "stream"])
def test_what_is_reached_at_run_time_ends_the_application_and_skips_no_record(name: str, hides: bool) -> None:
    own, seen = an_app(), []
    call = getattr(Reached(own), name)

    @own.agent(own.topic("in", value_type=int))
    async def work(stream: Any) -> None:
        async for value in stream:
            try:
                await call()
            except Exception:
                if not hides:
                    raise
            seen.append(value)

    line = getattr(Reached, name).__code__.co_firstlineno + 1
    with (
        TestApp(own) as test,
        pytest.raises(UserError, match=rf"^app\.\S+.* \({re.escape(__file__)}:{line}\) is not supported .*ends here$"),
    ):
        test.send("in", value=1)
    assert seen == ([1] if hides else [])


@pytest.mark.parametrize("name", ["commit", "stream"])
def test_a_task_that_reaches_it_ends_the_application_with_one_message(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = an_app()
    own.agent(own.topic("in"))(_quiet)
    own.task(getattr(Reached(own), name))
    with TestApp(own) as test, pytest.raises(ProcessingError, match=r"^app\.\S+.* is not supported .*ends here$"):
        test.driver.advance_wall_clock_time(10)
    assert "Traceback" not in caplog.text


PLAIN = {name: inspect.getattr_static(faust.App, name) for name in REFUSED_ATTRIBUTES}


def in_an_agent(own: faust.App, call: Any) -> None:
    @own.agent(own.topic("in"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            call()


def in_a_task(own: faust.App, call: Any) -> None:
    own.agent(own.topic("in"))(_quiet)

    @own.task
    async def work() -> None:
        call()


def in_a_listener(own: faust.App, call: Any) -> None:
    own.agent(own.topic("in"))(_quiet)

    @own.on_partitions_assigned.connect(weak=False)
    async def listen(*_: Any, **__: Any) -> None:
        call()


def give_one_record(test: TestApp) -> None:
    test.send("in", value=1)
    test.driver.advance_wall_clock_time(10)


def read(own: faust.App, name: str) -> None:
    getattr(own, name)


@pytest.mark.parametrize("name", sorted(REFUSED_ATTRIBUTES))
@pytest.mark.parametrize("declare", [in_an_agent, in_a_task, in_a_listener])
def test_an_attribute_that_is_read_elsewhere_ends_the_application(declare: Any, name: str) -> None:
    own = an_app()
    declare(own, lambda: read(own, name))
    place = f"{re.escape(__file__)}:{read.__code__.co_firstlineno + 1}"
    with (
        TestApp(own) as test,
        pytest.raises((UserError, ProcessingError), match=rf"^app\.{name} \({place}\) is not supported .*ends here$"),
    ):
        give_one_record(test)
    assert inspect.getattr_static(faust.App, name) is PLAIN[name]


def test_each_refused_name_of_the_application_is_refused_at_run_time() -> None:
    assert {*REFUSED_ATTRIBUTES, *REFUSED_METHODS, "consumer"} == set(REFUSED[faust.App])
    assert not REFUSED_ATTRIBUTES & {*REFUSED_METHODS, "consumer"}


def test_tables_do_what_dictionaries_do() -> None:
    own, seen = an_app(), []
    table = own.Table("t", key_type=str, value_type=int)

    @own.agent(own.topic("in"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            table.update({"a": 1, "b": 2}, c=3)
            seen.append((sorted(table.items()), sorted(table.keys()), sorted(table.values()), table.setdefault("d", 4)))
            seen.append((table.pop("a"), table.get("a"), len(table), bool(table.popitem()), len(table)))
            table.clear()
            seen.append(dict(table))

    with TestApp(own) as test:
        test.send("in", value=1)
        assert test.table("t") == {}
    assert seen == [
        ([("a", 1), ("b", 2), ("c", 3)], ["a", "b", "c"], [1, 2, 3], 4),
        (1, None, 3, True, 2),
        {},
    ]
