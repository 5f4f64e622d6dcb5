"""Letters, marks and which letters are meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamsrt.cli
from streamsrt.dead_letters.letters import (
    MARK_HEADER,
    REPLAYED_HEADER,
    FailedRecord,
    Letter,
    LetterFilter,
    LetterOutcome,
    Mark,
    Outcomes,
    mark_of,
    read_records,
)
from streamsrt.operators.engine.handlers import (
    DeadLetter,
    ErrorContext,
    ExceptionHandlers,
    HandlerResponse,
    dead_letter,
    log_and_continue,
    shortened,
)
from streamsrt.wire.records import Headers, decode_batches, encode_batch

HANDLERS = ExceptionHandlers(
    processing=log_and_continue, application_id="shop", dead_letter_topic="dlq", deserialization=log_and_continue
)
FAILED = ErrorContext(
    topic="orders",
    partition=1,
    offset=17,
    node="KSTREAM-MAPVALUES-0000000001",
    timestamp=5_000,
    source_key=b"k",
    source_value=b"v",
    source_headers=(("h", b"1"),),
    source_timestamp=5_000,
)


def error_of(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def letter_of(context: ErrorContext = FAILED, response: str = "continue") -> DeadLetter:
    handler = log_and_continue if response == "continue" else HANDLERS.production
    (letter,) = HANDLERS.ask(handler, context, error_of("no such thing")).dead_letters
    return letter


def read(*letters: DeadLetter) -> list[Letter]:
    found = [
        each
        for columns in decode_batches(
            encode_batch(
                [letter.key for letter in letters],
                [letter.value for letter in letters],
                [letter.timestamp for letter in letters],
                headers=[letter.headers for letter in letters],
            )
        )
        for each in read_records(3, columns)
    ]
    return [each for each in found if isinstance(each, Letter)]


def test_a_letter_is_read_as_it_was_written() -> None:
    (found,) = read(letter_of())
    assert (found.position, found.key, found.value, found.timestamp) == ((3, 0), b"k", b"v", 5_000)
    assert found.headers == (("h", b"1"),)
    assert found.origin == FailedRecord("orders", 1, 17)
    assert found.error == "ValueError"
    assert found.details["application.id"] == "shop"
    assert found.details["node"] == "KSTREAM-MAPVALUES-0000000001"
    assert __file__ in found.line
    assert found.line.endswith("in error_of")
    assert found.why_not_replayed() is None
    assert found.replayed("dlq") == (("h", b"1"), (REPLAYED_HEADER, b"dlq-3@0"))


def test_a_line_of_the_runtime_itself_is_no_line_of_the_program() -> None:
    trace = "\n".join(
        f'  File "{file}", line 7, in f'
        for file in (
            streamsrt.cli.__file__,
            "<generated>",
            "/x/lib/python3.11/json.py",
            "/x/site-packages/streamsrt/app.py",
        )
    )
    context = dead_letter(FAILED, error_of("x"), "dlq")
    headers = tuple((name, trace.encode() if name.endswith("stacktrace") else value) for name, value in context.headers)
    (found,) = read(context._replace(headers=headers))
    assert found.line == ""
    own = f'{trace}\n  File "/home/me/streamsrt/shop.py", line 8, in amount\n{trace}'
    headers = tuple((name, own.encode() if name.endswith("stacktrace") else value) for name, value in headers)
    (found,) = read(context._replace(headers=headers))
    assert found.line == "/home/me/streamsrt/shop.py:8 in amount"


def test_a_record_that_fails_again_says_how_often_it_was_replayed() -> None:
    (first,) = read(letter_of())
    again = ErrorContext(topic="orders", partition=1, offset=40, node="n", source_headers=first.replayed("dlq"))
    (second,) = read(letter_of(again))
    assert (first.replays, second.replays) == (0, 1)
    assert second.headers == first.replayed("dlq")


def test_a_letter_of_kafka_streams_has_less_to_say() -> None:
    (found,) = read(dead_letter(FAILED, error_of("x"), "dlq"))
    assert found.origin == FailedRecord("orders", 1, 17)
    assert found.why_not_replayed() is None
    assert "application.id" not in found.details


@pytest.mark.parametrize(
    ("context", "response", "why"),
    [
        (ErrorContext(topic="", partition=-1, offset=-1, node="n", source_value=b"v"), "continue", "unknown"),
        (ErrorContext(topic="t", partition=0, offset=4, node="n", is_held=True), "continue", "held back"),
        (FAILED, "fail", "stopped at this record"),
    ],
)
def test_a_letter_that_must_not_be_replayed_says_why(context: ErrorContext, response: str, why: str) -> None:
    (found,) = read(letter_of(context, response))
    assert why in (found.why_not_replayed() or "")


def test_that_the_application_stopped_is_a_reason_that_can_be_overruled() -> None:
    (found,) = read(letter_of(FAILED, "fail"))
    assert found.why_not_replayed(stopped_too=True) is None


def test_what_was_left_out_can_not_be_replayed() -> None:
    short = shortened(letter_of())
    assert short is not None
    (found,) = read(short)
    assert "its value was left out" in (found.why_not_replayed(stopped_too=True) or "")
    assert found.details["application.id"] == "shop", "it is still known whose letter it is"


def test_a_refused_result_goes_to_its_own_topic() -> None:
    refused = ErrorContext(topic="", partition=-1, offset=-1, node="", output_topic="out", source_value=b"v")
    (found,) = read(letter_of(refused))
    assert found.origin == FailedRecord("out", -1, -1)
    assert found.why_not_replayed() is None


def as_record(mark: Mark) -> tuple[bytes, bytes, Headers]:
    return mark.key, mark.value, mark.headers


@given(st.lists(st.sets(st.integers(0, 40), min_size=1), max_size=6), st.sampled_from(LetterOutcome))
def test_marks_say_of_each_letter_what_was_done(sets: list[set[int]], outcome: LetterOutcome) -> None:
    written = [mark_of(outcome, found) for found in sets]
    records = [as_record(mark) for mark in written]
    marks = [
        each
        for key, value, headers in records
        for columns in decode_batches(encode_batch([key], [value], [1], headers=[headers]))
        for each in read_records(2, columns)
        if not isinstance(each, Letter)
    ]
    outcomes = Outcomes(marks)
    done = set().union(*sets)
    for offset in range(42):
        assert outcomes.of((2, offset)) == (outcome if offset in done else None)
        assert outcomes.of((1, offset)) is None


@pytest.mark.parametrize(
    ("key", "value", "outcome", "more"),
    [
        (None, b"?", b"eaten", ()),
        (b"replayed 0-3", b"[[0, 3]]", None, ()),
        (b"replayed 0-3", b"[]", b"replayed", ()),
        (b"replayed 0-3", b"[[0, Infinity]]", b"replayed", ()),
        (b"replayed 0-3", b"[" * 100_000, b"replayed", ()),
        (b"an order", b"[[0, 999999]]", b"replayed", ()),
        (b"replayed 0-3", b"[[0, 3]]", b"replayed", ((REPLAYED_HEADER, b"dlq-3@0"),)),
    ],
)
def test_a_mark_of_somebody_else_says_nothing(
    key: bytes | None, value: bytes, outcome: bytes | None, more: Headers
) -> None:
    headers = ((MARK_HEADER, outcome), *more)
    batch = encode_batch([key], [value], [1], headers=[headers])
    (found,) = [each for columns in decode_batches(batch) for each in read_records(0, columns)]
    assert isinstance(found, Letter)
    assert not found.is_letter


def test_a_mark_of_another_topic_that_failed_is_a_letter() -> None:
    mark = mark_of(LetterOutcome.REPLAYED, range(4))
    context = ErrorContext(
        topic="orders-dlq",
        partition=0,
        offset=6,
        node="n",
        source_key=mark.key,
        source_value=mark.value,
        source_headers=mark.headers,
    )
    for letter in (letter_of(context), dead_letter(context, error_of("x"), "dlq"), shortened(letter_of(context))):
        assert letter is not None
        (found,) = read(letter)
        assert found.is_letter
        assert found.headers == mark.headers


NAMES = (
    "h",
    *(f"__streams.errors.{name}" for name in ("exception", "topic", "offset", "omitted.value.bytes", "new")),
    *(f"__streamsrt.letter.{name}" for name in ("node", "held", "response")),
    MARK_HEADER,
)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.just(b"fail") | st.binary(max_size=3)), max_size=6),
    st.booleans(),
)
def test_headers_of_the_record_come_back_whatever_their_names_are(
    own: list[tuple[str, bytes | None]], of_java: bool
) -> None:
    context = ErrorContext(
        topic="orders", partition=1, offset=17, node="n", source_key=b"k", source_value=b"v", source_headers=tuple(own)
    )
    (found,) = read(dead_letter(context, error_of("x"), "dlq") if of_java else letter_of(context))
    assert found.headers == tuple(own)
    assert found.origin == FailedRecord("orders", 1, 17)
    assert found.error == "ValueError"
    assert found.why_not_replayed() is None
    short = shortened(letter_of(context))
    assert short is not None
    (without_value,) = read(short)
    assert without_value.headers == tuple(own)
    assert "its value was left out" in (without_value.why_not_replayed() or "")


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (LetterFilter(), True),
        (LetterFilter(applications=frozenset({"shop"}), topics=frozenset({"orders", "x"})), True),
        (LetterFilter(applications=frozenset({"other"})), False),
        (LetterFilter(errors=frozenset({"ValueError"})), True),
        (LetterFilter(errors=frozenset({"KeyError"})), False),
        (LetterFilter(steps=frozenset({"KSTREAM-MAPVALUES-0000000001"})), True),
        (LetterFilter(steps=frozenset({"KSTREAM-MAP-0000000001"})), False),
        (LetterFilter(contains="such"), True),
        (LetterFilter(contains="other"), False),
        (LetterFilter(from_ms=5_000, before_ms=5_001), True),
        (LetterFilter(from_ms=5_001), False),
        (LetterFilter(before_ms=5_000), False),
        (LetterFilter(positions=frozenset({(3, 0)})), True),
        (LetterFilter(positions=frozenset({(0, 3)})), False),
    ],
)
def test_which_letters_are_meant(wanted: LetterFilter, is_meant: bool) -> None:
    (found,) = read(letter_of())
    assert wanted.includes(found) is is_meant


def test_the_response_is_that_of_the_handler() -> None:
    (letter,) = HANDLERS.ask(log_and_continue, FAILED, error_of("x")).dead_letters
    assert dict(letter.headers)["__streamsrt.letter.response"] == HandlerResponse.CONTINUE.value.encode()


def test_a_record_without_the_headers_of_a_letter_is_none() -> None:
    (letter,) = read(letter_of())
    (record,) = read(DeadLetter("orders", b"k", b"v", 1, (("h", b"1"),)))
    (replayed,) = read(DeadLetter("orders", b"k", b"v", 1, letter.replayed("dlq")))
    assert [each.is_letter for each in (letter, record, replayed)] == [True, False, False]
