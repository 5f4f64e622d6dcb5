"""The recorded and generated data of tests/golden, read once."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def read(path: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def frames() -> list[dict[str, Any]]:
    """Requests and responses between Kafka Streams clients and a Kafka 4.4.0 broker, with what Kafka decodes."""
    return read("frames/frames.jsonl.gz")


@cache
def records() -> list[dict[str, Any]]:
    """Keys and values of the broker's ``__consumer_offsets``."""
    return read("frames/records.jsonl.gz")


@cache
def messages_by_name() -> dict[str, list[dict[str, Any]]]:
    """Random and default messages of every version as Kafka 4.4.0's own classes encode them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in [*read("messages/random.jsonl.gz"), *read("messages/defaults.jsonl.gz")]:
        found.setdefault(row["name"], []).append(row)
    return found
