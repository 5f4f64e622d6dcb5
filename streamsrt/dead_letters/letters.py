"""A dead letter as a value: what failed, where and why, whether it can be replayed, and whether it has been.

1. All information about a letter is in its headers. Letters of Kafka Streams have fewer headers, but can be read, too.
   Headers of the record itself say nothing, whatever their names are: they come before those that were added.
2. A mark says what was done with letters of its own partition. It comes after them, so retention deletes letters first. It
   is exactly as :class:`Mark` makes it: a mark of another topic that was processed and failed is a letter.
3. Nothing here reads or writes.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from streamsrt.application import is_of_program
from streamsrt.operators.engine.handlers import ERROR_HEADER_PREFIX, LETTER_HEADER_PREFIX, own_headers_of
from streamsrt.wire.records import Headers, RecordColumns

REPLAYED_HEADER = "__streamsrt.replayed.from"
"""Of a replayed record: ``TOPIC-PARTITION@OFFSET`` of its letter. A record that was replayed twice has it twice."""
MARK_HEADER = "__streamsrt.letters.mark"
"""Of a mark: what was done, ``replayed`` or ``dropped``. Its value lists the offsets of letters in the same partition."""
Position: TypeAlias = tuple[int, int]
"""Partition and offset in the dead-letter topic."""
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


class FailedRecord(NamedTuple):
    """The record that failed."""

    topic: str
    partition: int
    offset: int


class LetterOutcome(Enum):
    """What was done with a letter."""

    REPLAYED = "replayed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter. ``headers``: the record's own; ``timestamp``: epoch milliseconds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    details: Mapping[str, str]
    """What the headers of the letter say, by their names without prefix."""
    replays: int = 0
    """How often the record had been replayed before it failed again."""

    @property
    def is_letter(self) -> bool:
        """Whether it says what failed. Otherwise it is an ordinary record that lies in the topic."""
        return bool(self.details)

    @property
    def position(self) -> Position:
        return self.partition, self.offset

    @property
    def origin(self) -> FailedRecord | None:
        """The record that failed; None where the letter does not know (a punctuation, a commit)."""
        topic = self.details.get("topic")
        return FailedRecord(topic, self.number("partition"), self.number("offset")) if topic else None

    @property
    def content(self) -> int | None:
        """Tells its record from another one that has had the same offset, in a topic that was created anew; None where the
        letter was written without a part of the record. Of this process only."""
        if any(f"omitted.{name}.bytes" in self.details for name in ("key", "value")):
            return None
        return hash((self.key, self.value))

    def number(self, name: str) -> int:
        """One of the letter's headers as a number; -1 where there is none."""
        text = self.details.get(name, "")
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else -1

    @property
    def error(self) -> str:
        """The class of the exception, without its module."""
        return self.details.get("exception", "").rpartition(".")[2]

    @property
    def line(self) -> str:
        """The innermost line of the program itself in the stack trace: ``FILE:LINE in FUNCTION``; empty if none is."""
        frames = list(_FRAME.finditer(self.details.get("stacktrace", "")))
        own = [each for each in frames if is_of_program(each["file"])]
        if not own:
            return ""
        frame = own[-1]
        return f"{frame['file']}:{frame['line']} in {frame['function']}"

    def why_not_replayed(self, *, stopped_too: bool = False) -> str | None:
        """Why a replay would do harm; None where it would not. ``stopped_too``: a stopped application is no reason."""
        if omitted := [name for name in ("value", "key", "headers") if f"omitted.{name}.bytes" in self.details]:
            return f"too large for the dead-letter topic: its {omitted[0]} was left out"
        if self.origin is None:
            return "it failed in a commit or a punctuation: which record it came from is unknown"
        if self.details.get("held") == "true":
            return "it is a change that an operator held back, not a record of the topic"
        if self.details.get("response") == "fail" and self.origin.offset >= 0 and not stopped_too:
            return "the application stopped at this record and reads it again when it restarts"
        return None

    def replayed(self, dead_letter_topic: str) -> Headers:
        """The headers of the record that goes back."""
        mark = f"{dead_letter_topic}-{self.partition}@{self.offset}"
        return (*self.headers, (REPLAYED_HEADER, mark.encode()))


@dataclass(frozen=True, slots=True)
class Mark:
    """What was done with letters of one partition, as ranges of offsets (both ends included)."""

    outcome: LetterOutcome
    ranges: tuple[tuple[int, int], ...]

    @property
    def key(self) -> bytes:
        """One of its own, for topics that are compacted."""
        return f"{self.outcome.value} {self.ranges[0][0]}-{self.ranges[-1][1]}".encode()

    @property
    def value(self) -> bytes:
        return json.dumps([list(each) for each in self.ranges]).encode()

    @property
    def headers(self) -> Headers:
        return ((MARK_HEADER, self.outcome.value.encode()),)


def mark_of(outcome: LetterOutcome, offsets: Iterable[int]) -> Mark:
    """The mark that says this of these offsets, of which there is at least one."""
    return Mark(outcome, tuple(_ranges((offset, offset) for offset in offsets)))


def _ranges(pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted, and joined where they touch."""
    first: int | None = None
    last = -1
    for start, end in sorted(pieces):
        if first is None:
            first, last = start, end
        elif start <= last + 1:
            last = max(last, end)
        else:
            yield first, last
            first, last = start, end
    if first is not None:
        yield first, last


class Outcomes:
    """What the marks of a topic say of its letters."""

    def __init__(self, marks: Iterable[tuple[int, Mark]] = ()) -> None:
        pieces: dict[tuple[int, LetterOutcome], list[tuple[int, int]]] = {}
        for partition, mark in marks:
            pieces.setdefault((partition, mark.outcome), []).extend(mark.ranges)
        self._ranges = {key: list(_ranges(found)) for key, found in pieces.items()}

    def of(self, position: Position) -> LetterOutcome | None:
        """None: nothing was done with it yet."""
        partition, offset = position
        for outcome in LetterOutcome:
            ranges = self._ranges.get((partition, outcome), [])
            index = bisect_right(ranges, (offset, 1 << 63))
            if index and ranges[index - 1][1] >= offset:
                return outcome
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters are meant: those that agree with all that is given. Times are epoch milliseconds."""

    applications: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    """Names of exception classes, with or without their modules."""
    steps: frozenset[str] = frozenset()
    contains: str | None = None
    """A part of the error's message."""
    from_ms: int | None = None
    before_ms: int | None = None
    positions: frozenset[Position] = field(default_factory=frozenset)

    def includes(self, letter: Letter) -> bool:
        details = letter.details
        return (
            _is_among(self.positions, letter.position)
            and _is_among(self.applications, details.get("application.id"))
            and _is_among(self.topics, details.get("topic"))
            and _is_among(self.steps, details.get("node"))
            and (not self.errors or not self.errors.isdisjoint({letter.error, details.get("exception", "")}))
            and (self.contains is None or self.contains in details.get("message", ""))
            and (self.from_ms is None or letter.timestamp >= self.from_ms)
            and (self.before_ms is None or letter.timestamp < self.before_ms)
        )


def _is_among(wanted: frozenset[object] | frozenset[str] | frozenset[Position], found: object) -> bool:
    return not wanted or found in wanted


def read_records(partition: int, columns: RecordColumns) -> Iterator[Letter | tuple[int, Mark]]:
    """The letters and the marks of a batch of a dead-letter topic, the marks with their partition."""
    headers = columns.headers or [()] * len(columns)
    for index, found in enumerate(headers):
        mark = _mark(columns.keys[index], columns.values[index], found)
        yield _letter(partition, columns, index, found) if mark is None else (partition, mark)


def _mark(key: bytes | None, value: bytes | None, headers: Headers) -> Mark | None:
    """None for what nobody of us has written."""
    if len(headers) != 1 or headers[0][0] != MARK_HEADER:
        return None
    try:
        ranges = tuple((int(first), int(last)) for first, last in json.loads(value or b"[]"))
        mark = Mark(LetterOutcome((headers[0][1] or b"").decode()), ranges)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return mark if ranges and mark.key == key else None


def _letter(partition: int, columns: RecordColumns, index: int, headers: Headers) -> Letter:
    details: dict[str, str] = {}
    count = own_headers_of(headers)
    own: list[tuple[str, bytes | None]] = [*headers[:count]]
    for name, value in headers[count:]:
        prefix = next((each for each in (ERROR_HEADER_PREFIX, LETTER_HEADER_PREFIX) if name.startswith(each)), None)
        if prefix is None:
            own.append((name, value))
        elif value is not None:
            details[name.removeprefix(prefix)] = value.decode(errors="replace")
    return Letter(
        partition=partition,
        offset=columns.offset_at(index),
        key=columns.keys[index],
        value=columns.values[index],
        timestamp=columns.timestamps[index],
        headers=tuple(own),
        details=details,
        replays=sum(name == REPLAYED_HEADER for name, _ in own),
    )
