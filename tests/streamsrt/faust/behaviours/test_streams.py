"""Streams: how an agent iterates, and what stands between it and its topic."""

from __future__ import annotations

from typing import Any

import pytest
from mode import label

from streamsrt.errors import ProcessingError, UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.exceptions import Skip  # noqa: E402
from faust.streams import maybe_forward  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from tests.streamsrt.faust.behaviours.hearing import heard  # noqa: E402


def test_processors_change_values_in_their_order() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async def double(value: int) -> int:
            await next_turn()
            return value * 2

        stream.add_processor(lambda value: value + 1)
        stream.add_processor(double)
        async for value in stream:
            seen.append((value, stream.current_event.value))

    assert heard(work, 1, 2) == [(4, 1), (6, 2)], "the event has the value as it came"


def test_a_processor_that_raises_skip_passes_over_the_record() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        def odd(value: int) -> int:
            if value % 2 == 0:
                raise Skip
            return value

        stream.add_processor(odd)
        async for value in stream:
            seen.append(value)

    assert heard(work, 1, 2, 3) == [1, 3]


@pytest.mark.parametrize("is_async", [False, True])
def test_filters_of_either_kind_one_behind_the_other(is_async: bool) -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        def above(value: int) -> bool:
            return value > 1000

        async def above_later(value: int) -> bool:
            await next_turn()
            return value > 1000

        async for value in stream.filter(above_later if is_async else above).filter(lambda value: value < 6000):
            seen.append(value)

    assert heard(work, 1000, 3000, 99, 5000, 3, 9999) == [3000, 5000]


def test_a_hundred_records_come_once_and_in_order() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for number, value in stream.enumerate():
            assert number == len(seen)
            seen.append(value)

    assert heard(work, *range(100), commits=False) == list(range(100))


def test_a_loop_that_was_left_begins_again_behind_its_last_record() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        while True:
            async for value in stream:
                seen.append(value)
                break
            async for key, value in stream.items():
                seen.append((key, value))
                break
            async for values in stream.take(1, within=60):
                seen.append(values)
                break

    assert heard(work, 1, 2, 3, 4) == [1, ("k", 2), [3], 4]


@pytest.mark.parametrize(
    ("name", "wanted"), [("at", [{"id": 1, "at": 1.0}, 2]), (None, [{"id": 1}, 2]), ("", [{"id": 1}, 2])]
)
def test_times_of_records_go_into_dictionaries_only(name: str | None, wanted: list[Any]) -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for values in stream.take_with_timestamp(1, within=60, timestamp_field_name=name):
            seen.extend(values)

    assert heard(work, {"id": 1}, 2) == wanted


def test_twenty_records_are_taken_ten_at_a_time() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for values in stream.take(10, within=3600):
            seen.append(values)

    app, values = an_app(), [b"%d" % number for number in range(20)]
    topic, seen = app.topic("numbers", value_type=int), list[Any]()

    async def agent(stream: Any) -> None:
        await work(stream, seen)

    app.agent(topic)(agent)
    with TestApp(app) as test:
        from tests.streamsrt.faust.test_agents import give

        give(test, values)
        assert seen == [list(range(10)), list(range(10, 20))], "without a commit"


def test_there_is_an_event_while_an_agent_works_only() -> None:
    assert faust.current_event() is None

    async def work(stream: Any, seen: list[Any]) -> None:
        seen.append(stream.current_event)
        async for _ in stream:
            seen.append(faust.current_event() is stream.current_event)
            seen.append((stream.current_event.key, stream.current_event.message.timestamp))

    assert heard(work, 1) == [None, True, ("k", 1.0)]
    assert faust.current_event() is None


def test_an_event_is_forwarded_and_a_value_is_sent() -> None:
    app = an_app()
    out = app.topic("out")

    @app.agent(app.topic("in"))
    async def relay(stream: Any) -> None:
        async for event in stream.events():
            await maybe_forward(event, out)
            await maybe_forward(event.value, out)

    with TestApp(app) as test:
        test.send("in", key=b"k", value=7, headers=(("h", b"x"),))
        assert [(each.key, each.value, each.headers) for each in test.driver.output_queue("out")] == [
            (b"k", b"7", (("h", b"x"),)),
            (None, b"7", ()),
        ]


def test_values_are_echoed_to_names_topics_and_channels() -> None:
    app, seen = an_app(), []
    channel, copies = app.channel(), app.topic("copies")

    @app.agent(channel)
    async def hear(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    @app.agent(app.topic("in"))
    async def relay(stream: Any) -> None:
        async for value in stream.echo("more", copies, channel):
            seen.append(-value)

    with TestApp(app) as test:
        test.send("in", value=7)
        assert test.received("copies") == test.received("more") == [(None, 7)]
    assert seen == [-7, 7]


def test_a_stream_is_its_own_root_until_it_derives_another() -> None:
    app, seen = an_app(), set()

    @app.agent(app.topic("in"))
    async def relay(stream: Any) -> None:
        seen.add(("root", stream.get_root_stream() is stream, stream.get_active_stream() is stream))
        derived = stream.through("middle")
        seen.add(("derived", derived.get_root_stream() is stream, stream.get_active_stream() is derived))
        async for _ in derived:
            pass

    with TestApp(app) as test:
        test.send("in", value=1)
    assert seen == {("root", True, True), ("derived", True, True)}


def test_a_stream_that_is_derived_later_is_refused() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for _ in stream:
            stream.through("middle")

    with pytest.raises(
        UserError, match=r"agent .* derives a stream for middle that it did not derive at the start: call"
    ):
        heard(work, 1)


def test_what_goes_through_a_topic_keeps_key_value_and_headers() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in", key_type=str, value_type=int))
    async def relay(stream: Any) -> None:
        async for event in stream.through("middle").events():
            seen.append((event.key, event.value, event.headers, event.message.topic))

    with TestApp(app) as test:
        test.send("in", key="k", value=7, headers=(("h", b"x"),))
    assert seen == [("k", 7, {"h": b"x"}, "middle")]


def test_a_stream_has_a_name_for_logs() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        seen.append((repr(stream), label(stream)))
        async for _ in stream:
            pass

    ((text, name),) = heard(work, 1)
    assert (text, name) == (f"<{name}>", "Stream: in")


def test_a_stream_is_not_iterated_without_async() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        with pytest.raises(TypeError):
            iter(stream)
        seen.append("refused")
        async for _ in stream:
            pass

    assert heard(work, 1) == ["refused"]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda stream: stream & stream,
            r"stream\.combine of agent .* is not supported .*: faust does not support it, either",
        ),
        (
            lambda stream: stream.sleep(1),
            r"stream\.sleep of agent .* is not supported .*: it belongs to faust's worker",
        ),
        (lambda stream: stream.concurrency_index, r"stream\.concurrency_index of agent .*: records of one key come to"),
        (lambda stream: stream.nothing, r"stream\.nothing of agent .*: Stream has no 'nothing', in faust either"),
        (lambda stream: stream.takee(3), r"Stream has no 'takee': did you mean 'take'\?"),
    ],
)
def test_what_a_stream_does_not_do_is_one_message(use: Any, message: str) -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for _ in stream:
            use(stream)

    with pytest.raises((UserError, ProcessingError), match=message):
        heard(work, 1)


def test_a_task_iterates_over_a_stream_of_plain_values() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in"))
    async def quiet(stream: Any) -> None:
        async for _ in stream:
            pass

    @app.task
    async def count() -> None:
        async for value in app.stream([0, 1, 2, 3]).filter(lambda value: value > 1):
            seen.append(value)

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(100)
        test.driver.advance_wall_clock_time(100)
    assert seen == [2, 3]


def test_lists_leave_out_what_is_filtered_and_commit_it() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for values in stream.filter(lambda value: value > 1000).take(2, within=3600):
            seen.append((values, stream.current_event.value))

    assert heard(work, 1000, 3000, 99, 5000, commits=False)[-1][1] == 5000


def test_what_an_agent_has_not_acknowledged_when_it_raises_comes_with_the_handler() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            seen.append(value)
            if value == 1:
                raise RuntimeError("no luck")

    assert heard(work, 1, 2) == [1, 2], "once each: the record is passed over"
