"""Errors of queries: why there is no answer.

::

    InvalidStateStoreError (StreamsError)      Kafka Streams' InvalidStateStoreException
    ├── UnknownStateStoreError                 the topology has no such store, or it is of another kind
    ├── InvalidStateStorePartitionError        another instance has that partition: the message says which
    ├── StreamsNotStartedError                 start the application first
    ├── StreamsStoppedError                    it has ended: another instance has its state now
    ├── StreamsRebalancingError                tasks are being opened or restored: try again
    ├── StateStoreMigratedError                the store went away while it was read: try again
    └── QueryTimedOutError                     the processing thread is busy: try again

    UnreadableStoreRowError (StreamsError)     the store's serdes can't read a row: the message says which
"""

from __future__ import annotations

from streamsrt.errors import StreamsError


class InvalidStateStoreError(StreamsError):
    """A store can't be queried. ``is_retriable``: the same query may be answered a little later."""

    is_retriable = False


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no store with that name, or the store is of another kind. Correct the name or the query;
    ``streamsrt
    topology describe`` lists the stores."""

    exit_code = 2


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """Another instance has the partition: query that one. ``host``: its endpoint as ``host:port``; empty where it is
    not known."""

    def __init__(self, message: str, partition: int = -1, host: str = "") -> None:
        super().__init__(message)
        self.partition = partition
        self.host = host


class StreamsNotStartedError(InvalidStateStoreError):
    """The application was not started yet. Call ``start()`` or ``run()`` first."""


class StreamsStoppedError(InvalidStateStoreError):
    """The application has stopped. Another instance may have its state now."""


class StreamsRebalancingError(InvalidStateStoreError):
    """Tasks are being opened or restored. Retry a little later."""

    is_retriable = True


class StateStoreMigratedError(InvalidStateStoreError):
    """The store was closed while it was read: its task moved to another instance or restarted. Retry."""

    is_retriable = True


class QueryTimedOutError(InvalidStateStoreError):
    """The processing thread did not respond in time. Retry, or use a longer timeout."""

    is_retriable = True


class UnreadableStoreRowError(StreamsError):
    """The store's serdes can't read a row that is in the result. Give the store serdes that read what was written, or
    query without that row."""
