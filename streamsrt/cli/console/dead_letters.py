"""The contents of a dead-letter topic: the number of waiting letters by application, step and error, and the newest
ones.

1. The topic is read on request, at most once every few seconds, because it may be large.
2. Only so many letters are kept, the newest by their records' timestamps; all are counted.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Final

from streamsrt.cli.console.instances import Json
from streamsrt.cli.dlq import letter_row
from streamsrt.dead_letters.topic import DeadLetterTopic, connected

SHOWN: Final = 200


def letters_of(bootstrap_servers: str, topic: str) -> Json:
    """Raises MissingTopicError, BrokerError."""
    newest: list[tuple[int, int, int, dict[str, object]]] = []
    numbers: Counter[tuple[str, str, str, str]] = Counter()
    with connected(bootstrap_servers, topic) as network:
        for letter, outcome in DeadLetterTopic(network, topic).letters():
            row = letter_row(letter, outcome)
            numbers[tuple(str(row[name]) for name in ("application", "step", "error", "state"))] += 1  # type: ignore[index]
            add = heapq.heappush if len(newest) < SHOWN else heapq.heappushpop
            add(newest, (letter.timestamp, letter.offset, letter.partition, row))
    return {
        "topic": topic,
        "numbers": [
            {"application": application, "step": step, "error": error, "state": state, "letters": count}
            for (application, step, error, state), count in numbers.most_common()
        ],
        "newest": [row for *_, row in sorted(newest, key=lambda each: each[:3], reverse=True)],
    }
