"""State as a Spark data frame: the data source ``streamsrt-state``.

::

    register(spark)
    spark.read.format("streamsrt-state").options(
        application="shop.app:topology", application_id="shop", bootstrap_servers="localhost:9092", store="orders"
    ).load()

1. Columns and rows are those of ``streamsrt state export``: ``key``, ``value``, ``timestamp``, ``window_start``,
   ``window_end``, ``valid_to``, ``partition``. Each partition of the store is one of the frame. With ``typed=true`` times
   are timestamps, and keys and values have the types of their serdes.
2. Options narrow what is read: ``partition``, and ``key``, as text. Filters of a query are not pushed down: Spark 4.2 and
   4.3 then go on using a filter for other queries of the same frame, with too few rows.
3. With ``bootstrap_servers`` the store is read from its changelog, whether or not an instance runs: all partitions at the
   positions of the moment when a query began. Each worker needs room for its partition among its temporary files.
4. With ``state_dir`` instead, the files of an instance that does not run are read, which the workers must see; those of one
   that runs are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import (
    Positions,
    StateFiles,
    StateLog,
    StoreReading,
    StoreSource,
    row_batch,
    row_schema,
)
from streamsrt.errors import ConfigError
from streamsrt.json_text import json_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "streamsrt-state"
_REQUIRED = ("application", "application_id", "store")
_FROM = ("bootstrap_servers", "state_dir")
_OPTIONAL = ("partition", "key", "typed")
_ROWS = 10_000


def register(spark: SparkSession) -> None:
    """Makes ``streamsrt-state`` known to a session."""
    spark.dataSource.register(StateSource)


class StateSource(DataSource):
    """A store of an application. Raises ConfigError for options that are missing, unknown or of no store."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(row_schema(_Options.of(self.options).reading()))

    def reader(self, schema: StructType) -> StateReader:
        return StateReader(_Options.of(self.options))


class PartitionOfState(InputPartition):
    """One partition of a store, up to these positions of its changelog; None: as its files are."""

    def __init__(self, partition: int, positions: Positions | None) -> None:
        super().__init__(partition)
        self.partition = partition
        self.positions = positions


class StateReader(DataSourceReader):
    """Reads a store, a partition at a time."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> list[PartitionOfState]:
        wanted = self._options.partition
        with self._options.source(None) as source:
            positions = source.positions if isinstance(source, StateLog) else None
            found = [each for each in source.partitions() if wanted is None or each == wanted]
        return [PartitionOfState(each, positions) for each in found]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, PartitionOfState):
            # Where there are no partitions, Spark reads none of them once.
            return
        with (
            self._options.source(partition.positions) as source,
            source.snapshot(partition.partition) as snapshot,
        ):
            schema, wanted = row_schema(source.store), self._options.key
            rows = iter(row for row in snapshot.rows if wanted is None or _as_text(row.key) == wanted)
            while chunk := list(islice(rows, _ROWS)):
                yield row_batch(schema, chunk)


def _as_text(key: object) -> str:
    """A key as it is given in an option."""
    if isinstance(key, bytes):
        return key.decode(errors="replace")
    return key if isinstance(key, str) else json_text(key)


@dataclass(frozen=True, slots=True)
class _Options:
    application: str
    application_id: str
    store: str
    bootstrap_servers: str | None = None
    state_dir: str | None = None
    partition: int | None = None
    key: str | None = None
    typed: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Options:
        # Spark's own names of options don't tell cases apart, and it adds path where load() has an argument.
        values = {name.lower(): value for name, value in given.items()}
        missing = [name for name in _REQUIRED if name not in values]
        unknown = sorted(values.keys() - {*_REQUIRED, *_FROM, *_OPTIONAL})
        if missing or unknown:
            wrong = [*(f"{name} is missing" for name in missing), *(f"there is no option {name}" for name in unknown)]
            raise ConfigError(
                f"data source {NAME}: {', '.join(wrong)}; options are {', '.join((*_REQUIRED, *_FROM, *_OPTIONAL))}"
            )
        if len(values.keys() & set(_FROM)) != 1:
            raise ConfigError(
                f"data source {NAME}: give either bootstrap_servers (the changelog is read) or state_dir (the files of an "
                "instance that does not run)"
            )
        partition = values.pop("partition", None)
        if partition is not None and not partition.isdecimal():
            raise ConfigError(f"data source {NAME}: partition is {partition!r}, which is not a number")
        typed = values.pop("typed", "false").lower()
        if typed not in ("true", "false"):
            raise ConfigError(f"data source {NAME}: typed is {typed!r}: give true or false")
        return cls(**values, partition=None if partition is None else int(partition), typed=typed == "true")

    def reading(self) -> StoreReading:
        return StoreReading(self.application, self.application_id, self.store, typed=self.typed)

    @contextmanager
    def source(self, positions: Positions | None) -> Iterator[StoreSource]:
        if self.state_dir is not None:
            yield StateFiles(self.reading(), Path(self.state_dir).absolute())
            return
        assert self.bootstrap_servers is not None
        with connected(self.bootstrap_servers) as network:
            yield StateLog(self.reading(), network, positions)
