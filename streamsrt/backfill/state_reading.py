"""The state of an application on this machine, as rows: for exports and data frames.

1. Stores are opened read-only, so an instance may run meanwhile: what is read is what it had flushed.
2. Keys and values are text where the store's serde makes text of them: a string as it is, anything else that JSON can say as
   JSON. Others stay bytes. What a column is depends on the serde alone.
3. Expired windows that are not deleted yet are left out, as in a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Literal, NamedTuple

import orjson

from streamsrt.application import load_application
from streamsrt.backfill.archive import parquet
from streamsrt.backfill.run_task import configured
from streamsrt.errors import ConfigError, DeserializationError
from streamsrt.state.rocksdb import read_rows
from streamsrt.state.windowed import split_window_key
from topology.nodes import StoreSpec
from topology.serdes import Serde

_TIME = Struct(">q")
_SEGMENT_BYTES = 8
_FILE_ROWS = 100_000

ColumnKind = Literal["text", "bytes"]


class StateRow(NamedTuple):
    """A row of a store. Times in ms; None where the store has none."""

    key: Any
    value: Any
    timestamp: int | None
    window_start: int | None
    partition: int


class LocalState:
    """A store of an application in a state directory. Raises ConfigError where there is none of that name."""

    def __init__(self, application: str, application_id: str, state_dir: Path, store: str) -> None:
        loaded = load_application(application)
        topology, _ = configured(loaded.topology, dict(loaded.config), application_id)
        specs = {spec.name: spec for each in topology.subtopologies for spec in each.stores}
        if store not in specs:
            raise ConfigError(f"{application} has no store {store!r}; it has {', '.join(sorted(specs)) or 'none'}")
        self.spec: StoreSpec = specs[store]
        self._root = state_dir / application_id / "stores" / store
        if self.spec.kind not in ("key_value", "window"):
            raise ConfigError(
                f"store {store!r} is a {self.spec.kind} store: only key-value and window stores can be read"
            )
        if not self.spec.persistent:
            raise ConfigError(f"store {store!r} is in memory only: read its changelog instead")
        if not self._root.is_dir():
            raise ConfigError(f"{self._root} is not there: nothing of store {store!r} was ever kept in {state_dir}")
        self.key_kind, self._read_key = _column(self.spec.key_serde)
        self.value_kind, self._read_value = _column(self.spec.value_serde)

    def partitions(self) -> list[int]:
        """The partitions that are here."""
        return sorted(int(path.name) for path in self._root.iterdir() if path.name.isdigit())

    def rows(self, partition: int) -> Iterator[StateRow]:
        """The rows of one partition in the order of their bytes. Raises StoreCorruptedError, DeserializationError."""
        path = self._root / str(partition)
        windowed = self.spec.kind == "window"
        oldest_ms = -1
        for key, row in read_rows(path, self.spec.name):
            start: int | None = None
            if windowed:
                if not key:
                    oldest_ms = _TIME.unpack_from(row)[0] - (self.spec.retention_ms or 0)
                    continue
                key, start = split_window_key(key[_SEGMENT_BYTES:])
                if start <= oldest_ms:
                    continue
            time: int | None = None
            if self.spec.timestamped:
                time, row = _TIME.unpack_from(row)[0], row[_TIME.size :]
            try:
                yield StateRow(self._read_key(key), self._read_value(row), time, start, partition)
            except Exception as error:
                raise DeserializationError(
                    f"a row of store {self.spec.name}, partition {partition}, key {key!r}, is not what its serde "
                    f"reads: {error}"
                ) from error


def _column(serde: Serde[Any] | None) -> tuple[ColumnKind, Callable[[bytes], Any]]:
    if serde is None or serde.name == "bytes":
        return "bytes", bytes
    if serde.name == "string":
        return "text", serde.deserialize
    read = serde.deserialize
    return "text", lambda raw: orjson.dumps(read(raw), default=str).decode()


def export_parquet(state: LocalState, folder: Path) -> int:
    """Writes a store as Parquet files, by partition; how many rows."""
    import pyarrow as pa

    pq = parquet()
    kinds = {"text": pa.string(), "bytes": pa.binary()}
    schema = pa.schema(
        [
            ("key", kinds[state.key_kind]),
            ("value", kinds[state.value_kind]),
            ("timestamp", pa.int64()),
            ("window_start", pa.int64()),
            ("partition", pa.int32()),
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    total = 0
    for partition in state.partitions():
        with pq.ParquetWriter(folder / f"partition-{partition}.parquet", schema, compression="zstd") as writer:
            rows: list[StateRow] = []
            for row in state.rows(partition):
                rows.append(row)
                if len(rows) == _FILE_ROWS:
                    writer.write_table(_table(pa, schema, rows))
                    total += len(rows)
                    rows = []
            writer.write_table(_table(pa, schema, rows))
            total += len(rows)
    return total


def _table(pa: Any, schema: Any, rows: list[StateRow]) -> Any:
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [() for _ in schema.names]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
