"""What happens to a record that fails: Kafka Streams' three exception handlers as callables.

``deserialization.exception.handler``, ``processing.exception.handler`` and ``production.exception.handler`` each get a
:class:`ErrorContext` and the exception, and answer :attr:`HandlerResponse.FAIL` (the task stops, nothing after the record
is done), :attr:`HandlerResponse.CONTINUE` (it is skipped and counted), or, in production, :attr:`HandlerResponse.RETRY`.
Functions that choose a record's topic or partition fail in processing; production is its serdes and the cluster.

With the deserialization handler ``fail``, a key or value that no step reads is not deserialized: bytes pass as they are.
With any other handler, every key and value is deserialized when the record is read, as in Kafka Streams
(:attr:`ExceptionHandlers.reads_all`). :func:`strict` is ``fail`` with that.

Either answer may come with dead letters (:class:`Response`), which are sent before the task stops or goes on. Where
``errors.dead.letter.queue.topic.name`` is set, the handlers ``fail`` and ``continue`` send one (:func:`dead_letter`): the
key and value of the record that the task read, as bytes, its timestamp and headers, and headers that say what went wrong
where. Kafka Streams has the same but for the headers of :data:`LETTER_HEADER_PREFIX`. A change that a cache or a
suppression held back is sent itself, and so is a record that a punctuation forwarded. A letter that is too large for its
topic is sent again without its value, then without its key, and at last with the headers of the error alone
(:func:`shortened`).
Processors of global stores ask the processing handler only with ``processing.exception.handler.global.enabled``, and
nothing there sends dead letters.

Source: KIP-1034, KIP-1270, ExceptionHandlerUtils of Kafka Streams.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from traceback import format_exception
from typing import NamedTuple, TypeAlias

from streamsrt.errors import ConfigError, ProductionError
from streamsrt.wire.records import Headers
from streamsrt.wording import error_message


class HandlerResponse(Enum):
    """The answer of an exception handler."""

    FAIL = "fail"
    CONTINUE = "continue"
    RETRY = "retry"
    """The tasks restart from the last commit. Only for retriable production errors; otherwise the same as FAIL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """The failed record and where it failed. Without ``topic``, no record was being read (a commit or a punctuation), and
    ``offset`` is -1. With a topic, a negative offset is that of a record of a lake, in a backfill.

    Where the cluster does not take a record (``error`` is a ProductionError then, with ``error_code`` and ``is_retriable``),
    ``output_topic`` and ``output_partition`` say where it was to go, and key, value and headers are the record's, as bytes.
    """

    topic: str
    partition: int
    offset: int
    node: str
    timestamp: int = -1
    key: object = None
    value: object = None
    headers: Headers = ()
    source_key: bytes | None = None
    source_value: bytes | None = None
    source_headers: Headers = ()
    source_timestamp: int = -1
    """Key, value, headers and timestamp of the record that the task read; None, () and -1 if it read none. For a change
    that a cache or a suppression held back, a record that a punctuation forwarded, and a record that the cluster does
    not accept: its own."""
    is_held: bool = False
    """``source_key`` and ``source_value`` are those of a change that an operator held back; topic, partition and offset
    are those of the record that caused it."""
    output_topic: str = ""
    output_partition: int = -1


class DeadLetter(NamedTuple):
    """A record for a dead-letter topic. ``timestamp``: epoch milliseconds."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Response(NamedTuple):
    """A handler's response with dead letters to send."""

    result: HandlerResponse
    dead_letters: tuple[DeadLetter, ...] = ()


Answer: TypeAlias = HandlerResponse | Response
ExceptionHandler = Callable[[ErrorContext, BaseException], Answer]

logger = logging.getLogger(__name__)

ERROR_HEADER_PREFIX = "__streams.errors."
LETTER_HEADER_PREFIX = "__streamsrt.letter."
"""The prefix of headers that Kafka Streams does not have: ``application.id``, ``node``, ``response`` (the response of
the handler), and ``held`` if the letter is not the record that was read but a change that an operator held back."""
OMITTED_HEADER_PREFIX = f"{ERROR_HEADER_PREFIX}omitted."
_TEXT_BYTES_MAX = 500
"""The size that a message or a stack trace has in the shortest letter."""


def dead_letter(context: ErrorContext, error: BaseException, topic: str) -> DeadLetter:
    """The dead letter of a failed record, as Kafka Streams makes it (KIP-1034)."""
    kind = type(error)
    fields = {
        "exception": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "message": error_message(error),
        "stacktrace": "".join(format_exception(error)),
        "topic": context.topic or context.output_topic or None,
        "partition": str(context.partition),
        "offset": str(context.offset),
    }
    # A text may have half of a surrogate pair, such as one out of JSON. Java writes a question mark, too.
    added = tuple(
        (ERROR_HEADER_PREFIX + name, None if text is None else text.encode(errors="replace"))
        for name, text in fields.items()
    )
    headers = (*context.source_headers, *added)
    timestamp = context.timestamp if context.source_timestamp < 0 else context.source_timestamp
    return DeadLetter(topic, context.source_key, context.source_value, timestamp, headers)


def own_headers_of(headers: Headers) -> int:
    """How many of a letter's headers, the first ones, are those of its record. They may have the same names as those that
    were added, which are the last ones: the record of a dead-letter topic, for example, fails in its turn."""
    names = [name for name, _ in headers]
    first = f"{ERROR_HEADER_PREFIX}exception"
    if first not in names:
        return 0
    index = len(names) - 1 - names[::-1].index(first)
    # In any other order they are not ours, nor those of Kafka Streams.
    return index if f"{ERROR_HEADER_PREFIX}topic" in names[index:] else 0


def shortened(letter: DeadLetter) -> DeadLetter | None:
    """Returns the letter with less content, if it was too large; None if nothing more can be left out.

    The value is left out first, then the key, then the record's own headers and the ends of long texts. Headers say
    what was left out, and of how many bytes.
    """
    if letter.value:
        return letter._replace(value=None, headers=(*letter.headers, _omitted("value", len(letter.value))))
    if letter.key:
        return letter._replace(key=None, headers=(*letter.headers, _omitted("key", len(letter.key))))
    ours = (ERROR_HEADER_PREFIX, LETTER_HEADER_PREFIX)
    added = letter.headers[own_headers_of(letter.headers) :]
    fields = tuple((name, value) for name, value in added if name.startswith(ours))
    kept = tuple((name, value[:_TEXT_BYTES_MAX] if value else value) for name, value in fields)
    left_out = _bytes(letter.headers) - _bytes(kept)
    return letter._replace(headers=(*kept, _omitted("headers", left_out))) if left_out else None


def _omitted(what: str, size: int) -> tuple[str, bytes]:
    return f"{OMITTED_HEADER_PREFIX}{what}.bytes", str(size).encode()


def _bytes(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def fail(context: ErrorContext, error: BaseException) -> HandlerResponse:
    """The default (Kafka Streams' LogAndFail and DefaultProductionExceptionHandler): errors that may pass are retried."""
    return HandlerResponse.RETRY if _may_pass(error) else HandlerResponse.FAIL


def log_and_continue(context: ErrorContext, error: BaseException) -> HandlerResponse:
    """Kafka Streams' LogAndContinue handlers: the record is skipped and counted; but errors that may pass are retried."""
    return HandlerResponse.RETRY if _may_pass(error) else HandlerResponse.CONTINUE


def strict(context: ErrorContext, error: BaseException) -> HandlerResponse:
    """For deserialization: as :func:`fail`, but every record is deserialized when it is read (Kafka Streams' LogAndFail)."""
    return fail(context, error)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ProductionError) and error.is_retriable


def handler_of(
    setting: object, name: str = "an exception handler", words: Sequence[str] = ("fail", "continue")
) -> ExceptionHandler:
    """The handler for the setting called ``name``: ``"fail"``, ``"continue"``, or a callable
    ``(context, error) -> HandlerResponse``.

    A callable may answer with the words too, or with a :class:`Response`. Raises ConfigError for anything else.
    """
    if setting == "fail":
        return fail
    if setting == "continue":
        return log_and_continue
    if not callable(setting):
        close = difflib.get_close_matches(str(setting), words, n=1)
        question = f": did you mean {close[0]!r}?" if close else "."
        raise ConfigError(
            f"{name}={setting!r}{question} Give {', '.join(map(repr, words))} or a callable (context, error)"
        )

    def ask(context: ErrorContext, error: BaseException) -> Answer:
        answer = setting(context, error)
        if isinstance(answer, Response):
            return answer._replace(result=HandlerResponse(answer.result))
        return HandlerResponse(answer)

    return ask


def deserialization_handler_of(setting: object, name: str = "an exception handler") -> ExceptionHandler:
    """As :func:`handler_of`; the setting may also be ``"strict"``."""
    return strict if setting == "strict" else handler_of(setting, name, ("fail", "continue", "strict"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionHandlers:
    """The three handlers of an application."""

    deserialization: ExceptionHandler = field(default=fail)
    processing: ExceptionHandler = field(default=fail)
    production: ExceptionHandler = field(default=fail)
    application_id: str = ""
    dead_letter_topic: str | None = None
    """Where the handlers :func:`fail`, :func:`strict` and :func:`log_and_continue` send dead letters."""
    sends_dead_letters: bool = True
    """False: they can't be sent; dead letters that a handler gives are dropped with a warning."""
    processing_advice: str = "processing.exception.handler=continue"
    """The setting with which the processing handler skips failed records."""

    @property
    def reads_all(self) -> bool:
        """Whether every key and value is deserialized, so that one that can't be is noticed although no step reads it."""
        return self.deserialization is not fail

    @property
    def may_skip_unreadable(self) -> bool:
        """Whether a record that can't be deserialized may be skipped."""
        return self.deserialization not in (fail, strict)

    def ask(
        self, handler: ExceptionHandler, context: ErrorContext, error: BaseException, *, always_fails: bool = False
    ) -> Response:
        """Returns the response of one of the handlers, with all dead letters. ``always_fails``: the task fails whatever the
        response is, and our letters show it: the record is read again."""
        answer = handler(context, error)
        if always_fails and not isinstance(answer, Response):
            answer = HandlerResponse.FAIL
        if isinstance(answer, Response):
            return answer if self.sends_dead_letters else self._without_letters(answer)
        is_ours = handler in (fail, strict, log_and_continue)
        sends = is_ours and self.sends_dead_letters and answer is not HandlerResponse.RETRY
        if self.dead_letter_topic is not None and sends:
            return Response(answer, (self._letter(context, error, self.dead_letter_topic, answer),))
        return Response(answer)

    def _letter(self, context: ErrorContext, error: BaseException, topic: str, answer: HandlerResponse) -> DeadLetter:
        letter = dead_letter(context, error, topic)
        fields = {"application.id": self.application_id, "node": context.node, "response": answer.value}
        if context.is_held:
            fields["held"] = "true"
        added = tuple((LETTER_HEADER_PREFIX + name, value.encode()) for name, value in fields.items())
        return letter._replace(headers=(*letter.headers, *added))

    def of_global_stores(self, *, processing: bool) -> ExceptionHandlers:
        """The handlers of global stores: no dead letters, and the processing handler only if it is enabled (KIP-1270)."""
        advice = f"{self.processing_advice} and processing.exception.handler.global.enabled=true"
        return ExceptionHandlers(
            deserialization=self.deserialization,
            processing=self.processing if processing else fail,
            production=self.production,
            sends_dead_letters=False,
            processing_advice=advice,
        )

    @staticmethod
    def _without_letters(answer: Response) -> Response:
        for letter in answer.dead_letters:
            logger.warning("global stores send no dead letters: one for topic %s is dropped", letter.topic)
        return answer._replace(dead_letters=())
