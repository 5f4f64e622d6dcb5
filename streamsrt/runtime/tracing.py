"""OpenTelemetry: spans of the processing thread (``otel.spans``).

1. A span covers one iteration that processed records, or one commit, never a record: there are a few per second,
   created afterwards.
2. The trace of a record continues without this: its headers, including ``traceparent``, are copied to its results.
3. Spans go to the tracer provider that the application has set up; without one, OpenTelemetry drops them.

It needs ``pip install 'streamsrt[otel]'``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError

OnWork: TypeAlias = Callable[[str, int, int, int], None]
"""``(kind, began, ended, items)``: what was done, from when to when (``time.monotonic_ns``), and for how many records."""


def no_spans(kind: str, began_ns: int, ended_ns: int, items: int) -> None:
    """Used without tracing: does nothing."""


def spans_of(config: StreamsConfig) -> OnWork:
    """Returns a function that creates a span for each piece of work. Raises ConfigError if OpenTelemetry is requested and
    not installed."""
    if not config.otel_spans:
        return no_spans
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise ConfigError("otel.spans=true needs OpenTelemetry: pip install 'streamsrt[otel]'") from error
    tracer = trace.get_tracer("streamsrt")
    common: dict[str, str | int] = {"messaging.system": "kafka", "messaging.consumer.group.name": config.application_id}

    def add(kind: str, began_ns: int, ended_ns: int, items: int) -> None:
        # The machine's clock may be set, and goes on while the machine sleeps.
        ahead_ns = time.time_ns() - time.monotonic_ns()
        attributes = {**common, "messaging.batch.message_count": items} if kind == "process" else common
        span = tracer.start_span(
            f"{config.application_id} {kind}", start_time=began_ns + ahead_ns, attributes=attributes
        )
        span.end(ended_ns + ahead_ns)

    return add
