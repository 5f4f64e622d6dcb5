"""The small state of one partition's log that the segments do not hold: recovery point, log start, leader epochs.

It is one file per partition, replaced as a whole, with a checksum. Losing it is safe: recovery then reads the whole
log, the log starts at its first segment, and compaction starts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from coordinator.log.files import replace_file
from streamsrt.checksum import crc32c

CHECKPOINT_FILE = "checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``recovery_point``: everything below is on disk. ``epochs``: (leader epoch, its first offset), ascending.

    ``cleaned_offset``: everything below went through compaction.
    """

    recovery_point: int
    log_start_offset: int
    epochs: tuple[tuple[int, int], ...]
    cleaned_offset: int = 0

    def save(self, directory: Path, *, durable: bool) -> None:
        """Replaces the file. ``durable`` syncs it, so it is not for the thread that serves requests."""
        body = orjson.dumps(
            {
                "recovery_point": self.recovery_point,
                "log_start_offset": self.log_start_offset,
                "epochs": self.epochs,
                "cleaned_offset": self.cleaned_offset,
            }
        )
        replace_file(directory / CHECKPOINT_FILE, b"%08x %s\n" % (crc32c(body), body), durable=durable)

    @classmethod
    def load(cls, directory: Path) -> Checkpoint | None:
        """The checkpoint of a partition directory, ``None`` if it is missing or damaged."""
        try:
            raw = (directory / CHECKPOINT_FILE).read_bytes()
        except FileNotFoundError:
            return None
        checksum, _, body = raw.rstrip(b"\n").partition(b" ")
        if checksum != b"%08x" % crc32c(body) or not body:
            return None
        document = orjson.loads(body)
        epochs = tuple((epoch, start) for epoch, start in document["epochs"])
        return cls(document["recovery_point"], document["log_start_offset"], epochs, document.get("cleaned_offset", 0))
