"""Runs scenarios of consumer groups that are written as text, and writes down what happened.

Like the transcripts of streams groups (tests/coordinator/group/transcript.py), with other members:

    MEMBER join [TOPIC,TOPIC] KEY=VALUE ...  regex, assignor, instance, rack, timeout, id
    MEMBER beat [epoch=N] [own=PARTITIONS|given] names, regex, assignor, rack, timeout, full
    MEMBER leave|away

PARTITIONS are "foo:0,1 bar:2"; a topic that is gone is written "old foo".
"""

from __future__ import annotations

from typing import Any

from coordinator.group.consumer.state import MemberState
from coordinator.group.values import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import error_name
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
        member_id = options.get("id", f"id-{name}")
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

    def do_state(self, words: list[str], rest: list[str]) -> None:
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
