"""Keys as their serde writes them, whatever bytes they were read from.

A serde may read one key out of different bytes: JSON with spaces, a UUID in capital letters. Equal keys are one row, and
queries find it, so keys are known by the bytes that the serde writes, as in Kafka Streams, which serializes each key again.
"""

from __future__ import annotations

from typing import Final

from topology.spec.codecs import ProgramSerde

_REMEMBERED: Final = 50_000


class CanonicalKeys(dict[bytes | None, bytes | None]):
    """``keys[raw]``: the bytes that the serde writes for a key; None where it reads None out of them. Raises what the serde
    raises."""

    def __init__(self, serde: ProgramSerde) -> None:
        super().__init__({None: None})
        self._serde = serde

    def __missing__(self, raw: bytes) -> bytes | None:
        key = self._serde.deserialize(raw)
        written = None if key is None else self._serde.serialize(key)
        if len(self) >= _REMEMBERED:
            self.clear()
            self[None] = None
        self[raw] = written
        return written
