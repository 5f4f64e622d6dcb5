"""Transactions as the sending thread uses them: the producer and the coordination of its transactional id.

After a failure nothing more is sent until :meth:`Transactions.initialize`. Only refused offsets leave the transaction
unchanged: they may be sent again with a newer epoch, or the transaction is aborted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from typing import Protocol, TypeVar

from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.producer import Producer
from streamsrt.client.transaction_coordination import TransactionCoordination
from streamsrt.client.values import (
    CallAbandonedError,
    OffsetAndMetadata,
    StaleMemberEpochError,
    TopicPartition,
    TransactionLostError,
    UnknownMemberError,
)

T = TypeVar("T")


class Submit(Protocol):
    """Runs a coroutine on the loop, from another thread. Raises CallAbandonedError if that is closed."""

    def __call__(self, coroutine: Coroutine[None, None, T], /) -> Future[T]: ...


ANSWER_SLACK_S = 5.0
"""How much longer than its timeout a blocking call waits for the network thread to report the timeout."""
_LOOK_S = 0.5
"""How often a call that waits looks whether it is to be given up."""


class Transactions:
    """Implements :class:`streamsrt.client.interface.Transacting` with the network thread's producer.

    ``submit`` runs a coroutine on the loop. Used by the one thread that sends.
    """

    def __init__(
        self,
        coordination: TransactionCoordination,
        producer: Producer,
        submit: Submit,
        blocking: Blocking = THREADS,
    ) -> None:
        self._blocking = blocking
        self._loop = asyncio.get_running_loop()
        self._coordination = coordination
        self._producer = producer
        self._submit = submit
        self._ends: dict[TopicPartition, int] = {}
        self._ready = False
        self._give_up_at = math.inf

    @property
    def is_ready(self) -> bool:
        return self._ready and not self._producer.has_failed

    @property
    def is_open(self) -> bool:
        return self._coordination.is_open or self._producer.is_pending

    def initialize(self, timeout_s: float, *, again: bool = False) -> None:
        self._ready = False
        timeout_s = min(timeout_s, self._give_up_at - self._loop.time())
        if timeout_s <= 0:
            raise TransactionLostError("The application ends, and has waited for the cluster long enough.")
        self._wait(self._initialize(timeout_s, again), timeout_s)
        self._ready = True

    def send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> None:
        self.check_ready()
        self._ready = False
        self._wait(self._send_offsets(group_id, offsets, "", -1, timeout_s), timeout_s)
        self._ready = True

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str,
        member_epoch: int,
        timeout_s: float,
    ) -> dict[TopicPartition, int]:
        self.check_ready()
        deadline = min(self._give_up_at, self._loop.time() + timeout_s)
        sending = None
        if offsets:
            sending = self._submit(self._send_offsets(group_id, offsets, member_id, member_epoch, timeout_s))
        self._ready = False
        try:
            self._ends.update(self._producer.flush(timeout_s))
            if sending is not None:
                self._result(sending, deadline)
        except (StaleMemberEpochError, UnknownMemberError):
            self._ready = True
            raise
        except BaseException:
            if sending is not None:
                sending.cancel()
            raise
        left_s = max(0.0, deadline - self._loop.time())
        self._wait(self._end(committed=True, timeout_s=left_s), left_s)
        self._ready = True
        ends, self._ends = self._ends, {}
        return ends

    def give_up_after(self, timeout_s: float) -> None:
        self._give_up_at = self._loop.time() + timeout_s
        self._producer.give_up_after(timeout_s)

    def abort(self, timeout_s: float) -> None:
        self._ready = False
        self._wait(self._abort(timeout_s), timeout_s)
        self._ready = True

    def check_ready(self) -> None:
        if not self.is_ready:
            # An error reported here is reported once; the transaction stays lost until it is initialized again.
            self._ready = False
            self._producer.raise_error()
            failure = self._producer.failure
            why = "" if failure is None else f" It failed: {failure}"
            raise TransactionLostError(
                f"The producer must be initialized before it can be used again.{why}"
            ) from failure

    def _wait(self, coroutine: Coroutine[None, None, T], timeout_s: float) -> T:
        return self._result(self._submit(coroutine), self._loop.time() + timeout_s)

    def _result(self, future: Future[T], deadline: float) -> T:
        end = max(deadline, self._loop.time()) + ANSWER_SLACK_S
        while True:
            # Looked at again and again: the application may be asked to end meanwhile.
            left_s = max(0.0, min(end, self._give_up_at) - self._loop.time())
            try:
                return self._blocking.result(future, min(left_s, _LOOK_S))
            except CancelledError as error:
                raise CallAbandonedError("no answer: the connection to the cluster was closed meanwhile") from error
            except TimeoutError as error:
                if left_s <= _LOOK_S or future.done():
                    future.cancel()
                    raise TransactionLostError("The cluster did not answer in time.") from error

    # --------------------------------------------------------------------------------------------------- on the loop

    async def _initialize(self, timeout_s: float, again: bool) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        self._ends.clear()
        self._producer.drop_all()
        self._producer.restart(*await self._coordination.initialize(deadline, again=again))

    async def _abort(self, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        self._ends.clear()
        self._producer.drop_all()
        # A batch that arrives after the marker would belong to a transaction that no one ends.
        await self._producer.settled()
        await self._coordination.end(committed=False, deadline=deadline)
        self._producer.restart(*await self._coordination.initialize(deadline, again=True))

    async def _send_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str,
        member_epoch: int,
        timeout_s: float,
    ) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        await self._coordination.add_group(group_id, deadline)
        await self._producer.confirmed()
        await self._coordination.send_offsets(group_id, offsets, member_id, member_epoch, deadline)

    async def _end(self, *, committed: bool, timeout_s: float) -> None:
        await self._coordination.end(committed, asyncio.get_running_loop().time() + timeout_s)
