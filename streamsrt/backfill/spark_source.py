"""State as a Spark data frame: the data source ``streamsrt-state``.

::

    register(spark)
    spark.read.format("streamsrt-state").options(
        application="shop.app:topology", application_id="shop", state_dir=".streamsrt/state", store="orders"
    ).load()

1. Columns and rows are those of ``streamsrt state export``: ``key``, ``value``, ``timestamp``, ``window_start``,
   ``partition``. Each partition of the store is one of the frame. What an instance wrote since its last flush is not there.
2. Options narrow what is read: ``partition``, and ``key`` as the column ``key`` shows it. Filters of a query are not pushed
   down: Spark 4.2 and 4.3 then go on using a filter for other queries of the same frame, with too few rows.
3. Partitions are found when the frame is made; load it anew to see new ones. The workers must see ``state_dir``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from streamsrt.backfill.state_reading import LocalState
from streamsrt.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "streamsrt-state"
_REQUIRED = ("application", "application_id", "state_dir", "store")
_OPTIONAL = ("partition", "key")
_ROWS = 10_000
_COLUMNS = "key {key}, value {value}, timestamp long, window_start long, partition int"
_KINDS = {"text": "string", "bytes": "binary"}


def register(spark: SparkSession) -> None:
    """Makes ``streamsrt-state`` known to a session."""
    spark.dataSource.register(StateSource)


class StateSource(DataSource):
    """A store in a state directory. Raises ConfigError for options that are missing, unknown or of no store."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        state = _Options.of(self.options).open()
        return _COLUMNS.format(key=_KINDS[state.key_kind], value=_KINDS[state.value_kind])

    def reader(self, schema: StructType) -> StateReader:
        return StateReader(_Options.of(self.options))


class PartitionOfState(InputPartition):
    """One partition of a store."""

    def __init__(self, partition: int) -> None:
        super().__init__(partition)
        self.partition = partition


class StateReader(DataSourceReader):
    """Reads a store, a partition at a time."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> list[PartitionOfState]:
        found = self._options.open().partitions()
        wanted = self._options.partition
        return [PartitionOfState(partition) for partition in found if wanted is None or partition == wanted]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        import pyarrow as pa

        if not isinstance(partition, PartitionOfState):
            # Where there are no partitions, Spark reads none of them once.
            return
        state = self._options.open()
        kinds = {"text": pa.string(), "bytes": pa.binary()}
        types = (kinds[state.key_kind], kinds[state.value_kind], pa.int64(), pa.int64(), pa.int32())
        key: Any = self._options.key
        if key is not None and state.key_kind == "bytes":
            key = key.encode()
        rows = iter(row for row in state.rows(partition.partition) if key is None or row.key == key)
        while chunk := list(islice(rows, _ROWS)):
            columns = zip(*chunk, strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pa.record_batch(arrays, names=["key", "value", "timestamp", "window_start", "partition"])


@dataclass(frozen=True, slots=True)
class _Options:
    application: str
    application_id: str
    state_dir: str
    store: str
    partition: int | None = None
    key: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Options:
        # Spark's own names of options don't tell cases apart, and it adds path where load() has an argument.
        values = {name.lower(): value for name, value in given.items()}
        missing = [name for name in _REQUIRED if name not in values]
        unknown = sorted(values.keys() - {*_REQUIRED, *_OPTIONAL})
        if missing or unknown:
            wrong = [*(f"{name} is missing" for name in missing), *(f"there is no option {name}" for name in unknown)]
            raise ConfigError(
                f"data source {NAME}: {', '.join(wrong)}; options are {', '.join((*_REQUIRED, *_OPTIONAL))}"
            )
        partition = values.pop("partition", None)
        if partition is not None and not partition.isdigit():
            raise ConfigError(f"data source {NAME}: partition is {partition!r}, which is no number")
        return cls(**values, partition=None if partition is None else int(partition))

    def open(self) -> LocalState:
        return LocalState(self.application, self.application_id, Path(self.state_dir).absolute(), self.store)
