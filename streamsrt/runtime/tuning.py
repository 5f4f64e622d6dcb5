"""Settings of the process that the data path needs: call :func:`tune_process` once, before the first record.

1. glibc returns freed heap after each batch and faults it in again for the next: allocating results that live for a
   batch becomes several times slower. The thresholds keep the memory.
2. The garbage collector scans all objects of a batch and frees none of them, because reference counting does. Higher
   thresholds, and a frozen start-up heap, take it off the hot path.
3. The network thread must get the interpreter lock quickly, even while a user function computes.
4. Stores have files open, and a task of a backfill one for each partition that it writes: the usual soft limit is 1024.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from contextlib import suppress

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8
SWITCH_INTERVAL_S = 0.001
GC_THRESHOLDS = (100_000, 20, 100)
FILES_MAX = 65_536


def tune_malloc() -> bool:
    """Keeps freed memory in the process. Returns False if the C library is not glibc."""
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return False
    return bool(
        libc.mallopt(M_TRIM_THRESHOLD, 512 << 20)
        & libc.mallopt(M_TOP_PAD, 16 << 20)
        & libc.mallopt(M_MMAP_THRESHOLD, 64 << 20)
    )


def few_heaps() -> None:
    """Lets all threads of the process share two heaps of glibc; it makes one for each of the first threads otherwise.

    For processes whose memory has to stay small for hours: what RocksDB's threads free is used again by others.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, 2)


def give_back() -> None:
    """Returns what is free on glibc's heap to the system: after imports, and now and then in processes of a few hundred
    megabytes, where pieces that live for long keep the memory between them. Takes some milliseconds."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def tune_garbage_collector() -> None:
    """Freezes the existing objects, and collects rarely."""
    gc.collect()
    give_back()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def open_more_files() -> None:
    """Raises the limit of open files, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tune_process() -> None:
    """Applies all of these settings. Call it when the application's modules are imported."""
    tune_malloc()
    open_more_files()
    tune_garbage_collector()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
