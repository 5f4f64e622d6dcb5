"""What the processing thread does about each class of error: the table that it goes by.

The nearest class in :data:`TREATMENTS` counts. What ends the thread is put before the application's exception handler, which
says whether it is replaced, or the instance or the whole application ends. A task that can't start while the cluster is away
asks again until ``task.timeout.ms`` are over: its error comes here only then.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from streamsrt.client.values import DeliveryTimeoutError, TransactionLostError
from streamsrt.errors import RecordError, StateError, StoreCorruptedError, StreamsError


class Treatment(Enum):
    """What is done."""

    START_OVER = "all active tasks start over from what is committed"
    RESTORE = "the damaged store is wiped and restored, and its task starts over"
    END_BEFORE_RECORD = "it ends; everything before the record is committed where it is known, else nothing more"
    END_UNDONE = "it ends, and nothing more is committed"
    END_COMMITTED = "it ends, after what was done is committed"


TREATMENTS: Mapping[type[StreamsError], Treatment] = MappingProxyType(
    {
        DeliveryTimeoutError: Treatment.START_OVER,
        TransactionLostError: Treatment.START_OVER,
        StoreCorruptedError: Treatment.RESTORE,
        StateError: Treatment.END_UNDONE,
        RecordError: Treatment.END_BEFORE_RECORD,
        StreamsError: Treatment.END_COMMITTED,
    }
)


def treatment_of(error: StreamsError) -> Treatment:
    """That of the nearest class in the table."""
    return next(TREATMENTS[each] for each in type(error).__mro__ if each in TREATMENTS)


def commits_at_the_end(error: StreamsError, *, is_atomic: bool) -> bool:
    """Whether what was done before is committed when it ends. ``is_atomic``: a failing record undoes its transaction."""
    match treatment_of(error):
        case Treatment.END_COMMITTED:
            return True
        case Treatment.END_UNDONE | Treatment.RESTORE:
            return False
        case _:
            is_before = isinstance(error, RecordError) and error.offset >= 0 and error.is_in_order
            return not isinstance(error, RecordError) or (is_before and not is_atomic)
