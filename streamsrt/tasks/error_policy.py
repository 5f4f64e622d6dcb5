"""How each class of error is handled: the table that tasks and their thread follow.

1. Every class that can reach them has a row in :data:`ERROR_POLICY`, under its own name; a class without a row is
   handled like its nearest base class.
2. The handling depends on whether a task is only being opened and started, or restores, runs and commits.
3. If the row says so (:attr:`ErrorAction.WAIT`, :attr:`ErrorAction.RESTORE`), the failure affects only its task. A
   failure that ends the thread goes to the application's exception handler, which decides whether the thread is
   replaced, or the instance or the whole application ends.
4. Not in the table, because they cause no error: a lost membership (all tasks are closed, and the member joins again),
   and offsets that could not be committed (they are committed again, with the next member epoch if necessary).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from streamsrt.client.connection import DisconnectedError
from streamsrt.client.security import AuthenticationError
from streamsrt.client.values import (
    CallAbandonedError,
    CommitError,
    DeliveryTimeoutError,
    FetchError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RecordRefusedError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TransactionLostError,
    UnknownMemberError,
)
from streamsrt.errors import (
    ApplicationShutdownError,
    BrokerError,
    BrokerUnreachableError,
    ChangelogLostError,
    ConfigError,
    DeserializationError,
    MembershipError,
    MissingTopicError,
    NotABrokerError,
    OutageError,
    ProcessingError,
    ProductionError,
    RecordError,
    RequestFailedError,
    StateDirectoryLockedError,
    StateError,
    StoreCorruptedError,
    StreamsError,
    TopologyMismatchError,
    UnsupportedBrokerError,
    UserError,
)
from streamsrt.membership.errors import (
    MembershipRefusedError,
    OtherGroupProtocolError,
    StreamsInvalidTopologyEpochError,
    StreamsInvalidTopologyError,
    StreamsTopologyFencedError,
)
from streamsrt.state.store import StoreClosedError
from streamsrt.tasks.input.offset_metadata import BackfillRunningError, RepartitionRunningError


class NotThereYetError(BrokerError):
    """Topics are missing that the group coordinator creates, or that were just created. The task is retried for up to
    ``task.timeout.ms``."""

    def __init__(self, missing: Collection[object]) -> None:
        self.missing = frozenset(missing)
        super().__init__(f"the cluster does not have {', '.join(map(str, missing))} yet")


class CallsGivenUpError(StreamsError):
    """An instance that was asked to end does not wait any longer for asynchronous calls: what was processed since the last
    commit is processed again, by other instances or at the next start."""


class ErrorAction(Enum):
    """What is done about an error."""

    WAIT = "it is retried for task.timeout.ms; the other tasks continue"
    START_OVER = "all active tasks restart from the last commit"
    RESTORE = "the damaged store is wiped and restored, and its task starts over; for a global store, the thread does"
    END_BEFORE_RECORD = "it ends; everything before the record is committed where it is known, else nothing more"
    END_UNDONE = "it ends, and nothing more is committed"
    END_COMMITTED = "it ends, after what was done is committed"


class ErrorPolicy(NamedTuple):
    """``starting``: the action while a task is opened, or its start position is looked up. ``running``: while it
    restores, processes or commits."""

    starting: ErrorAction
    running: ErrorAction


_CLUSTER = ErrorPolicy(ErrorAction.WAIT, ErrorAction.END_COMMITTED)
_LOST = ErrorPolicy(ErrorAction.WAIT, ErrorAction.START_OVER)
_RECORD = ErrorPolicy(ErrorAction.END_BEFORE_RECORD, ErrorAction.END_BEFORE_RECORD)
_USER = ErrorPolicy(ErrorAction.END_COMMITTED, ErrorAction.END_COMMITTED)
_STATE = ErrorPolicy(ErrorAction.END_UNDONE, ErrorAction.END_UNDONE)

ERROR_POLICY: Mapping[type[StreamsError], ErrorPolicy] = MappingProxyType(
    {
        # Results may be lost: a producer's delivery time-out, a fenced producer, an aborted transaction; or are not there.
        DeliveryTimeoutError: ErrorPolicy(ErrorAction.START_OVER, ErrorAction.START_OVER),
        TransactionLostError: _LOST,
        CallsGivenUpError: ErrorPolicy(ErrorAction.START_OVER, ErrorAction.START_OVER),
        ProducerFencedError: _LOST,
        # The cluster is unreachable, overloaded or unsuitable, or refuses a request.
        BrokerError: _CLUSTER,
        BrokerUnreachableError: _CLUSTER,
        DisconnectedError: _CLUSTER,
        NotABrokerError: _CLUSTER,
        UnsupportedBrokerError: _CLUSTER,
        AuthenticationError: _CLUSTER,
        RequestTimedOutError: _CLUSTER,
        RequestFailedError: _CLUSTER,
        FetchError: _CLUSTER,
        OffsetOutOfRangeError: _CLUSTER,
        CommitError: _CLUSTER,
        StaleMemberEpochError: _CLUSTER,
        UnknownMemberError: _CLUSTER,
        NotThereYetError: _CLUSTER,
        # State is damaged, held by another process, or on a disk that can't be written.
        StoreCorruptedError: ErrorPolicy(ErrorAction.RESTORE, ErrorAction.RESTORE),
        StateDirectoryLockedError: ErrorPolicy(ErrorAction.WAIT, ErrorAction.END_UNDONE),
        StoreClosedError: _STATE,
        ChangelogLostError: _STATE,
        # Where it comes with a record, it is a RecordError by now.
        OutageError: _STATE,
        StateError: _STATE,
        # A record, or a user function's result for it, fails, after the exception handlers decided so.
        RecordError: _RECORD,
        DeserializationError: _RECORD,
        ProcessingError: _RECORD,
        ProductionError: _RECORD,
        RecordRefusedError: _RECORD,
        # The program, its environment, its membership.
        UserError: _USER,
        ConfigError: _USER,
        MissingTopicError: _USER,
        BackfillRunningError: _USER,
        RepartitionRunningError: _USER,
        OtherGroupProtocolError: _USER,
        TopologyMismatchError: _USER,
        StreamsInvalidTopologyError: _USER,
        StreamsInvalidTopologyEpochError: _USER,
        StreamsTopologyFencedError: _USER,
        MembershipError: _USER,
        MembershipRefusedError: _USER,
        ApplicationShutdownError: _USER,
        CallAbandonedError: _USER,  # a stop before the loop has begun: there is no task yet
        StreamsError: _USER,
    }
)


def policy_for(error: StreamsError) -> ErrorPolicy:
    """Returns the row of the nearest class in the table."""
    return next(ERROR_POLICY[each] for each in type(error).__mro__ if each in ERROR_POLICY)


def action_for(error: StreamsError) -> ErrorAction:
    """Returns what is done about it while a task runs."""
    return policy_for(error).running


def is_waited_out(error: StreamsError) -> bool:
    """Whether a task that can't start because of this error is retried."""
    return policy_for(error).starting is ErrorAction.WAIT
