"""``streamsrt produce`` and ``streamsrt consume``: records as lines of text."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from streamsrt.cli.output import note, print_json
from streamsrt.cli.session import AsJson, BootstrapServers, cluster
from streamsrt.client.reading import columns_of, ends_of, partitions_of, read_range, starts_of
from streamsrt.client.values import Fetched
from streamsrt.errors import ConfigError, DeserializationError, MissingTopicError
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.records import RecordColumns
from topology import serdes

_BATCH_LINES = 1000

Decode = Callable[[bytes], Any]


def _time_windowed_string(data: bytes) -> str:
    return f"{data[:-8].decode()}@{int.from_bytes(data[-8:], 'big')}"


FORMATS: dict[str, Decode] = {
    "string": serdes.string.deserialize,
    "json": serdes.json.deserialize,
    "integer": serdes.integer.deserialize,
    "long": serdes.long.deserialize,
    "double": serdes.double.deserialize,
    "bytes": bytes.hex,
    "windowed": _time_windowed_string,
}


def produce(
    topic: Annotated[str, typer.Argument(help="topic to write to; it must exist")],
    bootstrap_servers: BootstrapServers = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", help="separates key and value in a line; without it, records have no keys"),
    ] = None,
    timestamp_ms: Annotated[int | None, typer.Option("--timestamp", help="epoch milliseconds; default: now")] = None,
) -> None:
    """Write each line of stdin as a record."""
    with cluster(bootstrap_servers) as network:
        partitions = network.admin.partitions_for([topic]).get(topic)
        if partitions is None:
            raise MissingTopicError(f"no such topic: {topic} (streamsrt topics create {topic} --partitions N makes it)")
        collector = RecordCollector(network.producer.send, lambda _name: partitions)
        count = 0
        for keys, values in _line_batches(key_separator):
            now_ms = timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000
            collector.add(topic, keys, values, [now_ms] * len(keys))
            count += len(keys)
        collector.flush()
        network.producer.flush()
    note(f"{count} records written to {topic}")


def _line_batches(separator: str | None) -> Iterator[tuple[list[bytes | None], list[bytes | None]]]:
    """Lines are bytes: what is not UTF-8 is written as it is."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    between = separator.encode() if separator is not None else None
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if between is None:
            keys.append(None)
            values.append(text)
        else:
            key, found, value = text.partition(between)
            if not found:
                shown = text[:60].decode(errors="backslashreplace")
                raise ConfigError(f"line {number} of stdin has no key separator {separator!r}: {shown!r}")
            keys.append(key)
            values.append(value)
        if len(keys) == _BATCH_LINES:
            yield keys, values
            keys, values = [], []
    if keys:
        yield keys, values


def consume(
    topic: Annotated[str, typer.Argument(help="topic to read")],
    bootstrap_servers: BootstrapServers = None,
    key_format: Annotated[str, typer.Option("--key", help=f"one of {', '.join(FORMATS)}")] = "string",
    value_format: Annotated[str, typer.Option("--value", help=f"one of {', '.join(FORMATS)}")] = "string",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="wait for more records at the end")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="maximum number of records")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic from its start, partition by partition as they arrive."""
    decode_key, decode_value = _format(key_format), _format(value_format)
    with cluster(bootstrap_servers) as network:
        shown = 0
        partitions = partitions_of(network, topic)
        starts, ends = starts_of(network, partitions), ends_of(network, partitions)
        for fetched in read_range(network, starts, ends, follow=follow):
            for columns in columns_of(fetched):
                for row in _rows(fetched, columns, decode_key, decode_value):
                    _show(row, as_json=as_json)
                    shown += 1
                    if shown == limit:
                        return
            sys.stdout.flush()


def _format(name: str) -> Decode:
    decode = FORMATS.get(name)
    if decode is None:
        raise ConfigError(f"unknown format {name!r}: give one of {', '.join(FORMATS)}")
    return decode


def _rows(fetched: Fetched, columns: RecordColumns, key: Decode, value: Decode) -> Iterator[dict[str, object]]:
    for index, timestamp in enumerate(columns.timestamps):
        offset = columns.offset_at(index)
        yield {
            "partition": fetched.partition,
            "offset": offset,
            "timestamp": timestamp,
            "key": _decoded(columns.keys[index], key, "key", fetched, offset),
            "value": _decoded(columns.values[index], value, "value", fetched, offset),
        }


def _decoded(data: bytes | None, decode: Decode, what: str, fetched: Fetched, offset: int) -> object:
    if data is None:
        return None
    try:
        return decode(data)
    except (ValueError, TypeError, struct.error) as error:
        where = f"{fetched.topic}-{fetched.partition} at offset {offset}"
        raise DeserializationError(
            f"the {what} in {where} is not in the format asked for ({error}): give --{what} another one, e.g. bytes",
            fetched.topic,
            fetched.partition,
            offset,
        ) from None


def _show(row: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    value = row["value"]
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    sys.stdout.write(f"{row['key']}\t{text}\n")
