"""Foreign-key joins of two tables, as processor nodes.

1. What goes to the right side is a subscription: version and whether there is a hash, an instruction, the hash of the left
   value, the left key, and the partition that it is in. What comes back is a response: the same first byte, the hash, and
   the right value, if there is one.
2. A subscription that only takes another one back gets no answer. One of an inner join that is new is answered only if
   there is a right row; all others are answered in any case.
3. An answer whose hash is not that of the left row now is late: the row has changed, and that change has asked anew. It is
   dropped and counted.
4. The left row's key stays bytes on the right side: nobody there needs more.
5. A subscription is answered with the right row as it was last forwarded, without what a cache still holds back: if the row
   came and went there, nobody would answer again. Kafka Streams takes the newest row.
6. The subscription store's changelog has the headers of the record that changed it.

Source: the package kstream.internals.foreignkeyjoin of Kafka Streams (KIP-213).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from streamsrt.errors import UserError
from streamsrt.operators.engine.murmur3 import hash_bytes
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import table_view, view_as_forwarded
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.store import after_prefix
from topology.graph import nodes, operations
from topology.graph.nodes import ProcessorNode
from topology.graph.partitioned_bytes import PartitionedBytes

SUBSCRIPTION_VERSION = 1
RESPONSE_VERSION = 0
_NO_HASH = 0x80
_HASH_BYTES = 16
_INT = Struct(">i")


class Instruction(IntEnum):
    """The instruction in a subscription to the right side."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


DELETES = (Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE)


@dataclass(frozen=True, slots=True)
class ForeignKeySubscription:
    """A left row at the right side. ``value_hash``: None for a row that was deleted."""

    value_hash: bytes | None
    instruction: Instruction
    primary_key: bytes
    partition: int | None

    def to_bytes(self) -> bytes:
        first = SUBSCRIPTION_VERSION | (_NO_HASH if self.value_hash is None else 0)
        head = bytes((first, self.instruction)) + (self.value_hash or b"")
        return head + self.primary_key + _INT.pack(self.partition or 0)

    @classmethod
    def from_bytes(cls, raw: bytes) -> ForeignKeySubscription:
        """Reads versions 0 (without a partition) and 1. Raises UserError for a newer one."""
        version = raw[0] & ~_NO_HASH
        if version > SUBSCRIPTION_VERSION:
            raise UserError(
                f"a subscription of a foreign-key join has version {version}, and this version of streamsrt knows "
                f"versions up to {SUBSCRIPTION_VERSION}: a newer one wrote it. Install that one here too"
            )
        start = 2 if raw[0] & _NO_HASH else 2 + _HASH_BYTES
        end = len(raw) - (_INT.size if version else 0)
        partition = _INT.unpack_from(raw, end)[0] if version else None
        return cls(raw[2:start] or None, Instruction(raw[1]), raw[start:end], partition)


def response(subscription: ForeignKeySubscription, value: bytes | None) -> bytes:
    """The answer to a subscription: a right value, or that there is none; knows the partition of the left row."""
    value_hash = subscription.value_hash
    head = bytes((RESPONSE_VERSION | (_NO_HASH if value_hash is None else 0),)) + (value_hash or b"")
    if subscription.partition is None:
        return head + (value or b"")
    answer = PartitionedBytes(head + (value or b""))
    answer.to_partition = subscription.partition
    return answer


def split_response(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """Splits a response into the hash of the left value and the right value."""
    if raw[0] & _NO_HASH:
        return None, raw[1:] or None
    return raw[1 : 1 + _HASH_BYTES], raw[1 + _HASH_BYTES :] or None


def combined_prefix(foreign_key: bytes) -> bytes:
    """The bytes with which the store keys of all subscriptions to a foreign key begin."""
    return _INT.pack(len(foreign_key)) + foreign_key


def foreign_key_of(store_key: bytes) -> bytes:
    """Extracts the bytes of the foreign key from a key of the subscription store."""
    return store_key[_INT.size : _INT.size + _INT.unpack_from(store_key)[0]]


# --------------------------------------------------------------------------------------------------------- left side


def make_subscription_send(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.SubscriptionSend)
    sink = builder.plan.node(node.children[0])
    assert isinstance(sink, nodes.SinkNode)
    env, forward, extract = builder.env, made.forward, op.foreign_key
    serialize_foreign = builder.plan.key_serde(sink).serialize
    serialize_key = builder.plan.serde_or_default(op.key_serde, "key", node.name).serialize
    serialize = builder.plan.serde_or_default(op.value_serde, "value", node.name).serialize
    newest_only = builder.plan.is_versioned(node.parents[0])

    def instructions(value: object, old: object) -> list[tuple[object, Instruction]]:
        """Returns the foreign keys to notify, each with its instruction."""
        before = None if old is None else extract(old)
        after = None if value is None else extract(value)
        if not op.left and value is not None and after is None:
            env.counters.dropped_null += 1
        instructions: list[tuple[object, Instruction]] = []
        moved = before is not None and (after is None or serialize_foreign(after) != serialize_foreign(before))
        if moved:
            propagates = not op.left and after is None
            instructions.append(
                (before, Instruction.DELETE_KEY_AND_PROPAGATE if propagates else Instruction.DELETE_KEY_NO_PROPAGATE)
            )
        if op.left or moved:
            instructions.append((after, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE))
        else:
            instructions.append((after, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE))
        return instructions if op.left or after is not None else instructions[:-1]

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if newest_only and not env.is_latest:
            env.counters.dropped_outdated += 1
            return
        if value is None and old is None:
            return
        value_hash = None if value is None else hash_bytes(serialize(value))
        raw_key = serialize_key(key)
        for foreign, instruction in instructions(value, old):
            subscription = ForeignKeySubscription(value_hash, instruction, raw_key, env.task_partition)
            forward(foreign, subscription.to_bytes(), timestamp, headers)

    return process


def make_response_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.ResponseJoin)
    env, forward, joiner = builder.env, made.forward, op.joiner
    row_of = table_view(builder.plan, env.caches, op.table)
    serialize = builder.plan.serde_or_default(op.value_serde, "value", node.name).serialize
    deserialize = builder.plan.serde_or_default(op.other_value_serde, "value", node.name).deserialize

    def process(key: object, value: bytes, timestamp: int, headers: Headers, old: object) -> None:
        asked_hash, raw = split_response(value)
        row = row_of(key)[0]
        if asked_hash != (None if row is None else hash_bytes(serialize(row))):
            env.counters.dropped_outdated += 1
            return
        other = None if raw is None else deserialize(raw)
        result = None
        if row is not None and (other is not None or op.left):
            result = joiner(row, other)
        forward(key, result, timestamp, headers)

    return process


# -------------------------------------------------------------------------------------------------------- right side


class Subscriptions:
    """The subscription store of one task, by foreign key."""

    def __init__(self, builder: PathBuilder, store: str) -> None:
        self._env = builder.env
        self._cache = cache_of(KeyValueCache, builder.env.caches, store)
        topic = builder.plan.changelog_topic(store) if builder.plan.writes_changelog(store) else None
        self._log = None if topic is None else builder.env.output.to(topic, builder.env.task_partition).append
        self._unwritten: dict[bytes, set[bytes]] = {}
        """Changes since the store was last written, which a scan of the store does not find."""

    def put(self, prefix: bytes, primary_key: bytes, raw: bytes | None, timestamp: int, headers: Headers) -> None:
        """Keeps a subscription, or forgets it where ``raw`` is None."""
        key = prefix + primary_key
        self._forget_written()
        self._unwritten.setdefault(prefix, set()).add(key)
        self._cache.put(key, raw, timestamp, headers, next(self._env.sequence))
        if self._log is not None:
            self._log(key, raw, timestamp, headers)

    def _forget_written(self) -> None:
        if self._unwritten and not self._cache.dirty and not self._cache.pending:
            self._unwritten = {}

    def at(self, prefix: bytes) -> Iterator[ForeignKeySubscription]:
        """All subscriptions at a foreign key, in the order of their primary keys' bytes."""
        self._forget_written()
        keys = {key for key, _ in self._cache.store.range(prefix, after_prefix(prefix))}
        for key in sorted(keys | self._unwritten.get(prefix, set())):
            raw = self._cache[key].value
            if raw is not None:
                yield ForeignKeySubscription.from_bytes(raw)


def _subscriptions(builder: PathBuilder, store: str) -> Subscriptions:
    known = builder.env.shared_states.get(store)
    if known is None:
        known = builder.env.shared_states[store] = Subscriptions(builder, store)
    return known


def make_subscription_receive(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.SubscriptionReceive)
    source = builder.plan.node(node.parents[0])
    assert isinstance(source, nodes.SourceNode)
    env, forward = builder.env, made.forward
    serialize = builder.plan.key_serde(source).serialize
    subscriptions = _subscriptions(builder, op.store)

    def process(key: object, value: bytes, timestamp: int, headers: Headers, old: object) -> None:
        subscription = ForeignKeySubscription.from_bytes(value)
        if key is not None:
            raw = None if subscription.instruction in DELETES else value
            subscriptions.put(combined_prefix(serialize(key)), subscription.primary_key, raw, timestamp, headers)
        elif subscription.instruction is not Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
            env.counters.dropped_null += 1
            return
        forward(key, subscription, timestamp, headers)

    return process


def make_subscription_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.SubscriptionJoin)
    forward = made.forward
    row_of = view_as_forwarded(builder.plan, builder.env.caches, op.table)
    serialize = builder.plan.serde_or_default(op.value_serde, "value", node.name).serialize

    def process(key: object, value: ForeignKeySubscription, timestamp: int, headers: Headers, old: object) -> None:
        if value.instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return
        row, row_time = (None, -1) if key is None else row_of(key)
        if row is None and value.instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            return
        if value.instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            row = None
        raw = None if row is None else serialize(row)
        forward(value.primary_key, response(value, raw), max(timestamp, row_time), headers)

    return process


def make_foreign_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.ForeignTableJoin)
    env, forward = builder.env, made.forward
    serialize_key = builder.plan.serde_or_default(op.key_serde, "key", node.name).serialize
    serialize = builder.plan.serde_or_default(op.value_serde, "value", node.name).serialize
    newest_only = builder.plan.is_versioned(node.parents[0])
    subscriptions = _subscriptions(builder, op.store)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None:
            env.counters.dropped_null += 1
            return
        if newest_only and not env.is_latest:
            env.counters.dropped_outdated += 1
            return
        raw = None if value is None else serialize(value)
        for subscription in subscriptions.at(combined_prefix(serialize_key(key))):
            forward(subscription.primary_key, response(subscription, raw), timestamp, headers)

    return process
