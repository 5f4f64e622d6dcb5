"""Runs scenarios of consumer groups that are written as text, and writes down what happened.

Like the transcripts of streams groups (tests/coordinator/group/transcript.py), with other members:

    MEMBER join [TOPIC,TOPIC] KEY=VALUE ...  regex, assignor, instance, rack, timeout, id (kept)
    MEMBER beat [epoch=N] [own=PARTITIONS|given] names, regex, assignor, rack, timeout, full
    MEMBER leave|away

Members of the classic protocol, in a consumer group or in a classic one:

    MEMBER joins TOPIC,TOPIC [own=PARTITIONS] instance, protocols, session, timeout, id, version, type
    MEMBER syncs [ASSIGNMENT of all, by the leader: MEMBER=PARTITIONS ...]   generation
    MEMBER alive | MEMBER leaves    Heartbeat, LeaveGroup; generation, instance, id

PARTITIONS are "foo:0,1 bar:2"; a topic that is gone is written "old foo".
"""

from __future__ import annotations

from typing import Any

from coordinator.group.classic.state import ClassicGroup
from coordinator.group.consumer.state import MemberState
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import EventOutcome
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import error_name
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.types import ConsumerProtocolAssignment, Message
from tests.coordinator.group.transcript import GROUP, Run, pairs

Heartbeat = types.ConsumerGroupHeartbeatRequest


def run(text: str) -> str:
    """The transcript of the commands in ``text``."""
    return ConsumerRun().play(text)


class ConsumerRun(Run):
    def __init__(self) -> None:
        super().__init__()
        self.topic_names: dict[bytes, str] = {}
        self.owned: dict[str, str] = {}
        self.ids_of: dict[str, str] = {}
        self.requests: dict[int, str] = {}

    def do_topic(self, words: list[str], rest: list[str]) -> None:
        name, count = words[:2]
        if count != "gone" and name in self.topics and "anew" not in words:
            old = self.topics[name]
            self.topics[name] = TopicImage(old.id, name, int(count))
            self.report(self.shard.set_topics(TopicsImage(self.topics), self.now_ms))
            return
        if name in self.topics:
            self.topic_names[self.topics[name].id] = f"old {name}"
        super().do_topic(words[:2], rest)
        if name in self.topics:
            self.topic_names[self.topics[name].id] = name

    # Members

    def act(self, name: str, verb: str, words: list[str]) -> None:
        options = pairs(words)
        if verb == "join" and "id" in options:
            self.ids_of[name] = options["id"]
        member_id = options.get("id", self.ids_of.get(name, f"id-{name}"))
        if verb in {"joins", "syncs", "alive", "leaves"}:
            self.classic(name, verb, words, options)
            return
        self.names[member_id] = name
        if verb in {"commit", "fetch"}:
            self.offsets(name, member_id, verb, options)
            return
        response, outcome = self.ask(
            self.heartbeat(name, member_id, verb, words, options), client=options.get("client", f"client-{name}")
        )
        self.out.append(f"  -> {self.told(response)}")
        if not response.error_code:
            self.epochs[name] = response.member_epoch
            if verb == "join":
                self.owned[name] = ""
            if response.assignment is not None:
                self.owned[name] = self.text(response.assignment.topic_partitions)
        self.report(outcome)

    def classic(self, name: str, verb: str, words: list[str], options: dict[str, str]) -> None:
        made = {"joins": self.joins, "syncs": self.syncs, "alive": self.alive, "leaves": self.leaves}[verb]
        request, version = made(name, words, options), int(options.get("version", 5))
        number = len(self.requests) + 100
        self.requests[number] = name
        context = RequestContext(number, f"client-{name}", "/127.0.0.1", version, unique=f"{name}-{number}")
        outcome = self.shard.execute(GroupRequest(context, request), self.now_ms)
        if not any(reply.request_id == number for reply in outcome.replies):
            self.say("-> waits")
        self.report(outcome)

    def joins(self, name: str, words: list[str], options: dict[str, str]) -> types.JoinGroupRequest:
        own = options.get("own", "")
        kind = types.ConsumerProtocolSubscription
        subscription = kind(
            topics=words[0].split(","),
            owned_partitions=[
                kind.TopicPartition(topic=self.topic_names[entry.topic_id], partitions=entry.partitions)
                for entry in self.wire(self.owned.get(name, "") if own == "given" else own)
            ],
        )
        if "instance" in options:
            self.instances[name] = options["instance"]
        protocol = types.JoinGroupRequest.JoinGroupRequestProtocol
        return types.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(options.get("session", 45000)),
            rebalance_timeout_ms=int(options.get("timeout", 60000)),
            member_id=options.get("id", self.ids_of.get(name, "")),
            group_instance_id=self.instances.get(name),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                protocol(name=each, metadata=encode_record_value(subscription, 3))
                for each in options.get("protocols", "range").split(",")
            ],
        )

    def syncs(self, name: str, words: list[str], options: dict[str, str]) -> types.SyncGroupRequest:
        kind = types.SyncGroupRequest.SyncGroupRequestAssignment
        given = ConsumerProtocolAssignment.TopicPartition
        shares = [
            kind(
                member_id=self.ids_of[who],
                assignment=encode_record_value(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            given(topic=self.topic_names[each.topic_id], partitions=each.partitions)
                            for each in self.wire(options[who])
                        ]
                    ),
                    3,
                ),
            )
            for who in options
            if who in self.ids_of
        ]
        return types.SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.get("generation", self.epochs.get(name, -1))),
            member_id=self.ids_of.get(name, ""),
            group_instance_id=self.instances.get(name),
            assignments=shares,
        )

    def alive(self, name: str, words: list[str], options: dict[str, str]) -> types.HeartbeatRequest:
        return types.HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(options.get("generation", self.epochs.get(name, -1))),
            member_id=options.get("id", self.ids_of.get(name, "")),
            group_instance_id=self.instances.get(name),
        )

    def leaves(self, name: str, words: list[str], options: dict[str, str]) -> types.LeaveGroupRequest:
        kind = types.LeaveGroupRequest.MemberIdentity
        member_id, instance_id = options.get("id", self.ids_of.get(name, "")), self.instances.get(name)
        return types.LeaveGroupRequest(
            group_id=GROUP, members=[kind(member_id=member_id, group_instance_id=instance_id)]
        )

    def report(self, outcome: EventOutcome) -> None:
        for number, message in outcome.replies:
            name = self.requests.get(number)
            if name is not None:
                self.say(f"-> {name}: {self.classic_answer(name, message)}")
        super().report(outcome)

    def classic_answer(self, name: str, message: Any) -> str:
        code = error_name(message.error_code)
        if isinstance(message, types.JoinGroupResponse):
            if message.member_id:
                self.ids_of[name] = message.member_id
                self.names[message.member_id] = name
            if message.error_code:
                return code
            self.epochs[name] = message.generation_id
            led = (
                f", leads {' '.join(self.label(each.member_id) for each in message.members)}" if message.members else ""
            )
            return f"generation {message.generation_id} {message.protocol_name}{led}"
        if isinstance(message, types.SyncGroupResponse) and message.assignment:
            found = decode_consumer_protocol(ConsumerProtocolAssignment, message.assignment)
            rows = sorted((entry.topic, entry.partitions) for entry in found.assigned_partitions)
            self.owned[name] = " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in rows)
            return self.owned[name] or "nothing"
        if isinstance(message, types.LeaveGroupResponse) and message.members:
            return error_name(message.members[0].error_code)
        return code

    def heartbeat(
        self, name: str, member_id: str, verb: str, words: list[str], options: dict[str, str]
    ) -> types.ConsumerGroupHeartbeatRequest:
        joins = verb == "join"
        epoch = {"join": 0, "leave": -1, "away": -2}.get(verb, self.epochs.get(name, 0))
        names = words[0] if joins and words and "=" not in words[0] else options.get("names")
        request = Heartbeat(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=int(options.get("epoch", epoch)),
            instance_id=options.get("instance", self.instances.get(name)),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("timeout", 300000 if joins or "full" in options else -1)),
            subscribed_topic_names=None if names is None else [each for each in names.split(",") if each],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
        )
        if request.instance_id is not None:
            self.instances[name] = request.instance_id
        own = options.get("own", "" if joins else None)
        if own is not None:
            request.topic_partitions = self.wire(self.owned.get(name, "") if own == "given" else own)
        return request

    def wire(self, text: str) -> list[Heartbeat.TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self.topic_names.items()}
        found = []
        for word in text.replace("old ", "old_").split():
            name, _, numbers = word.replace("old_", "old ").rpartition(":")
            found.append(Heartbeat.TopicPartitions(topic_id=ids[name], partitions=[int(n) for n in numbers.split(",")]))
        return found

    def text(self, partitions: Any) -> str:
        rows = sorted((self.topic_names[entry.topic_id], entry.partitions) for entry in partitions)
        return " ".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in rows)

    def told(self, response: types.ConsumerGroupHeartbeatResponse) -> str:
        if response.error_code:
            return self.labelled(f"{error_name(response.error_code)} {response.error_message or ''}".rstrip())
        text = f"epoch {response.member_epoch}"
        if response.assignment is not None:
            text += f" | {self.text(response.assignment.topic_partitions) or 'nothing'}"
        return text

    # Questions

    def ask(self, message: Message, version: int = 1, client: str = "client") -> Any:
        request = GroupRequest(RequestContext(7, client, "/127.0.0.1", version), message)
        outcome = self.shard.execute(request, self.now_ms)
        (reply,) = [reply for reply in outcome.replies if reply.request_id == 7]
        return reply.message, outcome

    def do_state(self, words: list[str], rest: list[str]) -> None:
        group = self.shard.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            live = group.live
            self.say(f"classic, {live.state}, generation {live.generation}")
            return
        response, _ = self.ask(types.ConsumerGroupDescribeRequest(group_ids=[GROUP]))
        (group,) = response.groups
        if group.error_code:
            self.say(f"{error_name(group.error_code)} {group.error_message}")
            return
        self.say(
            f"{group.group_state}, group epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}, "
            f"{group.assignor_name}"
        )
        for member in group.members:
            has = self.text(member.assignment.topic_partitions) or "nothing"
            wants = self.text(member.target_assignment.topic_partitions) or "nothing"
            wanted = "" if has == wants else f"; target {wants}"
            kind = "classic, " if member.member_type == 0 else ""
            self.say(f"{self.label(member.member_id)}: {kind}epoch {member.member_epoch}, {has}{wanted}")

    # Records

    def text_GroupMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        members = []
        for member in value.members:
            given = (
                decode_consumer_protocol(ConsumerProtocolAssignment, member.assignment) if member.assignment else None
            )
            rows = sorted((e.topic, e.partitions) for e in given.assigned_partitions) if given else []
            share = " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in rows)
            members.append(f"{self.label(member.member_id)} {share or 'nothing'}")
        return f"classic group, generation {value.generation}" + "".join(f", {each}" for each in members)

    def text_ConsumerGroupMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"group epoch {value.epoch}" + ("" if value.metadata_hash else ", no topics")

    def text_ConsumerGroupMemberMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        parts = [f"member {who}", *value.subscribed_topic_names]
        parts += [f"regex {value.subscribed_topic_regex}"] * (value.subscribed_topic_regex is not None)
        parts += [f"assignor {value.server_assignor}"] * (value.server_assignor is not None)
        parts += [f"instance {value.instance_id}"] * (value.instance_id is not None)
        parts += [f"rack {value.rack_id}"] * (value.rack_id is not None)
        parts += ["classic"] * (value.classic_member_metadata is not None)
        return ", ".join(parts)

    def text_ConsumerGroupTargetAssignmentMetadata(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"target epoch {value.assignment_epoch}"

    def text_ConsumerGroupTargetAssignmentMember(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"target {who}: {self.text(value.topic_partitions) or 'nothing'}"

    def text_ConsumerGroupRegularExpression(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        return f"regex {key.regular_expression}: {' '.join(value.topics) or 'nothing'}"

    def text_ConsumerGroupCurrentMemberAssignment(self, key: Any, value: Any, who: str) -> str:  # noqa: N802
        text = f"current {who}: epoch {value.member_epoch} after {value.previous_member_epoch} "
        text += f"{MemberState(value.state).name}: {self.text(value.assigned_partitions) or 'nothing'}"
        pending = self.text(value.partitions_pending_revocation)
        return f"{text}; to revoke {pending}" if pending else text
