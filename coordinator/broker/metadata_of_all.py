"""Encoded responses to Metadata requests for all topics, which get the same bytes again.

Every client asks for it when it starts, and a cluster of hundreds of topics takes milliseconds to describe.

1. A response is a function of the request's version and flags, the sender's rights, the topics and the node's address.
2. It holds while the image of the topics is the same object: whatever changes topics or ACLs makes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.broker.broker import Broker, Request
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.types import MetadataRequest

KNOWN_BYTES_MAX = 8 << 20
_CORRELATION = slice(4, 8)


class MetadataOfAll:
    """The remembered responses, by version, flags and rights."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[tuple[object, ...], bytes] = {}
        self._known_bytes = 0
        self._image: TopicsImage | None = None

    def answer(self, request: Request) -> list[bytes | memoryview] | None:
        """Returns the remembered response, or None."""
        image = self._broker.topics.image()
        if image is not self._image:
            self._image = image
            self._forget()
        known = self._known.get(self._key(request))
        if known is None:
            return None
        correlation = request.header.correlation_id.to_bytes(4, "big", signed=True)
        return [known[: _CORRELATION.start] + correlation, memoryview(known)[_CORRELATION.stop :]]

    def note(self, request: Request, parts: Sequence[bytes | memoryview]) -> None:
        """Remembers what was answered; :meth:`answer` was asked before."""
        size_bytes = sum(map(len, parts))
        if size_bytes > KNOWN_BYTES_MAX:
            return
        if self._known_bytes + size_bytes > KNOWN_BYTES_MAX:
            self._forget()
        self._known[self._key(request)] = b"".join(parts)
        self._known_bytes += size_bytes

    def _forget(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def _key(self, request: Request) -> tuple[object, ...]:
        message: MetadataRequest = request.message
        broker = self._broker
        return (
            request.header.api_version,
            message.include_cluster_authorized_operations,
            message.include_topic_authorized_operations,
            request.access,
            (broker.host, broker.port, broker.configs["broker.rack"]),
        )
