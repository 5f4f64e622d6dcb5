"""Connections of a listener with SASL: nothing is served before the client has said who it is.

1. Before that, ApiVersions, SaslHandshake and SaslAuthenticate are answered, in this order of use; anything else ends the
   connection, as on Kafka.
2. Credentials that are refused get one answer that says so; then the connection is closed.
3. Until then no frame larger than ``sasl.server.max.receive.size`` is read.
4. A client that is known may say again who it is (KIP-368), as the same user.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from coordinator.broker.api_versions import SERVED
from coordinator.broker.credentials import Credentials
from coordinator.security.acls import ANONYMOUS
from coordinator.security.plain import PlainServer
from coordinator.security.scram import LoginRefusedError, Mechanism, ScramServer
from coordinator.server.tcp import Answer, Parts, Peer, ProtocolViolationError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import RequestHeader, decode_request, encode_response_parts
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    Message,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

logger = logging.getLogger("coordinator.server")

_SASL = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
FRAME_BYTES_MAX = 512 << 10
"""``sasl.server.max.receive.size`` of Kafka: a client that logs in sends no larger ones."""


class Exchange(Protocol):
    """One exchange of a mechanism. ``user``: who it is, once it is over."""

    user: str | None

    def step(self, message: bytes) -> bytes: ...


class Serve(Protocol):
    """Answers a frame of a client: of an anonymous one, or of one that is known."""

    def __call__(self, frame: memoryview | bytes, client_host: str, principal: str = ANONYMOUS) -> Answer: ...


Exchanges = Mapping[str, Callable[[], Exchange]]


def exchanges(names: tuple[str, ...], users: Mapping[str, str], credentials: Credentials) -> Exchanges:
    """What begins an exchange, by the names of the mechanisms. ``users``: passwords for PLAIN. Raises the log's errors."""
    decoy_key = credentials.decoy_key(secrets.token_bytes)

    def scram(mechanism: Mechanism) -> Callable[[], Exchange]:
        return lambda: ScramServer(
            mechanism,
            lambda user: credentials.of(mechanism, user),
            secrets.token_bytes,
            lambda user: credentials.decoy(mechanism, user, decoy_key),
        )

    known: dict[str, Callable[[], Exchange]] = {mechanism.sasl_name: scram(mechanism) for mechanism in Mechanism}
    known["PLAIN"] = lambda: PlainServer(users)
    return {name: known[name] for name in names}


class SaslSession:
    """The handler of one connection: ``handle`` passes frames on to ``serve`` once the client is known."""

    def __init__(self, serve: Serve, offered: Exchanges, peer: Peer) -> None:
        self._serve = serve
        self._offered = offered
        self._peer = peer
        self._frame_bytes_max = peer.frame_bytes_max
        peer.frame_bytes_max = min(peer.frame_bytes_max, FRAME_BYTES_MAX)
        self._exchange: Exchange | None = None
        self._refused = False
        self.user: str | None = None

    def handle(self, frame: memoryview | bytes, client_host: str) -> Answer:
        """The answer to one frame. Raises ProtocolViolationError."""
        if self._refused:
            raise ProtocolViolationError("the client's credentials were refused")
        if self.user is not None and _key_of(frame) not in _SASL:
            return self._serve(frame, client_host, f"User:{self.user}")
        if _key_of(frame) == ApiKey.API_VERSIONS:
            return self._serve(frame, client_host)
        header, message = _decoded(frame)
        if isinstance(message, SaslHandshakeRequest):
            return _encode(header, self._handshake(message.mechanism))
        assert isinstance(message, SaslAuthenticateRequest)
        return _encode(header, self._authenticate(bytes(message.auth_bytes), client_host))

    def _handshake(self, mechanism: str) -> SaslHandshakeResponse:
        begin = self._offered.get(mechanism)
        names = sorted(self._offered)
        if begin is None:
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
        self._exchange = begin()
        return SaslHandshakeResponse(mechanisms=names)

    def _authenticate(self, message: bytes, client_host: str) -> SaslAuthenticateResponse:
        exchange = self._exchange
        if exchange is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received without a SaslHandshake before it",
            )
        try:
            answer = exchange.step(message)
        except LoginRefusedError as error:
            logger.info("refused a client from %s: %s", client_host, error)
            return self._refuse(str(error))
        if exchange.user is not None:
            self._exchange = None
            if self.user not in (None, exchange.user):
                return self._refuse("Authentication failed: the user of a connection can't change")
            self.user = exchange.user
            self._peer.frame_bytes_max = self._frame_bytes_max
        return SaslAuthenticateResponse(auth_bytes=answer)

    def _refuse(self, message: str) -> SaslAuthenticateResponse:
        self._refused = True
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message)


def _key_of(frame: memoryview | bytes) -> int:
    return int.from_bytes(frame[:2], "big")


def _decoded(frame: memoryview | bytes) -> tuple[RequestHeader, Message]:
    """A request of SASL's. Raises ProtocolViolationError for anything else."""
    try:
        header, message = decode_request(frame)
    except DecodeError as error:
        raise ProtocolViolationError(f"a request that can't be decoded: {error}") from error
    low, high = SERVED.get(header.api_key, (0, -1))
    if header.api_key not in _SASL or not low <= header.api_version <= high:
        raise ProtocolViolationError(
            f"API {header.api_key} version {header.api_version} before the client has authenticated (SaslHandshake)"
        )
    return header, message


def _encode(header: RequestHeader, answer: Message) -> Parts:
    return encode_response_parts(answer, header.api_key, header.api_version, header.correlation_id)
