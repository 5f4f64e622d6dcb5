"""How a table's changes are suppressed: for how long, and what happens when the buffer is full.

Source: org.apache.kafka.streams.kstream.Suppressed and Suppressed.BufferConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from topology.spec.errors import TopologyError, call_site
from topology.spec.names import check_name
from topology.spec.row_versions import Upcast, check_upcasts
from topology.spec.windows import Duration, to_idle_timeout_ms, to_ms

WhenFull = Literal["emit_early", "shut_down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """The buffer of suppressed changes, in memory and in a changelog.

    ``max_records``, ``max_bytes``: None: unbounded. ``when_full``: ``emit_early`` forwards the oldest changes before
    their time, ``shut_down`` stops the application. ``logging`` False: suppressed changes are lost with the process.
    ``changelog_config``: topic settings of the changelog. ``renamed_from``: the former name of the buffer's store, whose
    state it takes over. ``version``, ``upcast``: of the values in the buffer, as for a :class:`topology.Store`. Raises
    TopologyError for limits below 1.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    when_full: WhenFull = "emit_early"
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    renamed_from: str | None = None
    version: int = 1
    upcast: Mapping[int, Callable[..., object] | Upcast] | None = None

    def __post_init__(self) -> None:
        if self.renamed_from is not None:
            check_name(self.renamed_from, "store")
        check_upcasts(self.version, self.upcast)
        for name, limit in (("max_records", self.max_records), ("max_bytes", self.max_bytes)):
            if limit is not None and limit < 1:
                raise TopologyError(f"{name} of a buffer is at least 1, not {limit}", call_site())
        if self.when_full not in ("emit_early", "shut_down"):
            raise TopologyError(f"when_full is 'emit_early' or 'shut_down', not {self.when_full!r}", call_site())

    @property
    def is_bounded(self) -> bool:
        return self.max_records is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The argument of :meth:`topology.KTable.suppress`, made by one of the two functions here.

    ``wait_ms`` None: until the window is closed. ``idle_timeout_ms``: see those functions.
    """

    wait_ms: int | None
    buffer: Buffer
    idle_timeout_ms: int | None = None

    @classmethod
    def until_time_limit(
        cls, limit: Duration, buffer: Buffer | None = None, *, idle_timeout: Duration | None = None
    ) -> Suppressed:
        """Holds the changes of a row for ``limit`` of stream time after the first one and forwards only the last one.

        ``buffer`` None: unbounded. ``idle_timeout``: if the table's input partitions have had no records for that
        long, by the wall clock, all suppressed changes are forwarded.
        """
        limit_ms = to_ms(limit, "the time limit")
        if limit_ms < 0:
            raise TopologyError(f"a time limit must be 0 ms or greater, not {limit_ms}", call_site())
        return cls(limit_ms, buffer or Buffer(), to_idle_timeout_ms(idle_timeout))

    @classmethod
    def until_window_closes(cls, buffer: Buffer | None = None, *, idle_timeout: Duration | None = None) -> Suppressed:
        """Forwards only the final result of each window. For windowed tables; deletions are not forwarded.

        ``idle_timeout``: if the table's input partitions have had no records for that long, by the wall clock, all
        suppressed windows are closed and forwarded; later changes of them are dropped as late
        (:meth:`topology.KTable.late`).

        Raises TopologyError for a bounded buffer that emits early: results would not be final.
        """
        buffer = buffer or Buffer(when_full="shut_down")
        if buffer.is_bounded and buffer.when_full != "shut_down":
            raise TopologyError(
                "until_window_closes() forwards final results only: its buffer must be unbounded, or have "
                "when_full='shut_down'",
                call_site(),
            )
        return cls(None, buffer, to_idle_timeout_ms(idle_timeout))
