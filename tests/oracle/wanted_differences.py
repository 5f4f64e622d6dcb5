"""Where we differ from Kafka Streams on purpose: what the pages of operators and ``docs/limits.md`` tell.

Each function takes a case with Java's answer and one difference, and tells whether the difference is one of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.oracle.comparison import Difference
from tests.oracle.programs import Case, Step

JOINS = {"join", "left_join", "outer_join"}


def unwanted(answer: Case, found: list[Difference]) -> list[Difference]:
    """Those that are nowhere told. Behind a wanted difference of records, all that follows from it may differ, too."""
    if any(rule(answer) for rule in PROGRAMS):
        return []
    return [each for each in found if not any(rule(answer, each) for rule in DIFFERENCES)]


def _steps(answer: Case, *operators: str) -> Iterator[Step]:
    return (step for step in answer["dsl"] if step["op"] in operators)


def _cogroups_repartitioned(answer: Case, difference: Difference) -> bool:
    """Java groups the topics before the repartition topics of cogrouped streams, or names two of them alike."""
    if not any(_steps(answer, "cogroup")):
        return False
    return difference.kind == "groups" or (difference.kind == "refusal" and "is already added" in str(difference.java))


def _joins_of_repartitioned(answer: Case, difference: Difference) -> bool:
    """Java forgets that a second join's topic must fit the repartition topic that both joins share."""
    return difference.kind == "groups" and len(list(_steps(answer, *JOINS))) > 1


def _beyond_retention(answer: Case, difference: Difference) -> bool:
    """Java shows rows beyond retention until their segment is deleted."""
    if difference.kind != "store" or difference.here or not isinstance(difference.java, list):
        return False
    return all("start" in row["key"] for row in difference.java if isinstance(row["key"], dict))


def _without_origins(record: dict[str, Any]) -> dict[str, Any]:
    """A row of a suppression without topic, partition and offset of the record that made it, and its key without times."""
    raw = bytes.fromhex(record["value_hex"] or "")
    size = int.from_bytes(raw[16:20])
    return {**record, "value_hex": (raw[:8] + raw[24 + size :]).hex()}


def _origins_behind_caches(answer: Case, difference: Difference) -> bool:
    """A change that a cache held back has no topic, partition and offset."""
    if difference.kind != "records" or not answer["config"].get("statestore.cache.max.bytes"):
        return False
    if not any(record["ts"] is None for record in difference.java):
        return False
    ours, javas = ([_without_origins(record) for record in records] for records in (difference.here, difference.java))
    return sorted(ours, key=str) == sorted(javas, key=str)


def _rows_beyond_retention_of_joins(answer: Case, difference: Difference) -> bool:
    """Java counts records that a join's store does not keep as they are too old."""
    return difference.kind == "dropped" and difference.here < difference.java and any(_steps(answer, *JOINS))


def _cached_although_emitted_on_close(answer: Case, difference: Difference) -> bool:
    """Java does not cache the rows of session and sliding windows that are emitted when they close."""
    if answer.get("commit") != "manual" or not any(_steps(answer, "emit_strategy")):
        return False
    return difference.kind == "records" and "-changelog at " in difference.place


def _self_joins(answer: Case) -> bool:
    """With one store, Java makes inner joins of left and outer ones of a stream with itself."""
    optimized = answer["config"].get("topology.optimization", "none") == "all"
    return optimized and any(step["in"] == step["other"] for step in _steps(answer, "left_join", "outer_join"))


def _row_without_a_key(answer: Case) -> bool:
    """A left join with grace fails in Java if there is no key."""
    error = answer.get("error", {})
    return "NullPointerException" in str(error) and any(
        (step.get("joined") or {}).get("grace_ms") is not None for step in _steps(answer, "left_join")
    )


def _cached_joins(answer: Case) -> bool:
    """A side of a join of tables is joined with the row that was last forwarded, not with one that a cache holds back."""
    held = answer.get("commit") == "manual" and answer["config"].get("statestore.cache.max.bytes")
    tables = {step.get("as") for step in answer["dsl"] if str(step.get("as")).startswith("table")}
    joins = (step for step in _steps(answer, *JOINS, "fk_join", "fk_left_join") if step["in"] in tables)
    return bool(held) and any(joins)


def _session_that_closes_with_the_record(answer: Case) -> bool:
    """A session that is not closed yet, but will be a millisecond later, is lost in Java already."""
    times = {action["ts"] for action in answer.get("input", ()) if "ts" in action}
    kept = {
        step["windows"]["gap_ms"] + step["windows"].get("grace_ms", 0)
        for step in _steps(answer, "windowed_by")
        if step["windows"]["kind"] == "session"
    }
    return any(time + span in times for time in times for span in kept)


def _expired_in_a_cache(answer: Case) -> bool:
    """Java's cache still shows sessions that its store has expired."""
    if not answer["config"].get("statestore.cache.max.bytes"):
        return False
    times = [action["ts"] for action in answer.get("input", ()) if "ts" in action]
    for step in _steps(answer, "windowed_by"):
        windows = step["windows"]
        if windows["kind"] != "session":
            continue
        kept = windows["gap_ms"] + windows.get("grace_ms", 0)
        for index, time in enumerate(times):
            expired = max(times[: index + 1]) - kept
            if any(time - windows["gap_ms"] <= before < expired for before in times[:index]):
                return True
    return False


def _equal_times(answer: Case) -> bool:
    """Of records with the same time in several topics, Java takes the one that its heap has first."""
    subtopologies = answer.get("heartbeat_topology", {}).get("subtopologies", [])
    several = any(len(part["repartitionSourceTopics"]) > 1 for part in subtopologies)
    topics: dict[tuple[int, int], set[str]] = {}
    for record in answer.get("repartition", []):
        topics.setdefault((record["step"], record["ts"]), set()).add(record["topic"])
    return several and any(len(each) > 1 for each in topics.values())


PROGRAMS: tuple[Callable[[Case], bool], ...] = (
    _self_joins,
    _row_without_a_key,
    _cached_joins,
    _session_that_closes_with_the_record,
    _expired_in_a_cache,
    _equal_times,
)
DIFFERENCES: tuple[Callable[[Case, Difference], Any], ...] = (
    _cogroups_repartitioned,
    _joins_of_repartitioned,
    _beyond_retention,
    _origins_behind_caches,
    _rows_beyond_retention_of_joins,
    _cached_although_emitted_on_close,
)
