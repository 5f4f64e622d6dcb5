"""Why a shard's streams groups were assigned again: for its log, for members, and for descriptions of a group.

1. It is computed from the groups before and after each event. None of it is in the log of the shard: after a load it
   starts empty, and nothing ever depends on it.
2. There is one log line per new assignment, however many members and tasks there are.
3. It is sent in tagged fields that are not Kafka's (:mod:`streamsrt.wire.private_tags`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import orjson

from coordinator.group.state import GroupsState
from coordinator.group.streams.reasons import Rebalance, owners_of, reasons_between
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import Event, GroupDecision, GroupRecord, GroupRequest
from streamsrt.assignment.moves import TaskOwners, moves_between
from streamsrt.wire import types
from streamsrt.wire.private_tags import REBALANCES_TAG, WHY_ASSIGNED_TAG
from streamsrt.wire.types import Message

logger = logging.getLogger("coordinator.groups")

KEPT = 20
MOVES_KEPT = 50
MOVES_IN_A_LINE = 10
_TEXT_MAX = 600
_JOINS = 0
_KEYS_OF_EPOCHS = (types.StreamsGroupMetadataKey, types.StreamsGroupTargetAssignmentMetadataKey)


@dataclass(slots=True)
class _Known:
    """One group: the reasons since its last assignment, the task owners of that one, and the latest assignments."""

    owners: TaskOwners
    reasons: list[str] = field(default_factory=list)
    latest: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=KEPT))


class RebalanceReasons:
    """The streams groups of one shard, by id."""

    def __init__(self) -> None:
        self._groups: dict[str, _Known] = {}

    def note(self, event: Event, decision: GroupDecision, before: GroupsState, after: GroupsState, now_ms: int) -> None:
        """Records the effects of an event that was carried out."""
        for group_id in _group_ids(decision.records):
            then, now = before.groups.get(group_id), after.groups.get(group_id)
            if not isinstance(now, StreamsGroup):
                self._groups.pop(group_id, None)
                continue
            self._note(then if isinstance(then, StreamsGroup) else StreamsGroup(group_id), now, event, now_ms)

    def _note(self, before: StreamsGroup, after: StreamsGroup, event: Event, now_ms: int) -> None:
        if after.epoch == before.epoch and after.assignment_epoch == before.assignment_epoch:
            return
        known = self._groups.setdefault(after.group_id, _Known(owners_of(before)))
        known.reasons += (why for why in reasons_between(before, after, event) if why not in known.reasons)
        del known.reasons[:-KEPT]
        if after.is_empty:
            logger.info("group %s: no member is left: %s", after.group_id, "; ".join(known.reasons))
            return
        if after.assignment_epoch <= before.assignment_epoch:
            return
        owners = owners_of(after)
        moves = tuple(moves_between(known.owners, owners))
        reasons = tuple(known.reasons) or ("what happened before this coordinator took over",)
        known.owners, known.reasons = owners, []
        known.latest.append(Rebalance(after.assignment_epoch, now_ms, reasons, _first(moves, MOVES_KEPT)))
        logger.info(
            "group %s: reassigned (epoch %d): %s; %s",
            after.group_id,
            after.assignment_epoch,
            "; ".join(reasons),
            ", ".join(_first(moves, MOVES_IN_A_LINE)) or "no task moves",
        )

    def tell(self, event: Event, message: Message) -> None:
        """Adds the reasons to the response to a request."""
        if not isinstance(event, GroupRequest):
            return
        request = event.message
        if isinstance(message, types.StreamsGroupHeartbeatResponse):
            is_given_tasks = message.active_tasks is not None
            if is_given_tasks and isinstance(request, types.StreamsGroupHeartbeatRequest):
                self._tell_member(request, message)
        elif isinstance(message, types.StreamsGroupDescribeResponse):
            for group in message.groups:
                known = self._groups.get(group.group_id)
                if known is not None and not group.error_code:
                    told = {REBALANCES_TAG: orjson.dumps([asdict(each) for each in known.latest])}
                    group.unknown_tags = {**(group.unknown_tags or {}), **told}

    def _tell_member(
        self, request: types.StreamsGroupHeartbeatRequest, message: types.StreamsGroupHeartbeatResponse
    ) -> None:
        """Adds the reasons that a member has not received yet; of those before it joined, the latest is enough.

        A member that has to give tasks back keeps its epoch, though the assignment is of a later one.
        """
        known = self._groups.get(request.group_id)
        if known is None:
            return
        latest = list(known.latest)
        news = [each for each in latest if each.epoch > request.member_epoch > _JOINS] or latest[-1:]
        why = "; ".join(dict.fromkeys(reason for each in news for reason in each.reasons))
        if why:
            text = why if len(why) <= _TEXT_MAX else why[:_TEXT_MAX] + "..."
            message.unknown_tags = {WHY_ASSIGNED_TAG: text.encode()}


def _group_ids(records: Iterable[GroupRecord]) -> set[str]:
    """Returns the streams groups whose epoch or assignment these records may change."""
    return {key.group_id for key, _ in records if isinstance(key, _KEYS_OF_EPOCHS)}


def _first(moves: tuple[str, ...], at_most: int) -> tuple[str, ...]:
    return moves if len(moves) <= at_most else (*moves[:at_most], f"and {len(moves) - at_most} more")
