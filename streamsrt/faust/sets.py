"""Tables of sets (``app.SetTable``, ``app.SetGlobalTable``).

1. A row is a whole set. Its entry in the changelog is an update that adds all members, so faust restores it, too. The number
   of that operation is written as a float, which tells it from faust's own entries.
2. Faust's own entries are changes of sets. A restore applies them in their order (:func:`_folding`); what it made of them is
   written to the changelog as whole sets soon after the start (:class:`TakenSets`), since compaction keeps only the last
   change of each key.
3. Tables of all partitions can't take them over: their changelog is also read as rows. It is an error at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

from faust.models import maybe_model
from faust.tables.sets import OPERATION_ADD, OPERATION_DISCARD, OPERATION_UPDATE, SetGlobalTable
from mode.utils.collections import ManagedUserSet

from streamsrt.errors import UserError
from streamsrt.faust import rows as stored
from streamsrt.faust.expiry import OrderedRows, order_of
from streamsrt.faust.json_form import refusing_other_keys
from streamsrt.faust.rows import ReadableRows
from streamsrt.faust.unreadable import RowReader, UnreadableRowError, reading
from streamsrt.faust.unwritable import writing_keys
from topology.spec import serdes
from topology.spec.codecs import ORDER_BYTES, CallableSerde, Fold, FoldedKeys, OrderedKeys, Rows, Serde
from topology.spec.stores import Store

if TYPE_CHECKING:
    import faust

_UPDATE = 15.0


class TakenSets:
    """The keys of sets that a restore has made of faust's changes, by table."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[object, None]] = {}

    def add(self, table: str, key: object) -> None:
        """One more. Restores run on a thread of their own."""
        self._keys.setdefault(table, {})[key] = None

    def of(self, table: str) -> list[object]:
        """Those of a table, of all its partitions in this process."""
        return list(self._keys.get(table, ()))


def store_of_sets(table: faust.SetTable, renamed_from: str | None, taken: TakenSets) -> Store:
    """The store of a table of sets. ``renamed_from``: the name of its changelog. ``taken`` hears what is made of changes."""
    topic, registry, name = table.changelog_topic, table.app.serializers, f"{table.name} of faust"
    key_serializer, value_serializer = table.key_serializer, table.value_serializer

    write_key = writing_keys(table, lambda key: topic.prepare_key((_UPDATE, key), key_serializer)[0])

    def read_key(raw: bytes) -> object:
        operation, key = registry.loads_key(None, raw, serializer=key_serializer)
        if type(operation) is not float:
            raise UserError(
                f"the changelog {topic} of table {table.name} holds changes of sets that faust has written, not sets: a "
                "SetGlobalTable can't take them over. Delete the topic with no instance running, and let the sets fill "
                "again, or make it a SetTable, which takes them over"
            )
        return table._to_key(key)

    def write(members: object) -> bytes:
        assert isinstance(members, set)
        raw: bytes = topic.prepare_value([list(members), []], value_serializer)[0]
        return raw

    def read(raw: bytes) -> object:
        row = registry.loads_value(None, raw, serializer=value_serializer)
        match row:
            case [list(members), _]:
                return {maybe_model(each) for each in members}
        return set()

    keys: CallableSerde[object] = CallableSerde(f"keys of {name}", write_key, read_key)
    check: Fold = _same_rows
    if key_serializer == "json":
        check = refusing_other_keys(table.name, topic.get_topic_name(), read_key, write_key, _is_row) or check
    fold = None if isinstance(table, SetGlobalTable) else _folding(table, write_key, read, taken, check)
    if table._should_expire_keys():
        keys = OrderedKeys(keys.name, write_key, read_key, _changes_first(order_of(table, read_key)), fold)
    elif fold is not None:
        keys = FoldedKeys(keys.name, write_key, read_key, fold)
    values: CallableSerde[object] = CallableSerde(f"values of {name}", write, reading(table, read))
    # Each change would write the whole set: retention and compaction are those of every other table.
    return Store(table.name, key=keys, value=values, caching=True, renamed_from=renamed_from)


def _folding(
    table: faust.SetTable,
    write_key: Callable[[object], bytes],
    read: Callable[[bytes], object],
    taken: TakenSets,
    check: Fold,
) -> Fold:
    """What applies faust's changes of sets. ``check``: of the keys of whole sets."""
    registry, serializer = table.app.serializers, table.key_serializer
    read_change = reading(table, partial(registry.loads_value, None, serializer=table.value_serializer))
    read_row = reading(table, read)
    write = table.changelog_topic.prepare_value

    def change_of(raw: bytes) -> tuple[int, object] | None:
        if serializer == "json" and _is_row(raw):
            return None
        operation, key = registry.loads_key(None, raw, serializer=serializer)
        return (operation, table._to_key(key)) if type(operation) is int else None

    def fold(keys: Sequence[bytes], values: Sequence[bytes | None], get: Callable[[bytes], bytes | None]) -> Rows:
        changes = [change_of(key) for key in keys]
        keys, values = check(keys, values, get)
        if not any(changes):
            return keys, values
        rows: dict[bytes, bytes | None] = {}
        sets: dict[bytes, set[object]] = {}
        for raw, value, change in zip(keys, values, changes, strict=True):
            if change is None:
                rows[raw] = value
                sets.pop(raw, None)
            elif value is not None:
                operation, key = change
                at = write_key(key)
                if at not in sets:
                    before = rows.get(at) if at in rows else get(at)
                    sets[at] = set() if before is None else cast(set[object], read_row(before))
                    taken.add(table.name, key)
                _apply(sets[at], operation, read_change(value))
        for at, members in sets.items():
            rows[at] = write([list(members), []], table.value_serializer)[0]
        return list(rows), list(rows.values())

    return fold


def _apply(members: set[object], operation: int, value: object) -> None:
    if operation == OPERATION_ADD:
        members.add(maybe_model(value))
    elif operation == OPERATION_DISCARD:
        members.discard(maybe_model(value))
    else:
        added, removed = cast(list[list[object]], value)
        members.update(map(maybe_model, added))
        members.difference_update(map(maybe_model, removed))


_CHANGES = tuple(b"[%d," % operation for operation in (OPERATION_ADD, OPERATION_DISCARD, OPERATION_UPDATE))
"""What keys in JSON begin with that faust has written."""


def _is_row(key: bytes) -> bool:
    """Whether a key in JSON is that of a whole set."""
    return not key.startswith(_CHANGES)


def _same_rows(keys: Sequence[bytes], values: Sequence[bytes | None], _: object) -> Rows:
    return keys, values


def _changes_first(order: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """The order of windows, behind what faust has written: a start finds that without reading everything else."""

    def first(raw: bytes) -> bytes:
        return bytes(ORDER_BYTES) if raw.startswith(_CHANGES) else order(raw)

    return first


class ScannedRows(ReadableRows, Protocol):
    """Rows that are found by the beginning of their key, too."""

    def prefix_scan(self, prefix: bytes, serde: Serde[bytes], /) -> Iterator[tuple[object, object]]: ...


def refuse_changes(table: faust.SetTable, rows: ScannedRows) -> None:
    """Raises UserError where the restored store of a SetGlobalTable holds what faust has written.

    Keys in JSON begin with faust's operation, of which there are three: nothing of what is written here is read.
    """
    if table.key_serializer != "json":
        _read(rows.all())
    elif table._should_expire_keys():
        _read(islice(cast(OrderedRows, rows).in_order(), 1))
    else:
        for beginning in _CHANGES:
            _read(rows.prefix_scan(beginning, serdes.bytes))


def _read(rows: Iterator[tuple[object, object]]) -> None:
    for _ in rows:
        """Reading the key raises."""


def _writing(name: str) -> Callable[..., object]:
    plain = getattr(ManagedUserSet, name)

    def change(self: StoredSet, *arguments: object) -> object:
        result = plain(self, *arguments)
        self.write()
        return result

    change.__name__ = name
    return change


class StoredSet(ManagedUserSet):  # type: ignore[misc]  # mode is not typed here
    """One set, whose every change is written to its row."""

    def __init__(self, key: object, members: set[object], write: Callable[[object, set[object]], None]) -> None:
        self.data = members
        self._key = key
        self._write = write

    def write(self) -> None:
        """Makes the members the row."""
        self._write(self._key, self.data)

    add = _writing("add")
    discard = _writing("discard")
    clear = _writing("clear")
    pop = _writing("pop")
    update = _writing("update")
    difference_update = _writing("difference_update")
    intersection_update = _writing("intersection_update")
    symmetric_difference_update = _writing("symmetric_difference_update")
    __iand__ = _writing("__iand__")
    __ior__ = _writing("__ior__")
    __isub__ = _writing("__isub__")
    __ixor__ = _writing("__ixor__")


class SetRows(MutableMapping[object, object]):
    """The data of one table of sets: the rows of the task that runs. ``fail`` is that of :class:`RowReader`; ``changed``
    hears of each key that is written."""

    def __init__(
        self,
        rows: Callable[[], stored.Rows],
        fail: Callable[[UnreadableRowError], None],
        changed: Callable[[object, object], None],
    ) -> None:
        self._rows = rows
        self._read = RowReader(rows, fail)
        self._changed = changed

    def _write(self, key: object, members: set[object]) -> None:
        self._rows().put(key, members)
        self._changed(key, members)

    def __contains__(self, key: object) -> bool:
        return self._read.get(key) is not None

    def __getitem__(self, key: object) -> StoredSet:
        members = self._read.get(key)
        return StoredSet(key, members if isinstance(members, set) else set(), self._write)

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError(
            "a whole set can't be assigned in a table of sets: use table[key].add(), update() and discard()"
        )

    def __delitem__(self, key: object) -> None:
        raise TypeError("a whole set can't be deleted from a table of sets: use table[key].discard() and clear()")

    def __iter__(self) -> Iterator[object]:
        return iter(self._read.keys())

    def __len__(self) -> int:
        return self._rows().approximate_num_entries()
