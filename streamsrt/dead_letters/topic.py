"""A dead-letter topic of a cluster: its letters, and replays and drops in transactions.

1. The topic is read up to its end at the start of the command: letters that arrive later wait for the next command.
2. The topic is read twice: once for the marks and for the letters that belong to one record, once for the contents.
   Memory grows with the number of waiting letters, not with their size.
3. A transaction contains records and the marks of their letters. The transactional id belongs to the topic: a second
   replay of the same topic fences the first one, whose open transaction is decided before the marks are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of, ends_of, partitions_of, read_range, starts_of
from streamsrt.client.values import ClientConfig, FetchConfig, ProducerConfig
from streamsrt.dead_letters.letters import (
    FailedRecord,
    Letter,
    LetterFilter,
    LetterOutcome,
    Mark,
    Outcomes,
    Position,
    mark_of,
    read_records,
)
from streamsrt.dead_letters.placement import PlacedBy, PlacesOfKeys
from streamsrt.errors import MissingTopicError
from streamsrt.tasks.output.record_collector import RecordCollector

_START_TIMEOUT_S = 10.0
_TIMEOUT_S = 30.0
TRANSACTION_LETTERS = 500
_TRANSACTION_BYTES = 8 << 20


@contextlib.contextmanager
def connected(bootstrap_servers: str, topic: str, *, writes: bool = False) -> Iterator[NetworkThread]:
    """A connection that reads what is committed; with ``writes``, the one that replays letters of that topic.

    Whatever an earlier one of these left undecided is decided when this begins.
    """
    network = NetworkThread(
        ClientConfig(
            bootstrap_servers=bootstrap_servers,
            client_id="streamsrt-dlq",
            fetch=FetchConfig(isolation_level="read_committed", max_wait_ms=20),
            producer=ProducerConfig(transactional_id=f"streamsrt-dlq-{topic}" if writes else None),
        )
    )
    network.start(_START_TIMEOUT_S)
    try:
        if writes:
            network.transactions.initialize(_TIMEOUT_S)
        yield network
    finally:
        network.stop()


@dataclass(frozen=True, slots=True)
class PendingLetter:
    """A letter with which nothing was done, beside the others of the same record."""

    letter: Letter
    same_record: tuple[Position, ...]
    """The positions of all letters of that record, this one's among them."""
    was_replayed: bool = False
    """Whether its record was, by another letter of it."""

    def why_not_replayed(self, *, stopped_too: bool = False) -> str | None:
        """Why a replay would do harm; None where it would not."""
        if self.was_replayed:
            return (
                "another dead letter of the same record was replayed, so that it is in its topic again. If it is another "
                "record (the topic was created anew), name the dead letter: --at PARTITION:OFFSET"
            )
        return self.letter.why_not_replayed(stopped_too=stopped_too)


class DeadLetterTopic:
    """The letters of one topic, up to where it ended when this was made. Raises MissingTopicError, BrokerError."""

    def __init__(self, network: NetworkThread, topic: str) -> None:
        self.network = network
        self.topic = topic
        partitions = partitions_of(network, topic)
        self._starts = starts_of(network, partitions)
        self._ends = ends_of(network, partitions, read_committed=True)
        marks: list[tuple[int, Mark]] = []
        of_origin: dict[FailedRecord, list[tuple[Position, int | None]]] = {}
        self.other_records = 0
        """How many records of the topic are no letters."""
        for found in self._read():
            if not isinstance(found, Letter):
                marks.append(found)
            elif not found.is_letter:
                self.other_records += 1
            elif (origin := found.origin) is not None and origin.offset >= 0:
                of_origin.setdefault(origin, []).append((found.position, found.content))
        self.outcomes = Outcomes(marks)
        records = [record for letters in of_origin.values() for record in _by_record(letters) if len(record) > 1]
        self._of_record = {position: record for record in records for position in record}

    def letters(self) -> Iterator[tuple[Letter, LetterOutcome | None]]:
        """Each letter, and what was done with it. It is replayed, too, if another letter of its record was."""
        for found in self._read():
            if isinstance(found, Letter) and found.is_letter:
                outcome = self.outcomes.of(found.position)
                yield found, LetterOutcome.REPLAYED if outcome is None and self._was_replayed(found) else outcome

    def _was_replayed(self, letter: Letter) -> bool:
        return any(self.outcomes.of(each) is LetterOutcome.REPLAYED for each in self._same_record(letter))

    def _same_record(self, letter: Letter) -> tuple[Position, ...]:
        return self._of_record.get(letter.position, (letter.position,))

    def waiting(self, wanted: LetterFilter) -> Iterator[PendingLetter]:
        """The wanted letters with which nothing was done; of the letters of one record only the first. Where another letter
        of a record was replayed, this one is only replayed by its position."""
        given: set[Position] = set()
        for letter, _ in self.letters():
            if self.outcomes.of(letter.position) is not None or not wanted.includes(letter):
                continue
            record = self._same_record(letter)
            if self._was_replayed(letter):
                yield PendingLetter(letter, (letter.position,), was_replayed=not wanted.positions)
            elif record[0] not in given:
                given.add(record[0])
                yield PendingLetter(letter, record)

    def _read(self) -> Iterator[Letter | tuple[int, Mark]]:
        for fetched in read_range(self.network, self._starts, self._ends):
            end = self._ends[fetched.topic, fetched.partition]
            for columns in columns_of(fetched):
                for found in read_records(fetched.partition, columns):
                    if not isinstance(found, Letter) or found.offset < end:
                        yield found


def _by_record(letters: Iterable[tuple[Position, int | None]]) -> Iterable[tuple[Position, ...]]:
    """The letters with one origin, by their records: in a topic that was created anew, another record has that offset. One
    that lacks a part of its record belongs to the only one that there is."""
    contents = {content for _, content in letters if content is not None}
    only = contents.pop() if len(contents) == 1 else None
    found: dict[int | None, list[Position]] = {}
    for position, content in letters:
        found.setdefault(only if content is None else content, []).append(position)
    return map(tuple, found.values())


class PlacesByTopic(dict[str, PlacesOfKeys]):
    """The places of the keys of letters, by the topics that these came from."""

    def __init__(self, network: NetworkThread) -> None:
        super().__init__()
        self._network = network

    def add(self, letter: Letter) -> None:
        origin = letter.origin
        if origin is None:
            return
        if origin.topic not in self:
            found = self._network.admin.partitions_for([origin.topic])
            self[origin.topic] = PlacesOfKeys(found.get(origin.topic, 0))
        self[origin.topic].add(letter.key, origin.partition)


def target_partitions(network: NetworkThread, targets: Iterable[str]) -> dict[str, int]:
    """How many partitions each of the topics has that records are replayed to. Raises MissingTopicError."""
    wanted = sorted(set(targets))
    found = network.admin.partitions_for(wanted)
    if missing := [topic for topic in wanted if topic not in found]:
        raise MissingTopicError(
            f"no such topic: {', '.join(missing)}, to which dead letters are replayed. Create it, "
            "or replay with --to TOPIC"
        )
    return found


class Replay:
    """Writes records back and marks their letters, a transaction at a time.

    ``to``: the topic that gets them all, by their keys; None: each goes to the topic that it came from, to the partition
    that ``placement`` says. ``targets``: the topics that get records. Raises MissingTopicError, ProductionError and
    BrokerError; what is not committed is found again.
    """

    def __init__(
        self,
        source: DeadLetterTopic,
        targets: Iterable[str] = (),
        *,
        to: str | None = None,
        placement: PlacedBy = PlacedBy.ORIGIN,
    ) -> None:
        self._source = source
        self._to = to
        self._by_origin = to is None and placement is PlacedBy.ORIGIN
        self._partitions = target_partitions(source.network, {source.topic, *targets})
        self._collector = RecordCollector(
            source.network.producer.send, self._partitions.__getitem__, transactional=True
        )
        self._marked: dict[tuple[int, LetterOutcome], list[int]] = {}
        self._letters = 0
        self._bytes = 0

    def add(self, waiting: PendingLetter) -> None:
        """The record of a letter goes back; all letters of that record are marked as replayed."""
        letter, origin = waiting.letter, waiting.letter.origin
        assert origin is not None, "a dead letter without an origin is not replayed"
        topic = origin.topic if self._to is None else self._to
        is_there = self._by_origin and 0 <= origin.partition < self._partitions[topic]
        headers = letter.replayed(self._source.topic)
        partition = origin.partition if is_there else None
        self._collector.add(topic, [letter.key], [letter.value], [letter.timestamp], [headers], partition)
        self._bytes += len(letter.key or b"") + len(letter.value or b"")
        self._mark(LetterOutcome.REPLAYED, waiting.same_record)

    def drop(self, waiting: PendingLetter) -> None:
        """One letter is given up."""
        self._mark(LetterOutcome.DROPPED, (waiting.letter.position,))

    def _mark(self, outcome: LetterOutcome, positions: Iterable[Position]) -> None:
        for partition, offset in positions:
            self._marked.setdefault((partition, outcome), []).append(offset)
        self._letters += 1

    @property
    def letters(self) -> int:
        """How many letters the transaction holds so far."""
        return self._letters

    @property
    def is_full(self) -> bool:
        """Whether there is enough for a transaction."""
        return self._letters >= TRANSACTION_LETTERS or self._bytes >= _TRANSACTION_BYTES

    def send(self) -> None:
        """Hands what there is to the producer, into the transaction that :meth:`commit` ends."""
        self._collector.flush()

    def commit(self, now_ms: int) -> int:
        """Ends the transaction; how many letters it held."""
        done = self._letters
        if not done:
            return 0
        for (partition, outcome), offsets in self._marked.items():
            mark = mark_of(outcome, offsets)
            self._collector.add(self._source.topic, [mark.key], [mark.value], [now_ms], [mark.headers], partition)
        self.send()
        self._source.network.transactions.commit("", {}, member_id="", member_epoch=-1, timeout_s=_TIMEOUT_S)
        self._marked.clear()
        self._letters = self._bytes = 0
        return done
