"""Where we differ from Kafka Streams on purpose: what the pages of operators and ``docs/limits.md`` tell.

Some functions take a case with Java's answer and one difference, and tell whether the difference is one of their kind.
Those in ``NODES`` take a part of a case's topology and one of its nodes, and tell whether what that node does is another
thing here: so may be all behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from tests.oracle.comparison import Difference
from tests.oracle.downstream import behind, processors, stores_of
from tests.oracle.programs import Case, Step, build
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, Subtopology
from topology.graph.operations.traits import own_store

JOINS = {"join", "left_join", "outer_join"}


def unwanted(answer: Case, found: list[Difference]) -> list[Difference]:
    """Those that are nowhere told."""
    return [each for each in found if not any(rule(answer, each) for rule in DIFFERENCES)]


def _behind(answer: Case, difference: Difference, rule: Callable[[Case, Subtopology, ProcessorNode], bool]) -> bool:
    """Whether what differs is behind one of the rule's nodes; how many records were dropped is not told by node."""
    if difference.kind not in ("records", "store", "dropped"):
        return False
    places = behind(answer, lambda part, node: rule(answer, part, node))
    return bool(places) and (difference.kind == "dropped" or difference.place.split(" at ")[0] in places)


def _read(answer: Case) -> list[Step]:
    """All records that some task of the case read, in order."""
    inputs = [{**action, "step": step} for step, action in enumerate(answer.get("input", [])) if "topic" in action]
    return sorted([*inputs, *answer.get("repartition", [])], key=lambda record: int(record["step"]))


def _latest(answer: Case) -> int:
    return max((record["ts"] for record in _read(answer)), default=0)


def _merged(groups: list[Any]) -> list[set[str]]:
    """Groups of topics that need equal partition counts: those that share a topic are one, one topic alone is none."""
    found: list[set[str]] = []
    for group in groups:
        topics = {f"{side} {index}" for side, indexes in group.items() for index in indexes}
        apart = [each for each in found if not topics & each]
        found = [*apart, topics.union(*(each for each in found if topics & each))]
    return [each for each in found if len(each) > 1]


def _steps(answer: Case, *operators: str) -> Iterator[Step]:
    return (step for step in answer["dsl"] if step["op"] in operators)


def _two_groups_alike(answer: Case, difference: Difference) -> bool:
    """Java names the repartition topics of two cogrouped streams alike."""
    return (
        difference.kind == "refusal" and "is already added" in str(difference.java) and any(_steps(answer, "cogroup"))
    )


def _more_copartitioned(answer: Case, difference: Difference) -> bool:
    """Java forgets that topics must fit those of others: repartition topics of cogrouped streams, for which it names the
    topics before them, those that several joins share, and those above a suppression.

    What it knows of, we know, too. Groups with a topic in common are one here.
    """
    if difference.kind != "groups":
        return False
    ours, javas = _merged(difference.here), _merged(difference.java)
    if any(_steps(answer, "cogroup")):
        # The topics before the repartition topics need not fit.
        javas = [group & set().union(*ours) for group in javas]
    if any(not any(group <= each for each in ours) for group in javas):
        return False
    joins = list(_steps(answer, *JOINS))
    return (
        ours == javas
        or any(_steps(answer, "cogroup"))
        or len(joins) > 1
        or (bool(joins) and any(_steps(answer, "suppress")))
    )


def _beyond_retention(answer: Case, difference: Difference) -> bool:
    """Java shows rows beyond retention until their segment is deleted."""
    if difference.kind != "store" or difference.here or not isinstance(difference.java, list):
        return False
    stores = {spec.name: spec for part in build(answer).topology.subtopologies for spec in part.stores}
    spec = stores.get(difference.place)
    if spec is None or spec.retention_ms is None:
        return False
    time = "end" if spec.kind == "session" else "start"
    oldest = _latest(answer) - spec.retention_ms
    return all(isinstance(row["key"], dict) and row["key"][time] <= oldest for row in difference.java)


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


def _not_kept(answer: Case, difference: Difference) -> bool:
    """Java counts records that a store does not keep as they are too old: those of stream joins, and of cogrouped streams,
    of which one may be ahead of another."""
    if difference.kind != "dropped" or difference.here > difference.java:
        return False
    records = _read(answer)
    latest = list(accumulate((record["ts"] for record in records), max))
    return any(
        record["ts"] <= time - span
        for span in _spans_kept(answer)
        for record, time in zip(records, latest, strict=True)
    )


def _spans_kept(answer: Case) -> Iterator[int]:
    """How old a record may be so that those stores keep what it changes."""
    joins = operations.StreamJoinWindow | operations.StreamSelfJoin
    aggregations = operations.Aggregate | operations.SlidingAggregate | operations.SessionAggregate
    for part in build(answer).topology.subtopologies:
        for spec in part.stores:
            users = [node.operation for node in processors(part) if spec.name in node.stores]
            if spec.retention_ms is None or spec.kind not in ("window", "session"):
                continue
            if any(isinstance(user, joins) for user in users):
                yield spec.retention_ms
            elif sum(isinstance(user, aggregations) for user in users) > 1:
                yield spec.retention_ms - (spec.window_size_ms or 0)


def _held_back_although_emitted_on_close(answer: Case, difference: Difference) -> bool:
    """What goes to the changelogs of windows that are emitted when they close: the last state of each row since the commit
    before. Java does not cache sessions and sliding windows then, and deletes rows that were never in the store.
    """
    if difference.kind != "records" or not answer["config"].get("statestore.cache.max.bytes"):
        return False
    topic, step = difference.place.split(" at ")
    logs = {
        f"app-{spec.changelog_name}"
        for part in build(answer).topology.subtopologies
        for node in processors(part)
        if getattr(node.operation, "emit_on_close", False)
        for spec in stores_of(part, node)
    }
    if topic not in logs:
        return False
    since, now = _commits_around(answer, int(step))
    history = [record for record in answer["changelog"] if record["topic"] == topic]
    there = {record["key_hex"]: record["value_hex"] for record in history if record["step"] <= since}
    wanted = {record["key_hex"]: record for record in history if since < record["step"] <= now}
    if int(step) != now:
        return not difference.here and bool(wanted)
    lasting = [
        record for key, record in wanted.items() if record["value_hex"] is not None or there.get(key) is not None
    ]
    return _states(difference.here, there) == _states(lasting, there)


def _states(records: list[Any], there: dict[str, Any]) -> list[tuple[str, str | None, int | None]]:
    rows = ((each["key_hex"], each["value_hex"], each["ts"]) for each in records)
    return sorted((row for row in rows if row[1] is not None or there.get(row[0]) is not None), key=str)


def _commits_around(answer: Case, step: int) -> tuple[int, int]:
    """The step of the commit before a step, and that of the next one; the last one has no end."""
    if answer.get("commit") != "manual":
        return step - 1, step
    commits = [index for index, action in enumerate(answer["input"]) if "commit" in action]
    before = max((index for index in commits if index < step), default=-1)
    return before, min((index for index in commits if index >= step), default=len(answer["input"]))


def _other_old_values(answer: Case, difference: Difference) -> bool:
    """What a filter deletes depends on old values: a new sliding window has none here, and that of a change after a
    suppression is the value forwarded before."""
    if difference.kind != "records":
        return False

    def filtered(part: Subtopology, node: ProcessorNode) -> bool:
        above = _ancestors(part, node) if isinstance(node.operation, operations.TableFilter) else []
        return any(isinstance(each.operation, operations.SlidingAggregate | operations.Suppress) for each in above)

    ours, javas = ([record for record in side if record["value_hex"]] for side in (difference.here, difference.java))
    return ours == javas and difference.place.split(" at ")[0] in behind(answer, filtered)


def _ancestors(part: Subtopology, node: ProcessorNode) -> list[ProcessorNode]:
    found = [each for name in node.parents if isinstance(each := part.node(name), ProcessorNode)]
    return [*found, *(each for parent in found for each in _ancestors(part, parent))]


def _self_joins(answer: Case, difference: Difference) -> bool:
    """With one store, Java makes inner joins of left and outer ones of a stream with itself."""
    optimized = answer["config"].get("topology.optimization", "none") == "all"
    return optimized and any(step["in"] == step["other"] for step in _steps(answer, "left_join", "outer_join"))


def _row_without_a_key(answer: Case, difference: Difference) -> bool:
    """A left join with grace fails in Java if there is no key."""
    return (
        difference.kind == "failure"
        and "NullPointerException" in str(difference.java)
        and any((step.get("joined") or {}).get("grace_ms") is not None for step in _steps(answer, "left_join"))
    )


def _before_the_first_gap(answer: Case, difference: Difference) -> bool:
    """Java's cache of sessions fails to look for those before a record whose time is less than the gap."""
    return difference.kind == "failure" and "segment interval has changed" in str(difference.java)


def _cached_joins(answer: Case, part: Subtopology, node: ProcessorNode) -> bool:
    """A side of a join of tables is joined with the row that was last forwarded, not with one that a cache holds back."""
    held = answer.get("commit") == "manual" and answer["config"].get("statestore.cache.max.bytes")
    joined = isinstance(
        node.operation, operations.TableTableJoin | operations.ForeignTableJoin | operations.SubscriptionJoin
    )
    return bool(held) and joined


def _session_that_closes_with_the_record(answer: Case, part: Subtopology, node: ProcessorNode) -> bool:
    """A session that is not closed yet, but will be a millisecond later, is lost in Java already."""
    if not isinstance(node.operation, operations.SessionAggregate):
        return False
    windows = node.operation.windows
    times = {record["ts"] for record in _read(answer)}
    return any(time + windows.gap_ms + windows.grace_ms in times for time in times)


def _expired_in_a_cache(answer: Case, part: Subtopology, node: ProcessorNode) -> bool:
    """Java's cache still shows sessions that its store has expired."""
    if not answer["config"].get("statestore.cache.max.bytes") or not isinstance(
        node.operation, operations.SessionAggregate
    ):
        return False
    windows = node.operation.windows
    times = [record["ts"] for record in _read(answer)]
    for index, time in enumerate(times):
        expired = max(times[: index + 1]) - windows.gap_ms - windows.grace_ms
        if any(time - windows.gap_ms <= before < expired for before in times[:index]):
            return True
    return False


def _equal_times(answer: Case, part: Subtopology, node: ProcessorNode) -> bool:
    """Of records with the same time in several topics, Java takes the one that its heap has first."""
    topics = {f"app-{topic.name}" for topic in part.repartition_source_topics}
    times: dict[tuple[int, int], set[str]] = {}
    for record in answer.get("repartition", []):
        if record["topic"] in topics:
            times.setdefault((record["step"], record["ts"]), set()).add(record["topic"])
    return any(len(each) > 1 for each in times.values())


def _serdes_without_a_store(answer: Case, part: Subtopology, node: ProcessorNode) -> bool:
    """What is derived from a versioned table is not versioned in Java if it is given serdes, even those for no store."""
    given = (step.get("materialized") for step in _steps(answer, "filter", "filter_not", "map_values"))
    if not any(options and "store" not in options for options in given) or own_store(node.operation) is not None:
        return False
    stores = {spec.name for spec in part.stores if spec.kind == "versioned"}
    derived = isinstance(node.operation, operations.TableFilter | operations.TableMapValues)
    return derived and any(own_store(above.operation) in stores for above in _ancestors(part, node))


NODES: tuple[Callable[[Case, Subtopology, ProcessorNode], bool], ...] = (
    _cached_joins,
    _session_that_closes_with_the_record,
    _expired_in_a_cache,
    _equal_times,
    _serdes_without_a_store,
)


def _behind_nodes(answer: Case, difference: Difference) -> bool:
    return any(_behind(answer, difference, rule) for rule in NODES)


DIFFERENCES: tuple[Callable[[Case, Difference], Any], ...] = (
    _two_groups_alike,
    _more_copartitioned,
    _beyond_retention,
    _origins_behind_caches,
    _not_kept,
    _held_back_although_emitted_on_close,
    _other_old_values,
    _self_joins,
    _row_without_a_key,
    _before_the_first_gap,
    _behind_nodes,
)
