"""What the production handler's answers mean for a record that the cluster does not take."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.client.values import RecordRefusedError, RefusalAnswer, RefusedRecord
from streamsrt.errors import ProductionError
from streamsrt.operators.engine.handlers import (
    DeadLetter,
    ErrorContext,
    ExceptionHandlers,
    HandlerResponse,
    Response,
    handler_of,
)
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.output.refused_records import RefusedRecords, sinks_of
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import decode_batches
from topology import StreamsBuilder, serdes


class Desk:
    """A handler with all around it. ``sent``: topic, key, value and headers of what was handed over."""

    def __init__(self, handler: Any, dead_letter_topic: str | None = None) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None, Any]] = []
        self.collector = RecordCollector(self._sink, lambda _topic: 1)
        handlers = ExceptionHandlers(production=handler_of(handler), dead_letter_topic=dead_letter_topic)
        self.refused = RefusedRecords(handlers, self.collector, {"out": "SINK"})

    def _sink(self, topic: str, _partition: int, batch: bytes, _count: int) -> None:
        for columns in decode_batches(batch):
            headers = columns.headers or [()]
            self.sent += zip([topic], columns.keys, columns.values, headers, strict=True)

    def ask(self, topic: str = "out", *, is_retriable: bool = False) -> RefusalAnswer:
        code = ErrorCode.REQUEST_TIMED_OUT if is_retriable else ErrorCode.MESSAGE_TOO_LARGE
        error = RecordRefusedError("no", topic, 3, error_code=code, is_retriable=is_retriable)
        return self.refused(RefusedRecord(topic, 3, b"k", b"v", 5, (("h", b"1"),), error))


@pytest.mark.parametrize(
    ("handler", "is_retriable", "answer"),
    [
        ("fail", False, RefusalAnswer.FAIL),
        ("fail", True, RefusalAnswer.START_OVER),
        ("continue", False, RefusalAnswer.DROP),
        ("continue", True, RefusalAnswer.START_OVER),
        (lambda *_: HandlerResponse.RETRY, True, RefusalAnswer.START_OVER),
        (lambda *_: HandlerResponse.RETRY, False, RefusalAnswer.FAIL),
        (lambda *_: HandlerResponse.CONTINUE, True, RefusalAnswer.DROP),
        (lambda *_: "fail", True, RefusalAnswer.FAIL),
    ],
)
def test_answers(handler: Any, is_retriable: bool, answer: RefusalAnswer) -> None:
    desk = Desk(handler)
    assert desk.ask(is_retriable=is_retriable) is answer
    assert desk.collector.dropped_records == (answer is RefusalAnswer.DROP)


def test_the_error_says_which_record_it_is_and_how_to_go_on() -> None:
    desk = Desk("fail")
    error = RecordRefusedError("Too large.", "out", 3, error_code=ErrorCode.MESSAGE_TOO_LARGE)
    assert desk.refused(RefusedRecord("out", 3, b"k" * 200, b"v" * 1_000, 5, (), error)) is RefusalAnswer.FAIL
    assert str(error) == (
        f"Too large. It is the record with the key b'{'k' * 78}…, the timestamp 5 and 1,200 bytes of key and value, written "
        "by SINK. production.exception.handler=continue leaves such records out"
    )


def test_the_handler_is_told_what_was_to_be_written_where() -> None:
    seen: list[ErrorContext] = []

    def note(context: ErrorContext, error: BaseException) -> HandlerResponse:
        assert isinstance(error, RecordRefusedError)
        seen.append(context)
        return HandlerResponse.CONTINUE

    Desk(note).ask()
    (context,) = seen
    assert (context.output_topic, context.output_partition, context.node) == ("out", 3, "SINK")
    assert (context.key, context.value, context.headers, context.timestamp) == (b"k", b"v", (("h", b"1"),), 5)
    assert (context.topic, context.partition, context.offset) == ("", -1, -1)


def test_a_handler_that_raises() -> None:
    def broken(_context: ErrorContext, _error: BaseException) -> HandlerResponse:
        raise KeyError("oops")

    with pytest.raises(ProductionError, match="handler raised KeyError: 'oops', asked about a record for out-3"):
        Desk(broken).ask()


def test_dead_letters_go_out_at_once_unless_it_fails() -> None:
    desk = Desk("continue", "letters")
    desk.ask()
    ((topic, key, value, headers),) = desk.sent
    assert (topic, key, value) == ("letters", b"k", b"v")
    assert dict(headers)["h"] == b"1"
    assert dict(headers)["__streams.errors.topic"] == b"out"

    desk = Desk("fail", "letters")
    desk.ask()
    assert desk.sent == []
    desk.refused.send_last_letters()
    assert [row[:3] for row in desk.sent] == [("letters", b"k", b"v")]
    desk.refused.send_last_letters()
    assert len(desk.sent) == 1


def test_what_is_tried_again_leaves_no_letter() -> None:
    desk = Desk("fail", "letters")
    desk.ask(is_retriable=True)
    desk.refused.send_last_letters()
    assert desk.sent == []


def test_a_refused_dead_letter_begets_no_other_one() -> None:
    letter = DeadLetter("letters", b"k", b"v", 0, ())
    desk = Desk(lambda *_: Response(HandlerResponse.CONTINUE, (letter,)))
    assert desk.ask("letters") is RefusalAnswer.DROP
    assert desk.sent == []


def test_a_dead_letter_that_is_too_large_goes_out_with_less_and_less() -> None:
    """Value, key, and the record's own headers with the ends of texts: the handler is asked when nothing more can go."""
    headers = (("h", b"1" * 20), ("__streams.errors.stacktrace", b"s" * 700), ("__streams.errors.topic", None))
    refused = RefusedRecord("letters", 3, b"key", b"value", 5, headers, RecordRefusedError("no", "letters", 3))
    desk = Desk("fail", "letters")

    def ask() -> RefusalAnswer:
        error = RecordRefusedError("too large", "letters", 3, error_code=ErrorCode.MESSAGE_TOO_LARGE)
        return desk.refused(refused._replace(error=error))

    seen: list[Any] = []
    while ask() is RefusalAnswer.DROP:
        _, key, value, told = desk.sent[-1]
        assert len(seen) < 5
        refused = refused._replace(key=key, value=value, headers=told)
        omitted = {name.removeprefix("__streams.errors.omitted."): at for name, at in told if ".omitted." in name}
        seen.append((key, value, omitted, dict(told).get("h")))
    left_out = {"value.bytes": b"5", "key.bytes": b"3", "headers.bytes": b"%d" % (1 + 20 + 200)}
    assert seen == [
        (b"key", None, {"value.bytes": b"5"}, b"1" * 20),
        (None, None, {"value.bytes": b"5", "key.bytes": b"3"}, b"1" * 20),
        (None, None, left_out, None),
    ]
    assert dict(refused.headers)["__streams.errors.stacktrace"] == b"s" * 500
    assert (desk.collector.shortened_letters, desk.collector.last_shortened) == (1, "too large")
    assert desk.collector.dropped_records == 0


def test_a_dead_letter_refused_for_another_reason_is_the_handlers() -> None:
    desk = Desk("continue", "letters")
    error = RecordRefusedError("no", "letters", 3, error_code=ErrorCode.INVALID_RECORD)
    assert desk.refused(RefusedRecord("letters", 3, b"k", b"v", 5, (), error)) is RefusalAnswer.DROP
    assert (desk.sent, desk.collector.dropped_records, desk.collector.shortened_letters) == ([], 1, 0)


def test_sinks_by_topic() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.to("out")
    stream.to(lambda _key, value, _context: value)
    assert sinks_of(builder.build()) == {"out": "KSTREAM-SINK-0000000001"}
