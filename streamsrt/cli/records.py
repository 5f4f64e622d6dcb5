"""``streamsrt produce`` and ``streamsrt consume``: records as lines of text, JSON or CSV."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import Annotated, cast

import orjson
import typer

from streamsrt.cli.group_offsets import parse_datetime
from streamsrt.cli.output import note, print_json
from streamsrt.cli.record_formats import FORMATS, UNREADABLE, Decode, JsonText, decoder, encoder
from streamsrt.cli.record_input import READERS, AsItComes, InputRecord, LineFormat, shown_header, shown_text
from streamsrt.cli.session import AsJson, BootstrapServers, cluster
from streamsrt.client.interface import Administering
from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of, ends_of, partitions_of, read_range, starts_of
from streamsrt.client.values import Fetched, RefusalAnswer, RefusedRecord, TopicPartition
from streamsrt.errors import BrokerError, ConfigError, DeserializationError, MissingTopicError, ProductionError
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.records import RecordColumns
from streamsrt.wording import counted
from topology.graph.internal_topics import deleted_after_ms

logger = logging.getLogger(__name__)

_BATCH_RECORDS = 1000
_READ_BYTES = 1 << 16
_REPORTED_RECORDS = 20
"""So many records that can't be decoded are named one by one."""
_FORMATS = ", ".join(FORMATS)


def produce(
    topic: Annotated[str, typer.Argument(help="topic to write to; it must exist")],
    bootstrap_servers: BootstrapServers = None,
    input_format: Annotated[
        str,
        typer.Option(
            "--format", help="lines; json: one object per line, as printed by consume --json; csv: with a header line"
        ),
    ] = "lines",
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", help="separates key and value in a line; without it, records have no keys"),
    ] = None,
    key_column: Annotated[str | None, typer.Option("--key-column", help="the CSV column that is the key")] = None,
    timestamp_column: Annotated[
        str | None, typer.Option("--timestamp-column", help="the CSV column that is the timestamp")
    ] = None,
    key_format: Annotated[str, typer.Option("--key", help=f"how keys are written: one of {_FORMATS}")] = "string",
    value_format: Annotated[str, typer.Option("--value", help=f"how values are written: one of {_FORMATS}")] = "string",
    timestamp_ms: Annotated[
        int | None,
        typer.Option("--timestamp", help="timestamp of records without one, in epoch milliseconds; default: now"),
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", help="NAME=TEXT, for all records; repeatable")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, help="partition of records without one; default: by the key"),
    ] = None,
) -> None:
    """Write each line of stdin as a record."""
    read = READERS.get(input_format)
    if read is None:
        raise ConfigError(f"unknown format {input_format!r}: give one of {', '.join(READERS)}")
    if input_format != "csv" and (key_column is not None or timestamp_column is not None):
        raise ConfigError("--key-column and --timestamp-column are for --format csv")
    if input_format != "lines" and key_separator is not None:
        raise ConfigError("--key-separator is for --format lines")
    if key_separator == "":
        raise ConfigError("--key-separator is empty: give the text between key and value, such as =")
    key, value = encoder(key_format), encoder(value_format)
    common = tuple(_header(text) for text in headers or ())
    with cluster(bootstrap_servers, begins=True) as network:
        partitions = network.admin.partitions_for([topic]).get(topic)
        if partitions is None:
            raise MissingTopicError(
                f"no such topic: {topic} (streamsrt topics create {topic} --partitions N creates it)"
            )
        if partition is not None and partition >= partitions:
            raise ConfigError(f"--partition {partition}: {topic} has partitions 0 to {partitions - 1}")
        reading = LineFormat(
            key=key,
            value=value,
            separator=key_separator,
            key_column=key_column,
            timestamp_column=timestamp_column,
            partitions=partitions,
        )
        collector = RecordCollector(network.producer.send, lambda _name: partitions)
        network.producer.on_refused = refused = _Refused()
        sending = _Sending(collector, topic, common, timestamp_ms, partition)
        # As the stream of bytes that standard input is, for the type checker.
        stdin = AsItComes(cast(io.BufferedIOBase, sys.stdin.buffer), sending.send)
        try:
            for record in read(io.BufferedReader(stdin, _READ_BYTES), reading):
                sending.add(record)
        finally:
            sending.send()
            network.producer.flush()
            note(f"{counted(sending.count - refused.count, 'record')} written to {topic}")
        if sending.oldest_ms is not None:
            _warn_of_retention(network.admin, topic, sending.oldest_ms)
    if refused.count:
        raise ProductionError(f"the broker refused {counted(refused.count, 'record')}; all others are written")


class _Refused:
    """Reports records that the broker refuses, and leaves them out."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, record: RefusedRecord) -> RefusalAnswer:
        self.count += 1
        if self.count <= _REPORTED_RECORDS:
            note(f"not written: key {_described(record.key)}, value {_described(record.value)}. {record.error}")
        return RefusalAnswer.DROP


def _described(data: bytes | None) -> str:
    return "null" if data is None else f"{shown_text(data)} ({counted(len(data), 'byte')})"


def _warn_of_retention(admin: Administering, topic: str, oldest_ms: int) -> None:
    """Notes that the broker will soon delete what was written, if the topic does not keep records that old."""
    try:
        configs = admin.describe_topic_configs([topic])[topic]
    except BrokerError as error:
        logger.debug("the retention of topic %s is not known: %s", topic, error)
        return
    retention_ms = deleted_after_ms(configs)
    if retention_ms is not None and oldest_ms < time.time_ns() // 1_000_000 - retention_ms:
        note(
            f"topic {topic} does not keep records that old: the oldest one has timestamp {oldest_ms}, retention.ms is "
            f"{retention_ms}, and the broker deletes them within minutes. Set retention.ms=-1 if they are to stay (topics "
            "create NAME --config retention.ms=-1)"
        )


def _header(text: str) -> tuple[str, bytes]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ConfigError(f"--header {text}: give NAME=TEXT")
    return name, value.encode()


class _Sending:
    """Sends records, many at once. ``common``: headers of all; ``timestamp_ms``, ``partition``: of records without one."""

    def __init__(
        self,
        collector: RecordCollector,
        topic: str,
        common: tuple[tuple[str, bytes], ...],
        timestamp_ms: int | None,
        partition: int | None,
    ) -> None:
        self._collector = collector
        self._topic = topic
        self._common = common
        self._timestamp_ms = timestamp_ms
        self._partition = partition
        self._records: list[InputRecord] = []
        self.count = 0
        """How many were sent."""
        self.oldest_ms: int | None = None

    def add(self, record: InputRecord) -> None:
        self._records.append(record)
        if len(self._records) == _BATCH_RECORDS:
            self._collect()

    def send(self) -> None:
        """Sends all that were added."""
        if self._records:
            self._collect()
        self._collector.flush()

    def _collect(self) -> None:
        records, self._records = self._records, []
        now_ms = self._timestamp_ms if self._timestamp_ms is not None else time.time_ns() // 1_000_000
        keys, values, own_timestamps, own_partitions, headers = zip(*records, strict=True)
        timestamps = [now_ms if at is None else at for at in own_timestamps]
        partitions = [self._partition if own is None else own for own in own_partitions]
        self._collector.add(
            self._topic,
            keys,
            values,
            timestamps,
            [(*each, *self._common) for each in headers] if self._common or any(headers) else None,
            partitions if any(each is not None for each in partitions) else None,
        )
        self.count += len(records)
        self.oldest_ms = min(timestamps) if self.oldest_ms is None else min(self.oldest_ms, *timestamps)


def consume(
    topic: Annotated[str, typer.Argument(help="topic to read")],
    bootstrap_servers: BootstrapServers = None,
    key_format: Annotated[str, typer.Option("--key", help=f"one of {_FORMATS}")] = "string",
    value_format: Annotated[str, typer.Option("--value", help=f"one of {_FORMATS}")] = "string",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="only this partition; repeatable (default: all)")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="from the start of the log (the default)")
    ] = False,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", help="from this offset of each partition; -N: the last N records")
    ] = None,
    from_time: Annotated[
        str | None, typer.Option("--from", help="from the first record of 2026-01-31T12:00:00 (UTC) or later")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="wait for more records at the end")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "--max-messages", "-n", min=1, help="maximum number of records")
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="also print headers")] = False,
    isolation_level: Annotated[
        str, typer.Option("--isolation-level", help="read_uncommitted or read_committed")
    ] = "read_uncommitted",
    null_literal: Annotated[
        str, typer.Option("--null-literal", help="text that is printed for null keys and values, without --json")
    ] = "null",
    skip_message_on_error: Annotated[
        bool, typer.Option("--skip-message-on-error", help="exit with 0 even if records could not be decoded")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic from its beginning, in the order in which the partitions deliver them.

    Records that can't be decoded are reported on stderr and all others are printed; the exit code is then 5.
    """
    if sum((from_beginning, from_offset is not None, from_time is not None)) > 1:
        raise ConfigError("give one of --from-beginning, --from-offset, --from")
    decode_key, decode_value = decoder(key_format), decoder(value_format)
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise ConfigError(f"--isolation-level {isolation_level}: give read_uncommitted or read_committed")
    committed = isolation_level == "read_committed"
    with cluster(bootstrap_servers, read_committed=committed, begins=True) as network:
        chosen = _chosen(network, topic, partitions)
        ends = ends_of(network, chosen, read_committed=committed)
        starts = _starts(network, chosen, ends, from_offset, from_time)
        shown = _Shown(
            decode_key, decode_value, headers=headers, null_literal=None if as_json else null_literal, limit=limit
        )
        try:
            for fetched in read_range(network, starts, ends, follow=follow):
                if shown.show(fetched):
                    break
        except BrokenPipeError:
            # Who reads has enough. What is still buffered goes nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            return
    shown.report_undecoded(fails=not skip_message_on_error)


class _Shown:
    """Prints records, up to a limit. ``null_literal`` None: as JSON."""

    def __init__(
        self, key: Decode, value: Decode, *, headers: bool, null_literal: str | None, limit: int | None
    ) -> None:
        self._key, self._value = key, value
        self._headers, self._null_literal = headers, null_literal
        self._left = limit
        self._undecoded = 0
        self._first: DeserializationError | None = None

    def show(self, fetched: Fetched) -> bool:
        """Returns whether that was the last record."""
        for columns in columns_of(fetched):
            for index in range(len(columns)):
                try:
                    row = _row(fetched, columns, index, self._key, self._value, with_headers=self._headers)
                except DeserializationError as error:
                    self._could_not(error)
                else:
                    _show(row, self._null_literal)
                if self._left is not None:
                    self._left -= 1
                    if not self._left:
                        return True
        sys.stdout.flush()
        return False

    def _could_not(self, error: DeserializationError) -> None:
        self._undecoded += 1
        self._first = self._first or error
        if self._undecoded <= _REPORTED_RECORDS:
            note(f"not printed: {error}")
        elif self._undecoded == _REPORTED_RECORDS + 1:
            note("not printed: more records like these; from here on they are only counted")

    def report_undecoded(self, *, fails: bool) -> None:
        """Says at the end how many records were not printed. Raises DeserializationError where that ``fails``."""
        if self._first is None:
            return
        first = self._first
        counted = f"{self._undecoded} record{'s' if self._undecoded > 1 else ''} of {first.topic} not printed"
        if not fails:
            note(counted)
            return
        raise DeserializationError(
            f"{counted}: not in the given format. Give --key or --value another one, e.g. bytes, or "
            "--skip-message-on-error to exit with 0 nevertheless",
            first.topic,
            first.partition,
            first.offset,
        )


def _chosen(network: NetworkThread, topic: str, wanted: Sequence[int] | None) -> list[TopicPartition]:
    there = partitions_of(network, topic)
    if not wanted:
        return there
    if missing := sorted(set(wanted) - {partition for _, partition in there}):
        raise ConfigError(f"{topic} has partitions 0 to {len(there) - 1}, not {', '.join(map(str, missing))}")
    return [(topic, partition) for partition in sorted(set(wanted))]


def _starts(
    network: NetworkThread,
    partitions: Sequence[TopicPartition],
    ends: dict[TopicPartition, int],
    from_offset: int | None,
    from_time: str | None,
) -> dict[TopicPartition, int]:
    """Where to begin: what the log no longer holds begins at its start, what it does not hold yet at its end."""
    first = starts_of(network, partitions)
    if from_offset is not None and from_offset < 0:
        return {tp: _last(network, tp, first[tp], ends[tp], -from_offset) for tp in partitions}
    if from_time is not None:
        at_ms = parse_datetime(from_time, "--from")
        found = network.admin.list_offsets(dict.fromkeys(partitions, at_ms))
        return {tp: found[tp].offset if tp in found and found[tp].offset >= 0 else ends[tp] for tp in partitions}
    if from_offset is None:
        return first
    return {tp: min(max(first[tp], from_offset), ends[tp]) for tp in partitions}


def _last(network: NetworkThread, tp: TopicPartition, first: int, end: int, count: int) -> int:
    """Where the last so many records begin: offsets of transactions' ends, and of what compaction left out, are none."""
    back = count
    while True:
        start = max(first, end - back)
        offsets = [
            offset
            for fetched in read_range(network, {tp: start}, {tp: end})
            for columns in columns_of(fetched)
            for offset in map(columns.offset_at, range(len(columns)))
            if offset < end
        ]
        if len(offsets) >= count:
            return offsets[-count]
        if start == first:
            return first
        back *= 4


def _row(
    fetched: Fetched, columns: RecordColumns, index: int, key: Decode, value: Decode, *, with_headers: bool
) -> dict[str, object]:
    """Raises DeserializationError."""
    offset = columns.offset_at(index)
    row: dict[str, object] = {
        "partition": fetched.partition,
        "offset": offset,
        "timestamp": columns.timestamps[index],
        "key": _decoded(columns.keys[index], key, "key", fetched, offset),
        "value": _decoded(columns.values[index], value, "value", fetched, offset),
    }
    if with_headers:
        found = columns.headers[index] if columns.headers else ()
        row["headers"] = [[name, shown_header(value)] for name, value in found]
    return row


def _decoded(data: bytes | None, decode: Decode, what: str, fetched: Fetched, offset: int) -> object:
    if data is None:
        return None
    try:
        return decode(data)
    except UNREADABLE as error:
        where = f"{fetched.topic}-{fetched.partition} at offset {offset}"
        raise DeserializationError(
            f"the {what} in {where} is not in the given format ({error}): give --{what} another one, e.g. bytes",
            fetched.topic,
            fetched.partition,
            offset,
        ) from None


def _show(row: dict[str, object], null_literal: str | None) -> None:
    if null_literal is None:
        print_json({**row, "key": _in_json(row["key"]), "value": _in_json(row["value"])})
        return
    headers = f"{json.dumps(row['headers'], ensure_ascii=False)}\t" if "headers" in row else ""
    sys.stdout.write(f"{headers}{_plain(row['key'], null_literal)}\t{_plain(row['value'], null_literal)}\n")


def _plain(value: object, null_literal: str) -> str:
    if value is None:
        return null_literal
    return value if isinstance(value, str) else json.dumps(value)


def _in_json(value: object) -> object:
    return orjson.Fragment(value.encode()) if isinstance(value, JsonText) else value
