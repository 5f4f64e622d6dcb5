"""Operations on many records at once: functions of a whole batch, and concurrent asynchronous functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.graph.operations.basic import Function

Frame = Literal["arrow", "pandas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBatches:
    """``fn(frame) -> frame`` over the records that are there; columns ``key``, ``value`` and ``timestamp``.

    ``unpack``: values are mappings, and their fields are columns in place of ``value``.
    """

    fn: Function
    frame: Frame
    unpack: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAsync:
    """``await fn(value)``, or ``await fn(key, value)`` where ``with_key``; ``concurrency`` of them at a time.

    ``ordered``: results in the order of the records. ``timeout_ms``: of one call. ``retries``: how often a call that
    failed is made again, after ``backoff_ms``, which doubles each time.
    """

    fn: Function
    concurrency: int
    ordered: bool = True
    timeout_ms: int | None = None
    retries: int = 0
    backoff_ms: int = 100
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLookup:
    """``joiner(value, found)``, where ``lookup([on(key, value), ...])`` is a mapping from such keys to what is found.

    ``calls``: how an async lookup is called; None: it is not async. ``left``: what is not found is joined as None, else
    dropped. ``ttl_ms``: how long an answer is remembered. ``batch``: keys in a call.
    """

    lookup: Function
    calls: MapAsync | None
    joiner: Function
    on: Function
    left: bool
    ttl_ms: int
    max_entries: int
    batch: int
