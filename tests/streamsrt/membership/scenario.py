"""A session, driven by hand: what it sends and tells, and answers of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from streamsrt.membership import session as machine
from streamsrt.membership.session import Session, SessionStep
from streamsrt.membership.values import Event, GroupMembership, Join, Task
from streamsrt.wire import types

Request = types.StreamsGroupHeartbeatRequest
Response = types.StreamsGroupHeartbeatResponse

E = TypeVar("E")

TOPOLOGY = Request.Topology(epoch=0, subtopologies=[Request.Subtopology(subtopology_id="s", source_topics=["t"])])
MEMBERSHIP = GroupMembership(group_id="g", member_id="m", process_id="p", topology=TOPOLOGY)


class Scenario:
    """``now_ms`` moves only when a test says so."""

    def __init__(self, membership: GroupMembership = MEMBERSHIP, *, version: int = 1, **changes: Any) -> None:
        self.session = Session(membership=replace(membership, **changes))
        self.version = version
        self.now_ms = 1_000
        self.events: list[Event] = []
        self.step = SessionStep(self.session)

    def on(self, event: Any) -> SessionStep:
        """Feed an event; a search for the coordinator is answered at once."""
        self.step = machine.step(self.session, event, self.now_ms)
        self.session = self.step.session
        self.events += self.step.events
        if self.step.find_coordinator:
            return self.on(machine.CoordinatorFound(self.version))
        return self.step

    def sent(self) -> Any:
        """The request of the last step."""
        assert self.step.request is not None, "nothing was sent"
        return self.step.request

    def at(self, now_ms: int) -> SessionStep:
        self.now_ms = now_ms
        return self.on(machine.Tick())

    def answer(self, epoch: int = 1, **fields: Any) -> SessionStep:
        fields.setdefault("heartbeat_interval_ms", 5_000)
        fields.setdefault("task_offset_interval_ms", 60_000)
        fields.setdefault("status", None)
        for role in ("active", "standby", "warmup"):
            if role in fields:
                fields[f"{role}_tasks"] = assigned(fields.pop(role))
        return self.on(machine.Answered(Response(member_id="m", member_epoch=epoch, **fields)))

    def refuse(self, error_code: int, message: str | None = None) -> SessionStep:
        return self.on(machine.Answered(Response(error_code=error_code, error_message=message, status=None)))

    def lose(self, reason: str = "the connection was lost") -> SessionStep:
        return self.on(machine.RequestFailed(reason))

    def joined(self, **tasks: Any) -> Scenario:
        """Through the join to the point where the acknowledgement of the assignment is due or sent."""
        self.on(Join())
        self.answer(1, **{"active": [], "standby": [], "warmup": [], **tasks})
        return self

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def assigned(tasks: list[Task] | None) -> list[Any] | None:
    if tasks is None:
        return None
    return [Response.TaskIds(subtopology_id=name, partitions=[number]) for name, number in tasks]


def named(ids: list[Any] | None) -> set[Task] | None:
    """The tasks that a request names in one role."""
    return None if ids is None else {(each.subtopology_id, number) for each in ids for number in each.partitions}


def lists(request: Any) -> tuple[set[Task] | None, set[Task] | None, set[Task] | None]:
    return named(request.active_tasks), named(request.standby_tasks), named(request.warmup_tasks)


def offsets(entries: list[Any] | None) -> Mapping[Task, int] | None:
    return None if entries is None else {(each.subtopology_id, each.partition): each.offset for each in entries}
