"""Record batches to send, and what came back."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamsrt.client.fetcher import Fetcher
from streamsrt.client.values import Fetched
from streamsrt.wire.records import decode_batches, encode_batch


def batch(first: int, count: int, size: int = 1) -> bytes:
    """Values are the decimal numbers from ``first``, padded with dots to ``size``."""
    values = [str(number).encode().ljust(size, b".") for number in range(first, first + count)]
    return encode_batch([b"k"] * count, values, list(range(first, first + count)))


def numbers(fetched: Fetched) -> list[int]:
    assert fetched.error is None, fetched.error
    columns = decode_batches(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted)
    return [int(value.rstrip(b".")) for each in columns for value in each.values if value is not None]


def collect(fetcher: Fetcher, count: int, timeout_s: float = 20.0) -> dict[tuple[str, int], list[int]]:
    """Poll until ``count`` records are there; positions must join without gaps."""
    found: dict[tuple[str, int], list[int]] = {}
    positions: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + timeout_s
    while sum(map(len, found.values())) < count:
        assert time.monotonic() < deadline, {tp: len(values) for tp, values in found.items()}
        for item in fetcher.poll(0.5):
            tp = (item.topic, item.partition)
            assert positions.setdefault(tp, item.offset) == item.offset
            positions[tp] = item.next_offset
            found.setdefault(tp, []).extend(numbers(item))
    return found


def wait_for(condition: Callable[[], bool], fetcher: Fetcher, timeout_s: float = 20.0) -> None:
    """Poll a fetcher that has nothing until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        fetcher.poll(0.02)
