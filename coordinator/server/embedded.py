"""The broker on another event loop, with a given clock and source of randomness.

The simulation of a whole application runs it (``streamsrt.testing.simulator`` finds it by its name, so that the client
never imports the broker). It is the broker that ``python -m coordinator`` starts, from the frames on a connection to
the files on the disk. The differences are:

1. Nothing happens on another thread: ``log.fsync`` is ``never``, and files are deleted at once.
2. It can be abandoned at any moment (:meth:`~EmbeddedBroker.abandon`), as by ``kill -9``; another one then continues
   with the files.
3. The caller may look inside, not only through the protocol.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.broker.broker import Broker, Surroundings
from coordinator.group.classic.state import CONSUMER, ClassicGroup, GroupState
from coordinator.group.streams.describe import state_name
from coordinator.log import LogDirectory
from coordinator.log.fsync import OnSynced, Syncable, Syncer
from coordinator.server.dispatch import Dispatcher
from coordinator.server.listener import Listener
from coordinator.server.main import serve
from coordinator.server.security import handlers, limits_of
from coordinator.server.settings import read_configs
from streamsrt.wire.messages import decode, decode_consumer_protocol
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.types import ConsumerProtocolAssignment, StreamsrtAssignment

_READ_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class GroupView:
    """A streams group as its coordinator has it now, or a classic one of our members as its leader has assigned it.

    ``owners``: by task, the members that have it as an active task or have not confirmed yet that they closed it.
    ``epochs``: by member, the epoch that it has reached, or the generation.
    """

    state: str
    epoch: int
    topology_epoch: int
    epochs: Mapping[str, int]
    owners: Mapping[tuple[str, int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a partition holds. ``aborted``: (producer id, first offset) of aborted transactions; ``stable_end``: the offset
    up to which everything is decided."""

    batches: bytes
    start: int
    end: int
    stable_end: int
    aborted: tuple[tuple[int, int], ...]


def _classic_view(group: ClassicGroup | None) -> GroupView | None:
    """A classic group of our members: who has what, as its leader has assigned it in this generation."""
    if group is None or group.live.protocol_type != CONSUMER:
        return None
    live = group.live
    owners: dict[tuple[str, int], tuple[str, ...]] = {}
    epoch = -1
    for name, member in sorted(live.members.items()):
        told = _own_assignment(member.assignment)
        if told is None or told.generation != live.generation:
            continue
        epoch = max(epoch, told.group_epoch)
        for tasks in told.tasks.active:
            for partition in tasks.partitions:
                task = (tasks.subtopology_id, partition)
                owners[task] = (*owners.get(task, ()), name)
    return GroupView(live.state, live.generation, epoch, dict.fromkeys(live.members, live.generation), owners)


def _own_assignment(assignment: bytes) -> StreamsrtAssignment | None:
    """What our leader wrote for a member; None before that, and where it is somebody else's."""
    try:
        data = decode_consumer_protocol(ConsumerProtocolAssignment, assignment).user_data or b""
        return decode(StreamsrtAssignment, 0, zlib.decompress(data[1:]) if data[:1] == b"\1" else data[1:])
    except (DecodeError, zlib.error):
        return None


class _NoSyncer(Syncer):
    """Has no thread, and forces nothing to the disk."""

    def sync_then(self, log: Syncable, callback: OnSynced) -> None:
        callback(None)

    def note(self, log: Syncable, *, checkpoint: bool = False) -> int:
        return self.round

    def run(self, action: Callable[[], None]) -> None:
        action()


class EmbeddedBroker:
    """One life of a broker: from :meth:`start` to :meth:`abandon`. Belongs to the running event loop.

    ``configs``: ``KEY=VALUE`` by Kafka's names. Raises what opening the data directory raises.
    """

    def __init__(
        self,
        path: Path,
        configs: Iterable[str],
        *,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        host: str,
        port: int,
    ) -> None:
        settings, group_config = read_configs(None, [*configs, "log.fsync=never"])
        self._directory = LogDirectory(path, syncer=_NoSyncer())
        self._now_ms = now_ms
        self._broker = Broker(self._directory, settings, group_config, Surroundings(now_ms, random_bytes))
        self._broker.host, self._broker.port = host, port
        self._serving: asyncio.Task[int] | None = None

    async def start(self) -> None:
        """Loads what there is, and listens."""
        broker = self._broker
        broker.load()
        listener = Listener(handlers(broker, Dispatcher(broker).handle), limits_of(broker), broker.memory)
        await listener.start(broker.host, broker.port)
        self._serving = asyncio.create_task(serve(broker, listener, asyncio.Event()))

    def abandon(self) -> None:
        """Lets go of the files as they are. Whoever runs it sees to it that nothing of it runs any more."""
        self._directory.abandon()

    # -------------------------------------------------------------------------------------------------------- operating

    def create_topic(self, name: str, partitions: int) -> None:
        """Raises TopicRefusedError."""
        self._broker.topics.create(name, partitions, {})
        self._broker.topics_changed()

    def grow_topic(self, name: str, partitions: int) -> None:
        """Gives a topic more partitions."""
        topic = self._broker.topics.get(name)
        assert topic is not None
        self._broker.topics.add_partitions(topic, partitions)
        self._broker.topics_changed()

    def append(self, topic: str, partition: int, batch: bytes) -> None:
        """Appends one record batch, as a producer without an id does."""
        found = self._broker.topics.get(topic)
        assert found is not None
        log = found.partitions[partition]
        log.append(batch, now_ms=self._now_ms())
        self._broker.appended(log)

    # ---------------------------------------------------------------------------------------------------------- looking

    def topics(self) -> dict[str, int]:
        """Partition counts by topic, internal ones too."""
        return {topic.name: len(topic.partitions) for topic in self._broker.topics}

    def ends(self, topic: str) -> list[tuple[int, int]]:
        """By partition, the end and the stable end; nothing for a topic that is not there."""
        found = self._broker.topics.get(topic)
        partitions = [] if found is None else found.partitions
        return [(log.log_end_offset, log.last_stable_offset) for log in partitions]

    def read(self, topic: str, partition: int) -> Stored:
        """Everything that is in a partition."""
        found = self._broker.topics.get(topic)
        assert found is not None
        log = found.partitions[partition]
        result = log.read(log.log_start_offset, _READ_BYTES_MAX)
        return Stored(
            b"".join(result.buffers),
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset,
            tuple(log.aborted_transactions(log.log_start_offset, log.log_end_offset)),
        )

    def group(self, group_id: str) -> GroupView | None:
        """None: there is none."""
        group = self._broker.groups.streams_group(group_id)
        if group is None:
            return _classic_view(self._broker.groups.classic_group(group_id))
        return GroupView(
            state_name(group, self._broker.topics.image()),
            group.epoch,
            -1 if group.topology is None else group.topology.epoch,
            {member_id: group.current[member_id].epoch for member_id in group.members},
            {(*task,): owners for task, owners in group.active_owners.items()},
        )

    def leader_at_work(self, group_id: str) -> str:
        """The leader of a classic group while the others wait for what it assigns; empty otherwise."""
        group = self._broker.groups.classic_group(group_id)
        if group is None or group.live.state is not GroupState.COMPLETING_REBALANCE:
            return ""
        return group.live.leader or ""

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The group's offsets that count."""
        return self._broker.groups.committed(group_id)
