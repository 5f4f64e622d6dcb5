"""From a frame to the bytes of its answer.

1. A request that can't be decoded, or whose version is not served, ends the connection, as in Kafka. ApiVersions is answered
   whatever its version, and an API that the broker does not have with an error where its answer has a place for one.
2. What may be long is decoded, handled and encoded in slices, and other clients are served in between. Small frames take
   the short way, without a task of the event loop unless their answer has to wait.
3. With ACLs, each handler has a guard that decides who may do what.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Mapping
from inspect import isawaitable
from typing import TypeAlias

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
from coordinator.broker.broker import Answer as MessageOrLater
from coordinator.broker.broker import Broker, DisconnectError, Handler, Request
from coordinator.broker.metadata_of_all import MetadataOfAll
from coordinator.broker.refusals import refusal
from coordinator.broker.repeated_heartbeats import RepeatedHeartbeats
from coordinator.broker.splitting import Split, elements_max, in_pieces, is_long, joined, released, split_of
from coordinator.security.acls import ANONYMOUS
from coordinator.server.tcp import Answer, Parts, ProtocolViolationError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import (
    RequestHeader,
    decode_request,
    decode_request_in_steps,
    encode_response_in_steps,
    encode_response_parts,
)
from streamsrt.wire.primitives import DecodeError, UnsupportedVersionError
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import Message, StreamsGroupHeartbeatRequest

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


LARGE_FRAME_BYTES = 1 << 10
"""From which size on a frame may hold more than is to be read at once. A kilobyte of topics without partitions holds 300."""
REPEATED_FRAME_BYTES_MAX = 1 << 14
"""No larger heartbeat is looked up among those before it."""
STEPS_AT_ONCE = 8


class Dispatcher:
    """Decodes a frame, calls its handler, encodes what it gives. What is long is done in slices."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._repeats = RepeatedHeartbeats(broker)
        self._metadata_of_all = MetadataOfAll(broker)
        self._is_guarded = broker.acls.is_on
        handlers = guarded(HANDLERS) if self._is_guarded else HANDLERS
        self._handlers = {**handlers, ApiKey.FETCH: fetch.in_session(handlers[ApiKey.FETCH])}

    def handle(self, frame: memoryview | bytes, client_host: str, principal: str = ANONYMOUS) -> Answer:
        """The answer to one frame. Raises :class:`ProtocolViolationError` where there is none."""
        size = len(frame)
        if size <= REPEATED_FRAME_BYTES_MAX:
            repeated = self._repeats.answer(frame, client_host, principal)
            if repeated is not None:
                return repeated
        if size > LARGE_FRAME_BYTES:
            return self._handle_large(frame, client_host, principal)
        try:
            header, message = decode_request(frame)
        except UnsupportedVersionError as error:
            return self._unsupported(error)
        except DecodeError as error:
            raise ProtocolViolationError(f"a request that can't be decoded: {error}") from error
        return self._answer(frame, header, message, client_host, principal)

    def _answer(
        self, frame: memoryview | bytes, header: RequestHeader, message: Message, client_host: str, principal: str
    ) -> Answer:
        low, high = api_versions.SERVED.get(header.api_key, (0, -1))
        if not low <= header.api_version <= high:
            return self._unserved(header, is_known=high >= 0)
        before = self._repeats.group_of(message) if isinstance(message, StreamsGroupHeartbeatRequest) else None
        request = self._request(header, message, client_host, principal)
        is_of_all = header.api_key == ApiKey.METADATA and metadata.wants_everything(request)
        if is_of_all and (known := self._metadata_of_all.answer(request)) is not None:
            return known
        try:
            answer = self._handlers[header.api_key](self._broker, request)
        except DisconnectError as error:
            raise ProtocolViolationError(str(error)) from error
        if answer is None:
            return None
        if isawaitable(answer):
            return self._when_ready(header, answer)
        parts = _encode(header, answer)
        if is_of_all:
            self._metadata_of_all.note(request, parts)
        if before is not None and len(frame) <= REPEATED_FRAME_BYTES_MAX:
            self._repeats.note(frame, (client_host, principal), message, before, answer, parts)
        return parts

    def _request(self, header: RequestHeader, message: Message, client_host: str, principal: str) -> Request:
        request = Request(header, message, client_host)
        if self._is_guarded:
            request.access = self._broker.acls.access_of(principal, client_host)
        return request

    # ------------------------------------------------------------------------------------------------- large requests

    def _handle_large(self, frame: memoryview | bytes, client_host: str, principal: str) -> Answer:
        """Reads a few elements; what is whole then, and not long, is answered as any other request."""
        api_key, api_version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big")
        steps = decode_request_in_steps(frame, elements_max(api_key))
        try:
            for _ in range(STEPS_AT_ONCE):
                next(steps)
        except StopIteration as stop:
            header, message = stop.value
            if not is_long(split_of(api_key, api_version), message):
                return self._answer(frame, header, message, client_host, principal)
            return self._in_slices(at_once(stop.value), client_host, principal)
        except UnsupportedVersionError as error:
            return self._unsupported(error)
        except DecodeError as error:
            raise ProtocolViolationError(f"a request that can't be decoded: {error}") from error
        return self._in_slices(steps, client_host, principal)

    async def _in_slices(self, steps: Decoding, client_host: str, principal: str) -> Parts | None:
        slices = self._broker.slices
        try:
            async with slices:
                header, message = await slices.run(steps)
                low, high = api_versions.SERVED.get(header.api_key, (0, -1))
                if not low <= header.api_version <= high:
                    return self._unserved(header, is_known=high >= 0)
                answer = await self._long_answer(self._request(header, message, client_host, principal))
                if not isawaitable(answer):
                    return None if answer is None else await slices.run(_encode_in_steps(header, answer))
            late = await answer
            if late is None:
                return None
            async with slices:
                return await slices.run(_encode_in_steps(header, late))
        except DecodeError as error:
            raise ProtocolViolationError(f"a request that can't be decoded: {error}") from error
        except DisconnectError as error:
            raise ProtocolViolationError(str(error)) from error

    async def _long_answer(self, request: Request) -> MessageOrLater:
        """The answer to a request that may be long, or something to await it."""
        api_key = request.header.api_key
        split = split_of(api_key, request.header.api_version)
        if split is None or not is_long(split, request.message):
            return self._handlers[api_key](self._broker, request)
        slices = self._broker.slices
        answers, waiting, refused = await slices.run(self._piecewise(split, request))
        for index, answer in waiting:
            try:
                answers[index] = await answer
            except DisconnectError as error:
                refused = error
        if refused is not None:
            raise refused
        return await slices.run(joined(split, answers))

    def _piecewise(self, split: Split, request: Request) -> Generator[None, None, _Pieces]:
        answers: list[Message | None] = []
        waiting: list[tuple[int, Awaitable[Message | None]]] = []
        refused: DisconnectError | None = None
        for piece in in_pieces(split, request.message):
            if piece is not None:
                part = Request(request.header, piece, request.client_host, request.access)
                answer: MessageOrLater = None
                try:
                    answer = self._handlers[request.header.api_key](self._broker, part)
                except DisconnectError as error:
                    # The other pieces are handled, as they would be in one piece.
                    refused = error
                if isawaitable(answer):
                    waiting.append((len(answers), answer))
                    answers.append(None)
                else:
                    answers.append(answer)
            yield
        yield from released(request.message)
        return answers, waiting, refused

    async def _when_ready(self, header: RequestHeader, answer: Awaitable[Message | None]) -> Parts | None:
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
            answer = api_versions.api_versions(0, ErrorCode.UNSUPPORTED_VERSION)
            return encode_response_parts(answer, ApiKey.API_VERSIONS, 0, correlation_id)
        raise ProtocolViolationError(f"API {api_key} version {api_version} is not served")


_Pieces: TypeAlias = "tuple[list[Message | None], list[tuple[int, Awaitable[Message | None]]], DisconnectError | None]"
"""The responses to the pieces; those that have to be awaited, with their place; why there is none for the client."""
Decoding: TypeAlias = "Generator[None, None, tuple[RequestHeader, Message]]"


def at_once(decoded: tuple[RequestHeader, Message]) -> Decoding:
    """What is decoded already, in no steps."""
    yield from ()
    return decoded


def _encode_in_steps(header: RequestHeader, answer: Message) -> Generator[None, None, Parts]:
    parts = yield from encode_response_in_steps(answer, header.api_key, header.api_version, header.correlation_id)
    yield from released(answer)
    return parts


def _encode(header: RequestHeader, answer: Message) -> list[bytes | memoryview]:
    return encode_response_parts(answer, header.api_key, header.api_version, header.correlation_id)
