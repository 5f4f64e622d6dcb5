"""Custom metrics of user processors (:class:`topology.spec.processor_metrics.ProcessorMetrics`), for one task.

1. They are changed by the processing thread, and read by it between two batches.
2. A meter is identified by its node, group, name and tags: a second request returns the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from streamsrt.errors import UserError
from streamsrt.sensors import Spread

Meter = TypeVar("Meter", bound="UserCounter | UserLatency")

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TAGS_OF_THE_RUNTIME = frozenset({"client-id", "thread-id", "task-id", "processor-node-id"})


class UserCounter:
    """A total."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: float = 0

    def add(self, count: float = 1) -> None:
        self.total += count


class UserRate(UserCounter):
    """A total and its rate."""

    __slots__ = ()


class UserLatency:
    """Measured values. ``now_ms``: the clock by which old values expire."""

    __slots__ = ("_now_ms", "spread")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.spread = Spread()

    @property
    def count(self) -> int:
        return self.spread.count

    @property
    def total(self) -> float:
        return self.spread.total

    def record(self, value: float) -> None:
        self.spread.one(self._now_ms(), value)


class MetricKey(NamedTuple):
    """The key of a meter."""

    node: str
    group: str
    name: str
    tags: tuple[tuple[str, str], ...]


class UserMetrics:
    """The metrics of the processors of one task."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.meters: dict[MetricKey, UserCounter | UserLatency] = {}
        self.descriptions: dict[MetricKey, str] = {}

    def of_node(self, node: str) -> NodeMetrics:
        """For the processor of a node."""
        return NodeMetrics(self, node)


class NodeMetrics:
    """The factory for the metrics of a node's processor."""

    __slots__ = ("_metrics", "_node")

    def __init__(self, metrics: UserMetrics, node: str) -> None:
        self._metrics = metrics
        self._node = node

    def counter(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> UserCounter:
        return self._meter(UserCounter, UserCounter, name, group, description, tags)

    def rate(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> UserCounter:
        return self._meter(UserRate, UserRate, name, group, description, tags)

    def latency(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> UserLatency:
        return self._meter(UserLatency, lambda: UserLatency(self._metrics.now_ms), name, group, description, tags)

    def _meter(
        self,
        kind: type[Meter],
        make: Callable[[], Meter],
        name: str,
        group: str,
        description: str,
        tags: Mapping[str, Any],
    ) -> Meter:
        key = MetricKey(self._node, group, name, tuple(sorted((tag, str(value)) for tag, value in tags.items())))
        known = self._metrics.meters.get(key)
        if known is None:
            _check(self._node, group, name, tags)
            self._metrics.descriptions[key] = description
            known = self._metrics.meters[key] = make()
        if type(known) is not kind:
            raise UserError(f"{self._node}: metric {name!r} of {group!r} already exists with another kind")
        return known


def _check(node: str, group: str, name: str, tags: Mapping[str, Any]) -> None:
    for word, what in ((group, "group"), (name, "metric"), *((tag, "tag") for tag in tags)):
        if not _WORD.fullmatch(word):
            raise UserError(
                f"{node}: {word!r} can't be the name of a {what}: use a letter, then letters, digits, - and _"
            )
    if group.startswith("stream-"):
        raise UserError(
            f"{node}: groups such as {group!r} are reserved for metrics of the runtime: give the group a name that "
            "does not begin with 'stream-'"
        )
    taken = sorted(tag for tag in tags if tag.replace("_", "-") in _TAGS_OF_THE_RUNTIME)
    if taken:
        raise UserError(f"{node}: {', '.join(taken)} are tags that the runtime sets: give yours other names")
