"""What happens to a record that fails: Kafka Streams' three exception handlers as callables.

``deserialization.exception.handler``, ``processing.exception.handler`` and ``production.exception.handler`` each get a
:class:`ErrorContext` and the exception, and answer :attr:`HandlerResponse.FAIL` (the task stops, nothing after the record
is done) or :attr:`HandlerResponse.CONTINUE` (it is skipped and counted).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamsrt.errors import ConfigError


class HandlerResponse(Enum):
    """The answer of an exception handler."""

    FAIL = "fail"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """Where a record failed. ``offset`` -1: not while a record was read (a commit or a punctuation)."""

    topic: str
    partition: int
    offset: int
    node: str
    timestamp: int = -1
    key: Any = None
    value: Any = None
    headers: Any = ()


ExceptionHandler = Callable[[ErrorContext, BaseException], HandlerResponse]


def fail(context: ErrorContext, error: BaseException) -> HandlerResponse:
    """Kafka Streams' LogAndFail handlers: the default."""
    return HandlerResponse.FAIL


def log_and_continue(context: ErrorContext, error: BaseException) -> HandlerResponse:
    """Kafka Streams' LogAndContinue handlers: the record is skipped and counted."""
    return HandlerResponse.CONTINUE


def handler_of(setting: object) -> ExceptionHandler:
    """The handler for a setting: ``"fail"``, ``"continue"``, or a callable ``(context, error) -> HandlerResponse``.

    A callable may answer with the words too. Raises ConfigError for anything else.
    """
    if setting == "fail":
        return fail
    if setting == "continue":
        return log_and_continue
    if not callable(setting):
        raise ConfigError(f"an exception handler is 'fail', 'continue' or a callable (context, error), not {setting!r}")

    def ask(context: ErrorContext, error: BaseException) -> HandlerResponse:
        return HandlerResponse(setting(context, error))

    return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionHandlers:
    """The three handlers of an application."""

    deserialization: ExceptionHandler = field(default=fail)
    processing: ExceptionHandler = field(default=fail)
    production: ExceptionHandler = field(default=fail)
