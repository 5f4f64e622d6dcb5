"""Joins with what a function looks up elsewhere: many keys in a call, answers remembered for a time.

1. Records gather as at every operator over batches (:mod:`streamsrt.operators.batches`); their keys are looked up when the
   run ends, each once, and they go on in their order.
2. The wall clock is the task's. An answer counts until its time is over; that of a key that is not there too.
3. A call that fails is the failure of each record that waits for it. Nothing of it is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from streamsrt.errors import UserError
from streamsrt.operators.batches import Batch, Waiting
from streamsrt.operators.environment import Outcome
from streamsrt.operators.processor_nodes import PathBuilder, PathNode, Process, makes
from topology.graph import nodes
from topology.graph.operations.batches import JoinLookup, MapAsync

_NOT_THERE = object()
Answers = dict[Hashable, Any]
"""By key what was found, ``_NOT_THERE``, or the exception of its call."""


class _Failed:
    """The outcome of a key whose call failed."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


_Found = Mapping[Hashable, Any]
_Call = Callable[[Sequence[list[Hashable]]], list[_Found | _Failed]]
"""``lists of keys -> what each call of the lookup returned``."""


class AnswerCache:
    """The newest ``max_entries`` answers, each for ``ttl_ms``."""

    def __init__(self, ttl_ms: int, max_entries: int) -> None:
        self._ttl_ms = ttl_ms
        self._max_entries = max_entries
        self._answers: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

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

    def put(self, key: Hashable, answer: Any, now_ms: int) -> None:
        """Remembers an answer; what was not asked for longest is forgotten."""
        if not self._ttl_ms:
            return
        self._answers[key] = (now_ms + self._ttl_ms, answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)


class _Lookup:
    """The lookup join of one task."""

    def __init__(self, op: JoinLookup, builder: PathBuilder, made: PathNode) -> None:
        self._op = op
        self._env = builder.env
        self._cache = AnswerCache(op.ttl_ms, op.max_entries)
        self._call = _one_by_one(op, made.name) if op.calls is None else _side_by_side(op.calls, builder, made.name)
        self._batch = Batch(builder.env, made, self._work)

    def process(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        if value is None:
            self._env.counters.dropped_null += 1
            return
        self._batch.gather(key, value, timestamp, headers, old)

    def _work(self, records: list[Waiting]) -> None:
        wanted: list[tuple[Waiting, Hashable]] = []
        keys: dict[Hashable, None] = {}
        for record in records:
            try:
                key = self._op.on(record.key, record.value)
                keys[key] = None
            except Exception as error:  # noqa: BLE001  # a user's function may raise anything
                self._batch.failed(record, error)
            else:
                wanted.append((record, key))
        keys.pop(None, None)
        answers = self._look_up(keys)
        for record, key in wanted:
            self._join(record, _NOT_THERE if key is None else answers[key])

    def _look_up(self, keys: Mapping[Hashable, None]) -> Answers:
        now_ms, size = self._env.system_time_ms, self._op.batch
        answers = {key: answer for key in keys if (answer := self._cache.get(key, now_ms)) is not None}
        unknown = [key for key in keys if key not in answers]
        chunks = [unknown[start : start + size] for start in range(0, len(unknown), size)]
        for chunk, outcome in zip(chunks, self._call(chunks), strict=True):
            for key in chunk:
                if isinstance(outcome, _Failed):
                    answers[key] = outcome
                    continue
                found = outcome.get(key)
                answers[key] = _NOT_THERE if found is None else found
                self._cache.put(key, answers[key], now_ms)
        return answers

    def _join(self, record: Waiting, answer: Any) -> None:
        if isinstance(answer, _Failed):
            self._batch.failed(record, answer.error)
            return
        if answer is _NOT_THERE and not self._op.left:
            return
        try:
            joined = self._op.joiner(record.value, None if answer is _NOT_THERE else answer)
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything
            self._batch.failed(record, error)
        else:
            self._batch.forward(record, joined)


@makes(JoinLookup)
def _join_lookup(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    assert isinstance(node.operation, JoinLookup)
    return _Lookup(node.operation, builder, made).process


def _checked(found: Any, name: str) -> Mapping[Hashable, Any]:
    if not isinstance(found, Mapping):
        raise UserError(
            f"{name}: the lookup returned {type(found).__name__}, not a mapping from the keys that it found"
        )
    return found


def _one_by_one(op: JoinLookup, name: str) -> _Call:
    def call(chunks: Sequence[list[Hashable]]) -> list[_Found | _Failed]:
        outcomes: list[_Found | _Failed] = []
        for chunk in chunks:
            try:
                found = op.lookup(list(chunk))
            except Exception as error:  # noqa: BLE001  # a user's function may raise anything
                outcomes.append(_Failed(error))
            else:
                outcomes.append(_checked(found, name))
        return outcomes

    return call


def _side_by_side(calls: MapAsync, builder: PathBuilder, name: str) -> _Call:
    call_all = builder.env.call_all
    if call_all is None:
        raise UserError(f"{name}: an async lookup runs in a task only, and this program is not run by one")

    def call(chunks: Sequence[list[Hashable]]) -> list[_Found | _Failed]:
        if not chunks:
            return []
        told: SimpleQueue[Outcome] = SimpleQueue()
        call_all(calls, [(list(chunk),) for chunk in chunks], told.put)
        by_place = {found.place: found for found in (told.get() for _ in chunks)}
        outcomes = [by_place[place] for place in range(len(chunks))]
        return [_checked(each.value, name) if each.error is None else _Failed(each.error) for each in outcomes]

    return call
