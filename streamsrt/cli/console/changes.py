"""Changes by the console if it was started with ``--allow-changes``: letters are replayed or dropped.

1. Only letters that a request names are touched, and each of them once: as by ``streamsrt dlq``.
2. Every change is printed to the console's own output.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection

from streamsrt.cli.console.instances import Json
from streamsrt.cli.dlq import explained_if_fenced
from streamsrt.cli.output import note
from streamsrt.dead_letters.letters import LetterFilter, LetterOutcome, Position
from streamsrt.dead_letters.placement import why_not_placed
from streamsrt.dead_letters.topic import DeadLetterTopic, PendingLetter, PlacesByTopic, Replay, connected
from streamsrt.errors import ConfigError

MOST_LETTERS = 1_000
"""So many a request may name."""
NOT_WAITING = "they are no dead letters, or something was done already with them or another letter of the same record"


def change_letters(bootstrap_servers: str, topic: str, outcome: LetterOutcome, positions: Collection[Position]) -> Json:
    """Replays letters to where their records came from, or drops them. Raises MissingTopicError, BrokerError.

    ``positions``: at least one. Letters with which something was done already are passed over.
    """
    wanted = LetterFilter(positions=frozenset(positions))
    with connected(bootstrap_servers, topic, writes=True) as network, explained_if_fenced(topic):
        letters = DeadLetterTopic(network, topic)
        done, left = (_replay if outcome is LetterOutcome.REPLAYED else _drop)(letters, wanted)
    if rest := len(wanted.positions) - done - left.total():
        left[NOT_WAITING] = rest
    note(f"{done} dead letters of {topic} are {outcome.value}, as requested by the page")
    return {"done": done, "left": [{"letters": count, "why": why} for why, count in left.most_common()]}


def _replay(letters: DeadLetterTopic, wanted: LetterFilter) -> tuple[int, Counter[str]]:
    chosen: list[PendingLetter] = []
    targets: set[str] = set()
    left: Counter[str] = Counter()
    places = PlacesByTopic(letters.network)
    for waiting in letters.waiting(wanted):
        why, origin = waiting.why_not_replayed(), waiting.letter.origin
        if why is None and origin is not None:
            chosen.append(waiting)
            targets.add(origin.topic)
            places.add(waiting.letter)
        else:
            left[why or ""] += 1
    if doubt := why_not_placed(places):
        raise ConfigError(f"{doubt} (streamsrt dlq replay)")
    work, done = Replay(letters, targets), 0
    for each in chosen:
        work.add(each)
        if work.is_full:
            done += work.commit(_now_ms())
    return done + work.commit(_now_ms()), left


def _drop(letters: DeadLetterTopic, wanted: LetterFilter) -> tuple[int, Counter[str]]:
    work, done = Replay(letters), 0
    for letter, outcome in letters.letters():
        if outcome is None and wanted.includes(letter):
            work.drop(PendingLetter(letter, (letter.position,)))
            if work.is_full:
                done += work.commit(_now_ms())
    return done + work.commit(_now_ms()), Counter()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
