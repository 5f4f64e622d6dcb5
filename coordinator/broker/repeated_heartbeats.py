"""Repeated heartbeats without changes, which get the same response again.

Most requests of a settled group are byte for byte the member's last one but for the correlation id, and nothing follows
from them but a later end of its session. They are answered from memory.

1. An answer is remembered if the heartbeat changed nothing: the group is the same object before and after, is at its
   newest assignment, and has nothing to tell its members. It is then a function of the request, its sender's address and
   principal, the ACLs, the group, the topics and the settings.
2. It holds while those are the same objects. Whatever changes them makes new ones; the ACLs have a version.
3. The session is extended as usual.
4. Nothing is remembered where answers wait for the disk.
5. One answer of each member is remembered. Those that do not hold any more are forgotten whenever their number may have
   doubled: each keeps a group as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from coordinator.broker.broker import Broker
from coordinator.group.streams.state import StreamsGroup
from coordinator.log import Fsync
from coordinator.machine.values import TimerKey
from coordinator.shard.shard import Settled
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import Message, StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

KNOWN_MAX = 1 << 16
SWEPT_FROM = 64
"""From how many answers on they are looked through."""
_KEY = struct.pack(">h", ApiKey.STREAMS_GROUP_HEARTBEAT)
_CORRELATION = slice(4, 8)
_Asked: TypeAlias = tuple[bytes, str, str]
"""A request without its correlation id, the sender's address and principal."""


class _Known(NamedTuple):
    size: bytes
    rest: bytes
    settled: Settled


class RepeatedHeartbeats:
    """The remembered responses, by request."""

    def __init__(self, broker: Broker) -> None:
        self._groups = broker.groups
        self._is_on = broker.fsync is not Fsync.GROUP
        self._acls = broker.acls
        self._acl_version = broker.acls.version
        self._known: dict[_Asked, _Known] = {}
        self._of_member: dict[TimerKey, _Asked] = {}
        self._sweep_at = SWEPT_FROM

    def answer(self, frame: memoryview | bytes, client_host: str, principal: str) -> list[bytes] | None:
        """Returns the remembered response to a repeated heartbeat, or None."""
        if frame[:2] != _KEY:
            return None
        if self._acls.version != self._acl_version:
            self._acl_version = self._acls.version
            self._forget_all()
        data = bytes(frame)
        known = self._known.get((data[:4] + data[8:], client_host, principal))
        if known is None:
            return None
        if not self._groups.prolong(known.settled):
            del self._known[data[:4] + data[8:], client_host, principal]
            self._of_member.pop(known.settled.session, None)
            return None
        return [known.size + data[_CORRELATION] + known.rest]

    def group_of(self, message: StreamsGroupHeartbeatRequest) -> StreamsGroup | None:
        """Returns the current group of a heartbeat."""
        return self._groups.streams_group(message.group_id) if self._is_on else None

    def note(
        self,
        frame: memoryview | bytes,
        sender: tuple[str, str],
        message: Message,
        before: StreamsGroup,
        answer: Message,
        parts: Sequence[Buffer],
    ) -> None:
        """Remembers a response if the heartbeat changed nothing.

        ``before``: the group as it was; ``sender``: host and principal.
        """
        assert isinstance(message, StreamsGroupHeartbeatRequest)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        if answer.error_code or answer.status or answer.member_epoch <= 0 or before.epoch != before.assignment_epoch:
            return
        settled = self._groups.settled(message.group_id, message.member_id)
        if settled is None or settled.group is not before:
            return
        if len(self._known) >= self._sweep_at:
            self._sweep()
        whole = b"".join(parts)
        data = bytes(frame)
        asked = (data[:4] + data[8:], *sender)
        self._known.pop(self._of_member.get(settled.session, asked), None)
        self._known[asked] = _Known(whole[:4], whole[8:], settled)
        self._of_member[settled.session] = asked

    def _sweep(self) -> None:
        self._known = {key: each for key, each in self._known.items() if each.settled.holds}
        self._of_member = {each.settled.session: key for key, each in self._known.items()}
        if len(self._known) >= KNOWN_MAX:
            self._forget_all()
        self._sweep_at = max(SWEPT_FROM, 2 * len(self._known))

    def _forget_all(self) -> None:
        self._known.clear()
        self._of_member.clear()
