"""``join_lookup``: joins with what a function of the program finds elsewhere, for many keys in a call, with a cache.

1. Records are gathered as in every operator over batches (:mod:`streamsrt.operators.kinds.batches`). When the run ends,
   each distinct key is looked up once, and the records are forwarded in order. Asynchronous lookups continue beyond
   that.
2. The wall clock is the task's. An answer, including that a key is missing, is valid until its time is over.
3. A call that fails is a failure of each record that waits for it. It is not cached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from streamsrt.errors import UserError
from streamsrt.operators.engine.environment import is_interrupt
from streamsrt.operators.engine.open_calls import CallOutcome
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.kinds.batches import Batch, BufferedRecord
from streamsrt.operators.kinds.call_windows import CallWindow
from streamsrt.state.columns import Headers
from topology.graph import nodes
from topology.graph.operations.batches import JoinLookup, MapAsync

_NOT_THERE = object()


class _Failed:
    """The outcome of a key whose call failed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


_Found = Mapping[Hashable, object]


class AnswerCache:
    """The newest ``max_entries`` answers, each for ``ttl_ms``."""

    def __init__(self, ttl_ms: int, max_entries: int) -> None:
        self._ttl_ms = ttl_ms
        self._max_entries = max_entries
        self._answers: OrderedDict[Hashable, tuple[int, object]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: Hashable, now_ms: int) -> Any:
        """The answer; None where there is none that counts."""
        known = self._answers.get(key)
        if known is None:
            return None
        if known[0] <= now_ms:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return known[1]

    def put(self, key: Hashable, answer: object, now_ms: int) -> None:
        """Caches an answer. The least recently used one is evicted."""
        if not self._ttl_ms:
            return
        self._answers[key] = (now_ms + self._ttl_ms, answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)


class _Lookup(ABC):
    """The lookup join of one task: what both kinds of lookups have."""

    def __init__(self, op: JoinLookup, builder: PathBuilder, made: PathNode) -> None:
        self.op = op
        self.env = builder.env
        self.name = made.name
        self.cache = AnswerCache(op.ttl_ms, op.max_entries)
        self.batch = Batch(builder.env, made, self._work)

    def process(self, key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if value is None:
            self.env.counters.dropped_null += 1
            return
        self.batch.gather(key, value, timestamp, headers, old)

    def _work(self, records: list[BufferedRecord]) -> None:
        wanted: list[tuple[BufferedRecord, Hashable]] = []
        keys: set[Hashable] = set()
        for record in records:
            try:
                key = self.op.on(record.key, record.value)
                # What can not be a key fails here.
                keys.add(key)
            except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
                self.batch.failed(record, error)
            else:
                wanted.append((record, key))
        self.look_up(wanted)

    @abstractmethod
    def look_up(self, wanted: Sequence[tuple[BufferedRecord, Hashable]]) -> None:
        """Joins each record with the answer for its key."""

    def chunks(self, keys: Sequence[Hashable]) -> list[list[Hashable]]:
        """The keys of each call."""
        return [list(keys[start : start + self.op.batch]) for start in range(0, len(keys), self.op.batch)]

    def answers(
        self, keys: Sequence[Hashable], found: _Found | _Failed, now_ms: int
    ) -> Iterator[tuple[Hashable, object]]:
        """Returns a call's answer for each of its keys, and caches it."""
        for key in keys:
            if isinstance(found, _Failed):
                yield key, found
                continue
            value = found.get(key)
            answer = _NOT_THERE if value is None else value
            self.cache.put(key, answer, now_ms)
            yield key, answer

    def join(self, record: BufferedRecord, answer: object) -> None:
        """Joins one record with its answer."""
        if isinstance(answer, _Failed):
            self.batch.failed(record, answer.error)
            return
        if answer is _NOT_THERE and not self.op.left:
            return
        try:
            joined = self.op.joiner(record.value, None if answer is _NOT_THERE else answer)
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
            self.batch.failed(record, error)
        else:
            self.batch.forward(record, joined)


class _OneByOne(_Lookup):
    """Calls the lookup when a run ends."""

    def look_up(self, wanted: Sequence[tuple[BufferedRecord, Hashable]]) -> None:
        now_ms = self.env.system_time_ms
        keys = {key: None for _, key in wanted if key is not None}
        answers = {key: answer for key in keys if (answer := self.cache.get(key, now_ms)) is not None}
        for chunk in self.chunks([key for key in keys if key not in answers]):
            answers.update(self.answers(chunk, self._call(chunk), now_ms))
        for record, key in wanted:
            self.join(record, _NOT_THERE if key is None else answers[key])

    def _call(self, keys: list[Hashable]) -> _Found | _Failed:
        try:
            found = self.op.lookup(list(keys))
        except BaseException as error:  # a user's function may raise anything
            if is_interrupt(error):
                raise
            return _Failed(error)
        return _checked(found, self.name)


class _Answer:
    """The answer for a key; None until it is known."""

    __slots__ = ("value",)

    def __init__(self, value: object = None) -> None:
        self.value = value


class _SideBySide(_Lookup):
    """Calls continue while records come; each record is forwarded when its lookup and those before it are done."""

    def __init__(self, op: JoinLookup, calls: MapAsync, builder: PathBuilder, made: PathNode) -> None:
        super().__init__(op, builder, made)
        self._waiting: deque[tuple[BufferedRecord, _Answer]] = deque()
        self._answers: dict[Hashable, _Answer] = {}
        self._keys_of: dict[int, list[Hashable]] = {}
        self._window = CallWindow(self.env, calls, made.name, self._settle, self._waiting.__len__, op.batch)

    def look_up(self, wanted: Sequence[tuple[BufferedRecord, Hashable]]) -> None:
        now_ms = self.env.system_time_ms
        unknown: list[Hashable] = []
        for record, key in wanted:
            answer = self._answers.get(key)
            if answer is None:
                answer = _Answer(_NOT_THERE if key is None else self.cache.get(key, now_ms))
                if answer.value is None:
                    self._answers[key] = answer
                    unknown.append(key)
            self._waiting.append((record, answer))
        chunks = self.chunks(unknown)
        if chunks:
            first = self._window.begin([(list(chunk),) for chunk in chunks])
            self._keys_of.update(enumerate(chunks, first))
        self._resume()

    def _settle(self, outcome: CallOutcome) -> None:
        error = outcome.error
        found = _checked(outcome.value, self.name) if error is None else _Failed(error)
        for key, answer in self.answers(self._keys_of.pop(outcome.number), found, self.env.system_time_ms):
            self._answers.pop(key).value = answer
        with self.batch.apart():
            self._resume()

    def _resume(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][1].value is not None:
            record, answer = waiting.popleft()
            self.join(record, answer.value)


def make_join_lookup(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, JoinLookup)
    found = _OneByOne(op, builder, made) if op.calls is None else _SideBySide(op, op.calls, builder, made)
    return found.process


def _checked(found: object, name: str) -> Mapping[Hashable, object]:
    if not isinstance(found, Mapping):
        raise UserError(
            f"{name}: the lookup returned {type(found).__name__}, not a mapping from the keys that it found"
        )
    return found
