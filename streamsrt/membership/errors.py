"""The errors with which a member can't be part of its group, each with what to do about it.

Source: KIP-1071, Exceptions; ``StreamsGroupHeartbeatRequestManager`` of Kafka's clients.
"""

from __future__ import annotations

import re

from streamsrt.errors import (
    ConfigError,
    MembershipError,
    StreamsError,
    TopologyMismatchError,
    UnsupportedBrokerError,
    UserError,
    missing_acl,
)
from streamsrt.membership.values import GroupMembership
from streamsrt.wire.error_codes import ErrorCode, error_name


class StreamsInvalidTopologyError(UserError):
    """The coordinator rejected the topology: it breaks a rule of KIP-1071, or it could not run in place of the
    group's current one. The message contains the coordinator's reason: change the topology, or grant the permission
    that it names."""


class StreamsInvalidTopologyEpochError(TopologyMismatchError):
    """The topology epoch does not fit the group's, e.g. the topology changed and the epoch was not raised by one.
    Set ``topology.epoch`` to the group's plus one."""


class StreamsTopologyFencedError(TopologyMismatchError):
    """The group has moved on to a newer topology epoch. Start the newer version of the application."""


class MembershipRefusedError(MembershipError):
    """The coordinator refuses this member. ``error_code`` is the protocol's; the message says what to change, e.g.
    a missing ACL or a group that is full."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


class OtherGroupProtocolError(UserError):
    """The group has another protocol than this instance, or members of other applications. Set ``group.protocol`` to
    the group's, stop the members that the message describes, or choose another ``application.id``."""


_NOT_DELETED = (
    "Don't delete the group: the application would read all of its input again, on top of the state that it has."
)
_REASONS: dict[int, tuple[str, str]] = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group is full",
        "Raise group.streams.max.size on the brokers, or start fewer instances.",
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another live member has this group.instance.id",
        "Give every instance its own, or stop the other one first.",
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "another member took over this group.instance.id",
        "Give every instance its own group.instance.id.",
    ),
}


_STOP_CLASSIC_MEMBERS = (
    "If its members are instances of this application with group.protocol=classic, stop all of them, and start them "
    "with group.protocol=streams when the group is empty: its offsets are kept. "
    f"{_NOT_DELETED} If it is another application's, or one of consumers with group.protocol=consumer (`streamsrt groups "
    "list` shows it), choose another application.id."
)
_CAN_NOT_BE_UPGRADED = "can't be upgraded to a streams group"
"""What the bundled broker says of a classic group whose members can't be in one group with this one."""


def refusal(
    membership: GroupMembership, code: int, message: str | None, *, is_same_topology: bool = False
) -> StreamsError:
    """Returns the error for a heartbeat's error code that ends the membership. ``is_same_topology``: the coordinator says
    that this member has the group's topology."""
    group, detail = membership.group_id, f" The coordinator said: {message}" if message else ""
    name = error_name(code)
    if code == ErrorCode.STREAMS_INVALID_TOPOLOGY:
        detail = with_missing_right(membership, detail)
        return StreamsInvalidTopologyError(f"Group {group!r}: the coordinator refuses the topology ({name}).{detail}")
    if code in (ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, ErrorCode.STREAMS_TOPOLOGY_FENCED):
        return _epoch_refused(membership, code, detail, is_same_topology=is_same_topology)
    if code == ErrorCode.INVALID_REQUEST and message and "topology updates are not supported" in message.lower():
        return TopologyMismatchError(
            f"Group {group!r} has another topology, and this broker can't update the topology of a group ({name}).{detail} "
            "What works here: 1. see with `streamsrt topology diff OLD NEW` what happens to the state, and which "
            "repartition topics go away: let the old version read these to the end first (stop the producers, and watch "
            "`streamsrt groups describe`); 2. stop all members (those with a group.instance.id are in the group until "
            "their sessions end, unless they ran with --leave); "
            f"3. `streamsrt groups forget-topology {group} --execute` deletes the group and keeps its committed offsets; "
            "4. start the new version, with a higher topology.epoch than the old one. Or start it under another "
            "application.id, from the beginning and with state of its own. (The bundled broker takes new versions one "
            "member at a time.)"
        )
    if code == ErrorCode.GROUP_ID_NOT_FOUND or (
        code == ErrorCode.INVALID_REQUEST and message and _CAN_NOT_BE_UPGRADED in message
    ):
        return OtherGroupProtocolError(
            f"Group {group!r}: a group with that name exists and is not a streams group ({name}).{detail} "
            f"{_STOP_CLASSIC_MEMBERS}"
        )
    if code == ErrorCode.INVALID_REQUEST and message and "regular expressions" in message.lower():
        return UnsupportedBrokerError(
            f"Group {group!r}: this broker does not support source topics by pattern in streams groups ({name}).{detail} "
            "Stop all instances and start them with group.protocol=classic, which supports them on every broker, or name "
            "the topics."
        )
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return UnsupportedBrokerError(
            f"Group {group!r}: the broker does not serve streams groups ({name}).{detail} Apache Kafka 4.2 or later with "
            "the feature streams.version=1 does; so does the bundled broker. With group.protocol=classic an application "
            "runs on Apache Kafka 2.8 and later."
        )
    right = _missing_right(membership, code, message or "")
    if right is not None:
        return MembershipRefusedError(f"Group {group!r}: not authorized ({name}).{detail} {right}", code)
    if code in _REASONS:
        reason, remedy = _REASONS[code]
        return MembershipRefusedError(f"Group {group!r}: {reason} ({name}).{detail} {remedy}", code)
    return MembershipRefusedError(f"Group {group!r}: the coordinator refused the heartbeat ({name}).{detail}", code)


_CLASSIC_REASONS: dict[int, tuple[str, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "it has members that do not belong to a classic group of this runtime",
        "If they are Java's Kafka Streams with the same topology, set subtopology.id=number here, which gives subtopologies "
        "Java's names. If they run with group.protocol=streams, or are other consumers, such as Faust workers, stop them "
        "first. Killed ones stay in the group until their session ends. Or choose another application.id.",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "it is a group of another protocol",
        "If it is a streams group of this application, run with group.protocol=streams, or change the protocol as "
        f"described in docs/running.md. {_NOT_DELETED} If it is another application's, choose another application.id.",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group is full",
        "Raise group.max.size on the brokers, or start fewer instances.",
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the brokers do not allow this session timeout",
        "Set session.timeout.ms between group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers.",
    ),
}


def classic_refusal(membership: GroupMembership, code: int) -> StreamsError:
    """Returns the error for an error code that ends the membership in a classic group."""
    if code not in _CLASSIC_REASONS:
        return refusal(membership, code, None)
    reason, remedy = _CLASSIC_REASONS[code]
    text = f"Group {membership.group_id!r}: {reason} ({error_name(code)}). {remedy}"
    if code in (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_ID_NOT_FOUND):
        return OtherGroupProtocolError(text)
    return ConfigError(text) if code == ErrorCode.INVALID_SESSION_TIMEOUT else MembershipRefusedError(text, code)


def consumers_group(membership: GroupMembership) -> StreamsError:
    """Returns the error of a member whose group is one of consumers, in which the broker assigns partitions (KIP-848)."""
    group = membership.group_id
    return OtherGroupProtocolError(
        f"Group {group!r}: it is a group of consumers with group.protocol=consumer, which this application can't be part of "
        f"(`streamsrt groups list` shows it). Stop them first: they have the name {group} as their group.id. Or choose "
        "another application.id."
    )


def unlike_java(membership: GroupMembership, difference: str) -> StreamsError:
    """Returns the error of a member that can't be in one group with Java's Kafka Streams."""
    return StreamsInvalidTopologyError(
        f"Group {membership.group_id!r} has members of Java's Kafka Streams, and this program can't join them. {difference} "
        "Both must run the same topology: the same steps in the same order, with the same names of stores and repartition "
        "topics, as `streamsrt topology describe` and Java's Topology.describe() show them. Start a "
        "version with another topology after the last Java member has left."
    )


def _missing_right(membership: GroupMembership, code: int, message: str) -> str | None:
    who = membership.principal
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return missing_acl("READ", "group", [membership.group_id], who)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        # The bundled broker names the topics that are not allowed.
        said = set(re.split(r"[\s,'\"]+", message.rstrip(".")))
        topics = _topics(membership)
        return missing_acl("DESCRIBE", "topic", sorted(topics & said or topics), who)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return missing_acl("CREATE", "cluster", (), who)
    return None


def _topics(membership: GroupMembership) -> set[str]:
    names: set[str] = set()
    for part in membership.topology.subtopologies:
        names.update(part.source_topics, part.repartition_sink_topics)
        names.update(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics))
    return names


_NOT_CREATED = re.compile(r"Unauthorized to CREATE on topics (.+?)\.$")


def with_missing_right(membership: GroupMembership, detail: str) -> str:
    """Returns the coordinator's message, with the missing ACL if the message is about one."""
    found = _NOT_CREATED.search(detail)
    if found is None:
        return detail
    return f"{detail} {missing_acl('CREATE', 'topic', found[1].split(', '), membership.principal)}"


def _epoch_refused(
    membership: GroupMembership, code: int, detail: str, *, is_same_topology: bool
) -> TopologyMismatchError:
    group, epoch, name = membership.group_id, membership.topology.epoch, error_name(code)
    if code == ErrorCode.STREAMS_TOPOLOGY_FENCED and is_same_topology:
        return StreamsTopologyFencedError(
            f"Group {group!r}: its topology epoch is newer than {epoch} ({name}).{detail}"
        )
    if code == ErrorCode.STREAMS_TOPOLOGY_FENCED:
        return StreamsTopologyFencedError(
            f"Group {group!r}: its topology is newer than epoch {epoch} ({name}).{detail} Start the newer version of the "
            "application; to go back to this one, run it with topology.epoch set to the group's epoch plus one "
            "(`streamsrt topology diff NEWER THIS` says what happens to the running state). If this is another application, "
            "give it another application.id."
        )
    return StreamsInvalidTopologyEpochError(
        f"Group {group!r}: topology epoch {epoch} does not fit the group ({name}).{detail} If this is another application, "
        "give it another application.id. An update needs topology.epoch set to the group's epoch plus one (`streamsrt "
        f"groups describe {group} --view state` shows the group's); `streamsrt topology diff OLD NEW` says what happens to "
        "the running state."
    )
