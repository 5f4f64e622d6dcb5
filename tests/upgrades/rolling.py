"""An upgrade of simulated instances from one program of a pair to the other, with what goes wrong meanwhile.

1. Instances are replaced one by one. The last one goes when nothing of what it reads and writes drains.
2. No instance of the old version ends unless it is told to, or killed. The new version ends by itself only where it is
   made to fail, or is refused.
3. Where the new version fails, the old instances run all of their version's tasks again within a session. In a classic group
   one that fails while the group waits for another one that was killed counts a session more: its own begins after that.
4. In the end nothing is left unread: neither in the topics of the version that runs, nor in repartition topics of the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from streamsrt.config import StreamsConfig
from streamsrt.errors import StreamsError
from streamsrt.testing.simulator import NO_FAULTS, Outputs
from streamsrt.testing.simulator.broker import BrokerLife
from streamsrt.testing.simulator.hosts import HOST
from streamsrt.testing.simulator.instance import Instance
from streamsrt.testing.simulator.invariants import Monitor
from streamsrt.testing.simulator.simulation import CONFIG, Simulation
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import decode_batches, encode_batch
from tests.upgrades.pairs import Pair
from tests.upgrades.programs import (
    LEFT,
    RIGHT,
    TOPICS,
    Built,
    build,
    key_of,
    timestamp_of,
)
from topology.graph.nodes import Subtopology, internal_topic_name

OLD, NEW, BACK = "old", "new", "back"
"""Versions: the old one, the new one, and the old one under the epoch after that."""

ROUNDS = 60
LAST_ROUNDS = 30
ALL_TOPICS = {**TOPICS, LEFT: 2, RIGHT: 2}
SESSION_S = 5.0
STEPS_S = 3.0
"""Three heartbeats, in which tasks are given and opened."""
PATIENCE_S = 120.0
BATCH_MAX = 4
SPAN_S = 12.0

SETTINGS: Mapping[str, Any] = {"processing.guarantee": "exactly_once_v2"}
CLASSIC: Mapping[str, Any] = {
    **SETTINGS,
    "group.protocol": "classic",
    "session.timeout.ms": int(SESSION_S * 1000),
    "heartbeat.interval.ms": 1_000,
}


class BrokenVersionError(Exception):
    """What the new version raises where it is made to."""


class Plan(NamedTuple):
    """How an upgrade goes. ``fails_at``: the number of the record at which a new instance fails; 0: before it joins, or soon
    after. ``kills``: how many instances are killed, and started again. ``is_sent_back``: the old version comes again.
    ``load_s``: how long records come, ``records`` of each topic."""

    instances: int
    fails_at: int | None
    kills: int
    is_sent_back: bool
    load_s: float = SPAN_S
    records: int = ROUNDS


def plan_of(seed: int) -> Plan:
    chance = random.Random(f"plan {seed}")
    fails_at = chance.choice([None, None, 0, 1, 25])
    return Plan(
        instances=chance.choice([2, 3, 3]),
        fails_at=fails_at,
        kills=chance.choice([0, 0, 1, 2]),
        is_sent_back=chance.random() < 0.2,
    )


@dataclass(frozen=True, slots=True)
class Wait:
    """Until it holds, so many seconds at most."""

    what: str
    holds: Callable[[], bool]
    seconds: float = PATIENCE_S


class Rolled(NamedTuple):
    """What came of it. ``refusal``: why the new version did not start, empty where it did. ``last``: the version that runs.
    ``in_flight``: records that stay in repartition topics of the other one. ``end``: how many records each source topic has
    at the end."""

    application_id: str
    end: int
    outputs: Outputs
    refusal: str
    last: str
    topics: dict[str, int]
    committed: dict[tuple[str, int], int]
    in_flight: frozenset[str]


class Rolling(Simulation):
    """One upgrade. ``is_refused``: whether the new version is expected not to run. ``by_members``: by what they tell. An
    instance of the simulator compares that only when it has joined, so the group has the version's epoch by then."""

    def __init__(
        self,
        pair: Pair,
        plan: Plan,
        *,
        epochs: tuple[int, int],
        is_refused: bool = False,
        by_members: bool = False,
        settings: Mapping[str, Any] = SETTINGS,
    ) -> None:
        self.pair = pair
        self.plan = plan
        old = build(pair.old, OLD)
        self.built: dict[str, Built] = {OLD: old, NEW: build(pair.new, NEW, self._record), BACK: old}
        super().__init__(
            self.built[OLD].topology,
            {},
            seed=pair.seed,
            instances=plan.instances,
            faults=NO_FAULTS,
            config=dict(settings),
            partitions=2,
            broker_config={"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000"},
            chaos_s=plan.load_s,
            settle_s=PATIENCE_S,
            trace=None,
        )
        self.is_refused = is_refused
        self._by_members = by_members
        self.refusal = ""
        self.version: dict[str, str] = {}
        self.last = OLD
        self._epochs = {OLD: epochs[0], NEW: epochs[1], BACK: epochs[1] + 1}
        self._fails_at: int | None = None
        self._records = 0
        self._failing: str | None = None
        self._is_classic = settings.get("group.protocol") == "classic"
        self._session_ends_s = 0.0
        """When the group knows of everybody who was killed."""
        self._stopping: set[str] = set()
        self._chance = random.Random(f"{pair.seed}/roll")
        self._application_id = StreamsConfig.of({**CONFIG, **settings}).application_id
        self.monitor = self._monitor(OLD)
        self._read = sorted(ALL_TOPICS.keys() & (pair.old.topics | pair.new.topics))

    def _monitor(self, version: str) -> Monitor:
        return Monitor(self._application_id, self.built[version].topology, lambda: self.broker.life)

    # ---------------------------------------------------------------------------------------------------------- versions

    def start(self, instance: Instance) -> None:
        if instance not in self.instances:
            return
        version = self.version.setdefault(instance.name, OLD)
        self._stopping.discard(instance.name)
        if version == NEW:
            self._records = 0
        instance.start(self.built[version].topology.with_default_serdes(None, None), self._epochs[version], self.config)

    def ended(self, instance: Instance, error: StreamsError | None) -> None:
        self.note(instance.name, "has ended" if error is None else f"has ended: {type(error).__name__}: {error}")
        version = self.version[instance.name]
        if error is not None:
            if version == NEW and instance.name == self._failing:
                if self.is_refused:
                    self.refusal = str(error)
            else:
                self._violation = (
                    f"{instance.name}, which ran the {version} version, ended with {type(error).__name__}: {error}"
                )
        elif instance.name not in self._stopping:
            self._violation = f"{instance.name}, which ran the {version} version, ended though nobody told it to"
        self._stopping.discard(instance.name)

    def _record(self) -> None:
        """The new version reads a record."""
        host = HOST.get()
        if self._fails_at is None or host is None or host.name != self._failing:
            return
        self._records += 1
        if self._records == self._fails_at:
            raise BrokenVersionError("this version fails")

    def _running(self, version: str) -> list[Instance]:
        return [one for one in self.instances if one.is_alive and self.version[one.name] == version]

    # -------------------------------------------------------------------------------------------------------- the script

    def _run(self) -> str | None:
        self.broker.start()
        self._until(lambda: self.broker.life is not None and self.broker.is_up, 10.0)
        self._create_topics()
        for _ in range(self._count):
            self.start(self.add_instance(start=False))
        self._schedule_inputs()
        self.loop.call_later(0.25, self._check)
        for wait in self._script():
            self._until(wait.holds, wait.seconds)
            if self._violation or self.loop.errors:
                break
            if not wait.holds():
                self._violation = f"not within {wait.seconds:g} s: {wait.what} ({self._why_not})"
        self._settled = not self._violation
        return self._verdict()

    def _script(self) -> Iterator[Wait]:
        yield Wait("the old version works", lambda: self._owns_all(OLD))
        yield from self._pause(0.2, 3.0)
        if self.is_refused:
            yield from self._refused()
        else:
            if self.plan.fails_at is not None:
                yield from self._failing_version()
            yield from self._roll(OLD, NEW, len(self.instances) if not self.plan.is_sent_back else self._part())
            if self.plan.is_sent_back:
                yield Wait("all are members", self._are_members)
                yield from self._roll(NEW, BACK, len(self.instances))
        yield from self._to_the_end()

    def _part(self) -> int:
        return self._chance.randint(1, len(self.instances) - 1)

    def _pause(self, shortest_s: float, longest_s: float) -> Iterator[Wait]:
        until_s = self.loop.time() + self._chance.uniform(shortest_s, longest_s)
        yield Wait("time goes on", lambda: self.loop.time() >= until_s - 1e-6)

    def _replace(self, instance: Instance, version: str, *, killed: bool) -> Iterator[Wait]:
        if killed:
            self._kill(instance)
        else:
            self.note(instance.name, "is told to stop")
            self._stopping.add(instance.name)
            instance.stop()
            yield Wait(f"{instance.name} has stopped", lambda: not instance.is_alive)
        self.version[instance.name] = version
        self.start(instance)

    def _kill(self, instance: Instance) -> None:
        self.note(instance.name, "is killed")
        host = instance.kill()
        if host is not None:
            self.net.host_died(host)
            now_s = self.loop.time()
            begins_s = max(now_s, self._session_ends_s) if self._is_classic else now_s
            self._session_ends_s = begins_s + SESSION_S

    def _refused(self) -> Iterator[Wait]:
        """The new version is started in the place of an instance. It ends, and the old version goes on."""
        first = self.instances[0]
        self._failing = first.name
        before = self._group_epoch()
        yield from self._replace(first, NEW, killed=False)
        yield Wait("the new version is refused", lambda: not first.is_alive, 30.0)
        if self._group_epoch() != before and not self._by_members:
            self._violation = f"the topology epoch of the group was {before} and is {self._group_epoch()}"
        self.version[first.name], self._failing = OLD, None
        self.start(first)

    def _group_epoch(self) -> int | None:
        group = None if self.broker.life is None else self.broker.life.group(self._application_id)
        return None if group is None else group.topology_epoch

    def _failing_version(self) -> Iterator[Wait]:
        """An instance of the new version fails, and again after it was started anew; then it is gone."""
        instance = self.instances[0]
        self._failing, self._fails_at = instance.name, self.plan.fails_at
        yield from self._replace(instance, NEW, killed=self._chance.random() < 0.3)
        for life in range(self._chance.choice([1, 2])):
            if life:
                self.start(instance)
            soon_s = self._chance.uniform(0.05, 4.0) if self._fails_at == 0 else 25.0
            until_s = self.loop.time() + soon_s
            yield Wait("it fails", lambda: not instance.is_alive or self.loop.time() >= until_s)  # noqa: B023
            self._kill(instance)
        within_s = max(SESSION_S, self._session_ends_s - self.loop.time()) + STEPS_S
        yield Wait("the old version has taken over", lambda: self._owns_all(OLD), within_s)
        self._failing = self._fails_at = None
        self.start(instance)

    def _roll(self, before: str, after: str, count: int) -> Iterator[Wait]:
        """``count`` instances with the later version; where it is all of them, the last one goes when it may."""
        self.last = OLD if after == BACK or count < len(self.instances) else after
        kills = self.plan.kills
        while len(self._with(after)) < count:
            left = [one for one in self.instances if self.version[one.name] != after]
            first = [one for one in left if self.version[one.name] != before] or left
            instance = self._chance.choice(left if len(self._with(before)) > 1 else first)
            is_last = self._with(before) == [instance]
            if is_last:
                may_go = partial(self._may_go, instance, before, after)
                yield Wait(f"the last instance of the {before} version may go", may_go)
            yield from self._replace(instance, after, killed=not is_last and self._chance.random() < 0.3)
            yield from self._pause(0.1, 5.0)
            if kills and self._chance.random() < 0.5:
                kills -= 1
                yield from self._crash(after)

    def _with(self, version: str) -> list[Instance]:
        return [one for one in self.instances if self.version[one.name] == version]

    def _are_members(self) -> bool:
        """Whether the new version is the group's, and everybody is in it: whoever joins with an older version afterwards is
        refused, as is an epoch that is two ahead."""
        group = None if self.broker.life is None else self.broker.life.group(self._application_id)
        if group is None or group.state != "Stable" or group.topology_epoch != self._epochs[NEW]:
            return False
        return all(
            one.member_id in group.epochs and one.manager is not None and one.manager.is_settled
            for one in self.instances
        )

    def _crash(self, version: str) -> Iterator[Wait]:
        """An instance of the later version is killed, and started again."""
        instance = self._chance.choice(self._with(version))
        self._kill(instance)
        yield from self._pause(0.05, SESSION_S + 2.0)
        self.start(instance)

    def _to_the_end(self) -> Iterator[Wait]:
        """Everything is read; then each row is met once more by what runs then."""
        other = OLD if self.last == NEW else NEW
        left = set() if self.is_refused else self._drained(other, self.last)
        self.monitor = _Final(self._monitor(self.last), self._left_topics(left))
        for rounds in (range(0), range(self.plan.records, self.plan.records + LAST_ROUNDS)):
            for topic in self._read:
                for partition, batches in _batches(topic, rounds, self._chance).items():
                    for batch in batches:
                        self.broker.append(topic, partition, batch)
            self._is_calm, self._settled = True, False
            yield Wait("everything is read", lambda: self._settled)

    # ------------------------------------------------------------------------------------------------------------ looking

    def _gone(self, before: str, after: str) -> set[str]:
        """Repartition topics of one version that the other does not have."""
        mine, theirs = (self._repartition_topics(version) for version in (before, after))
        return mine - theirs

    def _repartition_topics(self, version: str) -> set[str]:
        return {t.name for part in self.built[version].topology.subtopologies for t in part.repartition_source_topics}

    def _left_topics(self, gone: set[str]) -> list[str]:
        return [internal_topic_name(self._application_id, name) for name in sorted(gone)]

    def _drained(self, before: str, after: str) -> set[str]:
        """Of the topics that go away those that have to do with something that the later version has as well. What
        belongs to tables that go away altogether may stay in its topic, as the comparison says."""
        return {
            name
            for name in self._gone(before, after)
            for part in self.built[before].topology.subtopologies
            if name in part.repartition_sink_topics or name in {t.name for t in part.repartition_source_topics}
            if self._meets(part, after)
        }

    def _meets(self, part: Subtopology, version: str) -> bool:
        """Whether something of this version reads or keeps what the subtopology does."""
        others = self.built[version].topology.subtopologies
        return any(_owned(part) & _owned(other) for other in others)

    def _works(self, version: str) -> bool:
        """Whether the group has given tasks to this version: before that, a classic group does not run it."""
        return any(owned.is_active for one in self._running(version) for owned in one.manager or ())

    def _may_go(self, instance: Instance, before: str, after: str) -> bool:
        """Whether the later version works, and nothing that drains is left to this one."""
        life = self.broker.life
        drained = self._drained(before, after)
        if instance.manager is None or life is None or not self._works(after):
            return False
        committed = life.committed(self._application_id)
        for topic in self._left_topics(self._gone(before, after)):
            for partition, (end, stable_end) in enumerate(life.ends(topic)):
                if stable_end < end or unread(life, topic, partition, committed.get((topic, partition), 0)):
                    return False
        for owned in instance.manager:
            part = owned.subtopology
            touched = {*part.repartition_sink_topics, *(t.name for t in part.repartition_source_topics)}
            if owned.is_active and drained & touched and self._meets(part, after):
                return False
        return True

    def _owns_all(self, version: str) -> bool:
        """Whether instances with this version run all of its tasks."""
        read = {
            place
            for instance in self._running(version)
            if instance.manager is not None and instance.manager.is_settled
            for owned in instance.manager
            if owned.is_active
            for place in owned.task.source_partitions
        }
        life = self.broker.life
        assert life is not None
        names = {topic for part in self.built[version].topology.subtopologies for topic in part.source_topics}
        names |= set(self._left_topics(self._repartition_topics(version)))
        counts = life.topics()
        return all((name, p) in read for name in names for p in range(counts.get(name, 1)))

    def rolled(self) -> Rolled:
        life = self.broker.life
        assert life is not None
        found: dict[str, Any] = {}
        for version in (OLD, NEW):
            found.update(self._monitor(version).outputs(life))
        committed = life.committed(self._application_id)
        in_flight = frozenset(self._in_flight(life, committed))
        end = self.plan.records + LAST_ROUNDS
        return Rolled(self._application_id, end, found, self.refusal, self.last, life.topics(), committed, in_flight)

    def _in_flight(self, life: BrokerLife, committed: Mapping[tuple[str, int], int]) -> Iterator[str]:
        for topic in self._left_topics(self._gone(OLD if self.last == NEW else NEW, self.last)):
            for partition in range(len(life.ends(topic))):
                found = life.read(topic, partition)
                at = committed.get((topic, partition), 0)
                for columns in decode_batches(found.batches, from_offset=at, aborted=found.aborted):
                    yield from (value.decode(errors="replace") for value in columns.values if value is not None)

    # -------------------------------------------------------------------------------------------------------------- input

    def _create_topics(self) -> None:
        life = self.broker.life
        assert life is not None
        for topic, count in ALL_TOPICS.items():
            life.create_topic(topic, count)
        for version in (OLD, NEW):
            for topic in self._monitor(version).written_topics:
                if topic not in life.topics():
                    life.create_topic(topic, 2)

    def _schedule_inputs(self) -> None:
        for topic in self._read:
            for partition, batches in _batches(topic, range(self.plan.records), self._chance).items():
                times = sorted(self._chance.uniform(0, self.plan.load_s) for _ in batches)
                self._left += len(batches)
                pairs = list(zip(times, batches, strict=True))
                if pairs:
                    self.loop.call_later(times[0], self._write, topic, partition, pairs, self.loop.time())


def unread(life: BrokerLife, topic: str, partition: int, offset: int) -> bool:
    """Whether records lie behind an offset."""
    found = life.read(topic, partition)
    return any(columns.keys for columns in decode_batches(found.batches, from_offset=offset, aborted=found.aborted))


def _owned(part: Subtopology) -> set[str]:
    repartitions = {topic.name for topic in part.repartition_source_topics}
    return {*part.source_topics, *repartitions, *(topic.name for topic in part.changelog_topics)}


class _Final(Monitor):
    """What must be read before an upgrade is over: the topics of the version that runs, and what the other one has left."""

    def __init__(self, of: Monitor, left: list[str]) -> None:
        self.__dict__.update(of.__dict__)
        self._read_topics = sorted({*self._read_topics, *left})


def text_of(topic: str, number: int) -> str:
    return f"{topic[0]}{number}"


def _rows(topic: str, first: int, end: int) -> list[tuple[str, str, int]]:
    """Of tables with timestamps that rise: an older row does not replace a newer one."""
    times = timestamp_of if topic in TOPICS else lambda number: 1_000 + number
    return [(key_of(n), text_of(topic, n), times(n)) for n in range(first, end)]


def _batches(topic: str, rounds: range, chance: random.Random) -> dict[int, list[bytes]]:
    """Records of a topic in small batches, by partition."""
    count = ALL_TOPICS[topic]
    by_partition: dict[int, list[tuple[str, str, int]]] = {partition: [] for partition in range(count)}
    for key, text, timestamp in _rows(topic, rounds.start, rounds.stop):
        by_partition[partition_for_key(key.encode(), count)].append((key, text, timestamp))
    found = {}
    for partition, rows in by_partition.items():
        batches, start = [], 0
        while start < len(rows):
            end = start + chance.randint(1, BATCH_MAX)
            keys, texts, timestamps = zip(*rows[start:end], strict=True)
            batches.append(encode_batch([k.encode() for k in keys], [t.encode() for t in texts], list(timestamps)))
            start = end
        found[partition] = batches
    return found
