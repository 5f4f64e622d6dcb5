"""Versions of the values of a store: the format that a program writes, and how it reads the formats of earlier versions.

1. A value of version 1 is the bytes of its serde, as in Kafka Streams. A store that never had another version has these.
2. A value of a later version has a tag before these bytes: ``FF C1 72 6F 77 76`` and the version, 2 bytes, big-endian.
   No value of another format begins like that. UTF-8 has no byte FF; FF C1 is no byte order mark of UTF-16; the serdes
   of numbers write at most 8 bytes, which is the length of the tag alone; Protobuf has no wire type 7, MessagePack no
   C1; Confluent's serdes begin with 00, Java objects with AC ED. Of random bytes, one value in 2**48 begins like that:
   do not use versions for bytes that a stranger chooses.
3. The tag belongs to the value. What a kind of store adds to it (timestamps, headers, suppressed changes) does not
   change, in files and in changelogs.
4. A value is converted to the program's version when it is read, step by step, and written in that version when it is
   written again. Reading changes no row.
5. An operator's row may contain several values (:class:`topology.spec.codecs.RowsOfValues`). It has one tag, and each of
   its values is converted.
6. A value of a version that the program can't read is an error. It never reaches a serde.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias, TypeVar, cast

from topology.spec.codecs import AnySerde, CallableSerde, ProgramSerde, RowsOfValues, Serde, check_serde
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import OF_VALUE, check_function

MAGIC = b"\xff\xc1rowv"
LAST_VERSION = 2**16 - 1
_NUMBER = Struct(">H")
_TAG_BYTES = len(MAGIC) + _NUMBER.size

T = TypeVar("T")

Function: TypeAlias = Callable[..., object]
"""From a value of one version to that of the next."""


@dataclass(frozen=True, slots=True)
class Upcast:
    """Converts a stored value to the next version: ``function(value)`` returns the converted value.

    ``serde``: the serde that wrote the value, if it differs from the store's. For ``upcast`` of :class:`Store`.
    """

    function: Callable[..., object]
    serde: AnySerde = None

    def __post_init__(self) -> None:
        check_function(self.function, "Upcast", OF_VALUE)


Upcasts: TypeAlias = Mapping[int, Function | Upcast]
"""By the version that the value has; a function is an :class:`Upcast` with the serde of the store."""

StoredUpcasts: TypeAlias = tuple[tuple[int, Upcast], ...]


class UpcastError(Exception):
    """A row of a store can't be converted to the program's version. ``key``: the row's key, as bytes. No handler can skip
    the records that need the row."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(store, reason)
        self.store = store
        self.reason = reason
        self.key: bytes | None = None

    def __str__(self) -> str:
        key = "" if self.key is None else f", key {self.key!r}"
        return f"store {self.store!r}{key}: {self.reason}"

    @property
    def with_advice(self) -> str:
        """The message with what to do about it, in full."""
        return f"{self}. No row was changed"


def check_upcasts(version: int, upcasts: Upcasts | None) -> StoredUpcasts:
    """The upcasts by version. Raises TopologyError where they don't lead to ``version``."""
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= LAST_VERSION:
        raise TopologyError(
            f"the version of a store is a number from 1 to {LAST_VERSION}, not {version!r}", call_site()
        )
    given = dict(upcasts or {})
    wanted = list(range(version - len(given), version))
    if sorted(given, key=str) != sorted(wanted, key=str) or wanted[:1] == [0]:
        raise TopologyError(
            f"upcast= of a store of version {version} needs a function for each version before it, such as "
            f"{{{', '.join(f'{each}: ...' for each in range(1, version))}}}, not for {sorted(given, key=str)}. The "
            "earliest ones may be left out when no rows of them are left",
            call_site(),
        )
    return tuple((each, _checked(each, given[each])) for each in wanted)


def _checked(version: int, given: Function | Upcast) -> Upcast:
    upcast = given if isinstance(given, Upcast) else Upcast(given)
    check_function(upcast.function, f"upcast={{{version}: ...}}", OF_VALUE)
    if upcast.serde is not None:
        check_serde(upcast.serde, "Upcast")
    return upcast


@dataclass(frozen=True, slots=True, repr=False)
class VersionedValues(CallableSerde[T]):
    """What :func:`versioned_values` returns. ``inner``: the serde of the values without tags."""

    inner: Serde[T]
    version: int


def versioned_values(inner: Serde[T], version: int, upcasts: StoredUpcasts, store: str) -> VersionedValues[T]:
    """The serde of the values of a store that has a version: it writes the tag, and reads all versions that it knows."""
    tag = MAGIC + _NUMBER.pack(version)
    serialize_value, deserialize_value = inner.serialize, inner.deserialize
    read_older = _Upcaster(inner, version, upcasts, store)

    def serialize(value: T) -> bytes:
        return tag + serialize_value(value)

    def deserialize(data: bytes) -> T:
        if data[:_TAG_BYTES] == tag:
            return deserialize_value(data[_TAG_BYTES:])
        return cast("T", read_older(data))

    return VersionedValues(f"{inner.name}, version {version}", serialize, deserialize, inner, version)


class _Upcaster:
    """Reads values of versions before ``version``."""

    def __init__(self, inner: ProgramSerde, version: int, upcasts: StoredUpcasts, store: str) -> None:
        self._inner, self._version, self._store = inner, version, store
        self._upcasts = dict(upcasts)

    def __call__(self, data: bytes) -> object:
        version = version_of(data)
        if version not in self._upcasts:
            known = ", ".join(map(str, (*self._upcasts, self._version)))
            raise self._failed(
                f"its value was written by version {version}, and this program reads {known}: run a later one"
                if version > self._version
                else f"its value has version {version}, and the store has no upcast={{{version}: ...}}: add it"
            )
        serde = writing_serde(self._upcasts[version], self._inner)
        try:
            value = serde.deserialize(data[_TAG_BYTES:] if version > 1 else data)
        except Exception as error:
            raise self._failed(
                f"its value of version {version} is not what serdes.{serde.name} reads ({type(error).__name__}: "
                f"{error}). Give the serde that wrote it: upcast={{{version}: Upcast(function, serde=...)}}"
            ) from error
        for each in range(version, self._version):
            value = self._row_stepped(each, value)
        return value

    def _row_stepped(self, version: int, row: object) -> object:
        if isinstance(self._inner, RowsOfValues):
            return self._inner.mapped(row, lambda value: self._stepped(version, value))
        return self._stepped(version, row)

    def _stepped(self, version: int, value: object) -> object:
        function = self._upcasts[version].function
        try:
            made = function(value)
        except Exception as error:
            raise self._failed(
                f"upcast={{{version}: {_where(function)}}} raised {type(error).__name__}: {error}. Correct the function"
            ) from error
        if made is None:
            raise self._failed(
                f"upcast={{{version}: {_where(function)}}} returned None: reading a row must not delete it. Correct "
                "the function"
            )
        return made

    def _failed(self, reason: str) -> UpcastError:
        return UpcastError(self._store, reason)


def writing_serde(upcast: Upcast, serde: ProgramSerde) -> ProgramSerde:
    """The serde of the rows that ``upcast`` reads. ``serde``: that of the store's rows without tags."""
    if upcast.serde is None:
        return serde
    return serde.with_values(upcast.serde) if isinstance(serde, RowsOfValues) else upcast.serde


def plain_serde(serde: ProgramSerde) -> ProgramSerde:
    """The serde that makes the bytes behind a tag."""
    return serde.inner if isinstance(serde, VersionedValues) else serde


def plain_name(serde: ProgramSerde) -> str:
    """The name of the serde that makes the bytes behind a tag."""
    return plain_serde(serde).name


def version_of(data: bytes) -> int:
    """The version of a value by its bytes."""
    return _NUMBER.unpack_from(data, len(MAGIC))[0] if data.startswith(MAGIC) and len(data) >= _TAG_BYTES else 1


def latest_version_in(row: bytes) -> int:
    """The latest version that a row's values have, wherever in it they stand."""
    latest, at = 1, row.find(MAGIC)
    while at >= 0:
        latest = max(latest, version_of(row[at : at + _TAG_BYTES]))
        at = row.find(MAGIC, at + 1)
    return latest


def unreadable(store: str, key: bytes, data: bytes, error: Exception) -> Exception:
    """What is to be raised for a value that a serde did not take: with the row it was, where its version is the cause."""
    if isinstance(error, UpcastError):
        error.key = key
        return error
    if version_of(data) == 1:
        return error
    newer = UpcastError(
        store,
        f"its value was written by version {version_of(data)} of the store, and this program has no versions of it: run "
        "the later program",
    )
    newer.key = key
    return newer


def _where(function: Function) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
