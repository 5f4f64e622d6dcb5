"""What the console tells of a dead-letter topic."""

from __future__ import annotations

import json

import pytest

from streamsrt.cli.console import dead_letters
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command


def test_the_newest_letters_are_those_of_all_partitions(
    on_broker: Command, bundled_broker: BundledBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    lines = [
        {
            "value": "x",
            "timestamp": 1_000 * number,
            "partition": number % 2,
            "headers": {"__streams.errors.topic": "orders", "__streams.errors.exception": f"E{number}"},
        }
        for number in range(1, 7)
    ]
    stdin = "".join(f"{json.dumps(line)}\n" for line in lines)
    assert on_broker("produce", topic, "--format", "json", stdin=stdin).code == 0
    monkeypatch.setattr(dead_letters, "SHOWN", 3)
    found = dead_letters.letters_of(bundled_broker.bootstrap_servers, topic)
    assert [row["error"] for row in found["newest"]] == ["E6", "E5", "E4"]
    assert sum(row["letters"] for row in found["numbers"]) == 6
