"""What restoring needs to know of a run of changelog records, and the headers of a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from streamsrt.wire.records.columns import Placed, Tables

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Those of one record, in order."""


class ChangelogColumns(Protocol):
    """Records of a changelog as columns; ``next_offset`` is where restoring continues. Keys are never None."""

    @property
    def keys(self) -> Sequence[Any]: ...  # bytes: those of other topics may be None, and have the same columns

    @property
    def values(self) -> Sequence[bytes | None]: ...

    @property
    def timestamps(self) -> Sequence[int]: ...

    @property
    def headers(self) -> Sequence[Headers] | None: ...

    @property
    def tables(self) -> Tables | None: ...

    @property
    def placed(self) -> Placed | None: ...

    @property
    def next_offset(self) -> int: ...
