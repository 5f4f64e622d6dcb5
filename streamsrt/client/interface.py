"""The interface between the processing thread and the network, implemented by
:class:`streamsrt.client.network.NetworkThread`.

1. Every method may be called from any thread but the network's own. Methods that wait say so and take a timeout in
   seconds.
2. Nothing here is per record: buffers in, buffers out.
3. Unreachable brokers are waited for, for ever: fetching and heartbeats resume by themselves when they are back.
   Operations with a deadline of their own (flush, admin requests) raise.
4. Blocking admin calls raise :class:`~streamsrt.client.values.RequestTimedOutError`,
   :class:`~streamsrt.errors.RequestFailedError` or :class:`~streamsrt.errors.UnsupportedBrokerError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """Fetches raw record batches of the partitions that were added."""

    def add_partitions(
        self, positions: Mapping[TopicPartition, int], *, reports_empty: bool = False, may_lag: bool = False
    ) -> None:
        """Starts to fetch from these offsets. A partition that was added before moves, and loses its buffer.

        ``reports_empty``: if the first response has no data of a partition, :meth:`poll` returns that, too, with the end
        of what can be read. ``may_lag``: it may be a few hundredths of a second behind, so that a log that grows all the
        time is fetched in larger pieces.
        """

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching and drops buffered data. Other partitions are not affected. Afterwards, :meth:`poll` returns
        nothing of these partitions that was fetched before."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops delivering and fetching; buffered data is kept."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def poll(self, timeout_s: float = 0.0, max_batches: int = 64) -> list[Fetched]:
        """Returns fetched data, at most ``max_batches`` items, fairly over partitions; per partition in order.

        Waits until something is there or anything else asks for attention (a group event, :meth:`Network.wake`): may be
        empty before the time is up.
        """

    @property
    def buffered_bytes(self) -> int: ...


class Producing(Protocol):
    """The idempotent producer of encoded record batches."""

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview, record_count: int) -> None:
        """Queues one record batch (magic 2; base offset, producer and sequence are set here).

        Batches of a partition keep their order. Waits while ``buffer.memory`` is full.
        Raises ProductionError when an earlier batch failed for good, or when the buffer stays full for ``max.block.ms``.
        The former comes again with every call until :meth:`flush` has raised it: user code around a call may catch it, and
        the next flush must not pass for a success.
        """

    def flush(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Waits until everything sent so far is acknowledged. Returns, for each partition written since the last flush,
        the offset after its last record.

        Raises ProductionError: some batch failed for good. What was queued is dropped, and the producer starts again
        with the next :meth:`send`; what was not acknowledged counts as not written.
        """

    def forget_failure(self) -> None:
        """Starts again without a :meth:`flush`: whoever got the error repeats what was sent since the last one. In a
        transaction it has no effect."""

    @property
    def absent_topics(self) -> tuple[str, ...]:
        """Topics that do not exist, and that batches have been waiting for. May be read by any thread."""

    def give_up_after(self, timeout_s: float) -> None:
        """From now on, no ``flush`` waits longer than that, not even one that waits already: the application ends. May be
        called by any thread and by a signal handler, and again, when it is no longer the cluster that takes the time."""


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

    def check_ready(self) -> None:
        """Raises what failed since the last :meth:`initialize`, if anything did: the error itself, or TransactionLostError
        if it was raised before."""

    def initialize(self, timeout_s: float, *, again: bool = False) -> None:
        """Takes over the transactional id: the producer that had it is fenced, and its open transaction is decided on
        return. Uncommitted output is dropped. ``again``: only if no other producer has taken over since the last time.

        Raises TransactionLostError when the time is up (it may be tried again), ProducerFencedError (``again``),
        ConfigError (transaction.timeout.ms is above what the broker allows), RequestFailedError (not authorized).
        """

    def send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> None:
        """Sends offsets of a group without members into the transaction, which the next :meth:`commit` ends. Raises as
        that."""

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str,
        member_epoch: int,
        timeout_s: float,
    ) -> dict[TopicPartition, int]:
        """Commits everything that was sent together with these offsets. Returns the same as :meth:`Producing.flush`.

        Raises StaleMemberEpochError and UnknownMemberError: the transaction is as it was (commit with another epoch, or
        abort); ProducerFencedError, TransactionLostError, ProductionError: nothing is known before :meth:`initialize`.
        """

    def give_up_after(self, timeout_s: float) -> None:
        """From now on, neither ``commit`` nor ``initialize`` waits longer than that: see :meth:`Producing.give_up_after`."""

    def abort(self, timeout_s: float) -> None:
        """Aborts what was sent since the last commit. Unlike :meth:`initialize` this never fences another producer.
        Raises ProducerFencedError, TransactionLostError."""


class Administering(Protocol):
    """Requests of an operator or of the runtime's start; all of them wait for the response (at most ``timeout_s``)."""

    def cluster(self, *, timeout_s: float = 30.0) -> ClusterInfo: ...

    def topics(self, names: Collection[str] | None = None, *, timeout_s: float = 30.0) -> dict[str, TopicInfo]:
        """Returns topics by name; None: all. A topic that does not exist is absent."""

    def partitions_for(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, int]:
        """Returns partition counts; a topic that does not exist is absent."""

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float = 30.0
    ) -> dict[str, StreamsError | None]:
        """Creates topics, and waits until they have leaders. Returns per topic None or the broker's error."""

    def create_partitions(
        self, counts: Mapping[str, int], *, timeout_s: float = 30.0
    ) -> dict[str, StreamsError | None]:
        """Increases topics to these partition counts, and waits until the partitions have leaders. Returns per topic None
        or the broker's error."""

    def delete_topics(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, StreamsError | None]: ...

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_s: float = 30.0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns for each partition EARLIEST, LATEST or the first offset with a timestamp at or after the given one
        (offset -1: there is none). A partition whose topic does not exist is absent."""

    def describe_topic_configs(
        self, names: Collection[str], *, only_set: bool = False, timeout_s: float = 30.0
    ) -> dict[str, dict[str, str | None]]:
        """Returns the configs of topics. ``only_set``: without those that have the default of the broker."""

    def alter_topic_configs(self, name: str, configs: Mapping[str, str | None], *, timeout_s: float = 30.0) -> None:
        """Sets configs of a topic, and leaves its other ones; None deletes one."""

    def describe_group_configs(self, group_id: str, *, timeout_s: float = 30.0) -> dict[str, str | None]:
        """Returns the settings of a group, including defaults (``streams.session.timeout.ms``, ...)."""

    def alter_group_configs(self, group_id: str, configs: Mapping[str, str | None], *, timeout_s: float = 30.0) -> None:
        """Sets group configs (``streams.num.standby.replicas``, ...); None deletes one."""

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> dict[TopicPartition, int]:
        """Deletes the records before these offsets. Returns the low watermarks."""

    def begin_delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> Future[dict[TopicPartition, int]]:
        """Like :meth:`delete_records`, for a caller that does not wait."""

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
        """Returns committed offsets; None: of all partitions. A partition without one is absent. Raises
        StaleMemberEpochError, UnknownMemberError."""

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        member_epoch: int = -1,
        timeout_s: float = 30.0,
    ) -> None:
        """Commits offsets. Retriable errors are retried until the time is up. Raises StaleMemberEpochError,
        UnknownMemberError, CommitError."""

    def begin_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        member_epoch: int = -1,
        timeout_s: float = 30.0,
    ) -> Callable[[], None]:
        """Begins :meth:`commit`. Returns the function that waits until it is done, and raises the same."""

    def list_groups(self, types: Sequence[str] = (), *, timeout_s: float = 30.0) -> list[GroupListing]: ...

    def describe_streams_groups(
        self, group_ids: Sequence[str], *, timeout_s: float = 30.0
    ) -> list[types.StreamsGroupDescribeResponse.DescribedGroup]:
        """Returns ``StreamsGroupDescribeResponse.DescribedGroup`` messages; an absent group has its error code set."""

    def describe_classic_groups(
        self, group_ids: Sequence[str], *, timeout_s: float = 30.0
    ) -> list[types.DescribeGroupsResponse.DescribedGroup]:
        """Returns ``DescribeGroupsResponse.DescribedGroup`` messages; an absent group, or one of another type, has no
        members."""

    def delete_groups(self, group_ids: Sequence[str], *, timeout_s: float = 30.0) -> dict[str, StreamsError | None]: ...


class GroupMember(Protocol):
    """A membership that runs on the network thread: heartbeats continue whatever the processing thread does."""

    @property
    def member_id(self) -> str: ...

    @property
    def member_epoch(self) -> int:
        """The latest epoch, for commits; -1 while not a member."""

    def send(self, command: Any) -> None:
        """Sends a command of :mod:`streamsrt.membership.values` to the membership."""

    def events(self) -> list[Any]:
        """Returns the next event (same module), or nothing. One at a time: a command then answers every event that was
        returned before it."""

    @property
    def has_events(self) -> bool:
        """Whether there are more of them."""

    def polled(self) -> None:
        """Reports that the processing thread is active (``max.poll.interval.ms`` counts from here). :meth:`Fetching.poll`
        of the main fetcher does this too."""

    def join(self, timeout_s: float) -> bool:
        """Waits until the membership has ended (left or failed). False: it has not in that time."""


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
        """Starts the thread and connects. Raises BrokerUnreachableError, NotABrokerError, UnsupportedBrokerError,
        ConfigError (the thread is stopped then)."""

    def stop(self, timeout_s: float = 10.0) -> None:
        """Closes the connections and ends the thread. Unflushed output is lost. May be called twice."""

    def join_group(self, machine: Any) -> GroupMember:
        """Runs a membership (:class:`streamsrt.membership.member.Member`); it sends its first heartbeat at once."""

    def request(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        coordinator_of: str | None = None,
        controller: bool = False,
        version_max: int | None = None,
    ) -> Future[R]:
        """Sends any request message of :mod:`streamsrt.wire.types`, in the highest version that both sides support, once
        and without retries. Without a target: to any broker. The future has a result in any case: what is not answered
        within ``request.timeout.ms`` has failed."""

    def wait(self, timeout_s: float) -> bool:
        """Waits until a fetcher or a membership has something, or :meth:`wake` is called; False: the time is up."""

    def wake(self) -> None:
        """Ends a wait of the processing thread (also the next one, if it is not waiting now)."""
