"""``on_changelog_event`` of tables: for each row of a partition, when its task starts and before its first record.

1. Stores are restored from bytes, and a store that is still there is not restored at all: so the function is called for
   the rows that the store has then. Faust calls it for as much with a changelog that is compacted.
2. It may read the rows of the process, and changes none. What it raises is logged, and the next row follows, as in Faust.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from faust.tables.base import Collection

from streamsrt.errors import StreamsError
from streamsrt.faust.decoding import Row, plain_key, plain_value
from streamsrt.faust.rows import ReadableRows
from streamsrt.faust.tables import changelog_of, schema_of
from topology.spec.processor import RecordMetadata

if TYPE_CHECKING:
    import faust

logger = logging.getLogger(__name__)


def hears_of_changes(table: faust.Table) -> bool:
    """Whether the application does something with the events of its changelog."""
    return table._on_changelog_event is not None or type(table).on_changelog_event is not Collection.on_changelog_event


async def call_for_rows(table: faust.Table, rows: ReadableRows, partition: int) -> None:
    """Calls it for each row. Raises StreamsError."""
    app, topic, name = table.app, table.changelog_topic, changelog_of(table)
    read_key, read_value = plain_key(app, schema_of(table)), plain_value(app, schema_of(table))
    for key, value in rows.all():
        raw_key: bytes = topic.prepare_key(key, table.key_serializer)[0]
        raw_value: bytes = topic.prepare_value(value, table.value_serializer)[0]
        message = Row(raw_key, raw_value, 0, (), RecordMetadata(name, partition, -1)).message()
        try:
            await table.on_changelog_event(app.create_event(read_key(raw_key), read_value(raw_value), {}, message))
        except StreamsError:
            raise
        except Exception:
            logger.exception("on_changelog_event of table %s raised for %s", table.name, key)
