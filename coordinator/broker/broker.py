"""The broker: what all handlers share.

1. One event loop owns everything here; nothing is locked. Only fsync, the closing of logs and the reading of large batches
   (``readers``) happen on other threads.
2. A handler is a function ``(broker, request) -> answer``: a message, None where the protocol has no answer, or an
   awaitable of either where it must wait. It never blocks.
3. Time and randomness come from :class:`Surroundings`, so that a test can replace them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from coordinator.broker.access import EVERYTHING, Access
from coordinator.broker.acls import Acls
from coordinator.broker.broker_configs import BrokerConfigs
from coordinator.broker.config_definitions import Value
from coordinator.broker.credentials import Credentials
from coordinator.broker.fetch_sessions import FetchSessions
from coordinator.broker.group_shards import GroupShards
from coordinator.broker.keyed_log import KeyedLog
from coordinator.broker.log_cleaner import LogCleaner
from coordinator.broker.metrics import CLEANER, Idleness, cleaner_metrics, exposition, group_metrics
from coordinator.broker.producer_ids import ProducerIds
from coordinator.broker.purgatory import Purgatory
from coordinator.broker.queued_bytes import QueuedBytes
from coordinator.broker.slices import Slices, whole
from coordinator.broker.stepped_clock import SteppedClock
from coordinator.broker.topics import BROKER_LOG, GROUP_CONFIGS_LOG, TopicRegistry
from coordinator.broker.transaction_shards import TransactionShards
from coordinator.group.config import GroupConfig
from coordinator.log import Fsync, LogDirectory, LogError, PartitionLog
from coordinator.txn.config import TransactionConfig
from streamsrt.wire.messages import RequestHeader
from streamsrt.wire.primitives import uuid_to_text
from streamsrt.wire.types import Message

logger = logging.getLogger("coordinator.broker")

_SESSION_ID_MAX = (1 << 31) - 1


@dataclass(slots=True)
class Request:
    """One decoded request. ``message`` is of the class of its API key; ``access``: the sender's rights."""

    header: RequestHeader
    message: Any  # the handler of its API names the class
    client_host: str
    access: Access = EVERYTHING


class DisconnectError(Exception):
    """A request has no response that the client would understand: its connection is closed. The message is for the log."""


CHANGES_AT_ONCE = 32
"""How many topics or partitions are changed before others are served."""
Done = TypeVar("Done")
Answer: TypeAlias = "Message | Awaitable[Message | None] | None"
Handler: TypeAlias = "Callable[[Broker, Request], Answer]"
Change: TypeAlias = "Callable[[Any], Message]"  # of the class that the API has, which no table of APIs can say
"""Makes an answer of a request, or of another answer."""


def then(answer: Answer, change: Change) -> Answer:
    """Returns the response, now or later, after ``change``."""
    return _changed_later(answer, change) if isawaitable(answer) else change(answer)


async def _changed_later(answer: Awaitable[Message | None], change: Change) -> Message:
    return change(await answer)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Inputs from outside: the clock in epoch milliseconds, random bytes, and a clock that nobody sets.

    ``steady_ms`` None: nobody sets the other one either.
    """

    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    random_bytes: Callable[[int], bytes] = field(default=secrets.token_bytes)
    steady_ms: Callable[[], int] | None = None


def of_this_machine() -> Surroundings:
    """The clocks and the random bytes of the operating system."""
    return Surroundings(steady_ms=lambda: time.monotonic_ns() // 1_000_000)


class Broker:
    """State and services of the single node."""

    def __init__(
        self,
        directory: LogDirectory,
        configs: Mapping[str, Value],
        group_config: GroupConfig,
        surroundings: Surroundings,
    ) -> None:
        self.configs = BrokerConfigs(configs)
        self.surroundings = surroundings
        self.directory = directory
        self.fsync = Fsync(configs["log.fsync"])
        self.purgatory = Purgatory()
        self.slices = Slices()
        self.fetch_sessions = FetchSessions(
            self.integer("max.incremental.fetch.session.cache.slots"),
            surroundings.now_ms,
            new_id=lambda: 1 + int.from_bytes(surroundings.random_bytes(4), "big") % _SESSION_ID_MAX,
        )
        self.changes: set[asyncio.Task[object]] = set()
        """Changes of topics that take long, in their order."""
        self.memory = QueuedBytes(self._memory_bytes_max())
        self.topics = TopicRegistry(
            directory,
            configs,
            fsync=self.fsync,
            new_id=lambda: surroundings.random_bytes(16),
        )
        self.producer_ids = ProducerIds(directory, fsync=self.fsync)
        self._rows = KeyedLog(directory, BROKER_LOG, fsync=self.fsync)
        self.credentials = Credentials(self._rows)
        self.acls = Acls(self._rows, self.configs, self._acls_changed)
        group_configs = KeyedLog(directory, GROUP_CONFIGS_LOG, fsync=self.fsync)
        now_ms = surroundings.now_ms
        if surroundings.steady_ms is not None:
            now_ms = SteppedClock(now_ms, surroundings.steady_ms, self._move_deadlines)
        self.groups = GroupShards(
            self.topics,
            group_config,
            now_ms,
            new_id=lambda: str(uuid.UUID(bytes=surroundings.random_bytes(16), version=4)),
            config_log=group_configs,
            on_append=self.appended,
        )
        self.transactions = TransactionShards(
            self.topics,
            self.groups,
            self.producer_ids,
            TransactionConfig(
                max_timeout_ms=self.integer("transaction.max.timeout.ms"),
                id_expiration_ms=self.integer("transactional.id.expiration.ms"),
            ),
            now_ms,
            topic_settings=(
                self.integer("transaction.state.log.num.partitions"),
                self.integer("transaction.state.log.segment.bytes"),
            ),
            on_append=self.appended,
            durable=self.durable if self.fsync is Fsync.GROUP else None,
        )
        self.readers = ThreadPoolExecutor(1, "records")
        self.cleaner = LogCleaner(self.compacted_logs, surroundings.now_ms, self.readers)
        self._internal_logs = (self._rows.log, self.topics.log, self.producer_ids.log, group_configs.log)
        self._idleness = Idleness()
        self.host = "127.0.0.1"
        self.port = 0
        self.cluster_id = str(configs["cluster.id"])
        self.node_id = self.integer("broker.id")

    def integer(self, key: str) -> int:
        value = self.configs[key]
        assert isinstance(value, int)
        return value

    def _memory_bytes_max(self) -> int | None:
        limit_bytes = self.integer("queued.max.request.bytes")
        return limit_bytes if limit_bytes > 0 else None

    def load(self) -> None:
        """Restores cluster id, settings, topics, producer ids, groups and transactions from their logs."""
        rows = self._rows.load()
        self._load_cluster_id(rows.get("cluster.id"))
        self.configs.load(rows)
        self.credentials.load(rows)
        self.acls.load(rows)
        self.topics.set_defaults(self.configs)
        self.topics.load()
        self.producer_ids.load()
        self.groups.load(
            partitions=self.integer("offsets.topic.num.partitions"),
            segment_bytes=self.integer("offsets.topic.segment.bytes"),
        )
        self.transactions.load()

    def set_configs(self, scope: str, settings: Mapping[str, str], *, validate_only: bool) -> None:
        """Replaces the broker's run-time settings. Raises InvalidConfigError, the log's errors."""
        self.configs.check(settings)
        if not validate_only:
            self.configs.set(scope, settings, self._rows)
            self.topics.set_defaults(self.configs)

    def _load_cluster_id(self, known: bytes | None) -> None:
        if known is None:
            known = (self.cluster_id or uuid_to_text(self.surroundings.random_bytes(16))).encode()
            self._rows.put("cluster.id", known)
        self.cluster_id = known.decode()

    def carried_out(self, steps: Generator[None, None, Done], size: int) -> Done | Awaitable[Done]:
        """Makes a change of so many topics, partitions or settings: at once, or in slices. Changes are made in order."""
        if size <= CHANGES_AT_ONCE and not self.changes:
            return whole(steps)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # There is no other client to serve meanwhile.
            return whole(steps)
        change = loop.create_task(self.slices.run_alone(steps))
        self.changes.add(change)
        change.add_done_callback(self.changes.discard)
        # As on Kafka, it is done whether or not the client waits for the answer.
        return asyncio.shield(change)

    # -------------------------------------------------------------------------------------------------------- appending

    def appended(self, log: PartitionLog) -> None:
        """Wakes waiting fetches. Called after an append."""
        self.purgatory.wake(log)

    async def durable(self, logs: Iterable[PartitionLog] = ()) -> None:
        """Waits until everything appended to ``logs`` before is as safe as ``log.fsync`` promises.

        The broker's own facts are included: an acknowledged record must not lose its topic. Raises the log's errors.
        """
        if self.fsync is Fsync.GROUP:
            sync = self.directory.syncer.sync
            unsynced = [*logs, *(log for log in self._internal_logs if log.has_unsynced)]
            await asyncio.gather(*(asyncio.wrap_future(sync(log)) for log in unsynced))

    def acknowledged(self, answer: Answer, logs: Iterable[PartitionLog] = ()) -> Answer:
        """Delays a response until the data that it acknowledges is as safe as ``log.fsync`` promises."""
        return answer if self.fsync is not Fsync.GROUP else self._when_durable(answer, logs)

    async def _when_durable(self, answer: Answer, logs: Iterable[PartitionLog]) -> Message | None:
        message = await answer if isawaitable(answer) else answer
        try:
            await self.durable(logs)
        except LogError as error:
            raise DisconnectError(f"written records can't be acknowledged: {error}") from error
        return message

    def _acls_changed(self) -> None:
        """Updates the groups' topics, whose visibility to members may have changed."""
        self.topics.renew_image()
        self.topics_changed()

    def _move_deadlines(self, by_ms: int) -> None:
        self.groups.move_deadlines(by_ms)
        self.transactions.move_deadlines(by_ms)

    def topics_changed(self) -> None:
        """Updates the coordinators' topics. Called after topics were created, deleted or extended."""
        self.groups.topics_changed()

    def compacted_logs(self) -> Iterator[PartitionLog]:
        """Yields every log with compaction."""
        yield from self._internal_logs
        for topic in self.topics:
            if topic.partitions and topic.partitions[0].config.is_compacted:
                yield from topic.partitions

    def metrics_text(self) -> str:
        """Returns the metrics of the group coordinator and of compaction, for Prometheus."""
        groups = group_metrics(self.groups, self.surroundings.now_ms(), self._idleness.ratio())
        return exposition(groups) + exposition(cleaner_metrics(self.cleaner), CLEANER)

    async def run_cleaner(self) -> None:
        """Compacts logs until it is cancelled."""
        if self.configs["log.cleaner.enable"]:
            while True:
                await asyncio.sleep(self.integer("log.cleaner.backoff.ms") / 1000)
                await self.cleaner.clean(self.integer("log.cleaner.dedupe.buffer.size"))

    def run_retention(self) -> int:
        """Deletes what the topics' retention allows; returns the number of deleted segments."""
        now_ms = self.surroundings.now_ms()
        count = 0
        for topic in self.topics:
            for log in topic.partitions:
                try:
                    count += log.apply_retention(now_ms)
                except LogError as error:
                    logger.warning("retention of %s is postponed: %s", topic.name, error)
                except Exception:
                    logger.exception("retention of %s failed, and is tried again: please report this", log.directory)
        return count

    def close(self) -> None:
        """Writes the clean-shutdown marker. No request may be handled after this."""
        self.readers.shutdown(cancel_futures=True)
        self.transactions.close()
        self.groups.close()
        self.topics.close()
        self.directory.close()
