"""The brokers of a cluster: addresses, connections by purpose, group coordinators.

1. There is one connection for each broker and purpose, so that a heartbeat never waits behind a long poll, nor a
   restore behind the main fetcher. It is opened when it is first used, and reopened after it was lost. One whose session
   is about to expire gives way to a new one as soon as its requests are answered: they keep their order.
2. A broker that can't be reached is not tried again before its back-off is over; meanwhile requests to it fail at once.
3. There is one log line when a broker becomes unreachable, and one when it is reachable again: not one for each
   attempt.
4. When no known broker can be reached, the bootstrap servers are used again: the cluster may have moved.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from streamsrt.client.connection import Connection, connect
from streamsrt.client.fetch_buffers import FetchBuffers
from streamsrt.client.security import AuthenticationError, tls_context
from streamsrt.client.values import Broker, ClientConfig, RequestTimedOutError
from streamsrt.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConfigError,
    NotABrokerError,
    RequestFailedError,
    StreamsError,
    missing_acl,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name, is_retriable
from streamsrt.wire.schema import Message, Request

R = TypeVar("R", bound=Message)
T = TypeVar("T")

log = logging.getLogger(__name__)

TRANSPORT_ERRORS = (BrokerUnreachableError, RequestTimedOutError, NotABrokerError, AuthenticationError)
"""What may be over when the request is tried again later."""


class CoordinatorKind(Enum):
    """The kind of coordinator: the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Purpose(Enum):
    """The purpose of a connection."""

    ADMIN = "admin"
    FETCH = "fetch"
    RESTORE = "restore"
    PRODUCE = "produce"
    GROUP = "group"
    REBALANCE = "rebalance"
    TRANSACTION = "transaction"


_LONG_POLLS = frozenset({Purpose.FETCH, Purpose.RESTORE, Purpose.REBALANCE})
"""Connections with requests that wait for records, or for other members."""

Address = tuple[str, int]


@dataclass(slots=True)
class _Endpoint:
    """The connection state of one address."""

    failures: int = 0
    not_before: float = 0.0
    down_since: float | None = None
    error: StreamsError | None = None


@dataclass(slots=True)
class _Slot:
    connection: Connection | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def parse_servers(servers: str) -> list[Address]:
    """Parses ``host:port,host:port``; IPv6 addresses in brackets. Raises ConfigError."""
    addresses: list[Address] = []
    for part in (each.strip() for each in servers.split(",")):
        if not part:
            continue
        host, colon, port = part.rpartition(":")
        if colon and host and port.isdecimal() and not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap.servers={servers!r}: port {port} is out of range (1 to 65535).")
        if not colon or not host or not port.isdecimal():
            raise ConfigError(f"bootstrap.servers={servers!r}: {part!r} is not host:port.")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ConfigError("bootstrap.servers is empty: give host:port of one broker at least.")
    return addresses


class Cluster:
    """The cluster's connections. Belongs to the network thread's loop."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self._bootstrap = parse_servers(config.bootstrap_servers)
        self._tls = tls_context(config.security)
        self._buffers = FetchBuffers()
        self._slots: dict[tuple[Address, Purpose], _Slot] = {}
        self._endpoints: dict[Address, _Endpoint] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self.instance_ids: dict[str, str] = {}
        """By group id, the ``group.instance.id`` of this client's member of a classic group, which its commits name."""

    # --------------------------------------------------------------------------------------------------- connections

    def update(self, response: types.MetadataResponse) -> None:
        """Takes over brokers and controller of a MetadataResponse."""
        if response.brokers:
            self.cluster_id = response.cluster_id
            self.controller_id = response.controller_id
            self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}

    async def connection(self, node_id: int, purpose: Purpose) -> Connection:
        """Returns a connection to a broker by id. Raises what :func:`~streamsrt.client.connection.connect` raises."""
        broker = self.brokers.get(node_id)
        if broker is None:
            raise BrokerUnreachableError(f"Broker {node_id} is not among the cluster's brokers.")
        return await self._connection((broker.host, broker.port), purpose)

    async def any_connection(self, purpose: Purpose = Purpose.ADMIN) -> Connection:
        """Returns a connection to any broker that is connected or reachable; the bootstrap servers are tried last."""
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        random.shuffle(known)
        addresses = sorted(known, key=lambda address: not self._is_open(address, purpose)) + self._bootstrap
        errors: list[StreamsError] = []
        for address in dict.fromkeys(addresses):
            try:
                return await self._connection(address, purpose)
            except TRANSPORT_ERRORS as error:
                errors.append(error)
        certain = [error for error in errors if isinstance(error, NotABrokerError | AuthenticationError)]
        raise (certain or errors)[0]

    def _is_open(self, address: Address, purpose: Purpose) -> bool:
        slot = self._slots.get((address, purpose))
        return slot is not None and slot.connection is not None and not slot.connection.closed

    async def _connection(self, address: Address, purpose: Purpose) -> Connection:
        slot = self._slots.setdefault((address, purpose), _Slot())
        async with slot.lock:
            current = slot.connection
            if current is None or current.closed:
                current = await self._open(address)
            elif current.is_expiring:
                current = await self._renewed(address, current)
            slot.connection = current
            return current

    async def _renewed(self, address: Address, current: Connection) -> Connection:
        """Another connection in the place of one whose session is about to expire; the same one where there is none now."""
        try:
            new = await self._open(address)
        except TRANSPORT_ERRORS as error:
            log.debug("%s:%d: the connection is not renewed yet: %s", *address, error)
            return current
        await current.settled()
        current.close()
        return new

    async def _open(self, address: Address) -> Connection:
        endpoint = self._endpoints.setdefault(address, _Endpoint())
        loop = asyncio.get_running_loop()
        if loop.time() < endpoint.not_before and endpoint.error is not None:
            raise endpoint.error.with_traceback(None)
        try:
            connection = await connect(*address, self.config, self._tls, self._buffers)
        except TRANSPORT_ERRORS as error:
            self._out_of_reach(address, endpoint, error)
            raise
        if endpoint.down_since is not None:
            # Another connection to the same address may have failed while this one was made.
            log.info("%s:%d responds again after %.1f s", *address, loop.time() - endpoint.down_since)
        self._endpoints[address] = _Endpoint()
        return connection

    def _out_of_reach(self, address: Address, endpoint: _Endpoint, error: StreamsError) -> None:
        now = asyncio.get_running_loop().time()
        config = self.config
        backoff_ms = min(config.reconnect_backoff_ms << min(endpoint.failures, 16), config.reconnect_backoff_max_ms)
        endpoint.failures += 1
        endpoint.not_before = now + backoff_ms / 1000 * random.uniform(0.8, 1.2)
        endpoint.error = error
        if endpoint.down_since is None:
            endpoint.down_since = now
            log.warning("%s:%d can't be reached, retrying: %s", *address, error)

    async def close(self) -> None:
        """Closes every connection."""
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.close()
        self._slots.clear()

    # ------------------------------------------------------------------------------------------------------ requests

    async def within(self, attempt: Awaitable[T], deadline: float) -> T:
        """Awaits it until this time of the loop. Raises RequestTimedOutError, which names who has not answered: a caller of
        another thread, which waits a little longer, does not have to guess."""
        try:
            async with asyncio.timeout_at(deadline):
                return await attempt
        except TimeoutError as error:
            raise RequestTimedOutError(self._who_is_awaited()) from error

    def _who_is_awaited(self) -> str:
        waiting: dict[str, set[str]] = {}
        for (_, purpose), slot in self._slots.items():
            if purpose not in _LONG_POLLS and slot.connection is not None and slot.connection.in_flight:
                waiting.setdefault(slot.connection.address, set()).add(slot.connection.awaited)
        failed = [str(endpoint.error) for endpoint in self._endpoints.values() if endpoint.error is not None]
        if failed and not waiting:
            return " ".join(dict.fromkeys(failed))
        asked = dict.fromkeys(f"{host}:{port}" for (host, port), _ in self._slots)
        said = [f"{address} has not answered {' and '.join(sorted(names))} yet" for address, names in waiting.items()]
        said = said or [f"{' and '.join(asked) or 'no broker'} has not answered yet"]
        return f"{'; '.join(said)}. Check that the broker runs and is not overloaded."

    async def send(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: Purpose = Purpose.ADMIN,
        version_min: int = 0,
        version_max: int = 1000,
        timeout_ms: int | None = None,
    ) -> R:
        """Sends once and waits for the response; without ``node``, to any broker."""
        connection = await (self.any_connection(purpose) if node is None else self.connection(node, purpose))
        version = connection.version_of(type(message), version_min, version_max)
        return await connection.request(message, version=version, timeout_ms=timeout_ms)

    async def find_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """Returns the broker that coordinates a group or a transactional id, cached until :meth:`forget_coordinator`.
        Raises RequestFailedError, which may be retriable, and transport errors."""
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.brokers:
            return known
        connection = await self.any_connection()
        version = connection.version_of(types.FindCoordinatorRequest)
        response = await connection.request(
            types.FindCoordinatorRequest(key=key, key_type=kind.value, coordinator_keys=[key]), version=version
        )
        found = response.coordinators[0] if version >= 4 else response
        if found.error_code != ErrorCode.NONE:
            said = f": {found.error_message}" if found.error_message else ""
            text = (
                f"The coordinator of {kind.name.lower()} {key!r} can't be found ({error_name(found.error_code)}){said}"
            )
            who, prefix = self.config.security.principal, self.config.producer.transactional_id_prefix
            if found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                text = f"{text.rstrip('.')}. {missing_acl('READ', 'group', [key], who)}"
            elif found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                text = f"{text.rstrip('.')}. {missing_acl('WRITE', 'transactional-id', [key], who, prefix=prefix)}"
            raise RequestFailedError(text, found.error_code)
        before = self.brokers.get(found.node_id)
        if before is None or (before.host, before.port) != (found.host, found.port):
            # Without partitions to read or write, nothing else would ever find out.
            self.brokers[found.node_id] = Broker(found.node_id, found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Drops a cached coordinator, because it has moved or can't be reached."""
        self._coordinators.pop((kind, key), None)

    async def send_to_coordinator(
        self,
        key: str,
        message: Request[R],
        *,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        purpose: Purpose | None = None,
        version_min: int = 0,
        version_max: int = 1000,
        timeout_ms: int | None = None,
    ) -> R:
        """Sends once to the coordinator of a group or transactional id; drops it from the cache if it can't be reached."""
        node = await self.find_coordinator(key, kind)
        purpose = purpose or (Purpose.GROUP if kind is CoordinatorKind.GROUP else Purpose.TRANSACTION)
        try:
            return await self.send(
                message,
                node=node,
                purpose=purpose,
                version_min=version_min,
                version_max=version_max,
                timeout_ms=timeout_ms,
            )
        except TRANSPORT_ERRORS:
            self.forget_coordinator(key, kind)
            raise


def may_be_retried(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, RequestFailedError):
        return is_retriable(error.error_code)
    return isinstance(error, TRANSPORT_ERRORS) and isinstance(error, BrokerError)


def backoff_s(config: ClientConfig, failures: int) -> float:
    """Returns the pause before the next attempt: exponential, with jitter (KIP-580)."""
    backoff_ms = min(config.retry_backoff_ms << min(failures, 16), config.retry_backoff_max_ms)
    return backoff_ms / 1000 * random.uniform(0.8, 1.2)
