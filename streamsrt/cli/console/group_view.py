"""One application as JSON, from what its group, its offsets and its instances tell: values in, values out.

1. A task is shown once for each member that has it, with the lag of the partitions that it reads. Tasks are in their order.
2. Unknown values are null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from streamsrt.cli.console.instances import InstanceFacts, Json
from streamsrt.runtime.group_facts import ROLES, DescribedRebalance, GroupFacts, MemberFacts, Task
from streamsrt.runtime.upgrade_status import UpgradeStatus, member_name
from streamsrt.wire.types import StreamsGroupDescribeResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """A subtopology, as the group or an instance tells it. Names of internal topics are those of the cluster.

    ``chosen_sinks``: it writes to topics that its records choose. ``knows_sinks``: all other sinks are told."""

    id: str
    sources: tuple[str, ...]
    patterns: tuple[str, ...]
    sinks: tuple[str, ...]
    stores: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    chosen_sinks: bool = False
    knows_sinks: bool = True
    is_global: bool = False
    """It has no tasks: every instance reads all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """All that one look has found. ``offsets``: rows of ``groups describe``. ``rates``: records a second that are read, by
    topic. ``rebalances``: the newest first; None where nobody tells. ``global_partitions``: how many each topic of a global
    table has."""

    facts: GroupFacts
    status: UpgradeStatus
    offsets: Sequence[Json]
    rates: Mapping[str, float]
    parts: Sequence[PartView]
    rebalances: Sequence[DescribedRebalance] | None
    instances: Mapping[str, InstanceFacts]
    global_partitions: Mapping[str, int] = field(default_factory=dict)


def group_json(snapshot: GroupSnapshot) -> Json:
    """What the page of one application shows."""
    progress = _progress(snapshot.instances.values())
    return {
        **snapshot.status.to_json(),
        "members": [_member(each) for each in _sorted(snapshot.facts.members)],
        "tasks": sorted(
            _tasks(snapshot, progress), key=lambda row: (row["subtopology"], row["partition"], ROLES.index(row["role"]))
        ),
        "topics": list(_topics(snapshot)),
        "parts": [asdict(each) for each in snapshot.parts],
        "stores": _stores(snapshot.instances.values()),
        "rebalances": None if snapshot.rebalances is None else list(snapshot.rebalances),
        "instances": [
            {
                "address": each.address,
                "unreachable": each.unreachable,
                "state": each.tasks.get("state"),
                "processed_records": each.tasks.get("processed_records"),
                "pending_calls": each.tasks.get("pending_calls"),
                "loops": each.tasks.get("loops", []),
                "statuses": each.tasks.get("statuses", []),
            }
            for each in snapshot.instances.values()
        ],
    }


def _sorted(members: Iterable[MemberFacts]) -> list[MemberFacts]:
    return sorted(members, key=lambda each: (-(each.epoch or 0), member_name(each)))


def _member(member: MemberFacts) -> Json:
    return {
        "id": member.member_id,
        "name": member_name(member),
        "client_id": member.client_id,
        "host": member.host,
        "process": member.process_id,
        "topology_epoch": member.epoch,
        "digest": member.digest,
        "endpoint": member.endpoint,
        "is_away": member.is_away,
        "tasks": {role: len(member.tasks[role]) for role in ROLES},
    }


def _progress(instances: Iterable[InstanceFacts]) -> dict[tuple[str, str], Json]:
    """What instances tell of their tasks, by address and task."""
    return {(each.address, str(task["task_id"])): task for each in instances for task in each.tasks.get("tasks", ())}


def _tasks(snapshot: GroupSnapshot, progress: Mapping[tuple[str, str], Json]) -> Iterable[Json]:
    lags = _lags(snapshot)
    ends = snapshot.facts.task_ends
    for member in snapshot.facts.members:
        for role in ROLES:
            for task in sorted(member.tasks[role]):
                name = f"{task[0]}_{task[1]}"
                reported = progress.get((member.endpoint or "", name), {})
                offset, log_end = member.offsets.get(task), ends.get(task)
                yield {
                    "task": name,
                    "subtopology": task[0],
                    "partition": task[1],
                    "role": role,
                    "member": member_name(member),
                    "lag": lags.get(task) if role == "active" else None,
                    "behind": None
                    if offset is None or log_end is None or role == "active"
                    else max(0, log_end - offset),
                    "phase": reported.get("phase"),
                    "why": _reason(reported),
                    "stream_time_ms": reported.get("stream_time_ms"),
                    "counters": reported.get("counters", {}),
                    "pending_calls": reported.get("pending_calls"),
                    "restoring": reported.get("restoring", []),
                }


def _reason(reported: Json) -> str:
    """Why a task waits; nothing of one that does what it should."""
    if reported.get("phase") in (None, "running", "standby") and not any(
        each["remaining_records"] for each in reported.get("restoring", ())
    ):
        return ""
    return str(reported.get("why", "")).partition(": ")[2]


def _lags(snapshot: GroupSnapshot) -> dict[Task, int]:
    """The lag of each task: of the partitions that it reads, all together."""
    readers: dict[str, list[str]] = defaultdict(list)
    for part in snapshot.parts:
        for topic in part.sources:
            readers[topic].append(part.id)
    found: dict[Task, int] = {}
    for row in snapshot.offsets:
        if isinstance(lag := row["offset_lag"], int):
            for name in readers.get(row["topic"], ()):
                task = (name, row["partition"])
                found[task] = found.get(task, 0) + lag
    return found


def _topics(snapshot: GroupSnapshot) -> Iterable[Json]:
    lag: dict[str, int] = {}
    partitions: dict[str, int] = {}
    for row in snapshot.offsets:
        partitions[row["topic"]] = partitions.get(row["topic"], 0) + 1
        if isinstance(row["offset_lag"], int):
            lag[row["topic"]] = lag.get(row["topic"], 0) + row["offset_lag"]
    for topic, count in sorted(partitions.items()):
        yield {
            "topic": topic,
            "partitions": count,
            "lag": lag.get(topic),
            "records_per_second": snapshot.rates.get(topic),
        }
    for topic, count in sorted(snapshot.global_partitions.items()):
        if topic not in partitions:
            told = {"lag": None, "records_per_second": None, "read_by": "every instance"}
            yield {"topic": topic, "partitions": count, **told}


def _stores(instances: Iterable[InstanceFacts]) -> list[Json]:
    """Each store of the topology; every instance knows all of them."""
    found: dict[str, Json] = {}
    for instance in instances:
        for store in instance.stores:
            found.setdefault(store["name"], store)
    return [found[name] for name in sorted(found)]


# ---------------------------------------------------------------------------------------------------- subtopologies


def parts_of_description(subtopologies: Iterable[StreamsGroupDescribeResponse.Subtopology]) -> list[PartView]:
    """As a streams group is described: patterns are resolved, stores go by their changelogs, other sinks are not told."""
    return [
        PartView(
            id=part.subtopology_id,
            sources=(*part.source_topics, *(topic.name for topic in part.repartition_source_topics)),
            patterns=(),
            sinks=tuple(part.repartition_sink_topics),
            stores=tuple(topic.name for topic in part.state_changelog_topics),
            knows_sinks=False,
        )
        for part in subtopologies
    ]


def parts_of_outline(group: str, outline: Json, named: Collection[str] = ()) -> list[PartView]:
    """As an instance outlines its topology. ``named``: what the tasks of the group call subtopologies: by numbers under
    ``subtopology.id=number``."""
    reported = outline.get("subtopologies", ())
    chosen = outline.get("subtopologies_with_chosen_sinks", ())
    is_numbered = bool(named) and not {part["id"] for part in reported}.issuperset(named)

    def internal(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{group}-{name}" for name in names)

    return [
        PartView(
            id=str(part["number"]) if is_numbered else part["id"],
            sources=(*part["source_topics"], *internal(part["repartition_source_topics"])),
            patterns=tuple(part["source_topic_patterns"]),
            sinks=(*internal(part["repartition_sink_topics"]), *(part.get("sink_topics") or ())),
            stores=tuple(part["stores"]),
            nodes=tuple(part["nodes"]),
            chosen_sinks=part["id"] in chosen,
            knows_sinks=part.get("sink_topics") is not None,
        )
        for part in reported
    ] + [
        PartView(
            id=f"global {', '.join(table['stores'])}",
            sources=tuple(table["topics"]),
            patterns=(),
            sinks=(),
            stores=tuple(table["stores"]),
            nodes=tuple(table["nodes"]),
            is_global=True,
        )
        for table in outline.get("global_tables", ())
    ]
