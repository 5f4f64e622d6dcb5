"""Whether what happened in an upgrade is what the comparison of the two versions says.

1. Every record of a topic is counted once: by all tables over it of one version, or by all of the other.
2. A store that is carried over has what both versions counted, one that is rebuilt what the later one has.
3. A store or topic that is orphaned is still there: its topic is the one that the comparison names.
4. A version with an incompatible change is refused, by the group or by what its members tell, and the group goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from streamsrt.testing.simulator import Output
from streamsrt.wire.murmur2 import partition_for_key
from tests.upgrades.pairs import MISSING, Pair
from tests.upgrades.programs import TOPICS, Program, build, joined_rows, key_of, rows_of
from tests.upgrades.rolling import (
    ALL_TOPICS,
    LEFT,
    NEW,
    OLD,
    RIGHT,
    SETTINGS,
    Plan,
    Rolled,
    Rolling,
    plan_of,
    text_of,
)
from topology.graph.diff import ClusterTopics, StateChange, TopologyDiff, Verdict, diff
from topology.graph.nodes import internal_topic_name
from topology.graph.outline import outline

MISREAD = "the state of its running instances would be misread by this version"


class WrongPairError(AssertionError):
    """What diff said is not what happened, or something was lost. The message has the pair and the last events."""


def compared(pair: Pair) -> TopologyDiff:
    """What the comparison says of a pair."""
    old, new = (outline(build(program, "").topology) for program in (pair.old, pair.new))
    return diff(old, new, ClusterTopics(sources=ALL_TOPICS))


def is_refused_by_group(pair: Pair, found: TopologyDiff) -> bool:
    """Whether the group itself can see that the new version can't run: it knows topics, not what is in them."""
    return MISSING in pair.new.topics or any(is_seen_by_group(change) for change in incompatible(found))


def incompatible(found: TopologyDiff) -> list[StateChange]:
    return [change for change in found.state if change.fate == "incompatible"]


def is_seen_by_group(change: StateChange) -> bool:
    """Whether the cluster's topics, or those of the group's topology, tell that it is incompatible. Everything else is told
    by the running members."""
    return "partitions" in change.reason or "fed by repartition topic" in change.reason


def roll(
    pair: Pair,
    plan: Plan | None = None,
    *,
    settings: Mapping[str, object] = SETTINGS,
    said: TopologyDiff | None = None,
) -> str:
    """Rolls a pair, and judges it by what is ``said`` of it: what became of it in a word. Raises WrongPairError."""
    found = said or compared(pair)
    is_refused = is_refused_by_group(pair, found)
    by_members = not is_refused and found.verdict == Verdict.INCOMPATIBLE
    if by_members and settings.get("group.protocol") == "classic":
        # An instance looks before it joins, which the simulator leaves out: a group that rebalances does not describe any.
        return "refused by the plan"
    plan = plan or plan_of(pair.seed)
    epochs = (0, max(found.epoch_needed, 1) if by_members else found.epoch_needed)
    rolling = Rolling(
        pair, plan, epochs=epochs, is_refused=is_refused or by_members, by_members=by_members, settings=settings
    )
    try:
        wrong = rolling.run()
        if wrong is None:
            wrong = judged(pair, found, rolling.rolled())
        if wrong is not None:
            events = "\n".join(list(rolling.trace.lines)[-80:])
            raise WrongPairError(f"{pair}\n  {plan}\n{wrong}\nthe last events:\n{events}")
        if by_members and MISREAD not in rolling.refusal:
            raise WrongPairError(f"{pair}\n  the running members should have refused it: {rolling.refusal!r}")
        return (
            f"refused: {rolling.refusal}"
            if rolling.is_refused
            else ("sent back" if rolling.last == OLD else "upgraded")
        )
    finally:
        rolling.clear_away()


def judged(pair: Pair, found: TopologyDiff, rolled: Rolled) -> str | None:
    """What is wrong; None: nothing."""
    programs = {OLD: pair.old, NEW: pair.new}
    counted: dict[tuple[str, str], Counter[str]] = {}
    for topic, records in rolled.outputs.items():
        if topic.startswith("audit-"):
            for record in records:
                version, _, text = (record.value or b"").decode().partition(" ")
                counted.setdefault((version, topic.removeprefix("audit-")), Counter())[text] += 1
    for topic in sorted({*pair.old.topics, *pair.new.topics} & TOPICS.keys()):
        wrong = _read_once(topic, pair, counted, rolled)
        if wrong:
            return wrong
    return (
        _wrong_rows(pair, found, counted, rolled)
        or _wrong_join(programs[rolled.last], rolled)
        or _deleted(found, rolled)
    )


class _Reading:
    """Who has read the records of one topic. ``shared``: labels that read a repartition topic which both versions have: what
    one version has written the other may count."""

    def __init__(
        self, topic: str, pair: Pair, counted: Mapping[tuple[str, str], Counter[str]], in_flight: frozenset[str]
    ) -> None:
        self.topic = topic
        self.in_flight = in_flight
        programs = {OLD: pair.old, NEW: pair.new}
        vias = {version: build(program, "").vias for version, program in programs.items()}
        both = set(vias[OLD].values()) & set(vias[NEW].values())
        self.labels = {
            version: [part.label for part in program.parts if topic in part.topics]
            for version, program in programs.items()
        }
        self.shared = {
            label for version, found in vias.items() for label in self.labels[version] if found.get(label) in both
        }
        self.times = {
            (version, label): Counter({text: n for text, n in found.items() if text[0] == topic[0]})
            for (version, label), found in counted.items()
        }

    def texts(self, version: str, label: str) -> set[str]:
        return set(self.times.get((version, label), ()))

    def alone(self, version: str) -> list[str]:
        return [label for label in self.labels[version] if label not in self.shared]

    def read(self, version: str) -> set[str] | None:
        """What this version has read, as far as a table of its own tells."""
        own = self.alone(version)
        return self.texts(version, own[0]) if own else None

    def wrong(self, committed: set[str]) -> str | None:
        for label in {label for labels in self.labels.values() for label in labels}:
            total = self.times.get((OLD, label), Counter()) + self.times.get((NEW, label), Counter())
            twice = sorted(text for text, times in total.items() if times > 1)
            if twice:
                return f"{label} counts {twice} of {self.topic} more than once"
        for version in (OLD, NEW):
            own = self.alone(version)
            for label in own[1:]:
                differing = self.texts(version, label) ^ self.texts(version, own[0])
                if differing:
                    return (
                        f"{own[0]} and {label} of the {version} version differ in {sorted(differing)} of {self.topic}"
                    )
        for what, found, expected in self._compared(committed):
            if found != expected:
                lost, extra = sorted(expected - found), sorted(found - expected)
                return f"of {self.topic} {lost} are lost to {what}, {extra} are too much"
        return None

    def _compared(self, committed: set[str]) -> Iterator[tuple[str, set[str], set[str]]]:
        old, new = (self.read(version) for version in (OLD, NEW))
        if old is not None and new is not None:
            yield "both versions", old | new, committed
        elif old is not None and not self.labels[NEW]:
            yield "the old version", old, committed - self.in_flight
        elif new is not None and not self.labels[OLD]:
            yield "the new version", new, committed
        for label in self.shared:
            found = self.texts(OLD, label) | self.texts(NEW, label)
            readers = [version for version in (OLD, NEW) if label in self.labels[version]]
            others = {OLD, NEW} - set(readers)
            if len(readers) == 2 or not any(self.labels[other] for other in others):
                yield label, found, committed
            elif (read := self.read(readers[0])) is not None:
                yield label, found, read


def _read_once(topic: str, pair: Pair, counted: Mapping[tuple[str, str], Counter[str]], rolled: Rolled) -> str | None:
    """Tables of one version agree on what they have counted of a topic, and all that the group has read is counted once."""
    committed = _committed(topic, rolled)
    if topic in {OLD: pair.old, NEW: pair.new}[rolled.last].topics and len(committed) != rolled.end:
        return f"of {topic} only {len(committed)} of {rolled.end} records are committed"
    return _Reading(topic, pair, counted, rolled.in_flight).wrong(committed)


def _committed(topic: str, rolled: Rolled) -> set[str]:
    """What lies before the group's offsets."""
    texts: dict[int, list[str]] = {partition: [] for partition in range(ALL_TOPICS[topic])}
    for number in range(rolled.end):
        texts[partition_for_key(key_of(number).encode(), ALL_TOPICS[topic])].append(text_of(topic, number))
    return {text for p, found in texts.items() for text in found[: rolled.committed.get((topic, p), 0)]}


def _wrong_rows(
    pair: Pair,
    found: TopologyDiff,
    counted: Mapping[tuple[str, str], Counter[str]],
    rolled: Rolled,
) -> str | None:
    fates = {change.name: change.fate for change in found.state if change.kind == "store"}
    programs = {OLD: pair.old, NEW: pair.new}
    built = {version: build(program, "") for version, program in programs.items()}
    other = NEW if rolled.last == OLD else OLD
    others = {part.label: part for part in programs[other].parts}
    for part in programs[rolled.last].parts:
        mine = counted.get((rolled.last, part.label), Counter())
        theirs = counted.get((other, part.label), Counter())
        name = built[rolled.last].stores[part.label]
        is_carried = fates.get(name) == "carried over" and built[other].stores.get(part.label) == name
        rows = rows_of(part, [*mine, *theirs] if is_carried else mine)
        expected = {key: rows[key] for key in rows_of(part, mine)}
        shown = _last_rows(rolled.outputs[f"out-{part.label}"])
        different = {key: (shown.get(key), value) for key, value in expected.items() if shown.get(key) != str(value)}
        if different:
            return (
                f"store {name} of {part.label}, which is {fates.get(name)}: has and should have {different}; the "
                f"{rolled.last} version counted {len(mine)} records, the other one {len(theirs)}"
            )
        if fates.get(name) == "carried over" and part.label not in others:
            return f"store {name} of {part.label} is said to be carried over, but is another table's"
    return None


def _last_rows(records: Sequence[Output]) -> dict[str, str]:
    rows = {(record.key or b"").decode(): record.value for record in records}
    return {key: value.decode() for key, value in rows.items() if value is not None}


def _wrong_join(program: Program, rolled: Rolled) -> str | None:
    if program.circle is None:
        return None
    left, right = ({key_of(n): text_of(topic, n) for n in range(rolled.end)} for topic in (LEFT, RIGHT))
    shown, expected = _last_rows(rolled.outputs["out-joined"]), joined_rows(left, right)
    return None if shown == expected else f"the join has {shown} and should have {expected}"


def _deleted(found: TopologyDiff, rolled: Rolled) -> str | None:
    """What is said to stay behind is there."""
    if rolled.refusal:
        return None
    for change in found.state:
        for topic in change.topics if change.fate == "orphaned" else ():
            if internal_topic_name(rolled.application_id, topic) not in rolled.topics:
                return f"{topic} is said to stay behind, but is not there"
    return None
