"""Transactions of a producer: the requests to its coordinator (KIP-98, KIP-360, KIP-447; transaction.version 1).

1. Initializing a transactional id fences the producer that had it before, and succeeds only when that producer's last
   transaction is decided. Nothing is sent before.
2. A transaction begins with the first batch that is sent, or with the offsets. A partition is added to it before
   anything is written there, and the group before its offsets.
3. One request at a time is in flight to the transaction coordinator. Retriable errors are retried until the deadline; a
   repeated request gets the same response.
4. A commit has three parts, of which the first two may overlap: everything sent is acknowledged, the offsets are added,
   the coordinator decides. If the deadline passes during the third, the client does not know the decision: the next
   initialization waits until it is carried out.
5. Offsets carry the member's id and epoch, so that a member which lost its tasks can't commit them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from streamsrt.client.cluster import Cluster, CoordinatorKind, backoff_s, may_be_retried
from streamsrt.client.offsets import LEFT_OUT, commit_error, final_code, topics_of
from streamsrt.client.values import (
    OffsetAndMetadata,
    ProducerFencedError,
    TopicPartition,
    TransactionLostError,
)
from streamsrt.errors import ConfigError, ProductionError, RequestFailedError, StreamsError, missing_acl
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_message, error_name, is_retriable
from streamsrt.wire.schema import Message, Request

R = TypeVar("R", bound=Message)

log = logging.getLogger(__name__)

CONCURRENT_BACKOFF_S = 0.02
"""How soon to ask again while the transaction before is being completed."""

LAST_INIT_VERSION = 5
LAST_ADD_PARTITIONS_VERSION = 3
LAST_ADD_OFFSETS_VERSION = 4
LAST_END_VERSION = 4
OFFSETS_VERSIONS = (3, 4)
"""The versions of transaction.version 1; TxnOffsetCommit knows members from version 3 on."""

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
LOST = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def transaction_error(
    code: int,
    what: str,
    transactional_id: str | None = None,
    principal: str | None = None,
    *,
    prefix: str | None = None,
) -> StreamsError:
    """Returns the error for a transactional producer's refused request. ``prefix``: of the application's ids."""
    text = f"{what} ({error_name(code)}). {error_message(code)}"
    if code in FENCED:
        return ProducerFencedError(
            f"{text} Either another producer uses the same transactional id, or the transaction took longer than "
            "transaction.timeout.ms and was aborted.",
            code,
        )
    if code in LOST:
        return TransactionLostError(text, code)
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(f"{text} Lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers.")
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        names = [] if transactional_id is None else [transactional_id]
        text += " " + missing_acl("WRITE", "transactional-id", names, principal, prefix=prefix)
    return RequestFailedError(text, code)


class TransactionCoordination:
    """The requests of one transactional id. Belongs to the network thread's loop; deadlines are loop times."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer_id = -1
        self._producer_epoch = -1
        self._lock = asyncio.Lock()
        self._added: set[TopicPartition] = set()
        self._confirmed: set[TopicPartition] = set()
        self._groups: set[str] = set()

    @property
    def transactional_id(self) -> str:
        return self._id

    @property
    def is_open(self) -> bool:
        """Whether the coordinator may have an undecided transaction."""
        return bool(self._added or self._groups)

    def has(self, tp: TopicPartition) -> bool:
        """Whether the partition was added to the transaction and may be written."""
        return tp in self._added

    def is_confirmed(self, tp: TopicPartition) -> bool:
        """Whether a batch of the transaction was acknowledged there."""
        return tp in self._confirmed

    def confirm(self, partitions: Iterable[TopicPartition]) -> None:
        """Records that batches of the transaction were acknowledged there."""
        self._confirmed.update(partitions)

    def _forget(self) -> None:
        self._added.clear()
        self._confirmed.clear()
        self._groups.clear()

    # ----------------------------------------------------------------------------------------------------- requests

    async def initialize(self, deadline: float, *, again: bool = False) -> tuple[int, int]:
        """Returns a producer id and epoch; earlier ones are fenced. ``again``: only if no other producer has taken over
        since."""
        request = types.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._producer_id if again else -1,
            producer_epoch=self._producer_epoch if again else -1,
        )
        what = f"Transactional id {self._id!r} could not be taken over"
        async with self._lock:
            response = await self._ask(request, LAST_INIT_VERSION, deadline, what, lambda answer: answer.error_code)
        self._forget()
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        return self._producer_id, self._producer_epoch

    async def add_partitions(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Adds partitions that are about to be written."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        make = types.AddPartitionsToTxnRequest
        async with self._lock:
            request = make(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._producer_epoch,
                v3_and_below_topics=[
                    make.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
                ],
            )
            what = f"Partitions could not be added to the transaction of {self._id!r}"
            forbidden: list[str] = []

            def worst(response: types.AddPartitionsToTxnResponse) -> int:
                forbidden[:] = _forbidden_topics(response)
                return _worst_of_partitions(response)

            try:
                await self._ask(request, LAST_ADD_PARTITIONS_VERSION, deadline, what, worst)
            except RequestFailedError as error:
                if not forbidden:
                    raise
                advice = missing_acl("WRITE", "topic", forbidden, self._cluster.config.security.principal)
                raise RequestFailedError(f"{error} {advice}", error.error_code) from error
            self._added.update(partitions)

    async def add_group(self, group_id: str, deadline: float) -> None:
        """Adds a group whose offsets follow."""
        async with self._lock:
            if group_id not in self._groups:
                request = types.AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    group_id=group_id,
                )
                what = f"Group {group_id!r} could not be added to the transaction of {self._id!r}"
                try:
                    await self._ask(
                        request, LAST_ADD_OFFSETS_VERSION, deadline, what, lambda response: response.error_code
                    )
                except RequestFailedError as error:
                    if error.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                        raise
                    advice = missing_acl("READ", "group", [group_id], self._cluster.config.security.principal)
                    raise RequestFailedError(f"{error} {advice}", error.error_code) from error
                self._groups.add(group_id)

    async def end(self, committed: bool, deadline: float) -> None:
        """Commits or aborts the transaction, if there is one."""
        if not self.is_open:
            return
        request = types.EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=committed,
        )
        what = f"The transaction of {self._id!r} could not be {'committed' if committed else 'aborted'}"
        async with self._lock:
            await self._ask(request, LAST_END_VERSION, deadline, what, lambda response: response.error_code)
        self._forget()

    # ------------------------------------------------------------------------------------------------------ answers

    async def _ask(
        self, request: Request[R], version_max: int, deadline: float, what: str, code_of: Callable[[R], int]
    ) -> R:
        """Sends until it succeeds. Raises TransactionLostError when the time is up."""
        failures = 0
        while True:
            code = -1
            try:
                response = await self._cluster.send_to_coordinator(
                    self._id, request, kind=CoordinatorKind.TRANSACTION, version_max=version_max
                )
                code = code_of(response)
                if code == ErrorCode.NONE:
                    return response
                if code in MOVED:
                    self._cluster.forget_coordinator(self._id, CoordinatorKind.TRANSACTION)
                config = self._cluster.config
                who, prefix = config.security.principal, config.producer.transactional_id_prefix
                error = transaction_error(code, what, self._id, who, prefix=prefix)
            except StreamsError as caught:
                error = caught
            if not _may_be_repeated(error):
                raise error
            concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS
            failures = await self._back_off(failures, deadline, what, error, concurrent=concurrent)

    async def _back_off(
        self, failures: int, deadline: float, what: str, error: StreamsError, *, concurrent: bool = False
    ) -> int:
        pause_s = CONCURRENT_BACKOFF_S if concurrent else backoff_s(self._cluster.config, failures)
        if asyncio.get_running_loop().time() + pause_s >= deadline:
            if not may_be_retried(error):
                raise error
            raise TransactionLostError(f"{what} in time: {error}") from error
        log.debug("%s, trying again: %s", what, error)
        await asyncio.sleep(pause_s)
        return failures if concurrent else failures + 1

    async def send_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str,
        member_epoch: int,
        deadline: float,
    ) -> None:
        """Adds offsets of a group that was added. Also raises StaleMemberEpochError, UnknownMemberError, CommitError."""
        request = self._offsets_request(group_id, offsets, member_id, member_epoch)
        what = f"Offsets of group {group_id!r} could not be sent to the transaction of {self._id!r}"
        failures = 0
        while True:
            try:
                response = await self._cluster.send_to_coordinator(
                    group_id, request, version_min=OFFSETS_VERSIONS[0], version_max=OFFSETS_VERSIONS[1]
                )
                codes = {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
                failed = {tp: code for tp in offsets if (code := codes.get(tp, LEFT_OUT)) != ErrorCode.NONE}
                if not failed:
                    return
                if MOVED.intersection(failed.values()):
                    self._cluster.forget_coordinator(group_id)
                error = _offsets_error(failed, what, self._cluster.config.security.principal)
            except StreamsError as caught:
                error = caught
            if not _may_be_repeated(error):
                raise error
            concurrent = isinstance(error, RequestFailedError) and error.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            failures = await self._back_off(failures, deadline, what, error, concurrent=concurrent)

    def _offsets_request(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str,
        member_epoch: int,
    ) -> types.TxnOffsetCommitRequest:
        make = types.TxnOffsetCommitRequest
        return make(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            generation_id_or_member_epoch=member_epoch,
            member_id=member_id,
            group_instance_id=self._cluster.instance_ids.get(group_id) if member_id else None,
            topics=topics_of(make.TxnOffsetCommitRequestTopic, make.TxnOffsetCommitRequestPartition, offsets),
        )


def _may_be_repeated(error: StreamsError) -> bool:
    """Whether a request is sent again: also when the coordinator failed at it unexpectedly.

    Kafka's coordinator does so where a request meets its own rollback of the transaction after a timeout: a moment later it
    answers what became of the transaction. Nothing is done twice: a repeated request gets the same response.
    """
    unexpected = isinstance(error, RequestFailedError) and error.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    return unexpected or may_be_retried(error)


def _worst_of_partitions(response: types.AddPartitionsToTxnResponse) -> int:
    """Returns the decisive code: a final one before a retriable one; "not attempted" is ignored."""
    codes = {
        result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    } - {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
    return min(codes, key=lambda code: (is_retriable(code), code), default=ErrorCode.NONE)


def _forbidden_topics(response: types.AddPartitionsToTxnResponse) -> list[str]:
    return [
        topic.name
        for topic in response.results_by_topic_v3_and_below
        if any(each.partition_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in topic.results_by_partition)
    ]


def _offsets_error(failed: Mapping[TopicPartition, int], what: str, principal: str | None) -> StreamsError:
    final = final_code(sorted(set(failed.values())))
    if final in FENCED or final in LOST:
        return transaction_error(final, what)
    which = ", ".join(f"{t}-{p} ({error_name(code)})" for (t, p), code in sorted(failed.items())[:5])
    return commit_error(f"{what}: {which}.", failed, principal)


def as_production_error(error: StreamsError, partitions: Iterable[TopicPartition]) -> StreamsError:
    """Converts an error of adding partitions: they can't be written, as if the batch itself had been refused. The exit code
    remains that of the error: no record is the reason."""
    if isinstance(error, TransactionLostError):
        return error
    topic, partition = next(iter(partitions))
    made = ProductionError(f"Nothing can be written to {topic}-{partition}: {error}", topic, partition)
    made.exit_code = error.exit_code
    return made
