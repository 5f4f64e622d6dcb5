"""Records that the cluster rejects: the production exception handler decides (KIP-210, KIP-1065).

1. The handler gets the record that was to be written. The record from which it was computed is not known any more:
   source topic and offset are unknown. The handler is called while results are sent or a commit waits for
   acknowledgements.
2. CONTINUE leaves out that record and counts it; the log follows the count. FAIL ends the application, and nothing
   since the last commit is committed. RETRY, for errors that may be temporary (``error.is_retriable``), restarts the
   tasks; for anything else it is FAIL.
3. Dead letters contain the refused record. They are sent with the results around it. With FAIL, they are sent after
   everything else was dropped, and not at all if exactly once undoes the last transaction. A refused dead letter causes
   no other one.
4. A letter that is too large for the dead-letter topic is sent again without its largest parts, until it is accepted:
   the handler is called only if nothing more can be left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamsrt.client.refused_batches import TOO_LARGE
from streamsrt.client.values import RefusalAnswer, RefusedRecord
from streamsrt.errors import ProductionError, StreamsError
from streamsrt.operators.engine.handlers import (
    OMITTED_HEADER_PREFIX,
    DeadLetter,
    ErrorContext,
    ExceptionHandlers,
    HandlerResponse,
    own_headers_of,
    shortened,
)
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wording import error_text
from topology.graph.nodes import SinkNode
from topology.graph.topology import Topology

logger = logging.getLogger(__name__)

_KEY_MAX = 80


def sinks_of(topology: Topology) -> dict[str, str]:
    """Returns the sink node by topic, without topics that are chosen per record."""
    return {
        node.topic: node.name
        for part in topology.subtopologies
        for node in part.nodes
        if isinstance(node, SinkNode) and node.topic is not None
    }


def _which(record: RefusedRecord, node: str) -> str:
    """Which record it is, as far as that is known here, and how to go on without it."""
    key = repr(record.key)
    shown = key if len(key) <= _KEY_MAX else f"{key[:_KEY_MAX]}…"
    size = len(record.key or b"") + len(record.value or b"")
    by = f", written by {node}" if node else ""
    return (
        f"It is the record with the key {shown}, the timestamp {record.timestamp} and {size:,} bytes of key and value{by}. "
        "production.exception.handler=continue leaves such records out"
    )


class RefusedRecords:
    """Handles records that the cluster rejects, for the producer and the collector of a thread."""

    def __init__(self, handlers: ExceptionHandlers, collector: RecordCollector, nodes: Mapping[str, str]) -> None:
        self._handlers = handlers
        self._collector = collector
        self._nodes = nodes
        self._last_letters: tuple[DeadLetter, ...] = ()

    def __call__(self, record: RefusedRecord) -> RefusalAnswer:
        """Returns what happens to a rejected record. Raises ProductionError if the handler itself fails."""
        if self._is_sent_shorter(record):
            return RefusalAnswer.DROP
        context = ErrorContext(
            topic="",
            partition=-1,
            offset=-1,
            node=self._nodes.get(record.topic, ""),
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
            source_key=record.key,
            source_value=record.value,
            source_headers=record.headers,
            output_topic=record.topic,
            output_partition=record.partition,
        )
        try:
            result, letters = self._handlers.ask(self._handlers.production, context, record.error)
        except Exception as error:
            raise ProductionError(
                f"the production exception handler raised {error_text(error)}, asked about a record for "
                f"{record.topic}-{record.partition}: {record.error}",
                record.topic,
                record.partition,
            ) from error
        letters = tuple(letter for letter in letters if letter.topic != record.topic)
        if result is HandlerResponse.CONTINUE:
            self._send(letters)
            self._collector.dropped_records += 1
            self._collector.last_refusal = str(record.error)
            return RefusalAnswer.DROP
        if result is HandlerResponse.RETRY and record.error.is_retriable:
            return RefusalAnswer.START_OVER
        self._last_letters = letters
        record.error.args = (f"{record.error} {_which(record, context.node)}",)
        return RefusalAnswer.FAIL

    def _is_sent_shorter(self, record: RefusedRecord) -> bool:
        """Whether it is a dead letter that was too large, and a shorter one was sent instead."""
        if record.topic != self._handlers.dead_letter_topic or record.error.error_code not in TOO_LARGE:
            return False
        letter = DeadLetter(record.topic, record.key, record.value, record.timestamp, record.headers)
        if (shorter := shortened(letter)) is None:
            return False
        self._send((shorter,))
        added = record.headers[own_headers_of(record.headers) :]
        if not any(name.startswith(OMITTED_HEADER_PREFIX) for name, _ in added):
            self._collector.shortened_letters += 1
            self._collector.last_shortened = str(record.error)
        return True

    def _send(self, letters: tuple[DeadLetter, ...]) -> None:
        for letter in letters:
            self._collector.send_alone(letter.topic, letter.key, letter.value, letter.timestamp, letter.headers)

    def send_last_letters(self) -> None:
        """Sends the dead letters of failed records. Errors are logged."""
        letters, self._last_letters = self._last_letters, ()
        try:
            self._send(letters)
        except StreamsError as error:
            logger.warning("the dead letter of the failed record could not be written: %s", error)
