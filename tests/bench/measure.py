"""Comparing measurements on a machine that others use too.

Only ratios of one run mean anything: the variants take turns, round by round, in one process; the clock counts this
process's CPU time; the median of the rounds is the figure.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


def tune_malloc() -> None:
    """Keep freed memory in the process: glibc else returns it after each batch and faults it in again for the next."""
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return  # not glibc: nothing to tune
    libc.mallopt(M_TRIM_THRESHOLD, 512 << 20)
    libc.mallopt(M_TOP_PAD, 16 << 20)
    libc.mallopt(M_MMAP_THRESHOLD, 64 << 20)


def compare(
    variants: Mapping[str, Callable[[], object]],
    rounds: int = 5,
    *,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Median seconds of one call of each variant, after one call each to warm up."""
    for variant in variants.values():
        variant()
    gc.collect()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            start = clock()
            variant()
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def print_table(
    title: str, seconds: Mapping[str, float], units: int, *, unit: str = "record", relative_to: str | None = None
) -> None:
    """One line per variant: ns per unit, millions of units a second, and the multiple of `relative_to`'s time."""
    width = max(len(name) for name in seconds)
    print(f"\n{title}")
    print(f"{'':{width}}  {'ns/' + unit:>12}  {'M ' + unit + '/s':>12}" + ("  x time" if relative_to else ""))
    for name, value in seconds.items():
        multiple = f"  {value / seconds[relative_to]:6.2f}" if relative_to else ""
        print(f"{name:{width}}  {value / units * 1e9:12.1f}  {units / value / 1e6:12.3f}{multiple}")
