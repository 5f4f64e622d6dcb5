"""Records that fail go to a dead-letter topic, and say why; handlers decide about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.errors import DeserializationError, ProcessingError, ProductionError
from streamsrt.operators.handlers import DeadLetter, ErrorContext, HandlerResponse, Response, dead_letter, handler_of
from streamsrt.testing.topology_test_driver import ProducedRecord, TopologyTestDriver
from topology import StreamsBuilder, Topology, serdes

DLQ = "errors.dead.letter.queue.topic.name"


def numbers() -> Topology:
    """Reads numbers, and fails where one is 13; another one can't be written."""

    def halved(number: int) -> float | str:
        if number == 13:
            raise ArithmeticError("unlucky")
        return "not a number" if number == 0 else number / 2

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.integer)
    stream.map_values(halved).to("out", value=serdes.CallableSerde("half", as_bytes, bytes))
    return builder.build()


def as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise ValueError(f"{value!r} can't be written")
    return str(value).encode()


def piped(value: bytes, config: dict[str, Any]) -> tuple[list[ProducedRecord], type[Exception] | None]:
    failed: type[Exception] | None = None
    with TopologyTestDriver(numbers(), config) as driver:
        driver.pipe_raw("in", b"a", (4).to_bytes(4, "big"), 1)
        try:
            driver.pipe_raw("in", b"k", value, 5, (("h", b"1"),))
        except (DeserializationError, ProcessingError, ProductionError) as error:
            failed = type(error)
        return list(driver.producer_history[1:]), failed


WRONG = {
    "deserialization": (b"123", DeserializationError, "struct.error"),
    "processing": ((13).to_bytes(4, "big"), ProcessingError, "ArithmeticError"),
    "production": ((0).to_bytes(4, "big"), ProductionError, "ValueError"),
}


@pytest.mark.parametrize("response", ["fail", "continue"])
@pytest.mark.parametrize("stage", WRONG)
def test_a_record_that_fails_is_sent_as_it_was_read(stage: str, response: str) -> None:
    value, error, name = WRONG[stage]
    (letter,), failed = piped(value, {DLQ: "dlq", f"{stage}.exception.handler": response})
    assert failed is (error if response == "fail" else None)
    assert (letter.topic, letter.key, letter.value, letter.timestamp) == ("dlq", b"k", value, 5)
    headers = dict(letter.headers)
    assert letter.headers[0] == ("h", b"1")
    assert headers["__streams.errors.exception"] == name.encode()
    assert headers["__streams.errors.stacktrace"].startswith(b"Traceback")  # type: ignore[union-attr]
    where = [headers[f"__streams.errors.{what}"] for what in ("topic", "partition", "offset")]
    assert where == [b"in", b"0", b"1"]


def test_without_a_topic_nothing_is_sent() -> None:
    assert piped(b"123", {"deserialization.exception.handler": "continue"}) == ([], None)


def test_a_handler_sends_dead_letters_of_its_own() -> None:
    def to_quarantine(context: ErrorContext, error: BaseException) -> Response:
        letter = dead_letter(context, error, f"quarantine-{context.topic}")
        return Response(HandlerResponse.CONTINUE, (letter, DeadLetter("counts", b"failed", None, 9, ())))

    letters, failed = piped(b"123", {DLQ: "dlq", "deserialization.exception.handler": to_quarantine})
    assert [(letter.topic, letter.key) for letter in letters] == [("quarantine-in", b"k"), ("counts", b"failed")]
    assert failed is None


def test_words_are_answers_too() -> None:
    handler = handler_of(lambda context, error: Response("continue"))  # type: ignore[arg-type]
    answer = handler(ErrorContext(topic="in", partition=0, offset=7, node="map"), ValueError("x"))
    assert answer == Response(HandlerResponse.CONTINUE)


def test_what_the_cluster_refuses_goes_to_the_production_handler() -> None:
    def refuse(topic: str, key: bytes | None, value: bytes | None) -> Exception | None:
        return ValueError("too large") if value == b"2.0" else None

    for response, counted in (("continue", 1), ("fail", 0)):
        config = {"production.exception.handler": response}
        with TopologyTestDriver(numbers(), config, refuse=refuse) as driver:
            if response == "fail":
                with pytest.raises(ProductionError, match="too large"):
                    driver.pipe_raw("in", b"a", (4).to_bytes(4, "big"), 1)
            else:
                driver.pipe_raw("in", b"a", (4).to_bytes(4, "big"), 1)
            assert driver.counters()["failed_production"] == counted
            assert driver.producer_history == ()
