"""All network I/O of an application, on its own thread beside the processing thread.

User code that blocks or computes for minutes stops neither heartbeats nor fetching. The processing thread gets batches
through the fetchers' queues and events through those of the memberships; one signal wakes it for both. The contract is
:class:`streamsrt.client.interface.Network`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from streamsrt.client.admin import Admin
from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.classic_group import ClassicDriver, ClassicMachine
from streamsrt.client.cluster import Cluster, Purpose, backoff_s
from streamsrt.client.fetcher import Fetcher
from streamsrt.client.group import GroupDriver, GroupMachine
from streamsrt.client.leading import LeaderWork
from streamsrt.client.loop_selector import LoopSelector
from streamsrt.client.metadata import Metadata
from streamsrt.client.offsets import commit, committed
from streamsrt.client.producer import Producer
from streamsrt.client.security import AuthenticationError, check_security
from streamsrt.client.signal import Signal
from streamsrt.client.spawned import defect_in, spawn
from streamsrt.client.transaction_coordination import TransactionCoordination
from streamsrt.client.transactions import ANSWER_SLACK_S, Transactions
from streamsrt.client.values import (
    CallAbandonedError,
    ClientConfig,
    ClusterInfo,
    GroupListing,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RequestTimedOutError,
    TopicInfo,
    TopicPartition,
)
from streamsrt.errors import BrokerUnreachableError, NotABrokerError, StreamsError
from streamsrt.wire import types
from streamsrt.wire.schema import Message, Request

log = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 0.1

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class NetworkThread:
    """The network thread. ``fetcher``, ``restorer``, ``producer`` and ``admin`` exist after :meth:`start`,
    ``transactions`` as well if the producer has a transactional id.

    ``restores_apart``: another thread than the processing one takes what the ``restorer`` brings; it waits with
    ``restore_signal``, and :meth:`wait` is not about it. ``is_abandoned``: asked again and again while a call waits for an
    answer; when it holds, the call raises :class:`CallAbandonedError`.
    """

    fetcher: Fetcher
    restorer: Fetcher
    producer: Producer
    transactions: Transactions
    admin: BlockingAdmin

    def __init__(
        self,
        config: ClientConfig,
        blocking: Blocking = THREADS,
        *,
        restores_apart: bool = False,
        is_abandoned: Callable[[], bool] | None = None,
    ) -> None:
        self._config = config
        self.blocking = blocking
        self._signal = Signal(blocking)
        self.restores_apart = restores_apart
        self.restore_signal = Signal(blocking) if restores_apart else self._signal
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="streamsrt-network", daemon=True)
        self._cluster: Cluster
        self._metadata_task: asyncio.Task[None] | None = None
        self._groups: list[GroupDriver] = []
        self._started = False
        self._is_abandoned = is_abandoned

    # ----------------------------------------------------------------------------------------------- start and stop

    def start(self, timeout_s: float = 30.0) -> ClusterInfo:
        check_security(self._config.security)
        self._loop = asyncio.SelectorEventLoop(LoopSelector())
        self._loop.set_exception_handler(self._on_exception)
        self._thread.start()
        self._started = True
        try:
            return self._call(self._open(timeout_s), timeout_s + ANSWER_SLACK_S)
        except BaseException:
            self.stop()
            raise

    async def _open(self, timeout_s: float) -> ClusterInfo:
        self._cluster = Cluster(self._config)
        metadata = Metadata(self._cluster)
        info = await self._first_contact(metadata, timeout_s)
        self.fetcher = Fetcher(self._cluster, metadata, self._config.fetch, Purpose.FETCH, self._signal, self._polled)
        self.restorer = Fetcher(self._cluster, metadata, self._config.restore, Purpose.RESTORE, self.restore_signal)
        self.producer = self._make_producer(metadata)
        self.admin = BlockingAdmin(self, Admin(self._cluster, metadata), self._cluster)
        self._metadata_task = spawn(metadata.run())
        return info

    def _make_producer(self, metadata: Metadata) -> Producer:
        config = self._config.producer
        if config.transactional_id is None:
            return Producer(self._cluster, metadata, config, blocking=self.blocking)
        coordination = TransactionCoordination(self._cluster, config.transactional_id, config.transaction_timeout_ms)
        producer = Producer(self._cluster, metadata, config, coordination, self.blocking)
        self.transactions = Transactions(coordination, producer, self._ask, self.blocking)
        return producer

    async def _first_contact(self, metadata: Metadata, timeout_s: float) -> ClusterInfo:
        loop = asyncio.get_running_loop()
        deadline, failures = loop.time() + timeout_s, 0
        while True:
            try:
                return await self._cluster.within(metadata.cluster_info(), deadline)
            except (NotABrokerError, AuthenticationError):
                raise
            except (BrokerUnreachableError, RequestTimedOutError) as error:
                pause_s = backoff_s(self._config, failures)
                if loop.time() + pause_s >= deadline:
                    raise BrokerUnreachableError(
                        f"No broker of bootstrap.servers={self._config.bootstrap_servers} answered within {timeout_s:g} s. "
                        f"{error}"
                    ) from error
                await asyncio.sleep(pause_s)
                failures += 1

    def stop(self, timeout_s: float = 10.0) -> None:
        if not self._started:
            return
        self._started = False
        self._is_abandoned = None
        try:
            self._call(self._close(), timeout_s)
        except (FutureTimeoutError, RequestTimedOutError):
            log.warning("The network thread did not close its connections within %g s", timeout_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)
        self._signal.set()

    async def _close(self) -> None:
        for group in self._groups:
            group.close()
        tasks = self._running_tasks() - {asyncio.current_task()}
        if hasattr(self, "producer"):
            await self.producer.close()
        others = [task for task in tasks if task is not None]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if hasattr(self, "_cluster"):
            await self._cluster.close()
        # One more iteration of the loop, in which transports close their sockets.
        await asyncio.sleep(0)

    def _running_tasks(self) -> set[asyncio.Task[Any] | None]:
        """All tasks on the loop belong to this network."""
        return {*asyncio.all_tasks()}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        """Ends what remains if closing took too long or was not waited for: nothing open outlives its loop."""
        left = [task for task in self._running_tasks() - {asyncio.current_task()} if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if hasattr(self, "_cluster"):
            await self._cluster.close()
        await asyncio.sleep(0)
        await self._loop.shutdown_default_executor()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        defect = defect_in(context)
        if defect is None:
            loop.default_exception_handler(context)
            return
        log.error("The network thread can't go on: an error in its own code", exc_info=defect)
        failure = StreamsError(
            f"the network thread ended with {type(defect).__name__}: {defect}. Restart the application, and report this "
            "with the log"
        )
        failure.__cause__ = defect
        self.fetcher.fail(failure)
        self.producer.fail(failure)
        for group in self._groups:
            group.close()

    # ------------------------------------------------------------------------------------------------------ requests

    def _call(self, coroutine: Coroutine[None, None, T], timeout_s: float) -> T:
        return self._answer(self._ask(coroutine), timeout_s)

    def _ask(self, coroutine: Coroutine[None, None, T], /) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise CallAbandonedError("not asked: the connection to the cluster was closed before") from error

    def _answer(self, future: Future[T], timeout_s: float) -> T:
        try:
            return self._result(future, timeout_s)
        except FutureCancelledError as error:
            raise CallAbandonedError("no answer: the connection to the cluster was closed meanwhile") from error
        except FutureTimeoutError as error:
            future.cancel()
            raise RequestTimedOutError(
                f"The network thread of this process did not answer within {timeout_s:g} s: the process got too little CPU "
                "time, or something else in the process holds the thread up. Start it again when the machine is less busy, "
                "give it more CPU, or raise default.api.timeout.ms, which limits a start and each administrative request."
            ) from error

    def _result(self, future: Future[T], timeout_s: float) -> T:
        if self._is_abandoned is None:
            return self.blocking.result(future, timeout_s)
        ends_s = time.monotonic() + timeout_s
        while not self._is_abandoned():
            left_s = ends_s - time.monotonic()
            try:
                return self.blocking.result(future, min(left_s, _CHECK_INTERVAL_S))
            except FutureTimeoutError:
                if future.done() or left_s <= _CHECK_INTERVAL_S:
                    raise
        future.cancel()
        raise CallAbandonedError("no longer waiting for the answer: the application is stopping")

    def request(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        coordinator_of: str | None = None,
        controller: bool = False,
        version_max: int | None = None,
    ) -> Future[R]:
        """See :meth:`streamsrt.client.interface.Network.request`."""
        attempt = self.admin.on_loop.request(message, node, coordinator_of, controller, version_max)
        return asyncio.run_coroutine_threadsafe(attempt, self._loop)

    def join_group(self, machine: GroupMachine) -> GroupDriver:
        """See :meth:`streamsrt.client.interface.Network.join_group`."""
        return self._call(self._join(machine), ANSWER_SLACK_S)

    async def _join(self, machine: GroupMachine) -> GroupDriver:
        return self._start(GroupDriver(machine, self._cluster, self._signal, self.blocking))

    def join_classic_group(self, machine: ClassicMachine) -> GroupDriver:
        """Like :meth:`join_group`, for a member of a classic group, which may become its leader."""
        return self._call(self._join_classic(machine), ANSWER_SLACK_S)

    async def _join_classic(self, machine: ClassicMachine) -> GroupDriver:
        work = LeaderWork(self._cluster, self.admin.on_loop, machine.group_id)
        if machine.instance_id is not None:
            self._cluster.instance_ids[machine.group_id] = machine.instance_id
        return self._start(ClassicDriver(machine, work, self._cluster, self._signal, self.blocking))

    def _start(self, driver: GroupDriver) -> GroupDriver:
        self._groups = [group for group in self._groups if not group.has_ended]
        self._groups.append(driver)
        driver.start()
        return driver

    # ------------------------------------------------------------------------------------------------------- waiting

    def wait(self, timeout_s: float) -> bool:
        """See :meth:`streamsrt.client.interface.Network.wait`."""
        if self._has_something():
            return True
        self._signal.clear()
        if self._has_something():
            return True
        self._polled()
        return self._signal.wait(timeout_s)

    def wake(self) -> None:
        """See :meth:`streamsrt.client.interface.Network.wake`."""
        self._signal.set()

    def _has_something(self) -> bool:
        if self.restorer.has_ready and not self.restores_apart:
            return True
        return self.fetcher.has_ready or any(group.has_events for group in self._groups)

    def _polled(self) -> None:
        for group in self._groups:
            group.polled()


class BlockingAdmin:
    """Calls :class:`~streamsrt.client.admin.Admin` from other threads: every call waits for its response.

    The contract is :class:`streamsrt.client.interface.Administering`.
    """

    def __init__(self, network: NetworkThread, on_loop: Admin, cluster: Cluster) -> None:
        self.on_loop = on_loop
        self._network = network
        self._cluster = cluster

    def _wait(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        return self._network._call(self.on_loop.retrying(attempt, timeout_s), timeout_s + ANSWER_SLACK_S)

    def cluster(self, *, timeout_s: float = 30.0) -> ClusterInfo:
        info: ClusterInfo = self._wait(self.on_loop.cluster, timeout_s)
        return info

    def topics(self, names: Collection[str] | None = None, *, timeout_s: float = 30.0) -> dict[str, TopicInfo]:
        found: dict[str, TopicInfo] = self._wait(lambda: self.on_loop.topics(names), timeout_s)
        return found

    def partitions_for(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, int]:
        return {name: topic.partitions for name, topic in self.topics(names, timeout_s=timeout_s).items()}

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float = 30.0
    ) -> dict[str, StreamsError | None]:
        results: dict[str, StreamsError | None] = self._wait(
            lambda: self.on_loop.create_topics(topics, validate_only, timeout_s), timeout_s
        )
        return results

    def create_partitions(
        self, counts: Mapping[str, int], *, timeout_s: float = 30.0
    ) -> dict[str, StreamsError | None]:
        results: dict[str, StreamsError | None] = self._wait(
            lambda: self.on_loop.create_partitions(counts, timeout_s), timeout_s
        )
        return results

    def delete_topics(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, StreamsError | None]:
        results: dict[str, StreamsError | None] = self._wait(
            lambda: self.on_loop.delete_topics(names, timeout_s), timeout_s
        )
        return results

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_s: float = 30.0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        found: dict[TopicPartition, OffsetAndTimestamp] = self._wait(
            lambda: self.on_loop.list_offsets(partitions, read_committed), timeout_s
        )
        return found

    def describe_topic_configs(
        self, names: Collection[str], *, only_set: bool = False, timeout_s: float = 30.0
    ) -> dict[str, dict[str, str | None]]:
        configs: dict[str, dict[str, str | None]] = self._wait(
            lambda: self.on_loop.describe_topic_configs(names, only_set=only_set), timeout_s
        )
        return configs

    def alter_topic_configs(self, name: str, configs: Mapping[str, str | None], *, timeout_s: float = 30.0) -> None:
        self._wait(lambda: self.on_loop.alter_topic_configs(name, configs), timeout_s)

    def describe_group_configs(self, group_id: str, *, timeout_s: float = 30.0) -> dict[str, str | None]:
        configs: dict[str, str | None] = self._wait(lambda: self.on_loop.describe_group_configs(group_id), timeout_s)
        return configs

    def alter_group_configs(self, group_id: str, configs: Mapping[str, str | None], *, timeout_s: float = 30.0) -> None:
        self._wait(lambda: self.on_loop.alter_group_configs(group_id, configs), timeout_s)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> dict[TopicPartition, int]:
        future = self.begin_delete_records(before, timeout_s=timeout_s)
        return self._network._answer(future, timeout_s + ANSWER_SLACK_S)

    def begin_delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> Future[dict[TopicPartition, int]]:
        return self._network._ask(
            self.on_loop.retrying(lambda: self.on_loop.delete_records(before, timeout_s), timeout_s)
        )

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
        attempt = committed(
            self._cluster,
            group_id,
            partitions,
            member_id=member_id,
            member_epoch=member_epoch,
            require_stable=require_stable,
            timeout_s=timeout_s,
        )
        return self._network._call(attempt, timeout_s + ANSWER_SLACK_S)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        member_epoch: int = -1,
        timeout_s: float = 30.0,
    ) -> None:
        self.begin_commit(group_id, offsets, member_id=member_id, member_epoch=member_epoch, timeout_s=timeout_s)()

    def begin_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        member_epoch: int = -1,
        timeout_s: float = 30.0,
    ) -> Callable[[], None]:
        attempt = commit(
            self._cluster, group_id, offsets, member_id=member_id, member_epoch=member_epoch, timeout_s=timeout_s
        )
        future = self._network._ask(attempt)
        return lambda: self._network._answer(future, timeout_s + ANSWER_SLACK_S)

    def list_groups(self, types: Sequence[str] = (), *, timeout_s: float = 30.0) -> list[GroupListing]:
        listed: list[GroupListing] = self._wait(lambda: self.on_loop.list_groups(types), timeout_s)
        return listed

    def describe_streams_groups(
        self, group_ids: Sequence[str], *, timeout_s: float = 30.0
    ) -> list[types.StreamsGroupDescribeResponse.DescribedGroup]:
        return self._wait(lambda: self.on_loop.describe_streams_groups(group_ids), timeout_s)

    def describe_classic_groups(
        self, group_ids: Sequence[str], *, timeout_s: float = 30.0
    ) -> list[types.DescribeGroupsResponse.DescribedGroup]:
        return self._wait(lambda: self.on_loop.describe_classic_groups(group_ids), timeout_s)

    def delete_groups(self, group_ids: Sequence[str], *, timeout_s: float = 30.0) -> dict[str, StreamsError | None]:
        results: dict[str, StreamsError | None] = self._wait(lambda: self.on_loop.delete_groups(group_ids), timeout_s)
        return results
