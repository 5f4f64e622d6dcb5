"""``compression.type`` of a topic: batches are kept in its codec, and records stay what they were."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from streamsrt.wire.compression import Compression
from streamsrt.wire.records import decode_batch, encode_batch, read_header
from tests.coordinator.broker.in_process import START_MS, InProcessBroker, fetching, production
from tests.coordinator.broker.test_configs import alter

TOPIC, SET = 2, 0
CODECS = {"uncompressed": Compression.NONE, **{codec.type_name: codec for codec in Compression if codec}}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path_factory.mktemp("recompression") / "data")
    yield made
    made.close()


def sent(broker: InProcessBroker, name: str, batch: bytes) -> int:
    return int(broker.ask(production(name, {0: batch}), 12).responses[0].partition_responses[0].error_code)


def kept(broker: InProcessBroker, name: str, offset: int = 0) -> bytes:
    return bytes(broker.ask(fetching(name, {0: offset}), 12).responses[0].partitions[0].records)


def records(codec: Compression, **fields: int) -> bytes:
    """Three records with keys, headers, a null value and times that are not in order."""
    return bytes(
        encode_batch(
            [b"a", None, b"c"],
            [b"x" * 500, b"y", None],
            [START_MS + 5, START_MS, START_MS + 2],
            headers=[[("h", b"v")], [], [("n", None)]],
            compression=codec,
            **fields,
        )
    )


@pytest.mark.parametrize("given", Compression)
@pytest.mark.parametrize("wanted", CODECS)
def test_every_codec_to_every_other(broker: InProcessBroker, wanted: str, given: Compression) -> None:
    name = f"{wanted}-{given.type_name}"
    broker.create(name, compression_type=wanted)
    batch = records(given)
    assert sent(broker, name, batch) == 0
    data = kept(broker, name)
    header = read_header(data)
    assert header.compression is CODECS[wanted]
    assert (header.records_count, header.max_timestamp) == (3, START_MS + 5)
    found, expected = decode_batch(data), decode_batch(batch)
    assert (found.keys, found.values, found.timestamps) == (expected.keys, expected.values, expected.timestamps)
    assert found.headers == expected.headers
    if given is CODECS[wanted]:
        assert data[16:] == batch[16:], "a batch in the right codec is not touched"


def test_by_default_the_producer_chooses(broker: InProcessBroker) -> None:
    broker.create("by-default")
    assert sent(broker, "by-default", records(Compression.LZ4)) == 0
    assert read_header(kept(broker, "by-default")).compression is Compression.LZ4
    assert alter(broker, TOPIC, "by-default", ("compression.type", SET, "gzip")) == (0, None)
    assert sent(broker, "by-default", records(Compression.LZ4)) == 0
    assert read_header(kept(broker, "by-default", 3)).compression is Compression.GZIP


def test_it_goes_together_with_sequences_and_the_brokers_time(broker: InProcessBroker) -> None:
    broker.create("together", compression_type="zstd", message_timestamp_type="LogAppendTime")
    for sequence in (0, 0, 3):
        batch = records(Compression.NONE, producer_id=9, producer_epoch=0, base_sequence=sequence)
        assert sent(broker, "together", batch) == 0
    broker.restart()
    data = kept(broker, "together")
    header = read_header(data)
    assert (header.compression, header.max_timestamp) == (Compression.ZSTD, broker.now_ms)
    assert header.size_bytes * 2 == len(data), "what was sent again is there once"
    assert set(decode_batch(data).timestamps) == {broker.now_ms}


def test_what_is_refused(broker: InProcessBroker) -> None:
    broker.create("refused", compression_type="uncompressed", max_message_bytes="10000")
    large = bytes(encode_batch([b"k"], [b"x" * 50_000], [START_MS], compression=Compression.ZSTD))
    assert len(large) < 1000
    assert sent(broker, "refused", large) == 10
    broken = bytearray(encode_batch([b"k"], [os.urandom(100)], [START_MS]))
    broken[22] |= Compression.GZIP

    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    assert sent(broker, "refused", bytes(broken)) == 87
    assert kept(broker, "refused") == b""


def test_a_broker_wide_default(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data", {"compression.type": "snappy"})
    broker.create("t")
    assert sent(broker, "t", records(Compression.NONE)) == 0
    assert read_header(kept(broker, "t")).compression is Compression.SNAPPY
    broker.close()
