"""``streamsrt groups reset-offsets`` and ``delete-offsets``: where a stopped application continues.

1. Nothing is done to a group that has members, and nothing at all without ``--execute``: what would be done is printed.
2. The offsets are those of the application's input topics. Its internal topics are deleted on request; local state is
   deleted on each instance (``streamsrt state clean``).
3. A new offset that is outside of the log is moved to the nearest end of the log.

Source: kafka-streams-groups.sh (KIP-1043, KIP-1071) and StreamsResetter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer

from streamsrt.assignment.internal_topics import CHANGELOG_SUFFIX
from streamsrt.cli.arguments import utc_ms
from streamsrt.cli.classic_group import described_classic_group
from streamsrt.cli.described_group import described_group, kind_of_group
from streamsrt.cli.output import note, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, cluster
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.errors import ConfigError, RequestFailedError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wording import counted

_COLUMNS = ["group", "topic", "partition", "current_offset", "new_offset"]
_INTERNAL = (CHANGELOG_SUFFIX, "-repartition")
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)

Group = Annotated[str, typer.Argument(help="application id")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="input topic, or TOPIC:0,1 for some of its partitions; repeatable (default: all)"),
]


@dataclass(frozen=True, slots=True)
class StoppedGroup:
    """A group without members. ``inputs``: source topics that others write to; ``internal``: topics of its own."""

    name: str
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    inputs: frozenset[str]
    internal: frozenset[str]


def reset_offsets(
    group: Group,
    bootstrap_servers: BootstrapServers = None,
    topics: Topics = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="to the start of the logs")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to the end of the logs")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="to the current offsets, which are committed again")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="to this offset of every partition")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="N records forward, or backward (-N)")] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", help="to the first record of 2026-01-31T12:00:00.000 (UTC) or later")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="to the first record at most P1DT2H30M5S old")
    ] = None,
    delete_internal_topics: Annotated[
        bool, typer.Option("--delete-internal-topics", help="delete changelogs and repartition topics too")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print what would be done (the default)")] = False,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Set the offsets at which a stopped application resumes reading its input topics."""
    if dry_run and execute:
        raise ConfigError("--dry-run and --execute are mutually exclusive")
    given: dict[str, Any] = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
    }
    wanted = [(option, value) for option, value in given.items() if value is not None]
    if len(wanted) != 1:
        raise ConfigError(f"give exactly one target: {', '.join(given)}")
    target = _target(*wanted[0])
    with cluster(bootstrap_servers) as network:
        stopped = _stopped(network, group, topics or ())
        partitions = _partitions(network, stopped, topics)
        offsets = _within(network, partitions, target(network, stopped, partitions))
        rows = [
            {
                "group": group,
                "topic": topic,
                "partition": partition,
                "current_offset": at.offset if (at := stopped.committed.get((topic, partition))) is not None else "-",
                "new_offset": offset,
            }
            for (topic, partition), offset in sorted(offsets.items())
        ]
        print_rows(_COLUMNS, rows, as_json=as_json)
        if execute:
            network.admin.commit(group, {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()})
        if delete_internal_topics:
            _delete_internal(network, stopped, execute=execute)
    if not execute:
        note("nothing is changed: use --execute to do it")
    elif not delete_internal_topics and stopped.internal:
        note(
            "changelogs and stores were not changed: records that stores include already are processed twice. To rebuild "
            "all stores, use --delete-internal-topics, then streamsrt state clean"
        )


def delete_offsets(
    group: Group,
    topics: Annotated[list[str], typer.Option("--topic", help="topic whose offsets are deleted; repeatable")],
    bootstrap_servers: BootstrapServers = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Delete committed offsets of topics that the application does not read, or of any topics if it is stopped."""
    with cluster(bootstrap_servers) as network:
        committed = network.admin.committed(group)
        partitions = sorted(tp for tp in committed if tp[0] in topics)
        missing = sorted(set(topics) - {topic for topic, _ in partitions})
        if missing:
            raise ConfigError(f"group {group!r} has committed nothing for {', '.join(missing)}")
        print_rows(
            _COLUMNS[:4],
            [
                {"group": group, "topic": t, "partition": p, "current_offset": committed[t, p].offset}
                for t, p in partitions
            ],
            as_json=as_json,
        )
        if not execute:
            note("nothing is changed: use --execute to do it")
            return
        _delete(network, group, partitions)


def _delete(network: NetworkThread, group: str, partitions: Collection[TopicPartition]) -> None:
    request = types.OffsetDeleteRequest
    by_topic: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(request.OffsetDeleteRequestPartition(partition_index=partition))
    message = request(
        group_id=group,
        topics=[request.OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in by_topic.items()],
    )
    response = network.request(message, coordinator_of=group).result()
    codes = [response.error_code, *(each.error_code for topic in response.topics for each in topic.partitions)]
    for code in codes:
        if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise ConfigError(f"group {group!r} reads that topic now: stop all members first")
        if code:
            raise RequestFailedError(f"offsets of group {group!r} were not deleted: {error_name(code)}", code)


def _stopped(network: NetworkThread, group: str, topics: Collection[str]) -> StoppedGroup:
    """``topics``: as they are given. Raises ConfigError for a group that has members, and for one that is not there, if no
    topics are given."""
    topology, members, groups = None, 0, network.admin.list_groups()
    if topics and all(each.group_id != group for each in groups):
        # An application that reads nothing without an offset (offset_reset="none") can't make its group.
        note(f"there is no group {group} yet")
    elif kind_of_group(network, group) == "classic":
        # Nobody keeps the topology of a classic group without members: what it reads is what it has committed.
        members = len(described_classic_group(network, group).members)
    else:
        described = described_group(network, group)
        members, topology = len(described.members), described.topology
    if members:
        raise ConfigError(
            f"group {group!r} has {counted(members, 'member')}: stop all instances of the application first"
        )
    parts = (topology.subtopologies or []) if topology is not None else []
    internal = {each.name for part in parts for each in (*part.state_changelog_topics, *part.repartition_source_topics)}
    # An application whose id is the beginning of another one's has none of its topics.
    others = tuple(f"{each.group_id}-" for each in groups if each.group_id.startswith(f"{group}-"))
    internal |= {
        name
        for name in network.admin.topics()
        if name.startswith(f"{group}-") and name.endswith(_INTERNAL) and not name.startswith(others)
    }
    committed = network.admin.committed(group)
    read = {name for part in parts for name in part.source_topics} | {topic for topic, _ in committed}
    if not read:
        # Nobody knows what it reads.
        read = {name for name, _ in map(_named, topics)}
    return StoppedGroup(group, committed, frozenset(read - internal), frozenset(internal))


def _partitions(network: NetworkThread, group: StoppedGroup, topics: list[str] | None) -> list[TopicPartition]:
    """The partitions that are meant. Raises ConfigError for topics that are not the application's input."""
    chosen = dict(map(_named, topics)) if topics else dict.fromkeys(group.inputs)
    others = sorted(set(chosen) - group.inputs)
    if others:
        known = ", ".join(sorted(group.inputs)) or "none"
        raise ConfigError(f"{', '.join(others)}: no input topics of group {group.name!r}, which are: {known}")
    there = network.admin.topics(list(chosen)) if chosen else {}
    topic_partitions = []
    for topic, partitions in chosen.items():
        if topic not in there:
            raise ConfigError(f"topic {topic!r} does not exist")
        count = there[topic].partitions
        wanted = range(count) if partitions is None else partitions
        beyond = [each for each in wanted if each >= count]
        if beyond:
            raise ConfigError(f"topic {topic!r} has partitions 0 to {count - 1}, not {beyond[0]}")
        topic_partitions += [(topic, partition) for partition in wanted]
    return topic_partitions


def _named(text: str) -> tuple[str, list[int] | None]:
    name, colon, partitions = text.partition(":")
    if not colon:
        return name, None
    if not all(each.isascii() and each.isdigit() for each in partitions.split(",")):
        raise ConfigError(f"--topic {text}: expected TOPIC or TOPIC:0,1,2")
    return name, sorted({int(each) for each in partitions.split(",")})


Target = Callable[[NetworkThread, StoppedGroup, list[TopicPartition]], dict[TopicPartition, int]]


def _target(option: str, value: Any) -> Target:
    """What says where each partition goes on. Raises ConfigError for a time that is none."""
    if option == "--to-offset":
        return lambda network, group, partitions: dict.fromkeys(partitions, value)
    if option in ("--to-current", "--shift-by"):
        by = value if option == "--shift-by" else 0
        return lambda network, group, partitions: {
            tp: at.offset + by for tp in partitions if (at := group.committed.get(tp)) is not None
        }
    at_ms = {"--to-earliest": EARLIEST, "--to-latest": LATEST}.get(option)
    if at_ms is None:
        at_ms = (
            parse_datetime(value) if option == "--to-datetime" else time.time_ns() // 1_000_000 - parse_duration(value)
        )

    def at_time(
        network: NetworkThread, group: StoppedGroup, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found = _listed(network, partitions, at_ms)
        # Nothing is that young: what comes next is.
        found |= _listed(network, [tp for tp in partitions if found[tp] < 0], LATEST)
        return found

    return at_time


def _listed(network: NetworkThread, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(partitions, at)
    return {tp: each.offset for tp, each in network.admin.list_offsets(wanted).items()} if wanted else {}


def _within(
    network: NetworkThread, partitions: list[TopicPartition], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    starts, ends = _listed(network, partitions, EARLIEST), _listed(network, partitions, LATEST)
    return {tp: min(max(offset, starts[tp]), ends[tp]) for tp, offset in offsets.items()}


def _delete_internal(network: NetworkThread, group: StoppedGroup, *, execute: bool) -> None:
    there = sorted(network.admin.topics(sorted(group.internal))) if group.internal else []
    for topic in there:
        note(f"{'deletes' if execute else 'would delete'} topic {topic}")
    if there and execute:
        failed = {name: error for name, error in network.admin.delete_topics(there).items() if error is not None}
        if failed:
            raise ConfigError("; ".join(str(error) for error in failed.values()))
    if there:
        note("instances still have local state: run streamsrt state clean on each machine")


def parse_datetime(text: str, option: str = "--to-datetime") -> int:
    """Epoch milliseconds of an ISO time, which is UTC where it does not say otherwise. Raises ConfigError."""
    try:
        return utc_ms(text)
    except ValueError:
        raise ConfigError(f"{option} {text}: expected a time like 2026-01-31T12:00:00.000") from None


def parse_duration(text: str) -> int:
    """Milliseconds of an ISO duration of days, hours, minutes and seconds. Raises ConfigError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(f"--by-duration {text}: expected a duration like P1DT2H30M5S")
    return round(
        timedelta(**{unit: float(value) for unit, value in found.groupdict("0").items()}) / timedelta(milliseconds=1)
    )
