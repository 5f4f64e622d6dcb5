"""``streamsrt dlq``: what is in a dead-letter topic, and another try for it.

Letters are shown with the serdes of the application that is named (``--app``), else as text. Nothing is replayed or dropped
without ``--execute``.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from heapq import nsmallest
from operator import itemgetter
from typing import Annotated, NamedTuple

import typer

from streamsrt.cli.application import load_application
from streamsrt.cli.group_offsets import parse_datetime
from streamsrt.cli.output import note, print_fields, print_rows
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, bootstrap
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ProducerFencedError, TransactionLostError
from streamsrt.dead_letters.decoding import Decode, as_text, decoders, reaches, second_time, shown
from streamsrt.dead_letters.letters import Letter, LetterFilter, LetterOutcome, Position
from streamsrt.dead_letters.placement import PlacedBy, why_not_placed
from streamsrt.dead_letters.topic import (
    DeadLetterTopic,
    PendingLetter,
    PlacesByTopic,
    Replay,
    connected,
    target_partitions,
)
from streamsrt.errors import ConfigError
from streamsrt.json_text import json_text
from streamsrt.operators.engine.handlers import ERROR_HEADER_PREFIX
from streamsrt.wording import counted
from topology.graph.topology import Topology

app = typer.Typer(help="Inspect, replay and drop dead letters.", no_args_is_help=True)
_COLUMNS = ["letter", "time", "application", "step", "origin", "error", "message", "state"]
_MESSAGE_MAX = 60
_PROGRESS_S = 10.0
_REASONS_MAX = 5


@app.callback()
def dlq() -> None:
    """Dead letters."""


Topic = Annotated[str, typer.Argument(help="dead-letter topic (errors.dead.letter.queue.topic.name)")]
Applications = Annotated[
    list[str] | None, typer.Option("--application-id", "-a", help="of this application; repeatable")
]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="records of this topic; repeatable")]
Errors = Annotated[list[str] | None, typer.Option("--error", help="this class of exception; repeatable")]
Steps = Annotated[list[str] | None, typer.Option("--step", help="failed in this node; repeatable")]
Contains = Annotated[str | None, typer.Option("--contains", help="the message has this text")]
From = Annotated[
    str | None, typer.Option("--from", help="records with a timestamp of 2026-01-31T12:00:00 (UTC) or later")
]
Before = Annotated[str | None, typer.Option("--before", help="records with a timestamp before this time")]
At = Annotated[list[str] | None, typer.Option("--at", help="the dead letter at PARTITION:OFFSET; repeatable")]
App = Annotated[
    str | None, typer.Option("--app", help="MODULE:ATTRIBUTE of the topology whose serdes decode keys and values")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="maximum number of dead letters")]


class _Application(NamedTuple):
    """How letters are decoded, and by which topology, if one is given."""

    topology: Topology | None
    key: Decode
    value: Decode


def _application(name: str | None) -> _Application:
    if name is None:
        return _Application(None, as_text, as_text)
    found = load_application(name)
    return _Application(found.topology, *decoders(found.topology, found.config))


def _wanted(
    applications: Sequence[str] | None,
    topics: Sequence[str] | None,
    errors: Sequence[str] | None,
    steps: Sequence[str] | None,
    contains: str | None,
    from_time: str | None,
    before: str | None,
    at: Sequence[str] | None,
) -> LetterFilter:
    return LetterFilter(
        applications=frozenset(applications or ()),
        topics=frozenset(topics or ()),
        errors=frozenset(errors or ()),
        steps=frozenset(steps or ()),
        contains=contains,
        from_ms=None if from_time is None else parse_datetime(from_time, "--from"),
        before_ms=None if before is None else parse_datetime(before, "--before"),
        positions=frozenset(map(position_of, at or ())),
    )


def position_of(text: str) -> Position:
    """``PARTITION:OFFSET``. Raises ConfigError."""
    if (found := re.fullmatch(r"(\d{1,9}):(\d{1,18})", text)) is None:
        raise ConfigError(
            f"{text!r} is not the position of a dead letter: give PARTITION:OFFSET, as shown by `dlq list`"
        )
    return int(found[1]), int(found[2])


@app.command("list")
def list_letters(
    topic: Topic,
    bootstrap_servers: BootstrapServers = None,
    applications: Applications = None,
    topics: Topics = None,
    errors: Errors = None,
    steps: Steps = None,
    contains: Contains = None,
    from_time: From = None,
    before: Before = None,
    everything: Annotated[bool, typer.Option("--all", help="also replayed and dropped dead letters")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="counts by application, step and error")] = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters that were neither replayed nor dropped, by the timestamps of their records."""
    wanted = _wanted(applications, topics, errors, steps, contains, from_time, before, None)
    with bootstrap(bootstrap_servers) as servers, connected(servers, topic) as network:
        found = (
            (letter, outcome)
            for letter, outcome in _letters_of(network, topic).letters()
            if (everything or outcome is None) and wanted.includes(letter)
        )
        if summary:
            _print_summary(found, as_json=as_json)
            return
        rows = ((_order(letter), letter_row(letter, outcome)) for letter, outcome in found)
        first = sorted(rows, key=itemgetter(0)) if limit is None else nsmallest(limit, rows, key=itemgetter(0))
        print_rows(_COLUMNS, [row for _, row in first], as_json=as_json)


def _order(letter: Letter) -> tuple[int, Position]:
    """By the time of the records that failed, whatever partitions the letters are in."""
    return letter.timestamp, letter.position


def _letters_of(network: NetworkThread, topic: str) -> DeadLetterTopic:
    found = DeadLetterTopic(network, topic)
    if found.other_records:
        note(
            f"ignored {counted(found.other_records, 'record')} of {topic} without any of the headers that describe a "
            f"failure ({ERROR_HEADER_PREFIX}*): no dead letters"
        )
    return found


def _print_summary(found: Iterator[tuple[Letter, LetterOutcome | None]], *, as_json: bool) -> None:
    numbers = Counter(
        (
            letter.details.get("application.id", ""),
            letter.details.get("node", ""),
            letter.error,
            _state(letter, outcome),
        )
        for letter, outcome in found
    )
    columns = ["letters", "application", "step", "error", "state"]
    rows = [dict(zip(columns, (count, *what), strict=True)) for what, count in numbers.most_common()]
    print_rows(columns, rows, as_json=as_json)


def letter_row(letter: Letter, outcome: LetterOutcome | None) -> dict[str, object]:
    """A letter as ``dlq list`` shows it."""
    message = letter.details.get("message", "").partition("\n")[0]
    return {
        "letter": f"{letter.partition}:{letter.offset}",
        "time": _time(letter.timestamp),
        "application": letter.details.get("application.id", ""),
        "step": letter.details.get("node", ""),
        "origin": _origin(letter),
        "error": letter.error,
        "message": message if len(message) <= _MESSAGE_MAX else f"{message[: _MESSAGE_MAX - 1]}…",
        "state": _state(letter, outcome),
    }


def _state(letter: Letter, outcome: LetterOutcome | None) -> str:
    if outcome is not None:
        return outcome.value
    return "stopped" if letter.details.get("response") == "fail" else "waiting"


def _time(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)


def _origin(letter: Letter) -> str:
    origin = letter.origin
    if origin is None:
        return "unknown"
    return origin.topic if origin.partition < 0 else f"{origin.topic}-{origin.partition}@{origin.offset}"


@app.command("show")
def show(
    topic: Topic,
    at: Annotated[list[str], typer.Argument(help="dead letters, as PARTITION:OFFSET")],
    bootstrap_servers: BootstrapServers = None,
    application: App = None,
    as_json: AsJson = False,
) -> None:
    """Show all details of dead letters: the record, the error, the line of the program, the stack trace."""
    decode = _application(application)
    positions = frozenset(map(position_of, at))
    with bootstrap(bootstrap_servers) as servers, connected(servers, topic) as network:
        wanted = LetterFilter(positions=positions)
        found = [each for each in _letters_of(network, topic).letters() if wanted.includes(each[0])]
    if missing := sorted(positions - {letter.position for letter, _ in found}):
        shown_positions = ", ".join(f"{partition}:{offset}" for partition, offset in missing)
        raise ConfigError(
            f"there is no dead letter at {shown_positions} of {topic}: streamsrt dlq list {topic} --all lists them"
        )
    for letter, outcome in found:
        row = _row(letter, outcome, decode)
        if as_json:
            print_rows([], [row], as_json=True)
            continue
        print_fields({name: _line_of(value) if name in ("key", "value") else value for name, value in row.items()})


def _line_of(value: object) -> object:
    """What a serde has made of a key or a value, as JSON where it is not text."""
    return value if value is None or isinstance(value, str) else json_text(value)


def _row(letter: Letter, outcome: LetterOutcome | None, decode: _Application) -> dict[str, object]:
    source = letter.details.get("topic", "")
    return {
        **letter_row(letter, outcome),
        "message": letter.details.get("message", ""),
        "line": letter.line,
        "key": shown(source, letter.key, decode.key),
        "value": shown(source, letter.value, decode.value),
        "headers": [[name, None if value is None else as_text("", value)] for name, value in letter.headers],
        "replays": letter.replays + (outcome is LetterOutcome.REPLAYED),
        "not_replayed_because": letter.why_not_replayed() or "",
        "stack_trace": letter.details.get("stacktrace", ""),
    }


@app.command("replay")
def replay(
    topic: Topic,
    bootstrap_servers: BootstrapServers = None,
    applications: Applications = None,
    topics: Topics = None,
    errors: Errors = None,
    steps: Steps = None,
    contains: Contains = None,
    from_time: From = None,
    before: Before = None,
    at: At = None,
    to: Annotated[str | None, typer.Option("--to", help="topic to write to, instead of the original one")] = None,
    placement: Annotated[
        PlacedBy | None,
        typer.Option(
            "--partition-by", help="origin: the partition that a record came from (default); key: that of its key"
        ),
    ] = None,
    application: App = None,
    stopped_too: Annotated[
        bool,
        typer.Option(
            "--include-stopped",
            help="also records at which the application stopped; only for records that it does not read again",
        ),
    ] = False,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="maximum number of records per second")] = None,
    limit: Limit = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="refuse if steps other than the failed one process records again; needs --app"),
    ] = False,
    execute: Execute = False,
) -> None:
    """Write the records of dead letters back to their partitions, each of them once."""
    if exact and application is None:
        raise ConfigError("--exact needs the topology: name it with --app MODULE:ATTRIBUTE")
    if to == topic:
        raise ConfigError(
            f"--to {to} is the topic of these dead letters: they would count as replayed, and no application would "
            "process them. Leave out --to to write each record back to its own topic, or name another one"
        )
    wanted = _wanted(applications, topics, errors, steps, contains, from_time, before, at)
    topology = _application(application).topology
    with bootstrap(bootstrap_servers) as servers, connected(servers, topic, writes=execute) as network:
        letters = _letters_of(network, topic)
        plan = _Plan(letters, wanted, stopped_too=stopped_too, limit=limit)
        _note_plan(plan, topic, to)
        doubt = None if to or placement else why_not_placed(plan.places)
        if doubt and execute:
            raise ConfigError(f"{doubt}. Nothing is changed")
        if doubt:
            note(doubt)
        again = [] if topology is None else list(_done_again(plan, to, topology))
        if exact and again:
            raise ConfigError(f"the replay is not exact, and nothing is changed: {'; '.join(again)}")
        for text in again:
            note(text)
        targets = [to] if to else list(plan.targets)
        if not execute:
            target_partitions(network, targets)
            note("nothing is changed: use --execute to do it")
            return
        with explained_if_fenced(topic):
            done = _carry_out(
                Replay(letters, targets, to=to, placement=placement or PlacedBy.ORIGIN),
                plan,
                rate,
            )
    note(f"replayed {counted(done, 'record')}")


@contextmanager
def explained_if_fenced(topic: str) -> Iterator[None]:
    """Says who has ended a replay or a drop that another one of the same topic ends."""
    try:
        yield
    except ProducerFencedError as error:
        raise TransactionLostError(
            f"another replay or drop of {topic} has started, so this one stops: what it has committed "
            "is kept, and the other one continues from there. Repeat the command for the remaining "
            "dead letters"
        ) from error


class _Plan:
    """Which letters are replayed, which are left and why: a first pass over the topic."""

    def __init__(self, letters: DeadLetterTopic, wanted: LetterFilter, *, stopped_too: bool, limit: int | None) -> None:
        self._letters = letters
        self._wanted = wanted
        self._stopped_too = stopped_too
        self._limit = limit
        self.targets: Counter[str] = Counter()
        self.steps: Counter[tuple[str, str]] = Counter()
        self.left: Counter[str] = Counter()
        self.places = PlacesByTopic(letters.network)
        for waiting in letters.waiting(wanted):
            why = waiting.why_not_replayed(stopped_too=stopped_too)
            origin = waiting.letter.origin
            if why is not None or origin is None:
                self.left[why or ""] += 1
            elif limit is None or self.targets.total() < limit:
                self.targets[origin.topic] += 1
                self.places.add(waiting.letter)
                self.steps[origin.topic, waiting.letter.details.get("node", "")] += 1

    def __iter__(self) -> Iterator[PendingLetter]:
        count = 0
        for waiting in self._letters.waiting(self._wanted):
            if count == self._limit:
                return
            if waiting.why_not_replayed(stopped_too=self._stopped_too) is None:
                count += 1
                yield waiting


def _note_plan(plan: _Plan, topic: str, to: str | None) -> None:
    for target, count in plan.targets.items():
        note(f"to {to or target}: {counted(count, 'record')}" + (f" (they came from {target})" if to else ""))
    for target, places in plan.places.items():
        if places.gone and not to:
            records = counted(places.gone, "record")
            note(f"{records} came from partitions that {target} does not have any more, and go to those of their keys")
    for why, count in plan.left.most_common(_REASONS_MAX):
        note(f"left out: {counted(count, 'dead letter')}: {why}")
    if not plan.targets and not plan.left:
        note(f"no waiting dead letter of {topic} matches")


def _done_again(plan: _Plan, to: str | None, topology: Topology) -> Iterator[str]:
    """What does its part for these records for the second time, beside the step that failed."""
    for target, step in plan.steps:
        topic = to or target
        if not reaches(topology, topic, step):
            yield (
                f"records of {topic} do not reach {step or 'the step that the dead letter names'} in this topology, so it "
                "is not known what would process them again"
            )
            continue
        again = second_time(topology, topic, step)
        if again.beside:
            advice = "" if to else ": --to TOPIC writes them to another topic"
            nodes = ", ".join(again.beside)
            yield f"{nodes} also reads {topic}, and would process these records a second time{advice}"
        if earlier := [each for each in again.before if each != step]:
            yield (
                f"steps before {step} keep state or give several results ({', '.join(earlier)}): they may have "
                "processed these records already, and would process them again"
            )
        if step in again.before:
            yield (
                f"{step}, the step that failed, keeps state: it may have updated its state before it failed, and "
                "would update it again"
            )


def _carry_out(replay: Replay, plan: _Plan, rate: int | None) -> int:
    done, start = 0, time.monotonic()
    told = start
    never = threading.Event()
    for waiting in plan:
        replay.add(waiting)
        if replay.is_full or (rate is not None and replay.letters >= rate):
            done += replay.commit(_now_ms())
            if time.monotonic() - told >= _PROGRESS_S:
                told = time.monotonic()
                note(f"{done:,} of {counted(plan.targets.total(), 'record')} replayed so far")
            if rate is not None:
                never.wait(max(0.0, start + done / rate - time.monotonic()))
    return done + replay.commit(_now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@app.command("drop")
def drop(
    topic: Topic,
    bootstrap_servers: BootstrapServers = None,
    applications: Applications = None,
    topics: Topics = None,
    errors: Errors = None,
    steps: Steps = None,
    contains: Contains = None,
    from_time: From = None,
    before: Before = None,
    at: At = None,
    execute: Execute = False,
) -> None:
    """Drop dead letters: they are no longer listed or replayed. They stay in the topic until its retention deletes
    them."""
    wanted = _wanted(applications, topics, errors, steps, contains, from_time, before, at)
    with bootstrap(bootstrap_servers) as servers, connected(servers, topic, writes=execute) as network:
        letters, count = _letters_of(network, topic), 0
        with explained_if_fenced(topic):
            work = Replay(letters)
            for letter, outcome in letters.letters():
                if outcome is not None or not wanted.includes(letter):
                    continue
                count += 1
                if execute:
                    work.drop(PendingLetter(letter, (letter.position,)))
                    if work.is_full:
                        work.commit(_now_ms())
            work.commit(_now_ms())
    note(f"{count} dead letters {'are' if execute else 'would be'} dropped")
    if not execute:
        note("nothing is changed: use --execute to do it")
