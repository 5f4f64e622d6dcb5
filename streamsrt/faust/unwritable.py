"""Keys of tables that can't be written.

1. Kafka takes no record without a key in a compacted topic, so Faust's changelogs have no rows with the key None. Here they
   have them: the key is what the table's codec makes of None, such as ``null``.
2. A key that no codec can write is an error where it is assigned, and nowhere else: no row has it, so a look finds none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from faust.serializers.codecs import get_codec

from streamsrt.faust.codecs import TABLES
from streamsrt.faust.locations import assigned_at, caller, made_at
from streamsrt.wording import error_text

if TYPE_CHECKING:
    import faust


class UnwritableKeyError(TypeError):
    """The key of a row can't be turned into bytes: assign a key that the table's codec can write."""


def named_with_line(table: faust.Table) -> str:
    """The name of a table, and where the program makes it, as far as that is known."""
    site = assigned_at(table) or made_at(table.app, table.name, TABLES)
    return table.name if site is None else f"{table.name} ({site})"


def writing_keys(
    table: faust.Table, prepare: Callable[[object], object], of_none: bytes | None = None
) -> Callable[[object], bytes]:
    """Encodes keys by ``prepare``, and None as ``of_none``. What it returns raises UnwritableKeyError."""

    def write(key: object) -> bytes:
        if key is None and of_none is not None:
            return of_none
        reason = f"{table.key_serializer!r} makes no bytes of {type(key).__name__}"
        try:
            raw = prepare(key)
        except Exception as error:
            reason = error_text(error)
            raise UnwritableKeyError(_message(table, key, reason)) from error
        if isinstance(raw, bytes):
            return raw
        raise UnwritableKeyError(_message(table, key, reason))

    return write


def none_as_bytes(table: faust.Table) -> bytes | None:
    """What the codec of the table's keys makes of None; None where it makes nothing that it reads back."""
    codec = get_codec(table.key_serializer)
    try:
        raw = codec.dumps(None)
        return raw if isinstance(raw, bytes) and codec.loads(raw) is None else None
    except Exception:  # noqa: BLE001  # a user's codec may raise anything
        return None


def _message(table: faust.Table, key: object, reason: str) -> str:
    return (
        f"the key {key!r} of table {named_with_line(table)} can't be written: {reason} (at {caller()}). Use a key that the "
        "table's codec can write"
    )
