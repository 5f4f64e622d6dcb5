"""What the files of a store depend on besides its name: noted beside them, and compared when they are opened again.

1. A version of the program may give a store other segments, other rows or another changelog. Files written in another
   format would return less than they contain, or would continue from an offset of another topic, so they are deleted:
   the store is restored from its changelog, and starts empty if it has none.
2. Files without a note are used as they are.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from streamsrt.state.failures import storage_error
from streamsrt.state.private_files import write_private
from streamsrt.state.windowed import MIN_SEGMENT_INTERVAL_MS
from topology.graph.nodes import StoreSpec
from topology.spec.codecs import AnySerde, FoldedKeys, OrderedKeys

StoreFormat = dict[str, str | int | bool | None]


def store_format(spec: StoreSpec) -> StoreFormat:
    """The format of the files of a store."""
    return {
        "kind": spec.kind + _of_serde(spec.key_serde),
        "timestamped": spec.timestamped,
        "plain_rows": spec.plain_rows,
        "retain_duplicates": spec.retain_duplicates,
        "segment_interval_ms": _segment_interval_ms(spec),
        "changelog": spec.changelog_name if spec.logging or spec.source_topic else None,
    }


def _of_serde(keys: AnySerde) -> str:
    ordered = ", ordered by its serde" if isinstance(keys, OrderedKeys) else ""
    is_folded = isinstance(keys, FoldedKeys) or (isinstance(keys, OrderedKeys) and keys.fold is not None)
    return f"{ordered}, with changes applied" if is_folded else ordered


def _segment_interval_ms(spec: StoreSpec) -> int | None:
    if spec.retention_ms is None:
        return None
    return spec.segment_interval_ms or max(spec.retention_ms // 2, MIN_SEGMENT_INTERVAL_MS)


def differences(noted: StoreFormat | None, wanted: StoreFormat) -> str:
    """What a note says otherwise, in words; nothing where there is no note, or it says the same."""
    return ", ".join(
        f"{name} was {value} and is {wanted[name]}"
        for name, value in (noted or {}).items()
        if name in wanted and wanted[name] != value
    )


def read_format(path: Path) -> StoreFormat | None:
    """The note at ``path``; None where there is none that can be read."""
    try:
        noted = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return noted if isinstance(noted, dict) else None


def write_format(path: Path, store: StoreFormat, name: str) -> None:
    """Notes a format. Raises StateError where it can't be written."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(fresh, json.dumps(store) + "\n")
        os.replace(fresh, path)
    except OSError as error:
        raise storage_error(str(error), f"the format of store {name!r}", "written") from error


def forget_format(path: Path) -> None:
    """Deletes a note."""
    with suppress(FileNotFoundError):
        path.unlink()
