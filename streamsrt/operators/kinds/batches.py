"""``map_batches`` and ``map_async``: operators that gather records and process many of them at once.

1. Records are gathered while a run is processed, and processed when it ends: at the end of a source's run, of a flush,
   of a punctuation. Only asynchronous calls continue beyond that, and a commit waits for them: it never covers a record
   that waits.
2. An exception of a function is the failure of its record, with that record's topic, partition and offset, and its
   contents as they were read. If the handler skips the record, the others continue. If it does not, other branches of
   the graph have already seen later records: the error says so (``is_in_order``), and nothing of the run is committed.
3. Asynchronous functions are called by the runner of the task (:mod:`streamsrt.operators.kinds.call_windows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from typing import Any, NamedTuple, SupportsInt

from streamsrt.errors import StreamsError, UserError
from streamsrt.operators.engine.environment import (
    Environment,
    SkippedAtSinkError,
    SourceRecord,
    is_interrupt,
)
from streamsrt.operators.engine.open_calls import CallOutcome
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.kinds.call_windows import CallWindow
from streamsrt.operators.kinds.left_calls import LeftCalls, may_be_left
from streamsrt.state.columns import Headers
from topology.graph import nodes
from topology.graph.operations.batches import MapAsync, MapBatches
from topology.spec.processor import RecordMetadata
from topology.spec.windows import END_OF_TIME_MS

_COLUMNS = ("key", "value", "timestamp")


class BufferedRecord(NamedTuple):
    """A record that waits at a node, with the position and the bytes of the record that was read."""

    key: object
    value: Any  # a mapping where its fields are columns
    timestamp: int
    headers: Headers
    metadata: RecordMetadata | None
    source: SourceRecord | Callable[[], SourceRecord] | None


class Batch:
    """The records gathered at one node. ``work`` takes them in order and forwards their results."""

    def __init__(self, env: Environment, made: PathNode, work: Callable[[list[BufferedRecord]], None]) -> None:
        self._env = env
        self._made = made
        self._work = work
        self._waiting: list[BufferedRecord] = []

    def gather(self, key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        """Adds a record, which waits until the run of records ends."""
        if not self._waiting:
            self._env.batches.append(self.drain)
        env = self._env
        metadata = None if env.came_unknown else env.metadata
        self._waiting.append(BufferedRecord(key, value, timestamp, headers, metadata, env.source))

    def drain(self) -> None:
        """Processes the gathered records."""
        waiting, self._waiting = self._waiting, []
        with self.apart():
            self._work(waiting)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The context for processing waiting records: they are not in reading order."""
        env = self._env
        before = env.place
        try:
            yield
        except StreamsError as failure:
            failure.is_in_order = False
            raise
        finally:
            env.place = before

    def be_at(self, record: BufferedRecord) -> None:
        """Sets the record that the next results belong to."""
        self._env.place = None, record.metadata, record.source

    def failed(self, record: BufferedRecord, error: BaseException) -> None:
        """Handles an exception of a record's function: continues if the handler decides so."""
        self.be_at(record)
        self._env.failed(self._made.name, error, record.key, record.value, record.timestamp, record.headers)

    def forward(self, record: BufferedRecord, value: object) -> None:
        self.be_at(record)
        with suppress(SkippedAtSinkError):
            self._made.forward(record.key, value, record.timestamp, record.headers)


# -------------------------------------------------------------------------------------------------------------- frames


def make_map_batches(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, MapBatches)
    to_frame, to_rows = _frames(op, node.name)

    def work(records: list[BufferedRecord]) -> None:
        try:
            found = to_rows(op.fn(to_frame(records)))
            rows = [(key, value, _whole_ms(timestamp)) for key, value, timestamp in found]
        except UserError:
            raise
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
            if len(records) == 1 or is_interrupt(error):
                batch.failed(records[0], error)
                return
            half = len(records) // 2
            work(records[:half])
            work(records[half:])
            return
        for (key, value, timestamp), record in zip(rows, origins(rows, records), strict=False):
            batch.be_at(record)
            with suppress(SkippedAtSinkError):
                made.forward(key, value, timestamp, ())

    batch = Batch(builder.env, made, work)
    return batch.gather


Row = tuple[object, object, Any]  # key, value, and a timestamp that int() takes
Rows = Iterable[Row]


def origins(rows: Sequence[Row], records: Sequence[BufferedRecord]) -> Iterable[BufferedRecord]:
    """Yields the source record of each row, as far as it can be determined: rows don't name it.

    Where there are as many rows as records, that of the same place; else the next one of the row's key and timestamp. From
    the first row on that has none, the last record.
    """
    if len(rows) == len(records):
        return records
    return chain(_found_in_order(rows, records), repeat(records[-1]))


def _found_in_order(rows: Sequence[Row], records: Sequence[BufferedRecord]) -> Iterator[BufferedRecord]:
    rest = iter(records)
    record = next(rest)
    for key, _, timestamp in rows:
        # Several rows may be of one record.
        while record.timestamp != timestamp or record.key != key:
            following = next(rest, None)
            if following is None:
                return
            record = following
        yield record


def _frames(op: MapBatches, name: str) -> tuple[Callable[[Sequence[BufferedRecord]], object], Callable[[object], Rows]]:
    """``records -> frame`` and ``frame -> rows``. Raises UserError where the library is not there."""
    try:
        import pyarrow as pa

        if op.frame == "pandas":
            import pandas as pd
    except ImportError as error:
        raise UserError(
            f"{name}: map_batches(frame={op.frame!r}) needs {error.name}, which is not installed: pip install {error.name}"
        ) from None

    def to_arrow(records: Sequence[BufferedRecord]) -> object:
        return pa.table(_columns(records, unpack=op.unpack))

    def from_arrow(table: object) -> Rows:
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise UserError(f"{name}: the function returned {type(table).__name__}, not a pyarrow.Table")
        return _rows(
            {column: table.column(column).to_pylist() for column in table.schema.names}, name, unpack=op.unpack
        )

    def to_pandas(records: Sequence[BufferedRecord]) -> object:
        return pd.DataFrame(_columns(records, unpack=op.unpack))

    def from_pandas(frame: object) -> Rows:
        if not isinstance(frame, pd.DataFrame):
            raise UserError(f"{name}: the function returned {type(frame).__name__}, not a pandas.DataFrame")
        return _rows({str(column): frame[column].tolist() for column in frame.columns}, name, unpack=op.unpack)

    return (to_arrow, from_arrow) if op.frame == "arrow" else (to_pandas, from_pandas)


def _whole_ms(timestamp: SupportsInt) -> int:
    ms = int(timestamp)
    if not 0 <= ms <= END_OF_TIME_MS:
        raise ValueError(f"the function returned a row with the timestamp {timestamp!r}: give milliseconds since 1970")
    return ms


def _columns(records: Sequence[BufferedRecord], *, unpack: bool) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {
        "key": [each.key for each in records],
        "timestamp": [each.timestamp for each in records],
    }
    if not unpack:
        return {**columns, "value": [each.value for each in records]}
    names = dict.fromkeys(name for each in records for name in each.value)
    taken = sorted(columns.keys() & names)
    if taken:
        raise UserError(
            f"map_batches(unpack=True): values have a field {taken[0]!r}, which is a column already: rename it"
        )
    return {**columns, **{name: [each.value.get(name) for each in records] for name in names}}


def _rows(columns: dict[str, list[object]], name: str, *, unpack: bool) -> Rows:
    wanted = ("key", "timestamp") if unpack else _COLUMNS
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise UserError(
            f"{name}: the function returned columns {', '.join(columns)}; {' and '.join(missing)} must be there too"
        )
    keys, timestamps = columns["key"], columns["timestamp"]
    if not unpack:
        return zip(keys, columns["value"], timestamps, strict=True)
    fields = {column: values for column, values in columns.items() if column not in wanted}
    values = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)] or [{} for _ in keys]
    return zip(keys, values, timestamps, strict=True)


# -------------------------------------------------------------------------------------------------------- asynchronous


def make_map_async(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, MapAsync)
    waiting: dict[int, BufferedRecord] = {}
    ready: dict[int, CallOutcome] = {}
    following = 0

    def work(records: list[BufferedRecord]) -> None:
        first = window.begin([arguments(each) for each in records])
        waiting.update(enumerate(records, first))

    def arguments(record: BufferedRecord) -> tuple[object, ...]:
        return (record.key, record.value) if op.with_key else (record.value,)

    def settle(found: CallOutcome) -> None:
        nonlocal following
        with batch.apart():
            if not op.ordered:
                finish(found)
                return
            ready[found.number] = found
            while following in ready:
                finish(ready.pop(following))
                following += 1

    def finish(found: CallOutcome) -> None:
        record = waiting.pop(found.number)
        if left is not None and record.metadata is not None:
            left.done(record.metadata)
        if found.error is not None:
            batch.failed(record, found.error)
        else:
            batch.forward(record, found.value)

    batch = Batch(builder.env, made, work)
    window = CallWindow(builder.env, op, node.name, settle, waiting.__len__)
    left = LeftCalls(builder.env) if may_be_left(builder.plan.subtopology, node) else None
    if left is not None:
        window.arguments = lambda number: arguments(waiting[number])
        window.leave = lambda numbers: left.leave([waiting[number].metadata for number in numbers])
        builder.env.leave_queued_calls = window.withdraw
    return batch.gather
