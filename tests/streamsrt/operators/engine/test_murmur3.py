"""Hashes equal Kafka Streams', byte for byte."""

from __future__ import annotations

import json

import pytest

from streamsrt.operators.engine.murmur3 import hash_bytes
from tests.oracle.programs import GOLDEN

ROWS = json.loads((GOLDEN / "09-partitioning" / "murmur3-fk-hash.json").read_text())["rows"]


@pytest.mark.parametrize("row", ROWS, ids=[f"{len(row['value_hex']) // 2}-{i}" for i, row in enumerate(ROWS)])
def test_hash(row: dict[str, str]) -> None:
    assert hash_bytes(bytes.fromhex(row["value_hex"])).hex() == row["fk_hash_bytes_hex"]
