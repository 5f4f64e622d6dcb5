"""RocksDB's integer properties, and its statistics, which are text with one line each.

::

    rocksdb.bytes.written COUNT : 117890
    rocksdb.db.flush.micros P50 : 1707.0 P95 : 1707.0 P99 : 1707.0 P100 : 1707.0 COUNT : 1 SUM : 1707
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PROPERTIES: Final = (
    "num-immutable-mem-table",
    "cur-size-active-mem-table",
    "cur-size-all-mem-tables",
    "size-all-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "mem-table-flush-pending",
    "num-running-flushes",
    "compaction-pending",
    "num-running-compactions",
    "estimate-pending-compaction-bytes",
    "total-sst-files-size",
    "live-sst-files-size",
    "num-live-versions",
    "block-cache-capacity",
    "block-cache-usage",
    "block-cache-pinned-usage",
    "estimate-table-readers-mem",
    "background-errors",
)
"""Those that Kafka Streams has as metrics, under the same names (``estimate-num-keys`` is every store's)."""

TOTALS: Final[Mapping[str, str]] = {
    "bytes-written": "rocksdb.bytes.written",
    "bytes-read": "rocksdb.bytes.read",
    "memtable-bytes-flushed": "rocksdb.flush.write.bytes",
    "bytes-read-compaction": "rocksdb.compact.read.bytes",
    "bytes-written-compaction": "rocksdb.compact.write.bytes",
}
RATIOS: Final[Mapping[str, str]] = {
    "memtable-hit-ratio": "rocksdb.memtable",
    "block-cache-data-hit-ratio": "rocksdb.block.cache.data",
    "block-cache-index-hit-ratio": "rocksdb.block.cache.index",
    "block-cache-filter-hit-ratio": "rocksdb.block.cache.filter",
}
"""Hits and misses have these names before ``.hit`` and ``.miss``."""
TIMES: Final[Mapping[str, str]] = {
    "memtable-flush-time": "rocksdb.db.flush.micros",
    "compaction-time": "rocksdb.compaction.times.micros",
    "write-stall-duration": "rocksdb.db.write.stall",
}
FILE_OPENS: Final = "rocksdb.no.file.opens"
FILE_ERRORS: Final = "rocksdb.no.file.errors"


@dataclass(frozen=True, slots=True)
class Statistic:
    """``total``: the sum of a histogram, or the count of a counter. ``longest``: of a histogram."""

    count: int
    total: int
    longest: float


def parse(text: str) -> dict[str, Statistic]:
    """By name; lines that are none of it are left out."""
    found = {}
    for line in text.splitlines():
        name, *words = line.split()
        values = dict(zip(words[::3], words[2::3], strict=False))
        if "COUNT" in values:
            count = int(values["COUNT"])
            found[name] = Statistic(count, int(values.get("SUM", count)), float(values.get("P100", 0.0)))
    return found


def ratio(statistics: Mapping[str, Statistic], name: str) -> float:
    """Hits of all look-ups since the store was opened; NaN where there were none."""
    hits, misses = (statistics[f"{name}.{what}"].count for what in ("hit", "miss"))
    return hits / (hits + misses) if hits + misses else float("nan")
