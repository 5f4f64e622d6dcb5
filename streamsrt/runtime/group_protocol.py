"""``group.protocol=auto``: the protocol with which an instance joins its group.

1. An existing group decides. A streams group remains one, even while it has no members, as does a classic group that
   has members. A group of any other kind refuses both protocols; the refusal of the classic one says why.
2. Otherwise the broker decides: streams if it announces all of KIP-1071, else classic, which supports topology epochs,
   warm-up tasks and source patterns on every broker.
3. The decision is made before a stream thread joins, and holds for the threads that replace it. Instances that start at
   the same moment see the same broker and decide alike. If an instance with a configured protocol is faster, the group
   refuses the others: then they decide once more.
"""

from __future__ import annotations

import logging
from typing import Literal, NamedTuple, TypeAlias

from streamsrt.client.interface import Administering
from streamsrt.config import StreamsConfig
from streamsrt.errors import StreamsError, UnsupportedBrokerError
from streamsrt.membership.errors import OtherGroupProtocolError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.features import WHOLE_STREAMS_PROTOCOL

logger = logging.getLogger(__name__)

Protocol: TypeAlias = Literal["streams", "classic"]

_IS_STREAMS_GROUP = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""The second one: there is a streams group, but its topics are not for this client to see."""

_OTHER_TYPE = "is not a classic group"
"""How brokers describe a group of another protocol to a client that asks for a classic one."""


class Seen(NamedTuple):
    """What a cluster reports about a group and about itself. ``announces_whole_protocol``: all of KIP-1071."""

    is_streams_group: bool
    classic_members: int
    announces_whole_protocol: bool
    has_consumers: bool = False
    """Whether it is a group of consumers with group.protocol=consumer, and has members."""


class ProtocolDecision(NamedTuple):
    protocol: Protocol
    why: str


def decided(seen: Seen) -> ProtocolDecision:
    """Decides by the rules in the module's docstring."""
    if seen.is_streams_group:
        return ProtocolDecision("streams", "that is the protocol of its group")
    if seen.classic_members:
        return ProtocolDecision("classic", f"that is the protocol of its group (members: {seen.classic_members})")
    if seen.has_consumers:
        return ProtocolDecision("classic", "its group has consumers with group.protocol=consumer, which it can't join")
    if seen.announces_whole_protocol:
        return ProtocolDecision(
            "streams", "its group has no members with either protocol, and the broker serves the whole of KIP-1071"
        )
    return ProtocolDecision(
        "classic",
        "its group has no members with either protocol, and the broker does not serve the whole of KIP-1071 (topology "
        "epochs, warm-up tasks, source patterns)",
    )


def look(group_id: str, admin: Administering) -> Seen:
    """Asks the group's coordinator. Raises BrokerError."""
    try:
        (streams,) = admin.describe_streams_groups([group_id])
        is_streams_group = streams.error_code in _IS_STREAMS_GROUP
    except UnsupportedBrokerError:
        is_streams_group = False
    (classic,) = admin.describe_classic_groups([group_id])
    has_consumers = False
    if not is_streams_group and _OTHER_TYPE in (classic.error_message or ""):
        listed = admin.list_groups(("consumer",))
        has_consumers = any(each.group_id == group_id and each.state.lower() != "empty" for each in listed)
    announces = WHOLE_STREAMS_PROTOCOL in admin.cluster().features
    return Seen(is_streams_group, len(classic.members), announces, has_consumers)


class GroupProtocol:
    """The protocol of one instance, kept across its stream threads."""

    def __init__(self) -> None:
        self._settled: StreamsConfig | None = None
        self._is_final = False

    def settle(self, config: StreamsConfig, admin: Administering) -> StreamsConfig:
        """Returns the configuration with the protocol decided on; unchanged if it names one. Raises BrokerError."""
        if config.group_protocol != "auto":
            return config
        if self._settled is None:
            protocol, why = decided(look(config.application_id, admin))
            application_id = config.application_id
            logger.info("group.protocol=auto: application %s uses group.protocol=%s: %s", application_id, protocol, why)
            self._settled = StreamsConfig.of(config, group_protocol=protocol)
        return self._settled

    def decides_again(self, error: StreamsError) -> bool:
        """Whether a stream thread failed because its group now has the other protocol: the first time, a new thread
        replaces it, with the protocol decided on then."""
        if self._settled is None or self._is_final or not isinstance(error, OtherGroupProtocolError):
            return False
        self._settled, self._is_final = None, True
        return True
