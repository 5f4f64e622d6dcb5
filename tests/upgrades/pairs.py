"""The kinds of change, and pairs of programs that differ by some of them.

A change takes a program and chance, and gives another program; None where the program has nothing that it could change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.upgrades.programs import TOPICS, Kind, Part, Program, Via

Change: TypeAlias = Callable[[Program, random.Random], Program | None]

KINDS: tuple[Kind, ...] = ("count", "count", "sum", "windows")
LABELS = "pqrstuvw"
MISSING = "missing"
"""A source topic that is not there."""


def _with(program: Program, old: Part, *new: Part) -> Program:
    at = program.parts.index(old)
    return replace(program, parts=(*program.parts[:at], *new, *program.parts[at + 1 :]))


def _one(
    program: Program, chance: random.Random, fits: Callable[[Part], bool], change: Callable[[Part], Part]
) -> Program | None:
    """The program with one of the parts that fit changed."""
    parts = [part for part in program.parts if fits(part)]
    if not parts:
        return None
    part = chance.choice(parts)
    return _with(program, part, change(part))


def _free(program: Program, chance: random.Random) -> str:
    return chance.choice([label for label in LABELS if all(part.label != label for part in program.parts)])


def _fresh(prefix: str, chance: random.Random) -> str:
    return f"{prefix}{chance.randrange(1_000)}"


def some_part(label: str, chance: random.Random) -> Part:
    kind = chance.choice(KINDS)
    via = chance.choice([None, Via(), Via(f"by-{label}"), Via(f"by-{label}", 2)])
    return Part(
        label=label,
        topics=tuple(sorted(chance.sample(sorted(TOPICS), chance.choice([1, 1, 1, 2])))),
        store=chance.choice([None, f"store-{label}", f"store-{label}"]),
        kind=kind,
        via=via,
        in_memory=chance.random() < 0.2,
        is_plain=kind != "windows" and chance.random() < 0.1,
    )


def add(program: Program, chance: random.Random) -> Program:
    part = some_part(_free(program, chance), chance)
    at = chance.randrange(len(program.parts) + 1)
    return replace(program, parts=(*program.parts[:at], part, *program.parts[at:]))


def remove(program: Program, chance: random.Random) -> Program | None:
    if len(program.parts) < 2:
        return None
    return _with(program, chance.choice(program.parts))


def split(program: Program, chance: random.Random) -> Program | None:
    """A part that keeps two topics together becomes two."""
    parts = [part for part in program.parts if len(part.topics) > 1]
    if not parts:
        return None
    part = chance.choice(parts)
    label = _free(program, chance)
    other = replace(
        part, label=label, topics=part.topics[1:], store=f"store-{label}", via=part.via and Via(f"by-{label}")
    )
    return _with(program, part, replace(part, topics=part.topics[:1]), other)


def merge(program: Program, chance: random.Random) -> Program | None:
    """A part reads the topic of another one, too: their subtopologies become one."""
    pairs = [
        (one, topic)
        for one in program.parts
        for other in program.parts
        for topic in other.topics
        if topic not in one.topics
    ]
    if not pairs:
        return None
    part, topic = chance.choice(pairs)
    return _with(program, part, replace(part, topics=tuple(sorted((*part.topics, topic)))))


def rename(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, lambda part: True, lambda part: replace(part, store=_fresh("store-", chance)))


def rename_repartition(program: Program, chance: random.Random) -> Program | None:
    return _one(
        program,
        chance,
        lambda part: part.via is not None,
        lambda part: replace(part, via=replace_name(part.via, _fresh("by-", chance))),
    )


def replace_name(via: Via | None, name: str) -> Via:
    return Via(name, None if via is None else via.partitions)


def window(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, _is_windowed, lambda part: replace(part, window_ms=part.window_ms * 2))


def grace(program: Program, chance: random.Random) -> Program | None:
    factor = chance.choice([0.5, 2])
    return _one(program, chance, _is_windowed, lambda part: replace(part, grace_ms=int(part.grace_ms * factor)))


def _is_windowed(part: Part) -> bool:
    return part.kind == "windows"


def serde(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, lambda part: True, lambda part: replace(part, is_text=not part.is_text))


def plain_rows(program: Program, chance: random.Random) -> Program | None:
    return _one(
        program, chance, lambda part: part.kind != "windows", lambda part: replace(part, is_plain=not part.is_plain)
    )


def memory(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, lambda part: True, lambda part: replace(part, in_memory=not part.in_memory))


def source(program: Program, chance: random.Random) -> Program | None:
    """Another topic in the place of one."""

    def changed(part: Part) -> Part:
        other = chance.choice(sorted(TOPICS.keys() - set(part.topics)))
        return replace(part, topics=tuple(sorted((*part.topics[1:], other))))

    return _one(program, chance, lambda part: len(part.topics) < len(TOPICS), changed)


def more_sources(program: Program, chance: random.Random) -> Program | None:
    def changed(part: Part) -> Part:
        other = chance.choice(sorted(TOPICS.keys() - set(part.topics)))
        return replace(part, topics=tuple(sorted((*part.topics, other))))

    return _one(program, chance, lambda part: len(part.topics) < len(TOPICS), changed)


def fewer_sources(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, lambda part: len(part.topics) > 1, lambda part: replace(part, topics=part.topics[:-1]))


def missing_source(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, lambda part: True, lambda part: replace(part, topics=(*part.topics, MISSING)))


def partitions(program: Program, chance: random.Random) -> Program | None:
    return _one(
        program,
        chance,
        lambda part: part.via is not None and part.via.name is not None,
        lambda part: replace(part, via=Via(part.via and part.via.name, 4)),
    )


def regroup(program: Program, chance: random.Random) -> Program | None:
    """A repartition topic comes. The rows are by another key then, so the store is another one."""
    return _one(
        program,
        chance,
        lambda part: part.via is None,
        lambda part: replace(part, via=Via(_fresh("by-", chance)), store=_fresh("store-", chance)),
    )


def ungroup(program: Program, chance: random.Random) -> Program | None:
    """A repartition topic goes."""
    return _one(
        program,
        chance,
        lambda part: part.via is not None,
        lambda part: replace(part, via=None, store=_fresh("store-", chance)),
    )


def reorder(program: Program, chance: random.Random) -> Program | None:
    """Unnamed steps get each other's numbers."""
    if len(program.parts) < 2:
        return None
    parts = list(program.parts)
    while tuple(parts) == program.parts:
        chance.shuffle(parts)
    return replace(program, parts=tuple(parts))


def step(program: Program, chance: random.Random) -> Program | None:
    return _one(program, chance, lambda part: True, lambda part: replace(part, has_step=not part.has_step))


def share(program: Program, chance: random.Random) -> Program | None:
    """Two tables over the same topics get one repartition topic."""
    pairs = [(one, other) for one, other in _over_the_same(program) if one.via != other.via]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    return _with(program, other, replace(other, via=one.via, has_step=one.has_step))


def unshare(program: Program, chance: random.Random) -> Program | None:
    """One of two tables that share a repartition topic gets its own, or both do: then nothing is in both versions."""
    pairs = [(one, other) for one, other in _over_the_same(program) if one.via == other.via]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    program = _with(program, other, replace(other, via=replace_name(other.via, _fresh("by-", chance))))
    return program if chance.random() < 0.5 else _with(program, one, replace(one, via=Via(_fresh("to-", chance))))


def _over_the_same(program: Program) -> list[tuple[Part, Part]]:
    named = [part for part in program.parts if part.via is not None and part.via.name is not None]
    return [(one, other) for one in named for other in named if one is not other and one.topics == other.topics]


def with_twin(program: Program, chance: random.Random, *, is_shared: bool) -> Program:
    """The program with another table over the topics of its first one, each behind a repartition step: the same, or not."""
    first = replace(program.parts[0], via=Via(f"by-{program.parts[0].label}"), store=f"store-{program.parts[0].label}")
    label = _free(program, chance)
    via = first.via if is_shared else Via(f"by-{label}")
    twin = replace(first, label=label, store=f"store-{label}", kind=chance.choice(KINDS), is_plain=False, via=via)
    return replace(program, parts=(first, *program.parts[1:], twin))


def circle(program: Program, chance: random.Random) -> Program:
    """A foreign-key join comes, goes, or gets another name."""
    names = [None, "circle", "ring"]
    return replace(program, circle=chance.choice([name for name in names if name != program.circle]))


CHANGES: Mapping[str, Change] = {
    "add": add,
    "remove": remove,
    "split": split,
    "merge": merge,
    "rename": rename,
    "rename a repartition": rename_repartition,
    "window": window,
    "grace": grace,
    "serde": serde,
    "plain rows": plain_rows,
    "memory": memory,
    "source": source,
    "more sources": more_sources,
    "fewer sources": fewer_sources,
    "missing source": missing_source,
    "partitions": partitions,
    "regroup": regroup,
    "ungroup": ungroup,
    "reorder": reorder,
    "step": step,
    "circle": circle,
    "share": share,
    "unshare": unshare,
}


@dataclass(frozen=True, slots=True)
class Pair:
    """``changes``: the names of the kinds by which they differ."""

    seed: int
    old: Program
    new: Program
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return f"pair {self.seed} ({', '.join(self.changes)})\n  old: {self.old}\n  new: {self.new}"


def some_program(chance: random.Random) -> Program:
    labels = chance.sample(LABELS, chance.choice([1, 2, 2, 3]))
    return Program(
        parts=tuple(some_part(label, chance) for label in labels),
        circle="circle" if chance.random() < 0.15 else None,
    )


def pair(seed: int) -> Pair:
    """The pair of a seed: kinds of change come in turn, so that a few pairs have all of them."""
    chance = random.Random(f"pair {seed}")
    names = list(CHANGES)
    wanted = [names[seed % len(names)], *chance.sample(names, chance.choice([0, 0, 1, 2]))]
    while True:
        old = some_program(chance)
        if wanted[0] in ("share", "unshare"):
            old = with_twin(old, chance, is_shared=wanted[0] == "unshare")
        new, made = old, []
        for name in wanted:
            changed = CHANGES[name](new, chance)
            if changed is not None and changed != new:
                new, made = changed, [*made, name]
        in_place = all(part.is_in_place for part in (*old.parts, *new.parts))
        if wanted[0] in made and new != old and in_place and new.can_be_built:
            return Pair(seed, old, new, tuple(made))
