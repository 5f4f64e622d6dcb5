"""Times of records that can hardly be meant: in units other than milliseconds, or in the future, which brokers refuse.

1. Micro- and nanoseconds in the place of milliseconds lie beyond every calendar: they are refused when the plan is made.
2. Seconds in the place of milliseconds end in the first months of 1970, and the clock of a machine may be ahead: the plan
   warns of both.
3. A hand-over looks at what its topics take (``message.timestamp.after.max.ms`` and ``.before.max.ms``) before it changes
   anything, as far as they are there; of the others it goes by the broker's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from streamsrt.backfill.errors import ArchiveError, HandOverError
from streamsrt.backfill.manifest import LogResult
from streamsrt.client.interface import Network
from streamsrt.errors import StreamsError
from streamsrt.wire.records import HEADER_SIZE_BYTES, iter_columns, read_header
from streamsrt.wording import counted, time_text

AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
AHEAD_MS = 3_600_000
"""How far ahead a record may be by the defaults of brokers."""
_TYPE = "message.timestamp.type"
_LAST_MS = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000 + 999
_SECONDS_END_MS = 10_000_000_000
"""Read as milliseconds, seconds of all years up to 2286 are before this."""
_FOREVER_MS = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


# ------------------------------------------------------------------------------------------------------------ in a plan


def check_calendar(where: str, topic: str | None, highest_ms: int) -> None:
    """Raises ArchiveError for records from after the year 9999. ``topic``: of a lake whose times are an expression's."""
    if highest_ms <= _LAST_MS:
        return
    how = (
        "write them as milliseconds, or as timestamps"
        if topic is None
        else f"convert them, e.g. --lake-column {topic}.timestamp='timestamp_micros(...)'"
    )
    raise ArchiveError(
        f"{where} has records with a time after the year 9999 (the highest timestamp is {highest_ms} ms). Integers count "
        f"milliseconds since 1970: if these are micro- or nanoseconds, {how}"
    )


def notes_on(topic: str, highest_ms: int, now_ms: int) -> Iterator[str]:
    """What a plan says about the latest time of a topic's files, if it is an odd one."""
    if highest_ms > now_ms + AHEAD_MS:
        yield (
            f"the times of {topic} go up to {time_text(highest_ms)}, which is {_span(highest_ms - now_ms)} in the future: "
            f"topics take records of up to an hour ahead, unless they have a larger {AFTER}, and commit is refused for "
            "changelogs and outputs that don't take them"
        )
    elif 0 <= highest_ms < _SECONDS_END_MS:
        yield (
            f"the times of {topic} end at {time_text(highest_ms)}: integers count milliseconds since 1970. If these are "
            f"seconds, convert them: write timestamps, or read a lake with --lake-column {topic}.timestamp="
            "'timestamp_seconds(timestamp)'"
        )


def _span(span_ms: int) -> str:
    return counted(span_ms // _DAY_MS, "day") if span_ms >= 2 * _DAY_MS else counted(span_ms // _HOUR_MS, "hour")


# -------------------------------------------------------------------------------------------------------- in a hand-over


@dataclass(frozen=True, slots=True)
class _TimeLimits:
    """How far the times of a topic's records may be from the clock, in ms."""

    after_ms: int
    before_ms: int

    @classmethod
    def of(cls, configs: Mapping[str, str | None]) -> _TimeLimits:
        if configs.get(_TYPE) == "LogAppendTime":
            return cls(_FOREVER_MS, _FOREVER_MS)
        # Old brokers have no such settings, and no limits.
        return cls(int(configs.get(AFTER) or _FOREVER_MS), int(configs.get(BEFORE) or _FOREVER_MS))


def check_record_times(
    network: Network,
    directory: Path,
    logs: Iterable[LogResult],
    internal: Mapping[str, Mapping[str, str]],
    known: Iterable[str],
    now_ms: int,
) -> None:
    """Raises HandOverError if a topic does not take the time of a record that is to be written to it. ``internal``: the
    settings of topics that may have to be made; ``known``: other topics, which have the broker's defaults."""
    results = list(logs)
    limits = _limits_of(network, {log.topic for log in results}, internal, known)
    for log in results:
        limit = limits.get(log.topic)
        refused = None if limit is None else _refused(directory / log.file.path, limit, now_ms)
        if limit is None or refused is None:
            continue
        ahead = refused > now_ms
        setting, taken_ms = (AFTER, limit.after_ms) if ahead else (BEFORE, limit.before_ms)
        raise HandOverError(
            f"a record for {log.topic}-{log.partition} has the time {time_text(refused)}, which is "
            f"{_span(abs(refused - now_ms))} {'ahead' if ahead else 'ago'}, and the topic takes {taken_ms} ms ({setting}): "
            f"raise that setting of topic {log.topic}, or the broker's default log.{setting}, then commit again. The "
            "results are kept. If the time is wrong, correct it in the history and plan again in another --dir"
        )


def _limits_of(
    network: Network, topics: set[str], internal: Mapping[str, Mapping[str, str]], known: Iterable[str]
) -> dict[str, _TimeLimits]:
    """Of each topic that is there or will be made, as far as it is known."""
    admin = network.admin
    try:
        there = admin.partitions_for(sorted({*topics, *known}))
        configs = admin.describe_topic_configs(sorted(there)) if there else {}
        own = admin.describe_topic_configs(sorted(there), only_set=True) if topics - there.keys() else {}
    except StreamsError:
        # Most likely not authorized. Then the broker refuses what it does not take when it is written.
        return {}
    found = {topic: _TimeLimits.of(configs[topic]) for topic in topics & there.keys()}
    usual = {AFTER: str(AHEAD_MS)} if any(AFTER in values for values in configs.values()) else {}
    defaults = usual | {
        name: value
        for topic, values in configs.items()
        for name, value in values.items()
        if name in (AFTER, BEFORE, _TYPE) and name not in own.get(topic, {})
    }
    missing = topics - there.keys()
    return found | {topic: _TimeLimits.of({**defaults, **internal[topic]}) for topic in missing if topic in internal}


def _refused(path: Path, limits: _TimeLimits, now_ms: int) -> int | None:
    """The first time in a file that is too far from the clock; None if there is none."""
    earliest_ms, latest_ms = now_ms - limits.before_ms, now_ms + limits.after_ms
    with open(path, "rb") as file:
        while head := file.read(HEADER_SIZE_BYTES):
            header = read_header(head)
            rest = header.size_bytes - len(head)
            if header.max_timestamp > latest_ms:
                return header.max_timestamp
            if limits.before_ms >= _FOREVER_MS:
                file.seek(rest, 1)
                continue
            # A head has the time of its first record, which need not be the lowest one.
            low = min((columns.timestamp_min for columns in iter_columns(head + file.read(rest))), default=now_ms)
            if low < earliest_ms:
                return low
    return None
