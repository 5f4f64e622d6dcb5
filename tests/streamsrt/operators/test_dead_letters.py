"""Records that fail go to a dead-letter topic, and say why; handlers decide about the rest."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from streamsrt.errors import DeserializationError, ProcessingError, ProductionError
from streamsrt.operators.engine.handlers import (
    DeadLetter,
    ErrorContext,
    ExceptionHandler,
    ExceptionHandlers,
    HandlerResponse,
    Response,
    dead_letter,
    fail,
    handler_of,
    log_and_continue,
)
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.testing.topology_test_driver import ProducedRecord, TopologyTestDriver
from streamsrt.wire.records import RecordColumns, decode_batch
from topology import (
    JoinWindows,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    Suppressed,
    Topology,
    serdes,
)

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


def test_a_letter_says_that_the_task_failed_whatever_the_handlers_say() -> None:
    """Such a record is read again at the next start: replayed before, it would be processed twice."""
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.integer).to("out", value=serdes.string)
    config = {DLQ: "dlq"} | {f"{stage}.exception.handler": "continue" for stage in WRONG}
    with TopologyTestDriver(builder.build(), config) as driver:
        with pytest.raises(ProductionError, match="no handler can skip"):
            driver.pipe_raw("in", b"k", (4).to_bytes(4, "big"), 5)
        (letter,) = driver.producer_history
    assert dict(letter.headers)["__streamsrt.letter.response"] == b"fail"


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


def letters_of(driver: TopologyTestDriver) -> list[tuple[Any, ...]]:
    """Key, value, timestamp, and the topic that the letter names."""
    return [
        (each.key, each.value, each.timestamp, dict(each.headers)["__streams.errors.topic"])
        for each in driver.producer_history
        if each.topic == "dlq"
    ]


SKIPPING = {DLQ: "dlq", "processing.exception.handler": "continue", "deserialization.exception.handler": "continue"}
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def test_what_waits_for_a_match_and_fails_alone_stops_nobody_else() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    left.left_join(right, lambda one, other: one + other, JoinWindows(5, grace=0)).to("out", **TEXT)
    with TopologyTestDriver(builder.build(), SKIPPING) as driver:
        for key, timestamp in (("a", 1), ("b", 20), ("c", 40), ("d", 60)):
            driver.pipe_raw("left", key.encode(), b"1", timestamp)
            driver.pipe_raw("right", key.encode(), b"2", timestamp) if key in "cd" else None
        assert [each.value for each in driver.producer_history if each.topic == "out"] == [b"12", b"12"]
        assert letters_of(driver) == [(b"a", b"1", 1, None), (b"b", b"1", 20, None)]


def test_what_waits_for_a_late_row_and_fails_is_gone_afterwards() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", store=Store("rows", kind="versioned", retention=100), **TEXT)
    stream = builder.stream("in", **TEXT)
    stream.left_join(table, lambda one, other: one + other, grace=5).to("out", **TEXT)
    with TopologyTestDriver(builder.build(), SKIPPING) as driver:
        driver.pipe_raw("table", b"b", b"2", 1)
        for key, timestamp in (("a", 1), ("b", 2), ("b", 20), ("b", 40)):
            driver.pipe_raw("in", key.encode(), b"1", timestamp)
        assert [each.value for each in driver.producer_history if each.topic == "out"] == [b"12", b"12"]
        assert letters_of(driver) == [(b"a", b"1", 1, b"in")]


def test_of_a_suppression_the_change_is_sent() -> None:
    def broken(value: str) -> str:
        raise ArithmeticError(value)

    builder = StreamsBuilder()
    table = builder.table("in", store="rows", **TEXT).suppress(Suppressed.until_time_limit(10))
    table.to_stream().map_values(broken).to("out", **TEXT)
    for generate in (True, False):
        config = {DLQ: "dlq", "statestore.cache.max.bytes": 0}
        with TopologyTestDriver(builder.build(), config, generate=generate) as driver:
            driver.pipe_raw("in", b"a", b"1", 1, (("h", b"1"),))
            with pytest.raises(ProcessingError, match="at in-0 offset 0"):
                driver.pipe_raw("in", b"b", b"2", 50)
            assert letters_of(driver) == [(b"a", b"1", 1, b"in")]


@pytest.mark.parametrize("generate", [True, False])
def test_of_a_cache_the_change_is_sent(generate: bool) -> None:
    def broken(count: int) -> str:
        raise ArithmeticError(count)

    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).group_by_key().count(store="counts")
    counts.to_stream().map_values(broken).to("out", **TEXT)
    with TopologyTestDriver(builder.build(), {DLQ: "dlq"}, generate=generate, commit="manual") as driver:
        for timestamp in (3, 5):
            driver.pipe_raw("in", b"a", b"", timestamp)
        with pytest.raises(ProcessingError, match="outside of a record"):
            driver.commit()
        assert letters_of(driver) == [(b"a", (2).to_bytes(8, "big"), 5, None)]


class Ticking(Processor[Any, Any, Any, Any]):
    """Forwards what it is told with each punctuation, and nothing else."""

    def __init__(self, kind: PunctuationType, *forwarded: Record[Any, Any]) -> None:
        self._kind = kind
        self._forwarded = forwarded

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        def tick(_now_ms: int) -> None:
            for record in self._forwarded:
                context.forward(record)

        context.schedule(10, self._kind, tick)

    def process(self, record: Record[Any, Any]) -> None:
        pass


class PassingOn(Processor[Any, Any, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record.with_value("passed on"))


def ticking(kind: PunctuationType, *forwarded: Record[Any, Any]) -> Topology:
    """Fails for whatever is forwarded, but for the key "good"."""

    def broken(key: Any, value: Any) -> Any:
        if key == "good":
            return value
        raise ArithmeticError("broken")

    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT).process(lambda: Ticking(kind, *forwarded)).process(PassingOn)
    stream.map_values(broken, with_key=True).to("out", **TEXT)
    return builder.build()


def letters_of_ticks(topology: Topology, **settings: Any) -> list[tuple[Any, ...]]:
    with TopologyTestDriver(topology, {**SKIPPING, **settings}) as driver:
        driver.pipe_raw("in", b"a", b"1", 100)
        driver.advance_wall_clock_time(10)
        driver.pipe_raw("in", b"a", b"1", 115)
        return letters_of(driver)


@pytest.mark.parametrize("kind", PunctuationType)
def test_of_a_punctuation_the_record_that_it_forwarded_is_sent(kind: PunctuationType) -> None:
    forwarded = [Record("one", "1", 7, (("h", b"x"),)), Record("good", "2", 8), Record("two", None, 9)]
    letters = letters_of_ticks(ticking(kind, *forwarded))
    assert letters[:2] == [(b"one", b"1", 7, None), (b"two", None, 9, None)]
    assert len(letters) % 2 == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (b"raw", b"raw"),
        (2.5, b"2.5"),
        (complex(1, 2), b"(1+2j)"),
        ("\ud800", b"\\ud800"),
    ],
)
def test_what_no_serde_can_write_is_in_the_letter_as_text(value: Any, text: bytes) -> None:
    letters = letters_of_ticks(ticking(PunctuationType.WALL_CLOCK_TIME, Record(value, value, 7)))
    assert letters == [(text, text, 7, None)]


def test_a_punctuation_that_fails_itself_has_no_record() -> None:
    class Failing(Ticking):
        def __init__(self) -> None:
            super().__init__(PunctuationType.WALL_CLOCK_TIME, Record("good", "1", 1), typing.cast("Any", None))

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).process(Failing).to("out", **TEXT)
    ((key, value, timestamp, _),) = letters_of_ticks(builder.build())
    assert (key, value) == (None, None)
    assert timestamp > 0


def test_what_an_extractor_can_not_read_goes_to_the_deserialization_handler() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=serdes.string, value=serdes.integer, timestamp_extractor=lambda record, _: record.value
    )
    stream.to("out")
    with TopologyTestDriver(builder.build(), SKIPPING) as driver:
        driver.pipe_raw("in", b"a", b"123", 1)
        driver.pipe_raw("in", b"b", (7).to_bytes(4, "big"), 2)
        assert [(each.key, each.timestamp) for each in driver.producer_history if each.topic == "out"] == [(b"b", 7)]
        assert letters_of(driver) == [(b"a", b"123", 1, b"in")]
        assert driver.counters()["failed_deserialization"] == 1
        assert driver.counters()["dropped_timestamp"] == 0


def no_topic(value: str) -> Any:
    return None if value == "bad" else "out"


def wrong_type(value: str) -> Any:
    return "out" if value != "bad" else "out-" + 5  # type: ignore[operator]


def no_key(value: str) -> Any:
    return {"good": "out"}[value]


CHOOSING = {
    "topic of a wrong type": lambda stream: stream.to(lambda k, v, c: wrong_type(v)),
    "topic that is missing": lambda stream: stream.to(lambda k, v, c: no_key(v)),
    "no topic": lambda stream: stream.to(lambda k, v, c: no_topic(v)),
    "partitioner": lambda stream: stream.to("out", partitioner=lambda t, k, v, n: len(wrong_type(v)) % n),
    "partitioner of a repartition topic": lambda stream: stream.repartition(
        name="own", partitioner=lambda t, k, v, n: len(no_key(v)) % n
    ).to("out"),
}


@pytest.mark.parametrize("name", CHOOSING)
def test_functions_that_choose_topic_or_partition_fail_in_processing(name: str) -> None:
    """As in Kafka Streams, where what they raise comes out of the process() of the node before."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string).map_values(str)
    CHOOSING[name](stream)
    stream.to("all")
    topology = builder.build()
    defaults = {"default.key.serde": serdes.string, "default.value.serde": serdes.string}

    def run(**handlers: str) -> tuple[list[str], dict[str, int]]:
        config = defaults | {f"{stage}.exception.handler": answer for stage, answer in handlers.items()}
        with TopologyTestDriver(topology, config) as driver:
            for value in (b"good", b"bad", b"good"):
                driver.pipe_raw("in", b"k", value, 1)
            return [record.topic for record in driver.producer_history], driver.counters()

    topics, counters = run(processing="continue")
    # A repartition has a node of its own before its sink, so the stream's next child gets the record nevertheless.
    assert (topics.count("out"), topics.count("all")) == (2, 3 if "repartition" in name else 2)
    assert (counters["failed_processing"], counters["failed_production"]) == (1, 0)
    for handlers in ({}, {"production": "continue"}):
        with pytest.raises(ProcessingError, match=r"skip such records with processing\.exception\.handler=continue"):
            run(**handlers)


BAD_PARTITIONS: list[Any] = [99, 3, -1, "0", 1.0, [0, 3], [-1], (None,), [[1]], {1, 99}]
PARTITIONED = {
    "to": lambda stream, choose: stream.to("out", partitioner=choose),
    "to a chosen topic": lambda stream, choose: stream.to(lambda k, v, c: "out", partitioner=choose),
    "repartition": lambda stream, choose: stream.repartition(name="own", partitioner=choose).to("out"),
}


def partitioned(where: str, choice: Any) -> Topology:
    """Sends each record to partition 1, but a bad one to whatever ``choice`` is."""
    builder = StreamsBuilder()
    PARTITIONED[where](builder.stream("in", **TEXT), lambda t, k, v, n: choice if v == "bad" else 1)
    return builder.build()


@pytest.mark.parametrize("where", PARTITIONED)
@pytest.mark.parametrize("choice", BAD_PARTITIONS, ids=repr)
@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
def test_a_record_for_which_there_is_no_such_partition_is_skipped_alone(
    where: str, choice: Any, generate: bool
) -> None:
    config = {**SKIPPING, "default.key.serde": serdes.string, "default.value.serde": serdes.string}
    with TopologyTestDriver(partitioned(where, choice), config, generate=generate, partitions=3) as driver:
        for timestamp, value in enumerate((b"good", b"bad", b"after")):
            driver.pipe_raw("in", b"k", value, timestamp, partition=0)
        assert letters_of(driver) == [(b"k", b"bad", 1, b"in")]
        (letter,) = [each for each in driver.producer_history if each.topic == "dlq"]
        told = dict(letter.headers)
        assert told["__streams.errors.offset"] == b"1"
        assert told["__streams.errors.exception"] in (b"TypeError", b"ValueError")
        assert (
            f"the partitioner returned {choice!r} for a record for topic"
            in (told["__streams.errors.message"] or b"").decode()
        )
        assert [each.value for each in driver.producer_history if each.topic == "out"] == [b"good", b"after"]
        assert driver.counters()["failed_processing"] == 1


@pytest.mark.parametrize("where", PARTITIONED)
@pytest.mark.parametrize("choice", [99, "0"])
@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
def test_the_good_records_of_a_batch_are_written_around_one_without_a_partition(
    where: str, choice: Any, generate: bool
) -> None:
    def run(processing: ExceptionHandler) -> tuple[list[bytes | None], ProcessingError | None]:
        written: list[bytes | None] = []
        collector = RecordCollector(
            lambda topic, partition, batch, count: written.extend(decode_batch(batch).values), lambda _: 3
        )
        task = Task(
            partitioned(where, choice).subtopologies[0],
            0,
            application_id="app",
            stores={},
            collector=collector,
            config=TaskConfig(
                default_key_serde=serdes.string,
                default_value_serde=serdes.string,
                generate=generate,
                handlers=ExceptionHandlers(processing=processing, production=log_and_continue),
            ),
            partitions_of_topic=lambda _: 3,
        )
        values: list[bytes | None] = [b"one", b"two", b"bad", b"three"]
        task.add_batch("in", 0, RecordColumns([b"k"] * 4, values, [1, 2, 3, 4], 10, 14, None, None))
        failed = None
        try:
            task.process(100, 0)
        except ProcessingError as error:
            failed = error
        collector.flush()
        return written, failed

    assert run(log_and_continue) == ([b"one", b"two", b"three"], None)
    written, failed = run(fail)
    assert written == [b"one", b"two"]
    assert failed is not None
    assert (failed.topic, failed.partition, failed.offset) == ("in", 0, 12)
    assert "test_dead_letters.py" in str(failed)


@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
def test_true_is_the_second_partition(generate: bool) -> None:
    for where in PARTITIONED:
        with TopologyTestDriver(
            partitioned(where, True),
            {**SKIPPING, "default.key.serde": serdes.string, "default.value.serde": serdes.string},
            generate=generate,
            partitions=3,
        ) as driver:
            driver.pipe_raw("in", b"k", b"bad", 1)
            assert letters_of(driver) == []
            assert driver.producer_history[0].partition == 1


@pytest.mark.parametrize("name", ["bad name!", "", ".", "..", "a/b", "ä", "x" * 250, "line\n"])
def test_a_name_that_no_topic_may_have_fails_in_processing(name: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to(lambda k, v, c: name if v == "bad" else "x" * 249, **TEXT)
    topology = builder.build()
    with TopologyTestDriver(topology, SKIPPING) as driver:
        for value in (b"good", b"bad", b"good"):
            driver.pipe_raw("in", b"k", value, 1)
        assert [record.topic for record in driver.producer_history] == ["x" * 249, "dlq", "x" * 249]
        message = dict(driver.producer_history[1].headers)["__streams.errors.message"] or b""
        assert f"{name!r}, which is not a valid topic name" in message.decode()
    for handlers in ({}, {"production.exception.handler": "continue"}):
        with (
            TopologyTestDriver(topology, handlers) as driver,
            pytest.raises(ProcessingError, match="not a valid topic name"),
        ):
            driver.pipe_raw("in", b"k", b"bad", 1)


@pytest.mark.parametrize("generate", [True, False])
def test_an_error_with_half_of_a_surrogate_pair_has_a_letter(generate: bool) -> None:
    def refuse(value: str) -> str:
        raise ValueError(f"{value} \ud800")

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).map_values(refuse).to("out", value=serdes.string)
    config = {DLQ: "dlq", "processing.exception.handler": "continue"}
    with TopologyTestDriver(builder.build(), config, generate=generate) as driver:
        driver.pipe_raw("in", b"k", b"half", 5)
        (letter,) = driver.producer_history
    headers = dict(letter.headers)
    assert headers["__streams.errors.message"] == b"half ?"
    assert (headers["__streams.errors.stacktrace"] or b"").endswith(b"ValueError: half ?\n")
