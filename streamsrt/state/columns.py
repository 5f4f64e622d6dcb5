"""What restoring needs to know of a run of changelog records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class ChangelogColumns(Protocol):
    """Records of a changelog as columns; ``next_offset`` is where restoring goes on. Keys are never None."""

    @property
    def keys(self) -> Sequence[Any]: ...

    @property
    def values(self) -> Sequence[bytes | None]: ...

    @property
    def timestamps(self) -> Sequence[int]: ...

    @property
    def headers(self) -> Sequence[Any] | None: ...

    @property
    def next_offset(self) -> int: ...
