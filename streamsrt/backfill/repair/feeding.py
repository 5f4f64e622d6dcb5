"""Whether the stores that a repaired one is computed from are in the cluster as the replay has made them.

1. Changelogs are compared by the last value of each key. Timestamps are left out: what is held back is logged with the
   time of the clock.
2. Of stores with retention only keys that both have are compared: which expired rows are gone depends on when that was. Of
   what is held back only the keys are.
3. What is in the cluster goes into a store on disk that is deleted afterwards, one partition at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.manifest import LogResult, TaskManifest
from streamsrt.backfill.plan import Compared
from streamsrt.backfill.sources import read_batches
from streamsrt.backfill.task_state import ChangelogRows, TaskStores
from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST
from streamsrt.wire.records import RecordColumns
from streamsrt.wording import counted

_LISTED = 3


def check_feeding(
    network: Network,
    directory: Path,
    manifests: Sequence[TaskManifest],
    feeding: Mapping[str, Compared],
    repaired: str,
) -> None:
    """Raises HandOverError if a store of ``feeding`` is something else in the cluster than what the tasks made of it."""
    for manifest in manifests:
        for store in manifest.stores:
            if store.name not in feeding or store.changelog is None:
                continue
            differing = list(_differing(network, directory, store.changelog, feeding[store.name]))
            if differing:
                raise _unfit(repaired, store.name, store.changelog, differing)


def _unfit(repaired: str, feeding: str, log: LogResult, keys: Sequence[bytes]) -> HandOverError:
    listed = ", ".join(f"0x{key.hex()}" for key in keys[:_LISTED]) + (", ..." if len(keys) > _LISTED else "")
    return HandOverError(
        f"store {repaired!r} is computed from store {feeding!r}, and the cluster has something else in "
        f"{counted(len(keys), 'row')} of {log.topic}-{log.partition} than the history makes (keys {listed}): {repaired!r} "
        f"would not fit to it. Repair {feeding!r} first (streamsrt backfill plan --store {feeding}), or replace the whole "
        "state with a backfill without --store, under another --application-id"
    )


def _differing(network: Network, directory: Path, log: LogResult, compared: Compared) -> Iterator[bytes]:
    """The keys whose last values differ, in their order."""
    tp = (log.topic, log.partition)
    if not network.admin.topics([log.topic]):
        end = 0
    else:
        end = network.admin.list_offsets({tp: LATEST}, read_committed=True)[tp].offset
    with (
        tempfile.TemporaryDirectory(prefix="streamsrt-repair-") as folder,
        closing(TaskStores(Path(folder) / "state")) as stores,
    ):
        there, made = ChangelogRows(stores.open("there")), ChangelogRows(stores.open("made"))
        _fill(there, read_log(network, tp, 0, end) if end else iter(()))
        _fill(made, read_batches(directory / log.file.path))
        yield from unlike(_values(there), _values(made), compared)


def _fill(rows: ChangelogRows, batches: Iterator[RecordColumns]) -> None:
    for columns in batches:
        rows.add(columns.keys, columns.values, columns.timestamps)


def _values(rows: ChangelogRows) -> Iterator[tuple[bytes, bytes | None]]:
    for key, (value, _, _) in rows.entries():
        yield key, value


def unlike(
    there: Iterator[tuple[bytes, bytes | None]], made: Iterator[tuple[bytes, bytes | None]], compared: Compared
) -> Iterator[bytes]:
    """The keys that differ, of two sides in the order of their keys."""
    left, right = next(there, None), next(made, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            only, left = left[0], next(there, None)
        elif left is None or right[0] < left[0]:
            only, right = right[0], next(made, None)
        else:
            if compared != "keys" and left[1] != right[1]:
                yield left[0]
            left, right = next(there, None), next(made, None)
            continue
        if compared != "common rows":
            yield only
