"""One connection to one broker: any message of the wire package, version by version.

1. Responses come in the order of the requests, as Kafka guarantees per connection; several requests may be in flight.
2. A frame is in a buffer of its own (:mod:`streamsrt.client.frames`); ``records`` of a response are views into it and keep
   it. Large buffers of Fetch responses are used again afterwards (:mod:`streamsrt.client.fetch_buffers`).
3. The version of a request is the highest that both sides support, within what the caller allows.
4. A connection that fails in any way is closed, and every request in flight fails with the reason. Nothing is retried
   here.
5. Bytes that are not Kafka's protocol end the connection with NotABrokerError, at the latest after the first four bytes
   if they announce an absurd size.
6. Some brokers accept requests for a limited time after the client has authenticated (KIP-368). A connection says when most
   of it is over, so that another one takes its place before the broker closes it.
7. One timer watches over all requests in flight: it looks when the first of them would be late, which hardly ever happens.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from typing import Any, NamedTuple, TypeVar

from streamsrt.client.alarm import Alarm
from streamsrt.client.fetch_buffers import FetchBuffers
from streamsrt.client.frames import Frames
from streamsrt.client.security import AuthenticationError, authenticate
from streamsrt.client.values import ClientConfig, RequestTimedOutError
from streamsrt.errors import BrokerUnreachableError, NotABrokerError, StreamsError, UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_response, encode_request_parts
from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.schema import ApiKey, Message, Request

R = TypeVar("R", bound=Message)

FRAME_MAX_BYTES = 256 * 1024 * 1024
FIRST_FRAME_MAX_BYTES = 1024 * 1024
RECEIVE_BUFFER_BYTES = 1024 * 1024
SEND_BUFFER_BYTES = 1024 * 1024

SOFTWARE_NAME = "streamsrt"
SOFTWARE_VERSION = "0.1.0"

_CLOCK_S = 0.001
"""A loop's timers end that much too early, at most."""

_RENEWED_AFTER = 0.85
"""Of the time for which a broker accepts requests. Java's client waits for 85 to 95 % of it."""

_UNTRUSTED = frozenset({18, 19, 20, 21})
"""X509_V_ERR_*: the certificate is signed by itself, or by somebody who is not known."""
_SIZE = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")

_STREAMS_GROUPS = (
    "streams groups (KIP-1071)",
    "Use Apache Kafka 4.2 or later with the feature streams.version=1, or the bundled broker. With group.protocol=classic "
    "an application runs on Apache Kafka 2.8 and later.",
)
_CLASSIC_GROUPS = ("a group of the classic protocol", "Use Apache Kafka 2.8 or later, or the bundled broker.")
NEEDS = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: _STREAMS_GROUPS,
    ApiKey.STREAMS_GROUP_DESCRIBE: _STREAMS_GROUPS,
    ApiKey.JOIN_GROUP: _CLASSIC_GROUPS,
    ApiKey.SYNC_GROUP: _CLASSIC_GROUPS,
    ApiKey.HEARTBEAT: _CLASSIC_GROUPS,
    ApiKey.LEAVE_GROUP: _CLASSIC_GROUPS,
    ApiKey.INIT_PRODUCER_ID: (
        "an idempotent or transactional producer",
        "Use Apache Kafka 2.8 or later, or the bundled broker. Kafka 2.8 in KRaft mode (early access) has no such "
        "producers: run it with ZooKeeper, or use a newer Kafka.",
    ),
}

VERSIONS_WITH_INSTANCE_ID = {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 3,
    ApiKey.DESCRIBE_GROUPS: 4,
}
"""The first versions of the classic protocol that know static members (KIP-345, Kafka 2.4): none below is spoken."""


class DisconnectedError(BrokerUnreachableError):
    """The connection was lost; it is unknown whether a request in flight was executed. The client reconnects
    automatically."""


class _Asked(NamedTuple):
    """A request in flight. ``expires_at``: in the loop's time."""

    correlation_id: int
    api_key: int
    version: int
    future: asyncio.Future[Any]  # of each request's answer
    expires_at: float
    name: str


class Connection:
    """A connection made by :func:`connect`. Belongs to the loop that it was created on."""

    def __init__(self, host: str, port: int, config: ClientConfig, buffers: FetchBuffers) -> None:
        self.host, self.port = host, port
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.features: frozenset[str] = frozenset()
        self._config = config
        self._buffers = buffers
        self._transport: asyncio.Transport | None = None
        self._protocol = Frames(self, FIRST_FRAME_MAX_BYTES)
        self._correlation_id = 0
        self._in_flight: deque[_Asked] = deque()
        self._alarm = Alarm(self._look)
        self._renew_at: float | None = None
        self._error: StreamsError | None = None
        self._is_served = False
        """Whether a request was answered, other than that for versions."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def closed(self) -> bool:
        return self._transport is None

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def awaited(self) -> str:
        """The request that waits for its response the longest; empty if none does."""
        return self._in_flight[0].name if self._in_flight else ""

    @property
    def is_expiring(self) -> bool:
        """Whether it is time for another connection (rule 6)."""
        return self._renew_at is not None and asyncio.get_running_loop().time() >= self._renew_at

    async def settled(self) -> None:
        """Waits until every request in flight has been answered, or has failed."""
        while awaited := [asked.future for asked in self._in_flight if not asked.future.done()]:
            await asyncio.wait(awaited)

    # ------------------------------------------------------------------------------------------------------- opening

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Connects, requests the API versions, and authenticates."""
        loop = asyncio.get_running_loop()
        timeout_s = self._config.connection_setup_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: self._protocol, self.host, self.port, ssl=tls)
                await self._request_versions()
                if self._config.security.protocol.startswith("SASL"):
                    lifetime_ms = await authenticate(self._config.security, self.address, self.request)
                    if lifetime_ms > 0:
                        self._renew_at = loop.time() + _RENEWED_AFTER * lifetime_ms / 1000
        except TimeoutError as error:
            self.close()
            raise BrokerUnreachableError(
                f"{self.address} did not answer within {self._config.connection_setup_timeout_ms} ms. "
                "Check the address (bootstrap.servers) and that the broker is running."
            ) from error
        except ssl.SSLError as error:
            self.close()
            raise AuthenticationError(
                f"{self.address}: the TLS handshake failed: {error}. {_tls_remedy(error)}"
            ) from error
        except OSError as error:
            self.close()
            if tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
                # The broker may also be shutting down: the request is retried.
                raise BrokerUnreachableError(
                    f"{self.address} closed the connection during the TLS handshake. Check security.protocol="
                    f"{self._config.security.protocol}: a listener without TLS needs "
                    f"{self._config.security.protocol.replace('SSL', 'PLAINTEXT')}. "
                    "Else check the address (bootstrap.servers)."
                ) from error
            raise BrokerUnreachableError(
                f"No broker can be reached at {self.address}: {error.strerror or error}. "
                "Check the address (bootstrap.servers) and that the broker is running."
            ) from error
        except (StreamsError, asyncio.CancelledError):
            self.close()
            raise
        self._protocol.limit_bytes = FRAME_MAX_BYTES

    async def _request_versions(self) -> None:
        request = types.ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        response = await self.request(request, version=4)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            highest = max((k.max_version for k in response.api_keys if k.api_key == ApiKey.API_VERSIONS), default=0)
            response = await self.request(request, version=min(highest, 4))
        if response.error_code != ErrorCode.NONE or not response.api_keys:
            raise NotABrokerError(
                f"{self.address} answers ApiVersions with error {response.error_code}: this client "
                "can't use it as a broker."
            )
        self.api_versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        self.features = frozenset(feature.name for feature in response.supported_features)

    # ------------------------------------------------------------------------------------------------------ requests

    def version_of(self, request_type: type[Message], version_min: int = 0, version_max: int = 1000) -> int:
        """Returns the highest version of this request that both sides support. Raises UnsupportedBrokerError."""
        key = request_type.API_KEY
        assert key is not None
        if key not in self.api_versions:
            raise self._unsupported(key, "does not serve it")
        ours = request_type.SCHEMA.stable_versions
        needed = max(ours[0], version_min, VERSIONS_WITH_INSTANCE_ID.get(ApiKey(key), 0))
        lowest, highest = self.api_versions[key]
        version = min(highest, ours[-1], version_max)
        if version < max(lowest, needed):
            wanted = f"version {needed} to {min(ours[-1], version_max)} is needed"
            raise self._unsupported(key, f"serves versions {lowest} to {highest}, and {wanted}")
        return version

    def _unsupported(self, key: int, reason: str) -> UnsupportedBrokerError:
        name = ApiKey(key).name
        what, remedy = NEEDS.get(ApiKey(key), ("this operation", "Use a newer broker."))
        return UnsupportedBrokerError(
            f"{what} needs the API {name} (key {key}); the broker at {self.address} {reason}. {remedy}"
        )

    def request(
        self, message: Request[R], *, version: int | None = None, timeout_ms: int | None = None
    ) -> asyncio.Future[R]:
        """Sends a request and returns the future of its response. Raises DisconnectedError, UnsupportedBrokerError. The
        future raises these, and RequestTimedOutError, after which the connection is closed because later responses would
        be late, too."""
        if version is None:
            version = self.version_of(type(message))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        if self._error is not None or self._transport is None:
            raise self._error or DisconnectedError(f"The connection to {self.address} is closed.")
        assert message.API_KEY is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request_parts(message, version, self._correlation_id, self._config.client_id)
        expires_at = loop.time() + (timeout_ms or self._config.request_timeout_ms) / 1000
        asked = _Asked(self._correlation_id, message.API_KEY, version, future, expires_at, message.NAME)
        self._in_flight.append(asked)
        self._transport.write(b"".join(parts))
        self._alarm.by(expires_at)
        return future

    def _look(self) -> None:
        """Gives up the connection if a request in flight is late, also one that its sender no longer waits for."""
        now = asyncio.get_running_loop().time() + _CLOCK_S
        for asked in self._in_flight:
            if asked.expires_at <= now:
                late = f"{self.address} did not answer {asked.name} in time"
                if not asked.future.done():
                    asked.future.set_exception(RequestTimedOutError(f"{late}."))
                self._fail(DisconnectedError(f"{late}; the connection was closed."))
                return
        self._alarm.by(min((asked.expires_at for asked in self._in_flight), default=None))

    # -------------------------------------------------------------------------------------------- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.api_versions and self._error is None:
            self._fail(
                self._refused_after_the_handshake(error)
                if self._config.security.protocol.endswith("SSL")
                else DisconnectedError(
                    f"{self.address} closed the connection instead of answering. If it is a Kafka listener, check "
                    "security.protocol; if it is something else, check the port."
                )
            )
            return
        reason = f": {error}" if error is not None else ""
        hint = ""
        if not self._is_served and not self._config.security.protocol.startswith("SASL"):
            hint = (
                " It has not answered a request yet: if this repeats, check whether the listener asks for SASL "
                f"(security.protocol is {self._config.security.protocol})."
            )
        self._fail(DisconnectedError(f"The connection to {self.address} was lost{reason}.{hint}"))

    def _refused_after_the_handshake(self, error: Exception | None) -> DisconnectedError:
        """In TLS 1.3, a client takes the handshake for done before the broker has seen the client's certificate."""
        said = f" ({error.reason})" if isinstance(error, ssl.SSLError) and error.reason else ""
        certificate = self._config.security.ssl_certificate_location
        remedy = (
            "ssl.certificate.location is not set, and a listener with ssl.client.auth=required needs one"
            if certificate is None
            else f"check that ssl.certificate.location={certificate} has not expired, and that the broker trusts its issuer"
        )
        return DisconnectedError(
            f"{self.address} closed the connection right after the TLS handshake{said}: it may not accept this client's "
            f"certificate: {remedy}. Else it is not a Kafka listener, or it is stopping."
        )

    def buffer_of(self, size_bytes: int) -> Buffer:
        """For the next frame, which has that size."""
        if self._in_flight and self._in_flight[0].api_key == ApiKey.FETCH:
            return self._buffers.take(size_bytes, asyncio.get_running_loop().time())
        return bytearray(size_bytes)

    def frame_received(self, frame: Buffer) -> None:
        if not self._in_flight:
            self.not_kafka("it sent a response without a request")
            return
        correlation_id, api_key, version, future, _, _ = self._in_flight[0]
        if _SIZE.unpack_from(frame)[0] != correlation_id:
            self.not_kafka("its response does not match the request")
            return
        if api_key == ApiKey.API_VERSIONS and len(frame) >= 6 and _ERROR_CODE.unpack_from(frame, 4)[0] == 35:
            version = 0
        try:
            _, response = decode_response(frame, api_key, version)
        except DecodeError as error:
            self.not_kafka(f"its response to API {api_key} version {version} is malformed: {error}")
            return
        self._in_flight.popleft()
        self._is_served = self._is_served or api_key != ApiKey.API_VERSIONS
        if not future.done():
            future.set_result(response)

    def not_kafka(self, reason: str) -> None:
        self._fail(
            NotABrokerError(
                f"{self.address} answers, but not in Kafka's protocol: {reason}. Check host and port of bootstrap.servers "
                "(is it an HTTP port?) and security.protocol (does the listener expect TLS?)."
            )
        )

    def _fail(self, error: StreamsError) -> None:
        if self._error is None:
            self._error = error
        self._alarm.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        while self._in_flight:
            future = self._in_flight.popleft().future
            if not future.done():
                future.set_exception(self._error)

    def close(self) -> None:
        """Closes at once; requests in flight fail."""
        self._fail(DisconnectedError(f"The connection to {self.address} was closed by this client."))


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _UNTRUSTED:
        return "Check ssl.ca.location (it must have who signed the broker's certificate) and the other ssl.* settings."
    return "Check security.protocol and the ssl.* settings."


async def connect(
    host: str, port: int, config: ClientConfig, tls: ssl.SSLContext | None, buffers: FetchBuffers
) -> Connection:
    """``buffers``: of all connections to the cluster.

    Raises BrokerUnreachableError, NotABrokerError, UnsupportedBrokerError, AuthenticationError."""
    connection = Connection(host, port, config, buffers)
    await connection.open(tls)
    return connection
