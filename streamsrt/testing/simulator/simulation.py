"""One run: a cluster, instances of the application, input that arrives gradually, faults, and the end.

The order of events depends only on the seed and the arguments: one thread, one queue of events, no clock but the
loop's, no randomness but generators seeded from the seed.
"""

from __future__ import annotations

import contextvars
import random
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from streamsrt.config import StreamsConfig
from streamsrt.errors import BrokerError, StreamsError, UserError
from streamsrt.membership.errors import StreamsTopologyFencedError
from streamsrt.runtime.assembly import topology_settings
from streamsrt.testing.simulator.broker import HOST_NAME, PORT, GroupView, SimulatedBroker
from streamsrt.testing.simulator.instance import Instance
from streamsrt.testing.simulator.invariants import Monitor, ViolationError
from streamsrt.testing.simulator.loop import VirtualLoop
from streamsrt.testing.simulator.nemesis import KINDS_OF, Nemesis, plan
from streamsrt.testing.simulator.net import SimulatedNet
from streamsrt.testing.simulator.trace import Trace
from streamsrt.testing.simulator.values import Faults, Inputs, Outputs, Protocols, SimulationResult
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import encode_batch
from streamsrt.wording import error_text
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import calls_async
from topology.graph.topology import Topology

EPOCH_MS = 1_700_000_000_000
START_S = 1_000.0
_CHECK_INTERVAL_S = 0.25
_RESTART_S = 0.5
_BATCH_MAX = 4

CONFIG: Mapping[str, Any] = {
    "application.id": "simulated",
    "bootstrap.servers": f"{HOST_NAME}:{PORT}",
    "commit.interval.ms": 500,
    "poll.ms": 500,
    "linger.ms": 20,
    "statestore.cache.max.bytes": 0,
    "fetch.max.wait.ms": 5_000,
    "request.timeout.ms": 4_000,
    "default.api.timeout.ms": 6_000,
    "delivery.timeout.ms": 12_000,
    "max.block.ms": 8_000,
    "max.poll.interval.ms": 8_000,
    "transaction.timeout.ms": 6_000,
    "repartition.purge.interval.ms": 5_000,
    "retry.backoff.ms": 50,
}
"""What a simulation sets where the application does not."""
CLASSIC_CONFIG: Mapping[str, object] = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "acceptable.recovery.lag": 5,
    "probing.rebalance.interval.ms": 60_000,
}
"""What it sets, too, where an instance joins a classic group: a streams group has this from its broker."""

PartitionRows = tuple[list[bytes | None], list[bytes | None], list[int]]


class Simulation:
    """One run. An object is used once."""

    def __init__(
        self,
        topology: Topology,
        inputs: Inputs,
        *,
        seed: int,
        instances: int,
        faults: Faults,
        config: Mapping[str, Any],
        partitions: int,
        broker_config: Mapping[str, str],
        chaos_s: float,
        settle_s: float,
        protocol: Protocols | None = None,
        trace: Trace | None = None,
    ) -> None:
        _refuse_threads(topology)
        self.seed = seed
        self._chance = random.Random(f"{seed}/plan")
        self._given_config = config
        self._kinds = KINDS_OF[protocol or configured_protocol(config)]
        self.config = config_by(_first(protocol, seed), config)
        """Of instances that start from now on."""
        # The missing methods are not used here: processes, files, signals.
        self.loop = VirtualLoop(START_S)  # type: ignore[abstract]
        self.trace = trace or Trace(self.elapsed_s)
        self.net = SimulatedNet(self.loop, seed, self.note)
        self.broker = SimulatedBroker(self.loop, self.net, seed, broker_config, self.now_ms, self.note)
        self.trace.unspoken = str(self.broker.directory)
        self.instances: list[Instance] = []
        self.topology = topology.configured(topology_settings(self.config)).with_default_serdes(
            self.config.default_key_serde, self.config.default_value_serde
        )
        self.epoch = self.topology.epoch
        others = {topic for topic, records in inputs.items() if not records} - _source_topics(topology)
        self.monitor = Monitor(self.config.application_id, self.topology, lambda: self.broker.life, others)
        self._faults = faults
        self._chaos_s, self._settle_s = chaos_s, settle_s
        self._partitions = partitions
        self._count = instances
        self._made = 0
        self._inputs = _encoded(self.topology, inputs, partitions)
        self._left = 0
        self._is_calm = False
        self._settled = False
        self._why_not = ""
        self._violation = ""
        self._nemesis: Nemesis | None = None
        self._leaving: list[Instance] = []
        self._context = contextvars.copy_context()

    # ------------------------------------------------------------------------------------------------------------- clock

    def elapsed_s(self) -> float:
        return self.loop.time() - START_S

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.elapsed_s() * 1000)

    def note(self, host: str, text: str) -> None:
        self.trace.note(host, text)
        self.trace.counts[text.partition(" for ")[0] if host != HOST_NAME else f"broker {text}"] += 1

    # --------------------------------------------------------------------------------------------------------------- run

    def run(self) -> str | None:
        """Runs the simulation to its end. Returns what is wrong; None if nothing is."""
        state = random.getstate()
        # The client's own randomness: jitter of its back-offs.
        random.seed(f"{self.seed}/client")
        try:
            with self.trace:
                return self._run()
        finally:
            random.setstate(state)

    def _run(self) -> str | None:
        self.broker.start()
        self._until(lambda: self.broker.life is not None and self.broker.is_up, 10.0)
        self._create_topics()
        for _ in range(self._count):
            self.start(self.add_instance(start=False))
        faults, events = plan(self._faults, self._chance, self._chaos_s, self._kinds)
        self._write_inputs()
        nemesis = self._nemesis = Nemesis(self, faults, events)
        self.loop.call_later(_CHECK_INTERVAL_S, self._check)
        self._until(lambda: False if events else self._left == 0, self._chaos_s)
        nemesis.end()
        self._is_calm = True
        self.note("", "faults have stopped")
        self._until(lambda: self._settled, self._settle_s)
        return self._verdict()

    def _until(self, is_over: Callable[[], bool], seconds: float) -> None:
        self.loop.run_until(lambda: bool(self._violation) or is_over(), self.loop.time() + seconds)

    def _broker_failure(self) -> str:
        error = self.broker.failure() or self.trace.failure
        return "" if error is None else "the broker failed:\n" + "".join(traceback.format_exception(error))

    def _verdict(self) -> str | None:
        if self.loop.errors:
            error = self.loop.errors[0]["exception"]
            return "a program failed:\n" + "".join(traceback.format_exception(error))
        if violation := self._broker_failure() or self._violation:
            return violation
        if not self._settled:
            return f"not settled {self._settle_s:g} s after faults have stopped: {self._why_not or self._backlog()}"
        return None

    def _backlog(self) -> str:
        return f"{self._left} input batches are not written yet" if self._left else "no check was made"

    def outputs(self) -> Outputs:
        assert self.broker.life is not None
        return self.monitor.outputs(self.broker.life)

    def result(self, outputs: Outputs) -> SimulationResult:
        return SimulationResult(
            self.seed,
            outputs,
            self.trace.digest,
            tuple(self.trace.lines),
            self.elapsed_s(),
            self.loop.steps,
            dict(self.trace.counts),
        )

    def clear_away(self) -> None:
        """Frees the resources of the run."""
        for instance in [*self.instances, *self._leaving]:
            instance.clear_away()
        self.broker.clear_away()
        self.loop.close()

    # --------------------------------------------------------------------------------------------------------- invariants

    def _check(self) -> None:
        self.loop.call_later(_CHECK_INTERVAL_S, self._check)
        try:
            self.monitor.check_offsets()
            self.monitor.check_rights(self.instances)
        except ViolationError as violation:
            self._violation = str(violation)
        self._violation = self._broker_failure() or self._violation
        if self._is_calm and not self._left:
            self._why_not = self.monitor.why_not_settled(self.instances)
            self._settled = not self._why_not
            if self._settled and self.config.is_exactly_once and not self._violation:
                self._violation = self.monitor.wrong_rows(self.instances)

    def iterated(self, instance: Instance) -> None:
        """Called after every iteration of an instance's processing thread."""
        try:
            self.monitor.check(instance, self.instances)
            self.monitor.check_rights(self.instances)
            if not self.config.is_exactly_once:
                self.monitor.check_taken_as_committed(instance)
        except ViolationError as violation:
            self._violation = str(violation)

    def asked(self, instance: Instance) -> None:
        """Called when an instance's processing thread is about to wait for an answer."""
        if self._nemesis is not None:
            self._nemesis.asked(instance)

    def ended(self, instance: Instance, error: StreamsError | None) -> None:
        """Called when an instance has ended by itself, or after it was stopped."""
        self.note(instance.name, "has ended" if error is None else f"has ended: {error_text(error)}")
        is_outdated = isinstance(error, StreamsTopologyFencedError) and instance.epoch < self.epoch
        if error is not None and not isinstance(error, BrokerError) and not is_outdated:
            self._violation = f"{instance.name} ended with {error_text(error)}"
        if instance in self.instances:
            # Not in the context of the host that has just ended.
            self.loop.call_later(_RESTART_S, self.start, instance, context=self._context)

    # ---------------------------------------------------------------------------------------------------------- instances

    def start(self, instance: Instance) -> None:
        """Starts an instance with the current topology, unless it is running or is about to leave."""
        if instance in self.instances:
            instance.start(self.topology, self.epoch, self.config)

    def add_instance(self, *, start: bool = True) -> Instance:
        """Adds an instance."""
        self._made += 1
        instance = Instance(self, f"i{self._made}", f"{self.seed}/i{self._made}")
        self.instances.append(instance)
        if start:
            self.start(instance)
        return instance

    def remove_instance(self, instance: Instance) -> None:
        """Removes an instance, which leaves the group."""
        self.instances.remove(instance)
        self._leaving.append(instance)
        instance.stop()

    def raise_epoch(self) -> bool:
        """Raises the topology epoch for instances that start from now on. Returns False if the previous upgrade has not
        started, or the protocol is changing."""
        group = None if self.broker.life is None else self.broker.life.group(self.config.application_id)
        if group is None or group.topology_epoch != self.epoch or not self._have_changed(group):
            return False
        self.epoch += 1
        return True

    def change_protocol(self) -> bool:
        """Changes the protocol for instances that start from now on. Returns False until the last change and the last
        upgrade are over."""
        group = None if self.broker.life is None else self.broker.life.group(self.config.application_id)
        if group is None or group.topology_epoch != self.epoch or not self._have_changed(group):
            return False
        if any(instance.epoch != self.epoch for instance in self.instances):
            return False
        self.config = config_by(_other(self.config.group_protocol), self._given_config)
        return True

    def _have_changed(self, group: GroupView) -> bool:
        """Whether all members have joined by the current protocol, if it can change at all."""
        if "protocol_changes" not in self._kinds:
            return True
        there = {each.member_id for each in self.instances if each.protocol == self.config.group_protocol}
        return len(there) == len(self.instances) and there == set(group.epochs)

    def leader_at_work(self) -> Instance | None:
        """Returns the leader of a classic group while the others wait for its assignment."""
        name = "" if self.broker.life is None else self.broker.life.leader_at_work(self.config.application_id)
        return next((each for each in self.instances if name and each.member_id == name), None)

    def is_known(self, member_id: str) -> bool:
        """Whether the group has this member, as far as there is a broker that tells."""
        group = None if self.broker.life is None else self.broker.life.group(self.config.application_id)
        return group is None or member_id in group.epochs

    # ------------------------------------------------------------------------------------------------------------- input

    def _create_topics(self) -> None:
        broker = self.broker.life
        assert broker is not None
        for topic in sorted({*self._inputs, *self.monitor.written_topics, *_source_topics(self.topology)}):
            if topic not in broker.topics():
                broker.create_topic(topic, self._partitions)

    def grow_topics(self) -> None:
        """Adds a partition to every source topic."""
        broker = self.broker.life
        assert broker is not None
        for topic in sorted(_source_topics(self.topology)):
            broker.grow_topic(topic, broker.topics()[topic] + 1)

    def _write_inputs(self) -> None:
        """Writes the input during the time of faults: small batches at random times, in the order of each partition."""
        chance = random.Random(f"{self.seed}/input")
        span_s = self._chaos_s * 0.8
        for topic, partitions in self._inputs.items():
            for partition, rows in enumerate(partitions):
                batches = _batches(rows, chance)
                times = sorted(chance.uniform(0, span_s) for _ in batches)
                self._left += len(batches)
                if batches:
                    pairs = list(zip(times, batches, strict=True))
                    self.loop.call_later(times[0], self._write, topic, partition, pairs, START_S + self.elapsed_s())

    def _write(self, topic: str, partition: int, pairs: list[tuple[float, bytes]], began_s: float) -> None:
        """Writes the next batch of a partition; waits while the broker is down."""
        if self.broker.life is None or not self.broker.is_up:
            self.loop.call_later(_CHECK_INTERVAL_S, self._write, topic, partition, pairs, began_s)
            return
        _, batch = pairs.pop(0)
        self.broker.append(topic, partition, batch)
        self._left -= 1
        if pairs:
            self.loop.call_at(
                max(self.loop.time(), began_s + pairs[0][0]), self._write, topic, partition, pairs, began_s
            )


def configured_protocol(config: Mapping[str, object]) -> Protocols:
    """Returns the protocol by which the application joins its group as configured; with ``auto`` streams, because the
    bundled broker supports more with it."""
    return "classic" if StreamsConfig.of({**CONFIG, **config}).group_protocol == "classic" else "streams"


def config_by(protocol: Protocols | None, config: Mapping[str, object]) -> StreamsConfig:
    """Returns the configuration of an instance that joins by this protocol; None: by the configured one."""
    if (protocol or configured_protocol(config)) == "classic":
        return StreamsConfig.of({**CONFIG, **CLASSIC_CONFIG, **config}, group_protocol="classic")
    return StreamsConfig.of({**CONFIG, **config}, group_protocol=protocol)


def _first(protocol: Protocols | None, seed: int) -> Protocols | None:
    if protocol != "both":
        return protocol
    return random.Random(f"{seed}/protocol").choice(("streams", "classic"))


def _other(protocol: str) -> Protocols:
    return "streams" if protocol == "classic" else "classic"


def _refuse_threads(topology: Topology) -> None:
    """Raises UserError if the application runs code outside of the simulation's order of events."""
    for subtopology in topology.subtopologies:
        for node in subtopology.nodes:
            if isinstance(node, ProcessorNode) and calls_async(node.operation):
                raise UserError(
                    f"node {node.name} calls asynchronous functions, which run on a thread of their own: a seed would not "
                    "be the same run twice. Simulate the topology with a function that is not asynchronous in its place"
                )


def _source_topics(topology: Topology) -> set[str]:
    return {topic for each in topology.all_subtopologies for topic in each.source_topics}


def _encoded(topology: Topology, inputs: Inputs, partitions: int) -> dict[str, list[PartitionRows]]:
    """Encodes the inputs as bytes, by topic and partition."""
    serdes = {
        topic: (source.key_serde, source.value_serde)
        for each in topology.all_subtopologies
        for source in each.sources
        for topic in source.topics
    }
    found: dict[str, list[PartitionRows]] = {}
    for topic, records in inputs.items():
        key_serde, value_serde = serdes.get(topic, (None, None))
        rows = found[topic] = [([], [], []) for _ in range(partitions)]
        for number, record in enumerate(records):
            key, value = _bytes(key_serde, record.key), _bytes(value_serde, record.value)
            partition = number % partitions if key is None else partition_for_key(key, partitions)
            keys, values, timestamps = rows[partition]
            keys.append(key)
            values.append(value)
            timestamps.append(record.timestamp)
    return found


def _bytes(serde: Any, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    made: bytes = serde.serialize(value)
    return made


def _batches(rows: PartitionRows, chance: random.Random) -> list[bytes]:
    keys, values, timestamps = rows
    batches, start = [], 0
    while start < len(keys):
        end = start + chance.randint(1, _BATCH_MAX)
        batches.append(encode_batch(keys[start:end], values[start:end], timestamps[start:end]))
        start = end
    return batches
