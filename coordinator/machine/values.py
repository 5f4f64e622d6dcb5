"""The values that the machines share.

1. A decision is executed in this order: append the records, apply them, apply the soft updates, set the timers, send
   the replies, start the effects. Nothing of it happens if the append fails.
2. Records are hard state: a coordinator that takes over knows it. Soft updates have to be learnt again; they are never
   in the log.
3. A machine defines its own kinds of records, soft updates, replies and effects; the code that executes them is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from streamsrt.wire.types import Message

KeyT = TypeVar("KeyT", bound=Message, covariant=True)
ValueT = TypeVar("ValueT", bound=Message, covariant=True)
RecordT = TypeVar("RecordT", covariant=True)
SoftT = TypeVar("SoftT", covariant=True)
ReplyT = TypeVar("ReplyT", covariant=True)
EffectT = TypeVar("EffectT", covariant=True)


class CoordinatorRecord(NamedTuple, Generic[KeyT, ValueT]):
    """One record of a coordinator's log: Kafka's key message and value message; the value None is a tombstone."""

    key: KeyT
    value: ValueT | None


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int


class TimerKey(NamedTuple):
    """Names a timer. A timer that is set again under its key replaces the old one.

    ``owner_id`` is the group id or the transactional id whose timer it is.
    """

    kind: str
    owner_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Timer:
    """Set the timer ``key`` to expire at ``deadline_ms``."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer ``key``, if there is one."""

    key: TimerKey


TimerChange: TypeAlias = Timer | CancelTimer


@dataclass(frozen=True, slots=True)
class TimerExpired:
    """The deadline of this timer has passed."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, SoftT, ReplyT, EffectT]):
    """All that follows from one event, in the order of the fields.

    With a ``producer`` the records belong to its transaction.
    """

    records: tuple[RecordT, ...] = ()
    soft: tuple[SoftT, ...] = ()
    timers: tuple[TimerChange, ...] = ()
    replies: tuple[ReplyT, ...] = ()
    effects: tuple[EffectT, ...] = ()
    producer: ProducerIdAndEpoch | None = None
