"""Batches that no well-behaved producer sends, and how to ask a broker for its opinion of each.

``tests/golden/batches/produced.jsonl`` holds what Apache Kafka 4.4.0 answered; ``tests.interop.test_odd_batches`` asks it
again, and writes the file anew with ``STREAMSRT_RECORD=1``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import cramjam
from crc32c import crc32c

from streamsrt.wire import types
from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.records import HEADER_SIZE_BYTES, empty_batch, encode_control_batch, iter_headers, read_header
from streamsrt.wire.records.header import ControlRecord, ControlType
from tests.coordinator.broker.in_process import START_MS, fetching, production

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "batches" / "produced.jsonl"
VERSION = 12
"""The newest version of Produce that names topics."""

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "punctual": {"message.timestamp.before.max.ms": "200000000000", "message.timestamp.after.max.ms": "10000000000"},
    "small": {"max.message.bytes": "500"},
}
UNKNOWN_SERVER_ERROR, INVALID_RECORD = -1, 87
DAY_MS = 86_400_000
LONG_AGO_MS, FAR_AHEAD_MS = START_MS - 4000 * DAY_MS, START_MS + 40_000 * DAY_MS

Ask = Callable[[types.Message, int], Any]

_HEADER = Struct(">qiibIhiqqqhii")


class OddBatch(NamedTuple):
    """What is sent to which kind of topic, by which version of Produce."""

    records: bytes
    topic: str = "plain"
    version: int = VERSION


def varint(number: int) -> bytes:
    left = (number << 1 ^ number >> 63) & ((1 << 64) - 1)
    written = bytearray()
    while left >= 0x80:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*written, left))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def body(
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    *,
    ms: int = 0,
    offset: int = 0,
    attributes: int = 0,
    headers: bytes = b"\0",
) -> bytes:
    """A record without its length; times and offsets after the first ones."""
    return bytes((attributes,)) + varint(ms) + varint(offset) + sized(key) + sized(value) + headers


def record(key: bytes | None = b"k", value: bytes | None = b"value", **fields: Any) -> bytes:
    return sized(body(key, value, **fields))


def several(*deltas: int, key: bytes | None = b"k", attributes: int = 0) -> bytes:
    """Records with these offset deltas."""
    return b"".join(record(key, offset=delta, ms=number, attributes=attributes) for number, delta in enumerate(deltas))


def in_two(codec: Compression, data: bytes) -> bytes:
    """Compressed as two streams, one behind the other."""
    half = len(data) // 2
    return bytes(compress(codec, data[:half])) + bytes(compress(codec, data[half:]))


def linked_lz4(data: bytes) -> bytes:
    """A frame whose blocks depend on those before."""
    frame = cramjam.lz4.Compressor(block_linked=True)
    frame.compress(data)
    return bytes(frame.finish())


def batch(
    records: bytes,
    count: int = 1,
    *,
    last_delta: int | None = None,
    attributes: int = 0,
    base_ms: int = START_MS,
    max_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Compression = Compression.NONE,
    length_change: int = 0,
) -> bytes:
    """Any header over any bytes, with a right checksum. ``producer``: id, epoch, sequence."""
    packed = bytes(compress(codec, records))
    delta = count - 1 if last_delta is None else last_delta
    largest = base_ms + max(count - 1, 0) % 1000 if max_ms is None else max_ms
    fields = (attributes | codec, delta, base_ms, largest, *producer, count)
    length = HEADER_SIZE_BYTES - 12 + len(packed) + length_change
    covered = _HEADER.pack(base_offset, length, leader_epoch, magic, 0, *fields)[21:] + packed
    return _HEADER.pack(base_offset, length, leader_epoch, magic, crc32c(covered), *fields)[:21] + covered


def packed(codec: Compression, data: bytes, count: int = 1, **fields: Any) -> bytes:
    """A batch whose bytes behind the header are ``data`` and called ``codec``."""
    return batch(data, count, attributes=int(codec), **fields)


def old_message(magic: int) -> bytes:
    """One message of the formats before record batches."""
    times = b"" if magic == 0 else (START_MS).to_bytes(8, "big")
    content = bytes((magic, 0)) + times + (1).to_bytes(4, "big") + b"k" + (1).to_bytes(4, "big") + b"v"
    message = zlib.crc32(content).to_bytes(4, "big") + content
    return bytes(8) + len(message).to_bytes(4, "big") + message


ONE = batch(record())
THREE = several(0, 1, 2)
GARBAGE = bytes(range(7, 255, 3))
MANY_COUNT = 800
MANY = b"".join(record(b"k%d" % offset, b"value" * 30, offset=offset) for offset in range(MANY_COUNT))

COUNTS = {
    "one record": batch(record()),
    "three records": batch(THREE, 3),
    "no bytes at all": b"",
    "garbage": batch(GARBAGE, 3),
    "no record bytes, count 1": batch(b"", 1),
    "no record bytes, count 0": batch(b"", 0, last_delta=0),
    "no record bytes, count 0, delta -1": batch(b"", 0, last_delta=-1),
    "emptied batch": empty_batch(read_header(ONE)),
    "one record, count 0": batch(record(), 0, last_delta=0),
    "count -1": batch(record(), -1, last_delta=0),
    "count 2, one record": batch(record(), 2),
    "count 1, two records": batch(several(0, 1), 1),
    "count 2^31-1": batch(record(), 2**31 - 1),
    "count 3, last delta 5": batch(THREE, 3, last_delta=5),
    "count 3, last delta 1": batch(THREE, 3, last_delta=1),
    "last delta -1": batch(record(), 1, last_delta=-1),
    "last delta 2^31-1": batch(record(), 1, last_delta=2**31 - 1),
    "zeros behind the record": batch(record() + bytes(8)),
}
OFFSETS = {
    "offset deltas all 0": batch(several(0, 0, 0), 3),
    "offset deltas backwards": batch(several(2, 1, 0), 3),
    "offset deltas with gaps": batch(several(0, 2, 4), 3),
    "offset deltas from 5": batch(several(5, 6, 7), 3),
    "offset deltas below 0": batch(several(-3, -2, -1), 3),
    "offset deltas all 0 in gzip": batch(several(0, 0, 0), 3, codec=Compression.GZIP),
    "offset deltas all 0 in zstd": batch(several(0, 0, 0), 3, codec=Compression.ZSTD),
    "offset deltas from 5 in lz4": batch(several(5, 6, 7), 3, codec=Compression.LZ4),
    "offset deltas of 2^31": batch(several(2**31 - 1), 1),
    "base offset 77": batch(THREE, 3, base_offset=77),
    "base offset below 0": batch(THREE, 3, base_offset=-5),
    "leader epoch 9": batch(THREE, 3, leader_epoch=9),
}
CODECS = {
    "codec 5": batch(record(), attributes=5),
    "codec 6": batch(record(), attributes=6),
    "codec 7": batch(record(), attributes=7),
    **{f"{codec.type_name}": batch(THREE, 3, codec=codec) for codec in Compression if codec},
    **{f"{codec.type_name} of garbage": batch(GARBAGE, 3, codec=codec) for codec in Compression if codec},
    **{f"broken {codec.type_name}": packed(codec, GARBAGE) for codec in Compression if codec},
    **{
        f"cut {codec.type_name}": packed(codec, bytes(compress(codec, THREE * 40))[:-12], 3)
        for codec in Compression
        if codec
    },
    **{f"{codec.type_name} of nothing": packed(codec, b"") for codec in Compression if codec},
    "gzip, count 2, one record": batch(record(), 2, codec=Compression.GZIP),
    "gzip, count 1, two records": batch(several(0, 1), 1, codec=Compression.GZIP),
    "zstd, count 1, two records": batch(several(0, 1), 1, codec=Compression.ZSTD),
    **{f"{codec.type_name} in two": packed(codec, in_two(codec, THREE), 3) for codec in Compression if codec},
    "lz4, an empty frame behind": packed(
        Compression.LZ4, bytes(compress(Compression.LZ4, record())) + bytes(compress(Compression.LZ4, b""))
    ),
    "lz4 of linked blocks": packed(Compression.LZ4, linked_lz4(MANY), MANY_COUNT),
    "lz4 with a header for linked blocks, one block": packed(Compression.LZ4, linked_lz4(record())),
    "lz4, bytes behind": packed(Compression.LZ4, bytes(compress(Compression.LZ4, record())) + b"xyz"),
    "gzip, bytes behind": packed(Compression.GZIP, bytes(compress(Compression.GZIP, record())) + b"xyz"),
}
RECORDS = {
    "record length too long": batch(varint(90) + body()),
    "record length one too long": batch(varint(len(body()) + 1) + body()),
    "record length too short": batch(varint(len(body()) - 1) + body()),
    "record length 0": batch(varint(0)),
    "record length -1": batch(varint(-1) + body()),
    "record length of 2^31-1": batch(varint(2**31 - 1) + body()),
    "record length of six bytes": batch(b"\xff\xff\xff\xff\xff\x01" + body()),
    "record length written long": batch(bytes((len(body()) * 2 | 0x80, 0)) + body()),
    "record attributes 1": batch(record(attributes=1)),
    "record attributes 255": batch(record(attributes=255)),
    "record attributes 128": batch(several(0, 1, 2, attributes=128), 3),
    "record attributes 128, key of an odd letter": batch(record(b"a", attributes=128)),
    "record attributes 128 in gzip": batch(several(0, 1, 2, attributes=128), 3, codec=Compression.GZIP),
    "record attributes 128, offset deltas with gaps": batch(several(0, 2, 4, attributes=128), 3),
    "offset delta of five bytes": batch(sized(b"\0\0" + b"\x80" * 4 + b"\0" + sized(b"k") + sized(b"value") + b"\0")),
    "offset delta of ten bytes": batch(sized(b"\0\0" + b"\x80" * 9 + b"\0" + sized(b"k") + sized(b"value") + b"\0")),
    "offset delta of 2^40": batch(sized(b"\0\0" + varint(1 << 40) + sized(b"k") + sized(b"value") + b"\0")),
    "key length of six bytes": batch(sized(b"\0\0\0" + b"\x82" + b"\x80" * 4 + b"\0k" + sized(b"value") + b"\0")),
    "value length of six bytes": batch(sized(b"\0\0\0" + sized(b"k") + b"\x82" + b"\x80" * 4 + b"\0v" + b"\0")),
    "header count of six bytes": batch(sized(b"\0\0\0" + sized(b"k") + sized(b"v") + b"\x80" * 5 + b"\0")),
    "time of ten bytes": batch(sized(b"\0" + b"\x80" * 9 + b"\0\0" + sized(b"k") + sized(b"value") + b"\0")),
    "key length too long": batch(sized(b"\0\0\0" + varint(60) + b"k" + sized(b"value") + b"\0")),
    "key length -2": batch(sized(b"\0\0\0" + varint(-2) + sized(b"value") + b"\0")),
    "value length too long": batch(sized(b"\0\0\0" + sized(b"k") + varint(60) + b"value" + b"\0")),
    "value length one too long": batch(sized(b"\0\0\0" + sized(b"k") + varint(6) + b"value" + b"\0")),
    "value length -2": batch(sized(b"\0\0\0" + sized(b"k") + varint(-2) + b"\0")),
    "null key": batch(record(None)),
    "null value": batch(record(b"k", None)),
    "neither key nor value": batch(record(None, None)),
    "bytes behind the headers": batch(sized(body() + b"xx")),
    "no header count": batch(sized(body(headers=b""))),
    "header": batch(record(headers=varint(1) + sized(b"h") + sized(b"v"))),
    "header of null": batch(record(headers=varint(1) + sized(b"h") + sized(None))),
    "header of null key": batch(record(headers=varint(1) + sized(None) + sized(b"v"))),
    "header key that is no text": batch(record(headers=varint(1) + sized(b"\xff\xfe\xc3") + sized(b"v"))),
    "header count 2, one header": batch(record(headers=varint(2) + sized(b"h") + sized(b"v"))),
    "header count 1, two headers": batch(record(headers=varint(1) + (sized(b"h") + sized(b"v")) * 2)),
    "header count -1": batch(record(headers=varint(-1))),
    "header count 2^31-1": batch(record(headers=varint(2**31 - 1))),
    "header value too long": batch(record(headers=varint(1) + sized(b"h") + varint(50) + b"v")),
}
TIMES = {
    "largest time too large": batch(THREE, 3, max_ms=START_MS + 5000),
    "largest time too small": batch(THREE, 3, max_ms=START_MS - 5000),
    "largest time none": batch(THREE, 3, max_ms=-1),
    "largest time of 2^63-1": batch(THREE, 3, max_ms=2**63 - 1),
    "largest time too large in gzip": batch(THREE, 3, max_ms=START_MS + 5000, codec=Compression.GZIP),
    "largest time too small in zstd": batch(THREE, 3, max_ms=START_MS - 5000, codec=Compression.ZSTD),
    "time before the first": batch(record() + record(ms=-500, offset=1), 2, max_ms=START_MS),
    "no time": batch(record(), base_ms=-1, max_ms=-1),
    "no time in gzip": batch(record(), base_ms=-1, max_ms=-1, codec=Compression.GZIP),
    "time below -1": batch(record(), base_ms=-500, max_ms=-500),
    "one time below 0": batch(record() + record(ms=-START_MS - 9, offset=1), 2, max_ms=START_MS),
    "time of -2^63": batch(record(), base_ms=-(2**63), max_ms=-(2**63)),
    "time of -2^63 in gzip": batch(record(), base_ms=-(2**63), max_ms=-(2**63), codec=Compression.GZIP),
    "time that overflows": batch(record(ms=2**63 - 1), base_ms=2**62, max_ms=2**62),
    "far ahead": batch(record(), base_ms=FAR_AHEAD_MS),
    "long ago": batch(record(), base_ms=LONG_AGO_MS),
    "past the end of time": batch(record(ms=2**62), base_ms=2**62, max_ms=2**62),
    "one of two past the end of time": batch(record() + record(offset=1, ms=2**63 - 1), 2),
}
HEADERS = {
    "log append time": batch(record(), attributes=8),
    "log append time, three records": batch(THREE, 3, attributes=8),
    "log append time in gzip": batch(THREE, 3, attributes=8, codec=Compression.GZIP),
    "log append time, no time": batch(record(), attributes=8, base_ms=-1, max_ms=-1),
    "delete horizon": batch(record(), attributes=0x40),
    "unused attribute": batch(record(), attributes=0x80),
    "unused high attributes": batch(record(), attributes=0x7F00),
    "control": batch(record(), attributes=0x20),
    "commit marker": encode_control_batch(ControlRecord(ControlType.COMMIT, 5, 0, 0), timestamp_ms=START_MS),
    "transactional, no producer": batch(record(), attributes=0x10),
    "transactional, no transaction": batch(record(), attributes=0x10, producer=(77_777, 0, 0)),
    "producer": batch(record(), producer=(60_001, 0, 0)),
    "producer without sequence": batch(record(), producer=(60_002, 0, -1)),
    "producer without epoch": batch(record(), producer=(60_003, -1, 0)),
    "producer -2": batch(record(), producer=(-2, 0, 0)),
    "sequence without producer": batch(record(), producer=(-1, -1, 5)),
    "epoch without producer": batch(record(), producer=(-1, 5, -1)),
    "producer, first sequence 7": batch(record(), producer=(60_004, 0, 7)),
    "producer, sequence wraps": batch(THREE, 3, producer=(60_005, 0, 2**31 - 2)),
    "magic 3": batch(record(), magic=3),
    "magic -1": batch(record(), magic=-1),
    "magic 1": old_message(1),
    "magic 0": old_message(0),
}
FRAMES = {
    "half a header": ONE[:40],
    "half a batch": ONE[:-1],
    "a byte behind": ONE + b"\0",
    "half a second batch": ONE + ONE[:-3],
    "length too short": batch(record(), length_change=-1),
    "length too long": batch(record(), length_change=1),
    "length 0": ONE[:8] + bytes(4) + ONE[12:],
    "length -1": ONE[:8] + b"\xff" * 4 + ONE[12:],
    "wrong checksum": ONE[:17] + bytes(4) + ONE[21:],
    "flipped bit": ONE[:-2] + bytes((ONE[-2] ^ 1,)) + ONE[-1:],
    "two batches": ONE + ONE,
    "a whole and a garbled batch": ONE + batch(GARBAGE, 3),
    "two batches of a producer": batch(record(), producer=(60_006, 0, 0)) + batch(record(), producer=(60_006, 0, 1)),
}


def _cases() -> Iterator[tuple[str, OddBatch]]:
    for group in (COUNTS, OFFSETS, CODECS, RECORDS, TIMES, HEADERS, FRAMES):
        for name, records in group.items():
            yield name, OddBatch(records)
    for topic in ("compacted", "lz4", "uncompressed", "stamped"):
        for name in (
            *("three records", "garbage", "no record bytes, count 1", "count 2, one record", "count 2^31-1"),
            *("offset deltas all 0", "offset deltas with gaps", "codec 5", "gzip", "lz4", "broken gzip", "broken lz4"),
            *("gzip, count 2, one record", "null key", "null value", "largest time too large", "header count -1"),
            *("largest time too small in zstd", "lz4 of garbage", "no time", "header key that is no text"),
            *("record attributes 128", "record attributes 128, key of an odd letter", "lz4 in two", "time of -2^63"),
            *("record attributes 128, offset deltas with gaps", "offset delta of ten bytes"),
        ):
            yield f"{topic}: {name}", OddBatch({**COUNTS, **OFFSETS, **CODECS, **RECORDS, **TIMES}[name], topic)
    for topic in ("lz4", "uncompressed", "stamped", "compacted"):
        for name in (
            *(
                "log append time",
                "log append time, three records",
                "log append time in gzip",
                "log append time, no time",
            ),
            *("time below -1", "one time below 0", "time before the first", "time of -2^63 in gzip", "no time in gzip"),
            *("producer without epoch", "producer -2", "sequence without producer", "epoch without producer"),
        ):
            yield f"{topic}: {name}", OddBatch({**TIMES, **HEADERS}[name], topic)
    nulls = record() + record(None, offset=1) + record(offset=2) + record(None, offset=3)
    yield "compacted: two null keys", OddBatch(batch(nulls, 4, max_ms=START_MS), "compacted")
    yield (
        "compacted: two null keys in zstd",
        OddBatch(batch(nulls, 4, max_ms=START_MS, codec=Compression.ZSTD), "compacted"),
    )
    for name in ("one record", "far ahead", "long ago", "no time", "largest time of 2^63-1", "time below -1"):
        yield f"punctual: {name}", OddBatch({**COUNTS, **TIMES}[name], "punctual")
    mixed = record() + record(offset=1, ms=FAR_AHEAD_MS - START_MS) + record(offset=2, ms=LONG_AGO_MS - START_MS)
    yield "punctual: two of three", OddBatch(batch(mixed, 3, max_ms=FAR_AHEAD_MS), "punctual")
    yield "punctual: two of three, header silent", OddBatch(batch(mixed, 3, max_ms=START_MS), "punctual")
    yield "stamped: far ahead", OddBatch(TIMES["far ahead"], "stamped")
    yield "small: too large", OddBatch(batch(record(b"k", b"x" * 600)), "small")
    yield "small: too large garbage", OddBatch(batch(GARBAGE * 10, 3), "small")
    yield "small: small in gzip", OddBatch(batch(record(b"k", b"x" * 5000), codec=Compression.GZIP), "small")
    yield "zstd by version 6", OddBatch(CODECS["zstd"], version=6)
    yield "zstd: into zstd by version 6", OddBatch(COUNTS["three records"], "zstd", 6)
    yield "garbage by version 3", OddBatch(COUNTS["garbage"], version=3)
    yield "null key by version 7", OddBatch(RECORDS["null key"], "compacted", 7)


CASES = dict(_cases())


def partitions() -> dict[str, list[str]]:
    """Kind of topic -> the cases for it, one partition each."""
    found: dict[str, list[str]] = {kind: [] for kind in TOPICS}
    for name, case in CASES.items():
        found[case.topic].append(name)
    return found


def opinion(ask: Ask, topic: str, partition: int, case: OddBatch) -> dict[str, Any]:
    """What the broker answered, and what it then keeps in the partition, which was empty."""
    request = production(topic, {partition: case.records})
    answer = ask(request, case.version).responses[0].partition_responses[0]
    found: dict[str, Any] = {"error_code": answer.error_code}
    if answer.error_message is not None:
        found["error_message"] = _without_names(answer.error_message, topic)
    if answer.record_errors:
        found["record_errors"] = [
            [each.batch_index, each.batch_index_error_message and _without_names(each.batch_index_error_message, topic)]
            for each in answer.record_errors
        ]
    found["offsets"] = [answer.base_offset, answer.log_start_offset]
    found["stamped"] = answer.log_append_time_ms >= 0
    found["kept"] = _kept(ask, topic, partition)
    return found


def _kept(ask: Ask, topic: str, partition: int) -> list[dict[str, Any]]:
    data = ask(fetching(topic, {partition: 0}), VERSION).responses[0].partitions[0]
    assert data.error_code == 0, data
    kept = []
    for _, header in iter_headers(bytes(data.records or b"")):
        kept.append(
            {
                "offsets": [header.base_offset, header.last_offset],
                "count": header.records_count,
                "attributes": header.attributes,
                "max_ms": None if header.is_log_append_time else header.max_timestamp,
                "base_ms": header.base_timestamp,
            }
        )
    return kept


def _without_names(text: str, topic: str) -> str:
    text = re.sub(re.escape(topic) + r"-\d+", "TOPIC-0", text)
    text = re.sub(r"in message .*\. Producer should", "in message RECORD. Producer should", text)
    return re.sub(r"\[-?\d+, -?\d+\]", "[from, to]", text.replace(topic, "TOPIC"))


def golden() -> dict[str, dict[str, Any]]:
    """Name -> what Apache Kafka answered."""
    rows = (json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines())
    return {row.pop("name"): row for row in rows}


DIFFERENCES = {
    "lz4, bytes behind": (87, "not every client unpacks it; Kafka looks at what it needs only"),
    "gzip, bytes behind": (87, "the same"),
    "lz4, an empty frame behind": (87, "the same"),
    "a byte behind": (2, "what is acknowledged is all that was sent; Kafka drops the rest without a word"),
    "half a second batch": (2, "the same"),
}
"""Where this broker refuses what Apache Kafka takes: the error code here, and why."""


def expected(name: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What this broker is to answer, by what Apache Kafka did.

    Kafka's UNKNOWN_SERVER_ERROR for what it failed to unpack is INVALID_RECORD here.
    """
    answer = dict(recorded)
    if name in DIFFERENCES:
        code = DIFFERENCES[name][0]
        answer |= {"error_code": code, "offsets": [-1, 0 if code == INVALID_RECORD else -1], "kept": []}
    elif answer["error_code"] == UNKNOWN_SERVER_ERROR:
        answer["error_code"] = INVALID_RECORD
    return answer
