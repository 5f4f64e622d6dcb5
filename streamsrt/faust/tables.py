"""Faust tables, backed by the stores of the current task.

1. A Faust table keeps its rows in its attribute ``data``. While agents run, this is a :class:`TableRows`, which uses
   the store of the current task. The store logs changes in Faust's format, so either side can restore the other's
   changelogs.
2. A task sees the rows of its own partition. Windows and time are faust's own code; what has expired is deleted from the
   changelog, too, and rows expire after a restart as before (``expiry``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING

from faust.exceptions import KeyDecodeError
from mode.utils.times import want_seconds

from streamsrt.assignment.internal_topics import CHANGELOG_SUFFIX
from streamsrt.faust.decoding import plain_key, plain_value
from streamsrt.faust.expiry import RowExpiry, order_of
from streamsrt.faust.guarded import guard, unguard
from streamsrt.faust.json_form import refusing_other_keys
from streamsrt.faust.rows import ReadableRows, Rows
from streamsrt.faust.sets import SetRows, TakenSets, store_of_sets
from streamsrt.faust.unreadable import RowReader, UnreadableRowError, reading
from streamsrt.faust.unwritable import none_as_bytes, writing_keys
from topology.spec.codecs import CallableSerde, FoldedKeys, OrderedKeys
from topology.spec.stores import Store, ValueAndTimestamp

if TYPE_CHECKING:
    import faust

_MEMO_MAX = 100_000
_DELETED_MIN = 1_000
TableHooks = tuple[Callable[..., object], Callable[..., object], Callable[..., object]]


def store_of(table: faust.Table, taken: TakenSets | None = None) -> Store:
    """The store of a table, with faust's bytes. ``taken`` hears of sets that are made of Faust's changes; without it,
    restored keys are not checked."""
    if is_of_sets(table):
        return store_of_sets(table, _renamed_from(table), taken or TakenSets())
    topic = table.changelog_topic
    name = f"{table.name} of faust"
    key = _keys(table, f"keys of {name}", is_checked=taken is not None)
    read_value = reading(table, plain_value(table.app, schema_of(table)))
    value: CallableSerde[object] = CallableSerde(f"values of {name}", _value_writer(table), read_value)
    return Store(
        table.name,
        key=key,
        value=value,
        caching=True,
        renamed_from=_renamed_from(table),
        changelog_config={
            key: str(value)
            for key, value in {**table.extra_topic_configs, **_retained(table), **(topic.config or {})}.items()
        },
    )


def _retained(table: faust.Table) -> dict[str, object]:
    """What a changelog that the program gives says about how long it keeps records. Compacted ones keep them for ever.

    Those of windows are compacted only: a broker deletes by the times of records, here those of events, which may be as old
    as they like. Windows that have expired are deleted one by one.
    """
    topic = table.changelog_topic
    if not topic.deleting or table.window is not None:
        return {}
    policy = {"cleanup.policy": "compact,delete" if topic.compacting else "delete"}
    return {**policy, "retention.ms": round(want_seconds(topic.retention) * 1000)} if topic.retention else {**policy}


def _keys(table: faust.Table, name: str, *, is_checked: bool) -> CallableSerde[object]:
    write, read = _key_writer(table), _key_reader(table)
    is_json = is_checked and table.key_serializer == "json"
    check = refusing_other_keys(table.name, changelog_of(table), read, write) if is_json else None
    if table._should_expire_keys():
        return OrderedKeys(name, write, read, order_of(table, read), check)
    return CallableSerde(name, write, read) if check is None else FoldedKeys(name, write, read, check)


def is_of_sets(table: faust.Table) -> bool:
    """Whether its rows are sets."""
    from faust.tables.sets import SetTable

    return isinstance(table, SetTable)


def is_global(table: faust.Table) -> bool:
    """Whether every process has all of its rows."""
    from faust.types.tables import GlobalTableT

    # Faust does not mark those of sets.
    return bool(table.is_global) or isinstance(table, GlobalTableT)


def changelog_of(table: faust.Table) -> str:
    """The name of the topic that has its rows."""
    name: str = table.changelog_topic.get_topic_name()
    return name


def schema_of(table: faust.Table) -> faust.SchemaT:
    """What rows are read with: the table's own types and codecs, which they are written with, whatever its changelog's."""
    return table._new_changelog_topic().schema


def kept_as(table: faust.Table) -> str | None:
    """The name in that of its changelog, ``{id}-NAME-changelog``; None where the program calls the topic something else."""
    name, beginning = changelog_of(table), f"{table.app.conf.id}-"
    between = name.removeprefix(beginning).removesuffix(CHANGELOG_SUFFIX)
    return between if between and name == f"{beginning}{between}{CHANGELOG_SUFFIX}" else None


def _renamed_from(table: faust.Table) -> str | None:
    origin = kept_as(table)
    return None if origin == table.name else origin


def shared_name(table: faust.Table) -> str:
    """The name of the store that has all rows of a global table, of every partition."""
    return f"{table.name}-global"


def _key_writer(table: faust.Table) -> Callable[[object], bytes]:
    prepare, serializer = table.changelog_topic.prepare_key, table.key_serializer
    encode = writing_keys(table, lambda key: prepare(key, serializer)[0], none_as_bytes(table))
    is_windowed = table.window is not None
    memo: dict[object, bytes] = {}

    def write(key: object) -> bytes:
        # Keys of other types may be equal and have different bytes.
        if type(key) is not str and not (is_windowed and type(key) is tuple and type(key[0]) is str):
            return encode(key)
        known = memo.get(key)
        if known is None:
            if len(memo) >= _MEMO_MAX:
                memo.clear()
            known = memo[key] = encode(key)
        return known

    return write


def _key_reader(table: faust.Table) -> Callable[[bytes], object]:
    decode, to_key, of_none = plain_key(table.app, schema_of(table)), table._to_key, none_as_bytes(table)

    def read(raw: bytes) -> object:
        if raw == of_none:
            return None
        try:
            key: object = to_key(decode(raw))
        except KeyDecodeError:
            # Keys that are bytes are written as they are, whatever the serializer.
            return raw
        return key

    return read


def _value_writer(table: faust.Table) -> Callable[[object], bytes]:
    prepare, serializer = table.changelog_topic.prepare_value, table.value_serializer

    def write(value: object) -> bytes:
        raw: bytes = prepare(value, serializer)[0]
        return raw

    return write


class TableRows(MutableMapping[object, object]):
    """The data of one table: the rows of the task that runs. ``rows`` finds its store, and ``fail`` is that of
    :class:`RowReader`."""

    def __init__(self, rows: Callable[[], Rows], fail: Callable[[UnreadableRowError], None]) -> None:
        self._rows = rows
        self._read = RowReader(rows, fail)

        self.row = self._read.get
        """Returns the row of a key, or None."""

    def __contains__(self, key: object) -> bool:
        return self._read.get(key) is not None

    def __getitem__(self, key: object) -> object:
        value = self._read.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: object, value: object) -> None:
        self._rows().put(key, value)

    def __delitem__(self, key: object) -> None:
        if self._read.get(key) is None:
            raise KeyError(key)
        self._rows().put(key, None)

    def __iter__(self) -> Iterator[object]:
        return iter(self._read.keys())

    def clear(self) -> None:
        """Deletes all rows. The base class looks at all of them for each."""
        rows = self._rows()
        for key in self:
            rows.put(key, None)

    def __len__(self) -> int:
        return self._rows().approximate_num_entries()


class GlobalRows:
    """The rows of a global table: those of the task, which it has written, and what the changelog brings of all others.

    ``shared`` reads the changelog of all partitions, and is a little behind: it does not bring back what the task deletes.
    """

    def __init__(self, own: Rows, shared: ReadableRows) -> None:
        self._own = own
        self._shared = shared
        self._deleted: set[object] = set()
        """Keys whose deletion may not have come back yet."""
        self._looks_at = _DELETED_MIN
        """How many there are when those are forgotten that have."""

    def put(self, key: object, value: object, /) -> None:
        """Writes a row, or deletes it: None."""
        self._own.put(key, value)
        if value is not None:
            self._deleted.discard(key)
            return
        self._deleted.add(key)
        if len(self._deleted) >= self._looks_at:
            self._deleted = {each for each in self._deleted if self._shared.get(each) is not None}
            self._looks_at = max(_DELETED_MIN, 2 * len(self._deleted))

    def get(self, key: object, /) -> object:
        """The row of that key."""
        row = self._own.get(key)
        if row is not None:
            return row
        row = _bare(self._shared.get(key))
        if self._deleted and key in self._deleted:
            if row is None:
                self._deleted.discard(key)
            return None
        # A set that the agent changes becomes its own.
        return set(row) if isinstance(row, set) else row

    def all(self) -> Iterator[tuple[object, object]]:
        """All rows."""
        rows = {key: _bare(row) for key, row in self._shared.all() if key not in self._deleted}
        rows.update(self._own.all())
        yield from rows.items()

    def approximate_num_entries(self) -> int:
        """How many there are."""
        return sum(1 for _ in self.all())


def _bare(row: object) -> object:
    return row.value if isinstance(row, ValueAndTimestamp) else row


class BoundTable:
    """A table whose data is ours, until :meth:`unbind`.

    ``partition`` says which one runs, ``expiries`` by partition what has to hear of rows that will expire, and ``fail``
    hears of rows that can't be read. ``hooks``: what counts rows that are read, written and deleted. ``refuse``
    hears of names that the program must not use.
    """

    def __init__(
        self,
        table: faust.Table,
        rows: Callable[[], Rows],
        partition: Callable[[], int],
        expiries: Mapping[int, RowExpiry],
        fail: Callable[[UnreadableRowError], None],
        hooks: TableHooks,
        refuse: Callable[[str], None],
    ) -> None:
        self._table = table
        self._data = table._data
        read, written, deleted = hooks
        self._replace("on_key_get", read)
        self._replace("on_key_del", deleted)
        self._replace(
            "on_key_set", _telling(table, partition, expiries, written) if table._should_expire_keys() else written
        )
        table._data = SetRows(rows, fail, table.on_key_set) if is_of_sets(table) else TableRows(rows, fail)
        guard(table, refuse)

    def _replace(self, name: str, function: Callable[..., object]) -> None:
        setattr(self._table, name, function)

    def unbind(self) -> None:
        """Gives the table back as it was."""
        unguard(self._table)
        for name in ("on_key_get", "on_key_set", "on_key_del"):
            delattr(self._table, name)
        self._table._data = self._data


def _telling(
    table: faust.Table,
    partition: Callable[[], int],
    expiries: Mapping[int, RowExpiry],
    written: Callable[[object, object], object],
) -> Callable[[tuple[object, tuple[float, float]], object], None]:
    latest = table._partition_latest_timestamp

    def changed(key: tuple[object, tuple[float, float]], value: object) -> None:
        number, end = partition(), key[1][1]
        if end > latest[number]:
            latest[number] = end
        expiry = expiries.get(number)
        if expiry is not None:
            expiry.written(end)
        written(key, value)

    return changed


def hears_of_closed_windows(table: faust.Table) -> bool:
    """Whether the application does something with a window that expires."""
    from faust.tables.base import Collection

    return table._on_window_close is not None or type(table).on_window_close is not Collection.on_window_close
