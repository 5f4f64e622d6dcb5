"""Runs scenarios of streams groups that are written as text, and writes down what happened.

A transcript is commands at the left margin, each followed by what came of it, indented. ``run`` takes the commands of a
text and gives the text back with what the coordinator really did; a test compares the two. Commands:

    broker KEY=VALUE ...            settings of the broker, at the top
    config KEY=VALUE ...            dynamic settings of the group
    records at end                  list records behind the last command, as one log
    topic NAME COUNT|gone           a topic appears, changes or goes
    topology NAME epoch=N           followed by indented lines "ID: source=a,b pattern=x.* sink=r repartition=r:2 changelog=c
                                    together=a+r"
    MEMBER join TOPOLOGY KEY=VALUE ...      process, endpoint, instance, rack, tags, timeout, id
    MEMBER beat [epoch=N] [own=TASKS|given] process, endpoint, rack, tags, offsets, seen (endpoint epoch), full
    MEMBER leave|away [shutdown]
    MEMBER commit TOPIC:PARTITION=OFFSET ... [epoch=N]
    MEMBER fetch TOPIC:PARTITION ... [epoch=N]
    state | list | delete           what describe shows, ListGroups, DeleteGroups
    time N                          the clock goes on; timers expire
    restart                         the coordinator starts again from its log
    appends fail                    the next append fails
    creation fails TOPIC=REASON

offsets= is what a member reports of its changelogs: "0:0@4000/60000,0:1@7", task@offset/end offset, or "none" for an empty
report. "@N" before a command is "time N". TASKS are "0:0,1 1:0 / 1:1 / ", active, standby and warm-up.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from coordinator.group.config import GroupConfig
from coordinator.group.values import Event, GroupRecord, GroupRequest, RequestContext, TopicCreationFailed
from coordinator.machine.values import CoordinatorRecord
from coordinator.shard.shard import EventOutcome, Shard
from streamsrt.assignment.reconcile import MemberState
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import error_name
from streamsrt.wire.messages import decode_record_key, decode_record_value
from streamsrt.wire.records import decode_batches
from streamsrt.wire.schema import named_class
from streamsrt.wire.types import Message
from tests.coordinator.group.memory_log import MemoryLog
from tests.streamsrt.assignment.notation import subtopology

GROUP = "app"
Heartbeat = types.StreamsGroupHeartbeatRequest


def run(text: str) -> str:
    """The transcript of the commands in ``text``."""
    return Run().play(text)


class Run:
    """The world of a transcript: a coordinator, its log, its topics, its members."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.broker: dict[str, str] = {}
        self.dynamic: dict[str, str] = {}
        self.topics: dict[str, TopicImage] = {}
        self.ids = 0
        self.now_ms = 0
        self.shard = Shard(self.log, GroupConfig.parse({}))
        self.topologies: dict[str, Heartbeat.Topology] = {}
        self.epochs: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.given: dict[str, tuple[str, str, str]] = {}
        self.instances: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.at_end = False
        self.shown = 0
        self.out: list[str] = []

    def play(self, text: str) -> str:
        blocks: list[list[str]] = []
        for line in text.splitlines():
            if line.startswith("records:"):
                break
            if line.startswith(("#", " ")) or not line:
                (blocks[-1] if blocks else self.out).append(line)
            else:
                blocks.append([line])
        for block in blocks:
            self.out.append(block[0])
            self.command(block)
            self.out += [line for line in block[1:] if line.startswith("#") or not line]
        if self.at_end:
            self.out.append("records:")
            self.out += self.batches(0)
        return "\n".join(self.out) + "\n"

    def command(self, block: list[str]) -> None:
        line = block[0]
        if line.startswith("@"):
            stamp, line = line.split(" ", 1)
            self.time(int(stamp[1:]))
        words = shlex.split(line)
        handler = getattr(self, f"do_{words[0]}", None)
        if handler is not None:
            handler(words[1:], block[1:])
        else:
            self.act(words[0], words[1], words[2:])

    # The world

    def do_broker(self, words: list[str], rest: list[str]) -> None:
        self.broker |= pairs(words)
        self.set_config()

    def do_config(self, words: list[str], rest: list[str]) -> None:
        self.dynamic |= pairs(words)
        self.set_config()

    def set_config(self) -> None:
        config = GroupConfig.parse(self.broker).with_group(GROUP, self.dynamic)
        self.shard.set_group_config(config)

    def do_records(self, words: list[str], rest: list[str]) -> None:
        self.at_end = True

    def do_topic(self, words: list[str], rest: list[str]) -> None:
        name, count = words
        self.topics.pop(name, None)
        if count != "gone":
            self.ids += 1
            self.topics[name] = TopicImage(self.ids.to_bytes(16, "big"), name, int(count))
        self.report(self.shard.set_topics(TopicsImage(self.topics), self.now_ms))

    def do_topology(self, words: list[str], rest: list[str]) -> None:
        name, options = words[0], pairs(words[1:])
        parts = []
        for line in rest:
            if line.startswith("  ") and not line.startswith("  -"):
                self.out.append(line)
                parts.append(subtopology(line.strip()))
        self.topologies[name] = Heartbeat.Topology(epoch=int(options.get("epoch", 0)), subtopologies=parts)

    def do_time(self, words: list[str], rest: list[str]) -> None:
        self.time(int(words[0]))

    def time(self, now_ms: int) -> None:
        while (deadline := self.shard.next_deadline_ms()) is not None and deadline <= now_ms:
            self.now_ms = max(deadline, self.now_ms)
            self.report(self.shard.tick(self.now_ms))
        self.now_ms = now_ms

    def do_restart(self, words: list[str], rest: list[str]) -> None:
        config = GroupConfig.parse(self.broker).with_group(GROUP, self.dynamic)
        before = self.shard.state
        self.shard = Shard(self.log, config, TopicsImage(self.topics))
        self.report(self.shard.load(self.now_ms))
        self.say("same state" if self.shard.state == before else "ANOTHER STATE")

    def do_appends(self, words: list[str], rest: list[str]) -> None:
        self.log.fail_next = 1

    def do_creation(self, words: list[str], rest: list[str]) -> None:
        self.report(self.shard.execute(TopicCreationFailed(GROUP, pairs(words[1:])), self.now_ms))

    # Questions

    def ask(self, message: Message, version: int = 1, client: str = "client") -> Any:
        request: Event = GroupRequest(RequestContext(7, client, "/127.0.0.1", version), message)
        outcome = self.shard.execute(request, self.now_ms)
        (reply,) = outcome.replies
        return reply.message, outcome

    def do_state(self, words: list[str], rest: list[str]) -> None:
        response, _ = self.ask(types.StreamsGroupDescribeRequest(group_ids=[GROUP]))
        (group,) = response.groups
        if group.error_code:
            self.say(f"{error_name(group.error_code)} {group.error_message}")
            return
        self.say(f"{group.group_state}, group epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}")
        for member in group.members:
            has, wants = role_text(member.assignment), role_text(member.target_assignment)
            wanted = "" if has == wants else f"; target {wants}"
            self.say(f"{self.label(member.member_id)}: epoch {member.member_epoch}, {has}{wanted}")

    def do_list(self, words: list[str], rest: list[str]) -> None:
        response, _ = self.ask(types.ListGroupsRequest())
        for group in response.groups:
            self.say(f"{group.group_id} {group.group_type} {group.group_state}")

    def do_delete(self, words: list[str], rest: list[str]) -> None:
        response, outcome = self.ask(types.DeleteGroupsRequest(groups_names=[GROUP]))
        self.say(error_name(response.results[0].error_code))
        self.report(outcome)

    # Members

    def act(self, name: str, verb: str, words: list[str]) -> None:
        options = pairs(words)
        member_id = f"id-{name}"
        self.names[member_id] = name
        if verb in {"commit", "fetch"}:
            self.offsets(name, member_id, verb, options)
            return
        request = self.request(name, member_id, verb, options)
        response, outcome = self.ask(request, client=options.get("client", f"client-{name}"))
        self.out.append(f"  -> {self.answer(response)}")
        if not response.error_code:
            self.epochs[name] = response.member_epoch
            self.seen[name] = response.endpoint_information_epoch
            if response.active_tasks is not None:
                self.given[name] = (
                    task_text(response.active_tasks),
                    task_text(response.standby_tasks),
                    task_text(response.warmup_tasks),
                )
        self.report(outcome)

    def request(self, name: str, member_id: str, verb: str, options: dict[str, str]) -> Heartbeat:
        epoch = {"join": 0, "leave": -1, "away": -2}.get(verb, self.epochs.get(name, 0))
        request = Heartbeat(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=int(options.get("epoch", epoch)),
            endpoint_information_epoch=int(options.get("seen", -1 if verb == "join" else self.seen.get(name, 0))),
            instance_id=options.get("instance", self.instances.get(name)),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("timeout", 300000 if verb == "join" or "full" in options else -1)),
            process_id=options.get("process"),
            shutdown_application="shutdown" in options,
        )
        if request.instance_id is not None:
            self.instances[name] = request.instance_id
        if "endpoint" in options:
            host, port = options["endpoint"].rsplit(":", 1)
            request.user_endpoint = Heartbeat.Endpoint(host=host, port=int(port))
        if "tags" in options:
            entries = [tag.split(":") for tag in options["tags"].split(",")]
            request.client_tags = [Heartbeat.KeyValue(key=key, value=value) for key, value in entries]
        own = options.get("own", " / / " if verb == "join" else None)
        if own is not None:
            roles = self.given.get(name, ("", "", "")) if own == "given" else own.split("/")
            request.active_tasks, request.standby_tasks, request.warmup_tasks = map(wire_tasks, roles)
        if "offsets" in options:
            request.task_offsets, request.task_end_offsets = task_offsets(options["offsets"])
        if verb == "join":
            topology = next(word for word in options if word in self.topologies)
            request.topology = self.topologies[topology]
            request.process_id = options.get("process", f"process-{name}")
        return request

    def offsets(self, name: str, member_id: str, verb: str, options: dict[str, str]) -> None:
        epoch = int(options.pop("epoch", self.epochs.get(name, -1)))
        member = options.pop("id", member_id)
        if verb == "commit":
            request = types.OffsetCommitRequest(group_id=GROUP, member_id=member, generation_id_or_member_epoch=epoch)
            for place, value in options.items():
                topic, partition = place.rsplit(":", 1)
                offset, _, metadata = value.partition(",")
                entry = request.OffsetCommitRequestPartition(
                    partition_index=int(partition), committed_offset=int(offset), committed_metadata=metadata
                )
                request.topics.append(request.OffsetCommitRequestTopic(name=topic, partitions=[entry]))
            response, outcome = self.ask(request, 9)
            codes = [p.error_code for t in response.topics for p in t.partitions]
            self.say("-> " + " ".join(error_name(code) for code in codes))
            self.report(outcome)
            return
        fetch = types.OffsetFetchRequest
        group = fetch.OffsetFetchRequestGroup(group_id=GROUP, member_id=member, member_epoch=epoch, topics=[])
        for place in options:
            topic, partition = place.rsplit(":", 1)
            group.topics.append(fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[int(partition)]))
        response, _ = self.ask(fetch(groups=[group]), 9)
        (answer,) = response.groups
        found = [f"{t.name}:{p.partition_index}={p.committed_offset}" for t in answer.topics for p in t.partitions]
        self.say("-> " + " ".join([error_name(answer.error_code)] * bool(answer.error_code) + found))

    # What happened

    def say(self, text: str) -> None:
        self.out.append(f"  {text}")

    def label(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    def labelled(self, text: str) -> str:
        for member_id, name in self.names.items():
            text = text.replace(member_id, name)
        return text.replace(GROUP, "app")

    def answer(self, response: types.StreamsGroupHeartbeatResponse) -> str:
        if response.error_code:
            return self.labelled(f"{error_name(response.error_code)} {response.error_message or ''}".rstrip())
        parts = [f"epoch {response.member_epoch}"]
        if response.active_tasks is not None:
            parts.append(role_text(response))
        for status in response.status or ():
            parts.append(self.labelled(f"status {status.status_code} {status.status_detail}"))
        if response.member_epoch > 0:
            parts += [f"interval {ms}" for ms in (response.heartbeat_interval_ms,) if ms != 5000]
            parts += [f"lag {lag}" for lag in (response.acceptable_recovery_lag,) if lag != 10_000]
        if response.endpoint_information_epoch:
            parts.append(f"endpoints {response.endpoint_information_epoch}")
        parts += sorted(map(endpoint_text, response.partitions_by_user_endpoint or ()))
        return " | ".join(parts)

    def report(self, outcome: EventOutcome) -> None:
        for effect in outcome.effects:
            listed = " ".join(f"{spec.name}={spec.partitions}" for spec in effect.topics)
            self.say(f"create {listed}")
        if not self.at_end:
            self.out += self.batches(self.shown)
        self.shown = len(self.log.batches)

    def batches(self, start: int) -> list[str]:
        lines = []
        for batch in self.log.batches[start:]:
            lines.append("  log:")
            lines += [f"    {line}" for line in self.batch_lines(batch)]
        return lines

    def batch_lines(self, batch: bytes) -> list[str]:
        return ordered(self.record_text(record) for record in records_of(batch))

    def record_text(self, record: GroupRecord) -> str:
        key: Any = record.key
        kind = key.NAME.removesuffix("Key")
        who = self.label(getattr(key, "member_id", ""))
        if record.value is None and kind == "OffsetCommit":
            return f"offset {key.topic}:{key.partition} gone"
        if record.value is None:
            return f"{_KINDS[kind]} {who} gone".replace("  ", " ")
        return getattr(self, f"text_{kind}")(key, record.value, who)

    def text_StreamsGroupMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        validated = "" if value.validated_topology_epoch < 0 else f", topology {value.validated_topology_epoch} right"
        configs = [f", {config.key} {config.value}" for config in value.last_assignment_configs if config.value != "0"]
        return f"group epoch {value.epoch}{validated}{''.join(configs)}"

    def text_StreamsGroupTopology(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"topology epoch {value.epoch}"

    def text_StreamsGroupMemberMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        endpoint = value.user_endpoint
        parts = [f"member {who}", f"process {value.process_id}"]
        parts += [f"instance {value.instance_id}"] * (value.instance_id is not None)
        parts += [f"rack {value.rack_id}"] * (value.rack_id is not None)
        parts += [f"endpoint {endpoint.host}:{endpoint.port}"] if endpoint is not None else []
        parts += [f"tag {tag.key} {tag.value}" for tag in value.client_tags]
        parts += [f"topology {value.topology_epoch}"] * bool(value.topology_epoch)
        return ", ".join(parts)

    def text_StreamsGroupTargetAssignmentMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"target epoch {value.assignment_epoch}" + (" no time" if not value.assignment_timestamp else "")

    def text_StreamsGroupTargetAssignmentMember(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"target {who}: {role_text(value)}"

    def text_StreamsGroupCurrentMemberAssignment(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        text = f"current {who}: epoch {value.member_epoch} after {value.previous_member_epoch} "
        text += f"{MemberState(value.state).name}: {role_text(value)}"
        pending = role_text(
            Heartbeat(
                active_tasks=value.active_tasks_pending_revocation,
                standby_tasks=value.standby_tasks_pending_revocation,
                warmup_tasks=value.warmup_tasks_pending_revocation,
            )
        )
        return text if pending == "none" else f"{text}; to revoke {pending}"

    def text_OffsetCommit(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"offset {key.topic}:{key.partition}={value.offset}"


_KINDS = {
    "GroupMetadata": "classic group",
    "ConsumerGroupMetadata": "group",
    "ConsumerGroupMemberMetadata": "member",
    "ConsumerGroupTargetAssignmentMetadata": "target epoch",
    "ConsumerGroupTargetAssignmentMember": "target",
    "ConsumerGroupCurrentMemberAssignment": "current",
    "ConsumerGroupRegularExpression": "regex",
    "StreamsGroupMetadata": "group",
    "StreamsGroupTopology": "topology",
    "StreamsGroupMemberMetadata": "member",
    "StreamsGroupTargetAssignmentMetadata": "target epoch",
    "StreamsGroupTargetAssignmentMember": "target",
    "StreamsGroupCurrentMemberAssignment": "current",
    "OffsetCommit": "offset",
}


def records_of(batch: bytes) -> Iterator[GroupRecord]:
    for columns in decode_batches(batch):
        for key, value in zip(columns.keys, columns.values, strict=True):
            assert key is not None
            decoded = decode_record_key(key)
            kind = named_class(decoded.NAME.removesuffix("Key") + "Value")
            yield CoordinatorRecord(decoded, None if value is None else decode_record_value(kind, value))


def ordered(lines: Iterable[str]) -> list[str]:
    """The lines with each run of members' targets sorted: their order means nothing."""
    found: list[str] = []
    run_of_targets: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("target ") and ":" in line and not line.startswith("target epoch"):
            run_of_targets.append(line)
            continue
        found += [*sorted(run_of_targets), line]
        run_of_targets = []
    return found[:-1]


def pairs(words: Iterable[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def task_offsets(text: str) -> tuple[list[Heartbeat.TaskOffset], list[Heartbeat.TaskOffset]]:
    offsets: list[Heartbeat.TaskOffset] = []
    ends: list[Heartbeat.TaskOffset] = []
    for entry in text.split(",") if text != "none" else ():
        task, at = entry.split("@")
        name, partition = task.split(":")
        for found, offset in zip((offsets, ends), at.split("/"), strict=False):
            found.append(Heartbeat.TaskOffset(subtopology_id=name, partition=int(partition), offset=int(offset)))
    return offsets, ends


def wire_tasks(text: str) -> list[Heartbeat.TaskIds]:
    found = []
    for word in text.split():
        name, _, partitions = word.rpartition(":")
        found.append(Heartbeat.TaskIds(subtopology_id=name, partitions=[int(p) for p in partitions.split(",")]))
    return found


def task_text(tasks: Any) -> str:
    return " ".join(f"{ids.subtopology_id}:{','.join(map(str, sorted(ids.partitions)))}" for ids in tasks)


def role_text(message: Any) -> str:
    roles = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
    return " / ".join(task_text(tasks) or "none" for tasks in roles).removesuffix(" / none").removesuffix(" / none")


def endpoint_text(entry: Any) -> str:
    def listed(topics: Any) -> str:
        return " ".join(f"{topic.topic}:{','.join(map(str, topic.partitions))}" for topic in topics) or "none"

    text = f"{entry.user_endpoint.host}:{entry.user_endpoint.port} {listed(entry.active_partitions)}"
    return text + (f" / {listed(entry.standby_partitions)}" if entry.standby_partitions else "")
