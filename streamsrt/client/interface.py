"""What the processing thread can ask of the network: the contract of :class:`streamsrt.client.network.NetworkThread`.

1. Every method may be called from any thread but the network's own. Methods that wait say so and take a timeout in
   seconds.
2. Nothing here is per record: buffers in, buffers out.
3. Unreachable brokers are waited for, for ever: fetching and heartbeats resume by themselves when they are back.
   Operations with a deadline of their own (flush, admin requests) raise.
4. Blocking admin calls raise :class:`~streamsrt.client.values.RequestTimedOutError`,
   :class:`~streamsrt.errors.RequestFailedError` or :class:`~streamsrt.errors.UnsupportedBrokerError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from streamsrt.client.values import (
    ClusterInfo,
    Fetched,
    GroupListing,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicInfo,
    TopicPartition,
)
from streamsrt.errors import StreamsError
from streamsrt.wire import types
from streamsrt.wire.schema import Message, Request

R = TypeVar("R", bound=Message)


class Fetching(Protocol):
    """Raw record batches of the partitions that were added."""

    def add_partitions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start to fetch from these offsets. A partition that is already there moves, and loses its buffer."""

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and drop what is buffered. Other partitions are not touched. After the return, :meth:`poll`
        gives nothing of them that was fetched before."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop delivering and fetching; what is buffered stays."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def poll(self, timeout_s: float = 0.0, max_batches: int = 64) -> list[Fetched]:
        """What has arrived, at most ``max_batches`` items, fairly over partitions; per partition in order.

        Waits until something is there or anything else asks for attention (a group event, :meth:`Network.wake`): may be
        empty before the time is up.
        """

    @property
    def buffered_bytes(self) -> int: ...


class Producing(Protocol):
    """The idempotent producer of encoded record batches."""

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview, record_count: int) -> None:
        """Queue one record batch (magic 2; base offset, producer and sequence are stamped here).

        Batches of a partition keep their order. Waits while ``buffer.memory`` is full.
        Raises ProductionError when an earlier batch failed for good, or when the buffer stays full for ``max.block.ms``.
        """

    def flush(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Wait until everything sent so far is acknowledged. The result: for each partition that was written since the last
        flush, the offset that follows its last record.

        Raises ProductionError: some batch failed for good. What was queued is dropped, and the producer starts again
        with the next :meth:`send`; what was not acknowledged counts as not written.
        """


class Transacting(Protocol):
    """The transactions of a producer with a transactional id. Called by the thread that sends.

    A transaction begins with the first ``send`` after the last one ended. Batches must be encoded as transactional.
    Every TransactionLostError, and every error of ``send`` and ``flush``, asks for :meth:`initialize`.
    """

    @property
    def is_ready(self) -> bool:
        """Whether the producer may be used: it was initialized, and nothing has failed since."""

    @property
    def is_open(self) -> bool:
        """Whether anything was sent since the last commit."""

    def initialize(self, timeout_s: float) -> None:
        """Take over the transactional id: the producer that had it is fenced, and its open transaction is decided on
        return. What was sent and not committed is dropped.

        Raises TransactionLostError when the time is up (it may be tried again), ConfigError (transaction.timeout.ms is
        above what the broker allows), RequestFailedError (not authorized).
        """

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str,
        member_epoch: int,
        timeout_s: float,
    ) -> dict[TopicPartition, int]:
        """Commit what was sent together with these offsets. The result is that of :meth:`Producing.flush`.

        Raises StaleMemberEpochError and UnknownMemberError: the transaction is as it was (commit with another epoch, or
        abort); ProducerFencedError, TransactionLostError, ProductionError: nothing is known before :meth:`initialize`.
        """

    def abort(self, timeout_s: float) -> None:
        """Undo what was sent since the last commit. Unlike :meth:`initialize` this never fences another producer.
        Raises ProducerFencedError, TransactionLostError."""


class Administering(Protocol):
    """Requests of an operator or of the runtime's start; all of them wait for the answer (at most ``timeout_s``)."""

    def cluster(self, *, timeout_s: float = 30.0) -> ClusterInfo: ...

    def topics(self, names: Collection[str] | None = None, *, timeout_s: float = 30.0) -> dict[str, TopicInfo]:
        """By name; None: all. A topic that does not exist is absent."""

    def partitions_for(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, int]:
        """Partition counts; a topic that does not exist is absent."""

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float = 30.0
    ) -> dict[str, StreamsError | None]:
        """Per topic None, or what the broker said. Returns when the topics have leaders."""

    def create_partitions(
        self, counts: Mapping[str, int], *, timeout_s: float = 30.0
    ) -> dict[str, StreamsError | None]:
        """Gives topics so many partitions in all, more than they have. Per topic None, or what the broker said. Returns when
        the partitions have leaders."""

    def delete_topics(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, StreamsError | None]: ...

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_s: float = 30.0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition EARLIEST, LATEST or the first offset with a timestamp at or after the one given (offset -1:
        there is none). A partition whose topic does not exist is absent."""

    def describe_topic_configs(
        self, names: Collection[str], *, timeout_s: float = 30.0
    ) -> dict[str, dict[str, str | None]]: ...

    def describe_group_configs(self, group_id: str, *, timeout_s: float = 30.0) -> dict[str, str | None]:
        """The settings of a group, those of its defaults included (``streams.session.timeout.ms``, ...)."""

    def alter_group_configs(self, group_id: str, configs: Mapping[str, str | None], *, timeout_s: float = 30.0) -> None:
        """Set group configs (``streams.num.standby.replicas``, ...); None deletes one."""

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets. The result: low watermarks."""

    def committed(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = True,
        timeout_s: float = 30.0,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; None: of all partitions. A partition without one is absent.
        Raises StaleMemberEpochError, UnknownMemberError."""

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        member_epoch: int = -1,
        timeout_s: float = 30.0,
    ) -> None:
        """Commit. Retriable errors are retried until the time is up.
        Raises StaleMemberEpochError, UnknownMemberError, CommitError."""

    def list_groups(self, types: Sequence[str] = (), *, timeout_s: float = 30.0) -> list[GroupListing]: ...

    def describe_streams_groups(
        self, group_ids: Sequence[str], *, timeout_s: float = 30.0
    ) -> list[types.StreamsGroupDescribeResponse.DescribedGroup]:
        """``StreamsGroupDescribeResponse.DescribedGroup`` messages; an absent group has its error code set."""

    def describe_classic_groups(
        self, group_ids: Sequence[str], *, timeout_s: float = 30.0
    ) -> list[types.DescribeGroupsResponse.DescribedGroup]:
        """``DescribeGroupsResponse.DescribedGroup`` messages; an absent group, or one of another type, has no members."""

    def delete_groups(self, group_ids: Sequence[str], *, timeout_s: float = 30.0) -> dict[str, StreamsError | None]: ...


class GroupMember(Protocol):
    """A membership that runs on the network thread: heartbeats continue whatever the processing thread does."""

    @property
    def member_id(self) -> str: ...

    @property
    def member_epoch(self) -> int:
        """The latest epoch, for commits. -1 while not a member."""

    def tell(self, command: Any) -> None:
        """Hand a command of :mod:`streamsrt.membership.values` to the membership."""

    def events(self) -> list[Any]:
        """The next event (same module), or nothing. One at a time, so that a command is known to answer every event that
        was taken before it."""

    def polled(self) -> None:
        """The processing thread is alive (``max.poll.interval.ms`` counts from here). :meth:`Fetching.poll` of the main
        fetcher does this too."""

    def join(self, timeout_s: float) -> bool:
        """Wait until the membership has ended (left or failed). False: it has not in that time."""


class Network(Protocol):
    """Connections to one cluster, on a thread of their own."""

    @property
    def fetcher(self) -> Fetching: ...

    @property
    def restorer(self) -> Fetching: ...

    @property
    def producer(self) -> Producing: ...

    @property
    def admin(self) -> Administering: ...

    def start(self, timeout_s: float = 30.0) -> ClusterInfo:
        """Start the thread and connect.
        Raises BrokerUnreachableError, NotABrokerError, UnsupportedBrokerError, ConfigError (the thread is stopped then)."""

    def stop(self, timeout_s: float = 10.0) -> None:
        """Close the connections and end the thread. What is not flushed is lost. May be called twice."""

    def join_group(self, machine: Any) -> GroupMember:
        """Run a membership (:class:`streamsrt.membership.member.Member`); it sends its first heartbeat at once."""

    def request(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        coordinator_of: str | None = None,
        controller: bool = False,
        version_max: int | None = None,
    ) -> Future[R]:
        """Send any request message of :mod:`streamsrt.wire.types`, in the highest version that both sides have, once and
        without retries. Without a target: to any broker."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until a fetcher or a membership has something, or :meth:`wake`; False: the time is up."""

    def wake(self) -> None:
        """End a wait of the processing thread (also the next one, if it is not waiting now)."""
