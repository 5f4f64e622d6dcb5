"""KIP-1071's example of an online migration, as transcripts: every file of tests/golden/migration comes out as it is.

Commands at the left margin, what came of them indented below. Members A and B are instances of classic Kafka Streams, C is
a member of the streams protocol; each does what it is told when it is told.

    A B are a classic group [eager]     three tasks each, and a standby task for each of the other's
    A beats | A joins | A leaves        Heartbeat; JoinGroup with SyncGroup; LeaveGroup
    C joins | C beats | C leaves        C does what the last answer said before it sends the next
    C reports TASK=OFFSET/END ...       a heartbeat with its task offsets
    state                               who has what, and who is to have what

``UPDATE_TRANSCRIPTS=1`` writes the files anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.classic.state import ClassicGroup
from coordinator.group.streams.state import StreamsGroup
from streamsrt.assignment.tasks import Tasks, task_set
from streamsrt.wire.error_codes import error_name
from tests.coordinator.group.classic.scene import Scene
from tests.coordinator.group.streams.classic.java import Beat, Member, task_names
from tests.coordinator.group.streams.classic.test_migration import Streams, classic_group, scene_with

FOLDER = Path(__file__).resolve().parents[4] / "golden" / "migration"
ROLES = ("active", "standby", "warm-up")


class Play:
    """A group, and what is said about it."""

    def __init__(self) -> None:
        self.scene: Scene = scene_with(
            **{
                "group.streams.assignor.name": "highly_available",
                "group.streams.num.standby.replicas": "1",
                "group.streams.num.warmup.replicas": "2",
            }
        )
        self.members: dict[str, Member | Streams] = {}
        self.out: list[str] = []

    def run(self, text: str) -> str:
        for line in text.splitlines():
            if line.startswith(" "):
                continue
            self.out.append(line)
            if line and not line.startswith("#"):
                self.command(line.split())
        return "\n".join(self.out) + "\n"

    def command(self, words: Sequence[str]) -> None:
        if words == ["state"]:
            self.state()
        elif words[1] == "B":
            a, b = classic_group(self.scene, eager="eager" in words)
            self.members |= {"A": a, "B": b}
            self.state()
        else:
            name, verb, *rest = words
            member = self.members.get(name)
            if member is None:
                member = self.members[name] = Streams(self.scene, name)
            said = self.classic(member, verb) if isinstance(member, Member) else self.streams(member, verb, rest)
            self.out.append(f"  -> {said}")

    def classic(self, member: Member, verb: str) -> str:
        if verb == "beats":
            return error_name(member.beat())
        if verb == "leaves":
            member.leave()
            return "gone"
        if isinstance(self.scene.shard.state.groups.get("g"), ClassicGroup):
            return self.classic_join(member)
        joined = member.join()
        if joined.error_code:
            return error_name(joined.error_code)
        return f"generation {joined.generation_id}: {told(member.tasks)}"

    def classic_join(self, member: Member) -> str:
        waiting = self.scene.ask(member.request())
        answer = self.scene.answers.get(waiting)
        if answer is None:
            return "waits"
        leads = f", leads {len(answer.members)}" if answer.members else ""
        return f"generation {answer.generation_id} of the classic group{leads}"

    def streams(self, member: Streams, verb: str, rest: Sequence[str]) -> str:
        if verb == "leaves":
            member.leave()
            return "gone"
        if verb == "joins":
            answer = member.join(task_offsets=[], task_end_offsets=[])
        elif verb == "reports":
            answer = self.report(member, rest)
        else:
            answer = member.beat()
        if answer.error_code:
            return error_name(answer.error_code)
        if answer.active_tasks is None:
            return f"epoch {answer.member_epoch}"
        return f"epoch {answer.member_epoch}: {told(of_wire(answer))}"

    def report(self, member: Streams, rest: Sequence[str]) -> Any:
        request = Beat(group_id="g", member_id=member.name, member_epoch=member.epoch)
        for word in rest:
            task, _, numbers = word.partition("=")
            subtopology, _, partition = task.partition("_")
            for field, number in zip(("task_offsets", "task_end_offsets"), numbers.split("/"), strict=True):
                entry = Beat.TaskOffset(subtopology_id=subtopology, partition=int(partition), offset=int(number))
                setattr(request, field, [*(getattr(request, field) or []), entry])
        return member._take(self.scene.answer(request, 1))

    def state(self) -> None:
        group = self.scene.shard.state.groups["g"]
        if isinstance(group, StreamsGroup):
            self.out.append(f"  streams group, epoch {group.epoch}, assignment epoch {group.assignment_epoch}")
            for name, member in self.members.items():
                found = member.member_id if isinstance(member, Member) else name
                if found in group.members:
                    current = group.current[found]
                    kind = "classic" if isinstance(member, Member) else "streams"
                    self.out.append(f"  {name}, {kind}, epoch {current.epoch}: {told(current.assigned)}")
                    if group.targets[found] != current.assigned:
                        self.out.append(f"    is to have: {told(group.targets[found])}")
            return
        live = self.scene.live
        self.out.append(f"  classic group, {live.state}, generation {live.generation}")
        for name, member in self.members.items():
            if isinstance(member, Member) and member.member_id in live.members:
                self.out.append(f"  {name}: {told(member.tasks)}")


def told(tasks: Tasks) -> str:
    return (
        "; ".join(f"{role} {names}" for role, names in zip(ROLES, task_names(tasks), strict=True) if names) or "nothing"
    )


def of_wire(answer: Any) -> Tasks:
    return Tasks(task_set(answer.active_tasks), task_set(answer.standby_tasks), task_set(answer.warmup_tasks))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("online_migration_eager", marks=pytest.mark.requirement("SG-330", "SG-336")),
        pytest.param("online_migration_cooperative", marks=pytest.mark.requirement("SG-337", "SG-318", "SG-340")),
    ],
)
def test_transcript(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    expected = path.read_text(encoding="utf-8")
    found = Play().run(expected)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(found, encoding="utf-8")
        return
    assert found == expected


def test_every_transcript_is_run() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == [
        "online_migration_cooperative",
        "online_migration_eager",
    ]
