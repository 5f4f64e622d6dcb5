"""The file in which ``groups forget-topology`` has the offsets of a group while they are nowhere else.

Until they are committed again, it says so. Then the same command takes them from there, and not the file of one that has
ended: the group may have been deleted for other reasons since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.errors import ConfigError

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def write_backup(path: Path, group: str, offsets: Offsets, *, is_committed: bool) -> None:
    """Writes the offsets of a group. ``is_committed``: the group has them again. Raises OSError."""
    rows = [[topic, partition, at.offset, at.metadata] for (topic, partition), at in sorted(offsets.items())]
    told = {"group": group, "is_committed": is_committed, "offsets": rows}
    path.write_text(json.dumps(told) + "\n", encoding="utf-8")


def offsets_to_restore(path: Path, group: str, now: Offsets) -> Offsets | None:
    """The offsets of a group that were not committed again, of which it has none or some ``now``; None if the file has no
    such ones, or the group has all of them. Raises ConfigError where it has others."""
    left = _uncommitted(path, group)
    if left is None or _plain(left) == _plain(now):
        return None
    if _plain(now).items() <= _plain(left).items():
        return left
    raise ConfigError(
        f"{path} has offsets of group {group!r} that an earlier forget-topology has not committed again, and the group has "
        "others now, e.g. as an instance was started. To go on with those, give another file with --backup; the offsets in "
        "this one would be lost"
    )


def _plain(offsets: Offsets) -> dict[TopicPartition, int]:
    return {tp: at.offset for tp, at in offsets.items()}


def _uncommitted(path: Path, group: str) -> Offsets | None:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["group"] != group or told["is_committed"] is not False:
            return None
        return {
            (str(topic), int(partition)): OffsetAndMetadata(int(offset), str(metadata))
            for topic, partition, offset, metadata in told["offsets"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None
