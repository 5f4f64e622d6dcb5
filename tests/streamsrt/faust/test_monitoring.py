"""``app.monitor``: the figures that Faust's Monitor would have, and what a monitor of the program's own is called with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from mode import Service

from streamsrt.errors import ProcessingError, UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.sensors import Monitor, statsd  # noqa: E402
from faust.types.tuples import TP  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.monitoring import CALLED, Tally  # noqa: E402

IN = TP("in", 0)


def counting(app: faust.App) -> None:
    """An agent that uses a table and sends, and one that filters."""
    totals = app.Table("totals", default=int)
    topic = app.topic("in", key_type=str, value_type=int)
    out = app.topic("out")

    @app.agent(topic, name="count")
    async def count(stream: Any) -> None:
        async for key, value in stream.items():
            totals[key] += value
            if value == 3:
                del totals[key]
            await out.send(key=key, value=value)
            app.monitor.count("mine")

    @app.agent(topic, name="odd")
    async def odd(stream: Any) -> None:
        async for _ in stream.filter(lambda value: value % 2):
            pass


def give(test: TestApp) -> None:
    for number in range(1, 5):
        test.send("in", key="a", value=number)
    test.driver.pipe_raw("in", b"a", b"no number", 0, ())


def test_what_agents_tables_and_sends_do_is_counted() -> None:
    app = an_app()
    counting(app)
    with TestApp(app) as test:
        give(test)
        monitor = app.monitor
        assert (monitor.messages_received_total, monitor.messages_received_by_topic) == (4, {"in": 4})
        assert (monitor.events_total, monitor.events_by_stream) == (8, {"<Stream: in>": 8})
        assert monitor.events_by_task == {"count": 4, "odd": 4}
        assert (monitor.messages_active, monitor.events_active) == (0, 0)
        assert (monitor.messages_sent, monitor.messages_sent_by_topic) == (4, {"out": 4})
        assert monitor.tables["totals"].asdict() == {"keys_retrieved": 4, "keys_updated": 4, "keys_deleted": 1}
        assert (monitor.tp_read_offsets, monitor.metric_counts) == ({IN: 4}, {"mine": 4})
        assert len(monitor.events_runtime) > 0
        test.driver.commit()
        assert app.monitor.tp_committed_offsets == {IN: 5}
        assert min(len(monitor.commit_latency), len(monitor.send_latency)) > 0
        assert (monitor.rebalances, monitor.assignments_completed, len(monitor.rebalance_end_latency)) == (1, 1, 1)
    assert app.monitor is monitor
    assert (monitor.events_total, app.rebalancing_count) == (8, 0), "the figures stay, and the rest is as it was"
    assert list(app.sensors) == []


def test_a_monitor_that_somebody_holds_is_filled_each_second() -> None:
    app = an_app()
    monitor = app.monitor
    counting(app)
    with TestApp(app) as test:
        give(test)
        assert monitor.events_total < 8
        test.driver.advance_wall_clock_time(1_000)
        assert (monitor.events_total, monitor.events_s, monitor.messages_s) == (8, 8, 4)
        assert monitor.events_runtime_avg > 0
        test.driver.advance_wall_clock_time(1_000)
        assert (monitor.events_total, monitor.events_s, monitor.messages_s) == (8, 0, 0)


def test_figures_go_on_after_a_restart() -> None:
    app = an_app()
    counting(app)
    with TestApp(app) as test:
        give(test)
        test.driver.restart()
        give(test)
        assert (app.monitor.messages_received_total, app.monitor.events_total) == (8, 16)
        assert app.monitor.tables["totals"].keys_retrieved == 8
        assert app.monitor.rebalances > 1


def test_several_topics_are_counted_one_by_one() -> None:
    app = an_app()

    @app.agent(app.topic("one", "two"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            pass

    with TestApp(app) as test:
        for topic in ("one", "two", "two"):
            test.send(topic, value=1)
        assert app.monitor.messages_received_by_topic == {"one": 1, "two": 2}
        assert app.monitor.tp_read_offsets == {TP("one", 0): 0, TP("two", 0): 1}


def test_what_waits_is_active() -> None:
    app, waiting = an_app(), []

    @app.agent(app.topic("in"))
    async def hold(stream: Any) -> None:
        async for event in stream.noack().events():
            waiting.append(event)

    with TestApp(app) as test:
        for _ in range(3):
            test.send("in", value=1)
        assert (app.monitor.events_active, app.monitor.messages_active) == (3, 3)
        for event in waiting:
            event.ack()
        assert (app.monitor.events_active, app.monitor.messages_active) == (0, 0)


def test_all_of_it_is_shown_by_a_page_as_json() -> None:
    app = an_app()
    counting(app)
    with TestApp(app) as test:
        give(test)
        shown = json.loads(app.web.json(app.monitor.asdict()).body)
    assert (shown["events_total"], shown["messages_received_by_topic"]) == (8, {"in": 4})
    assert shown["tables"] == {"totals": {"keys_retrieved": 4, "keys_updated": 4, "keys_deleted": 1}}


class Heard(Monitor):
    """A monitor that notes what it is called with."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.heard: list[Any] = []


def _noting(name: str) -> Callable[..., Any]:
    def called(self: Heard, *arguments: Any, **named: Any) -> Any:
        self.heard.append((name, *arguments))
        return getattr(Monitor, name)(self, *arguments, **named)

    return called


def heard_by(*names: str) -> type[Heard]:
    return type("Noting", (Heard,), {name: _noting(name) for name in names})


@pytest.mark.parametrize("gives", ["setting", "attribute"])
def test_methods_of_an_own_monitor_are_called_for_each_event(gives: str) -> None:
    kind = heard_by("on_message_in", "on_message_out", "on_stream_event_in", "on_stream_event_out")
    app = an_app(Monitor=kind) if gives == "setting" else an_app()
    if gives == "attribute":
        app.monitor = kind()
    counting(app)
    with TestApp(app) as test:
        give(test)
        monitor = app.monitor
        calls = [(name, place, offset) for name, place, offset, *_ in monitor.heard]
        one = ["on_message_in", "on_stream_event_in", "on_stream_event_out", "on_message_out"]
        own = [each for each in calls if each[2] == 0]
        assert [name for name, *_ in own if name in one[1:3]] == one[1:3] * 2
        assert {(name, IN, 0) for name in one} == set(own)
        assert len(calls) == 4 * (2 + 2 * 2)
        assert (monitor.messages_received_total, monitor.events_total, monitor.events_active) == (4, 8, 0)
        event = next(each[4] for each in monitor.heard if each[0] == "on_stream_event_in")
        assert (event.key, event.value) == ("a", 1)


@pytest.mark.parametrize("name", ["on_message_in", "on_message_out", "on_stream_event_in", "on_stream_event_out"])
def test_a_method_of_a_monitor_that_raises_costs_no_record(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError(name)

    app = an_app(Monitor=type("Broken", (Monitor,), {name: broken}))
    counting(app)
    with TestApp(app) as test:
        give(test)
        assert [value for _, value in test.received("out")] == [1, 2, 3, 4]
    raised = [each for each in caplog.records if "of the monitor raised at in-0 offset 0" in each.getMessage()]
    assert raised
    assert all(each.exc_info is not None and each.exc_info[0] is ZeroDivisionError for each in raised)


def test_methods_of_an_own_monitor_are_called_for_each_row_and_send() -> None:
    app = an_app(Monitor=heard_by("on_table_set", "on_table_del", "on_send_initiated", "on_send_completed"))
    counting(app)
    with TestApp(app) as test:
        give(test)
        test.driver.commit()
        calls = app.monitor.heard
        names = [name for name, *_ in calls]
        assert [(table.name, *row) for name, table, *row in calls if name == "on_table_set"][:2] == [
            ("totals", "a", 1),
            ("totals", "a", 3),
        ]
        assert (names.count("on_send_initiated"), names.count("on_send_completed")) == (4, 4)
        state = app.monitor.tables["totals"].asdict()
        assert state == {"keys_retrieved": 4, "keys_updated": 4, "keys_deleted": 1}
        assert app.monitor.messages_sent == 4


def test_commits_and_changes_of_partitions_are_told() -> None:
    app = an_app(Monitor=heard_by("on_commit_completed", "on_tp_commit", "on_rebalance_start", "on_rebalance_end"))
    counting(app)
    with TestApp(app) as test:
        give(test)
        test.driver.commit()
        names = [name for name, *_ in app.monitor.heard]
        assert names[:2] == ["on_rebalance_start", "on_rebalance_end"]
        assert ("on_tp_commit", {IN: 5}) in app.monitor.heard
        assert "on_commit_completed" in names


def test_a_batch_that_is_not_all_taken_is_told_as_it_is() -> None:
    app = an_app(Monitor=heard_by("on_stream_event_in", "on_stream_event_out"))

    @app.agent(app.topic("in", value_type=int))
    async def take(stream: Any) -> None:
        async for _ in stream.filter(lambda value: value != 2).take(2, within=10):
            pass

    with TestApp(app) as test:
        for value in (1, 2, 3):
            test.send("in", value=value)
        test.driver.pipe_raw("in", None, b"no number", 0, ())
        offsets = [(name, offset) for name, _, offset, *_ in app.monitor.heard]
        assert sorted(offsets) == sorted(
            (name, offset) for name in ("on_stream_event_in", "on_stream_event_out") for offset in range(3)
        )


class Metering:
    """In the place of a client of statsd."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda metric, *_, **__: self.sent.append(metric)


def test_fausts_own_monitors_run() -> None:
    class Statsd(statsd.StatsdMonitor):
        def _new_statsd_client(self) -> Any:
            return Metering()

    statsd.statsd = statsd.statsd or object()
    app = an_app(Monitor=Statsd)
    counting(app)
    with TestApp(app) as test:
        give(test)
        test.driver.commit()
        assert {"messages_received", "events", "messages_sent", "commit_latency"} <= set(app.monitor.client.sent)


class Idle(Monitor):
    """Has what nobody calls."""

    def on_topic_buffer_full(self, tp: Any) -> None:
        """Never."""


class Looping(Monitor):
    """Has a loop of its own."""

    @Service.task
    async def _loop(self) -> None:
        """Never."""


@pytest.mark.parametrize(
    ("kind", "function"), [(Idle, Idle.on_topic_buffer_full), (Looping, vars(Looping)["_loop"].fun)]
)
def test_methods_that_nobody_would_call_are_refused_at_the_start(kind: type[Monitor], function: Any) -> None:
    app = an_app(Monitor=kind)
    counting(app)
    place = f"{re.escape(__file__)}:{function.__code__.co_firstlineno}"
    with pytest.raises(UserError, match=rf"^method {function.__name__} of {kind.__name__} \({place}\), the monitor of"):
        streamsrt.faust.topology(app)


def test_each_method_of_fausts_monitor_is_called_or_refused() -> None:
    hooks = {name for name in dir(Monitor) if name.startswith(("on_", "track_")) and not hasattr(Service, name)}
    refused = {name for name in hooks if name not in CALLED}
    assert refused == {
        *("on_assignment_start", "on_assignment_completed", "on_assignment_error", "on_topic_buffer_full"),
        *("on_threaded_producer_buffer_processed", "on_send_error"),
    }


def test_the_monitor_of_a_running_application_stays() -> None:
    app = an_app()

    @app.agent(app.topic("in"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            app.monitor = Monitor()

    with TestApp(app) as test, pytest.raises((UserError, ProcessingError), match=r"^app\.monitor = .*ends here$"):
        test.send("in", value=1)


def test_requests_of_pages_are_counted() -> None:
    app = an_app()
    counting(app)
    with TestApp(app) as test:
        give(test)
        state = app.sensors.on_web_request_start(app, None)
        app.sensors.on_web_request_end(app, None, None, state)
        assert app.monitor.http_response_codes == {HTTPStatus.INTERNAL_SERVER_ERROR: 1}


def test_a_tally_counts_and_may_be_looked_at() -> None:
    tally = Tally()
    assert [tally.value(), tally.add("a"), tally.add("b"), tally.value(), tally.value()][3:] == [2, 2]
