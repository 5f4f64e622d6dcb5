"""A group of the classic protocol as the cluster describes it: our own members by what they say, Java's Kafka Streams by
their tasks, others by their partitions.

Brokers show what members said and were told while the group is stable. During a rebalance they show only who the members
are, some of them with what they were told before, but not in which layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from streamsrt.assignment.moves import TaskOwners, moves_between
from streamsrt.assignment.tasks import TaskId
from streamsrt.cli.output import note
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import TopicPartition
from streamsrt.errors import RequestFailedError
from streamsrt.membership.classic.stream_layout import (
    STREAM_PROTOCOL,
    JavaSubscription,
    decode_own_assignment,
    decode_own_subscription,
    decode_stream_assignment,
    decode_stream_subscription,
)
from streamsrt.membership.classic.values import (
    NO_GENERATION,
    NO_PROCESS,
    PROTOCOL_NAME,
    ClassicAssignment,
    ClassicSubscription,
    Unreadable,
)
from streamsrt.membership.values import Tasks
from streamsrt.runtime.group_facts import STABLE
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.streams_user_data import SubscriptionInfo
from streamsrt.wire.types import ConsumerProtocolAssignment, DescribeGroupsResponse
from streamsrt.wording import address_text

Described = DescribeGroupsResponse.DescribedGroup
Member = DescribeGroupsResponse.DescribedGroupMember
Table = tuple[list[str], list[dict[str, object]]]

_CONSUMERS = "consumer"


def described_classic_group(network: NetworkThread, group: str) -> Described:
    """Raises RequestFailedError where it can't be described."""
    (described,) = network.admin.describe_classic_groups([group])
    if described.error_code not in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
        raise RequestFailedError(
            f"group {group!r} can't be described: {error_name(described.error_code)}; try again", described.error_code
        )
    return described


def classic_members(described: Described, *, verbose: bool) -> Table:
    """A row for each member. A note tells of a rebalance, during which less is known."""
    is_rebalancing = bool(described.members) and described.group_state not in STABLE
    if is_rebalancing:
        note(
            f"group {described.group_id} is rebalancing ({described.group_state}), and the table is incomplete: tasks are "
            "those of the last generation, and the broker reports the rest after the rebalance; run the command again"
        )
    rows: list[dict[str, object]] = []
    for member in described.members:
        said, told = _own(described, member)
        told = _told_before(member) if is_rebalancing else told
        rows.append(
            {
                "group": described.group_id,
                "target_assignment_epoch": "-" if told is None else told.generation,
                "topology_epoch": "-" if said is None else said.topology_epoch,
                "member": member.member_id,
                "member_epoch": "-" if told is None else told.generation,
                "process": _process(described, member, said, told),
                "client_id": member.client_id,
                "assignments": _assignments(described, member, told),
            }
        )
    columns = ["group", "member", "process", "client_id", "assignments"]
    if verbose:
        columns[1:1] = ["target_assignment_epoch", "topology_epoch"]
        columns.insert(4, "member_epoch")
    return columns, rows


def assigned_partitions(described: Described) -> set[TopicPartition]:
    """What the members of a group of consumers read, all together."""
    members = described.members if described.protocol_type == _CONSUMERS else ()
    return {each for member in members for each in _assigned(member) or ()}


def classic_state(described: Described, *, verbose: bool) -> Table:
    """One row. The generation stands for both epochs."""
    told = _told(described)
    row: dict[str, object] = {
        "group": described.group_id,
        "state": described.group_state,
        "topology_epoch": max((each.group_epoch for each in told), default="-"),
        "group_epoch": max((each.generation for each in told), default="-"),
        "target_assignment_epoch": max((each.generation for each in told), default="-"),
        "members": len(described.members),
    }
    if verbose:
        return ["group", "state", "topology_epoch", "group_epoch", "target_assignment_epoch", "members"], [row]
    return ["group", "state", "topology_epoch", "members"], [row]


def classic_rebalances(described: Described, *, verbose: bool) -> Table:
    """The last assignment, as its leader explained it, and what moved with it: of a classic group nobody keeps earlier
    ones."""
    members = {_name(member, said): (said, told) for member, said, told in _ours(described)}
    if not members:
        note(
            f"group {described.group_id} has no assignment by a leader that runs streamsrt: the group is "
            f"{described.group_state}"
        )
        return ["group", "epoch", "why", "moves"], []
    before = {name: said.echo.target for name, (said, _) in members.items() if said.echo is not None}
    after = {name: told.target for name, (_, told) in members.items()}
    # A leader that has not led the generation before does not know who was in it.
    reasons = {told.why for _, told in members.values() if told.why} or {
        f"member {name} joined" for name in members if name not in before
    }
    row: dict[str, object] = {
        "group": described.group_id,
        "epoch": max(told.generation for _, told in members.values()),
        "why": "; ".join(sorted(reasons)) or "a member rejoined",
        "moves": ", ".join(moves_between(_owners(before), _owners(after))) or "no task moves",
    }
    return ["group", "epoch", "why", "moves"], [row]


def _name(member: Member, said: ClassicSubscription) -> str:
    where = [f"instance {member.group_instance_id}"] if member.group_instance_id is not None else []
    endpoint = said.endpoint
    where.append(member.client_host.lstrip("/") if endpoint is None else address_text(endpoint.host, endpoint.port))
    return f"{member.member_id} ({', '.join(where)})"


def _owners(targets: Mapping[str, Tasks]) -> TaskOwners:
    active: dict[TaskId, str] = {}
    standby: dict[TaskId, tuple[str, ...]] = {}
    warmup: dict[TaskId, tuple[str, ...]] = {}
    for name, tasks in sorted(targets.items()):
        active.update((TaskId(*task), name) for task in tasks.active)
        for role, found in ((tasks.standby, standby), (tasks.warmup, warmup)):
            for task in role:
                found[TaskId(*task)] = (*found.get(TaskId(*task), ()), name)
    return TaskOwners(active, standby, warmup)


def _ours(described: Described) -> Iterator[tuple[Member, ClassicSubscription, ClassicAssignment]]:
    for member in described.members:
        said, told = _own(described, member)
        if said is not None and told is not None:
            yield member, said, told


def _told(described: Described) -> list[ClassicAssignment]:
    return [told for member in described.members if (told := _own(described, member)[1]) is not None]


def _own(described: Described, member: Member) -> tuple[ClassicSubscription | None, ClassicAssignment | None]:
    """What a member of ours said and was told."""
    name = described.protocol_data
    return decode_own_subscription(name, member.member_metadata), decode_own_assignment(name, member.member_assignment)


def _told_before(member: Member) -> ClassicAssignment | None:
    """What a member of ours was told in an earlier generation, in whichever layout."""
    if not member.member_assignment:
        return None
    layouts = (STREAM_PROTOCOL, PROTOCOL_NAME)
    return next((told for each in layouts if (told := decode_own_assignment(each, member.member_assignment))), None)


def _process(
    described: Described, member: Member, said: ClassicSubscription | None, told: ClassicAssignment | None
) -> str:
    if said is not None:
        return said.process_id
    if told is not None and told.process_id != NO_PROCESS:
        return told.process_id
    return _java_process(described, member)


def _assignments(described: Described, member: Member, told: ClassicAssignment | None) -> str:
    if told is not None:
        return _tasks(told)
    if described.group_state not in STABLE and not member.member_assignment:
        return "-"
    return _java_tasks(described, member)


def _java_process(described: Described, member: Member) -> str:
    if described.protocol_data != STREAM_PROTOCOL:
        return "-"
    said = decode_stream_subscription(member.member_metadata)
    info = said.info if isinstance(said, JavaSubscription) else None
    return info.process_id if isinstance(info, SubscriptionInfo) else "-"


def _java_tasks(described: Described, member: Member) -> str:
    """Tasks that were given in Java's words; of other consumers their partitions."""
    may_be_java = described.protocol_data == STREAM_PROTOCOL or described.group_state not in STABLE
    if may_be_java and member.member_assignment:
        given = decode_stream_assignment(member.member_assignment)
        if not isinstance(given, Unreadable):
            tasks = given[1].tasks
            return _tasks(ClassicAssignment(generation=NO_GENERATION, tasks=tasks, target=Tasks()))
    return _partitions(member)


def _tasks(told: ClassicAssignment) -> str:
    parts = []
    for label, tasks in (("", told.tasks), ("TARGET-", told.target)):
        roles = (("ACTIVE", tasks.active), ("STANDBY", tasks.standby), ("WARMUP", tasks.warmup))
        parts += [f"{label}{role}: {_listed(those)};" for role, those in roles if those]
    return " ".join(parts)


def _partitions(member: Member) -> str:
    found = _assigned(member)
    return "-" if found is None else _listed(found)


def _assigned(member: Member) -> list[TopicPartition] | None:
    """None where the assignment can't be read."""
    if not member.member_assignment:
        return []
    try:
        told = decode_consumer_protocol(ConsumerProtocolAssignment, member.member_assignment)
    except DecodeError:
        return None
    return [(each.topic, partition) for each in told.assigned_partitions for partition in each.partitions]


def _listed(pairs: Iterable[tuple[str, int]]) -> str:
    found: dict[str, list[int]] = {}
    for name, number in sorted(pairs):
        found.setdefault(name, []).append(number)
    return "; ".join(f"{name}:{numbers}" for name, numbers in found.items())
