"""From a frame to the bytes of its answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from inspect import isawaitable
from typing import Any

from coordinator.broker import (
    api_versions,
    cluster_admin,
    configs,
    fetch,
    groups,
    metadata,
    produce,
    security,
    topic_admin,
    transactions,
)
from coordinator.broker.authorization.rules import guarded
from coordinator.broker.broker import Broker, DisconnectError, Handler, Request
from coordinator.broker.refusals import refusal
from coordinator.broker.repeated_heartbeats import RepeatedHeartbeats
from coordinator.security.acls import ANONYMOUS
from coordinator.server.tcp import Answer, Parts, ProtocolViolationError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import RequestHeader, decode_request, encode_response_parts
from streamsrt.wire.primitives import DecodeError, UnsupportedVersionError
from streamsrt.wire.schema import ApiKey

logger = logging.getLogger("coordinator.server")

HANDLERS: Mapping[int, Handler] = {
    **api_versions.HANDLERS,
    **cluster_admin.HANDLERS,
    **configs.HANDLERS,
    **fetch.HANDLERS,
    **groups.HANDLERS,
    **metadata.HANDLERS,
    **produce.HANDLERS,
    **security.HANDLERS,
    **topic_admin.HANDLERS,
    **transactions.HANDLERS,
}


class Dispatcher:
    """Decodes a frame, calls its handler, encodes what it gives."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._repeats = RepeatedHeartbeats(broker)
        self._is_guarded = broker.acls.is_on
        self._handlers = guarded(HANDLERS) if self._is_guarded else HANDLERS

    def handle(self, frame: memoryview | bytes, client_host: str, principal: str = ANONYMOUS) -> Answer:
        """The answer to one frame. Raises :class:`ProtocolViolationError` where there is none."""
        repeated = self._repeats.answer(frame, client_host, principal)
        if repeated is not None:
            return repeated
        try:
            header, message = decode_request(frame)
        except UnsupportedVersionError as error:
            return self._unsupported(error)
        except DecodeError as error:
            raise ProtocolViolationError(f"a request that can't be decoded: {error}") from error
        low, high = api_versions.SERVED.get(header.api_key, (0, -1))
        if not low <= header.api_version <= high:
            return self._unserved(header, is_known=high >= 0)
        settled = self._repeats.group_of(message) if header.api_key == ApiKey.STREAMS_GROUP_HEARTBEAT else None
        try:
            request = Request(header, message, client_host)
            if self._is_guarded:
                request.access = self._broker.acls.access_of(principal, client_host)
            answer = self._handlers[header.api_key](self._broker, request)
        except DisconnectError as error:
            raise ProtocolViolationError(str(error)) from error
        if answer is None:
            return None
        if isawaitable(answer):
            return self._when_ready(header, answer)
        parts = _encode(header, answer)
        if settled is not None:
            self._repeats.note(frame, (client_host, principal), message, settled, answer, parts)
        return parts

    async def _when_ready(self, header: RequestHeader, answer: Awaitable[Any]) -> Parts | None:
        try:
            message = await answer
        except DisconnectError as error:
            raise ProtocolViolationError(str(error)) from error
        return None if message is None else _encode(header, message)

    def _unserved(self, header: RequestHeader, *, is_known: bool) -> Parts:
        refused = None if is_known else refusal(header.api_key)
        if refused is not None:
            return _encode(header, refused)
        return self._refuse(header.api_key, header.api_version, header.correlation_id)

    def _unsupported(self, error: UnsupportedVersionError) -> Parts:
        return self._refuse(error.api_key, error.api_version, error.correlation_id)

    def _refuse(self, api_key: int, api_version: int, correlation_id: int) -> Parts:
        if api_key == ApiKey.API_VERSIONS:
            answer = api_versions.api_versions(ErrorCode.UNSUPPORTED_VERSION)
            return encode_response_parts(answer, ApiKey.API_VERSIONS, 0, correlation_id)
        raise ProtocolViolationError(f"API {api_key} version {api_version} is not served")


def _encode(header: RequestHeader, answer: Any) -> Parts:
    return encode_response_parts(answer, header.api_key, header.api_version, header.correlation_id)
