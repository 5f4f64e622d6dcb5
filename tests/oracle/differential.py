"""Random programs in Java and here: ``python -m tests.oracle.differential --seeds 1000``.

It prints each seed whose outcomes differ, with the smallest case that still differs in the same way.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from streamsrt.errors import StreamsError
from tests.oracle.comparison import Difference, differences
from tests.oracle.java import JavaStreams
from tests.oracle.programs import Case, Step, UnsupportedCase
from tests.oracle.random_programs import case_of
from tests.oracle.wanted_differences import unwanted


def differing(java: JavaStreams, case: Case) -> list[Difference]:
    """What differs in either way to run operators, but for what is on purpose."""
    answer = java.answer(case)
    return unwanted(answer, differences(answer, generate=True)) or unwanted(answer, differences(answer, generate=False))


def shrunken(case: Case, java: JavaStreams) -> Case:
    """The smallest case found by leaving out parts, of which the first difference is of the same kind."""
    kind = _kind(differing(java, case))
    found: Case | None = case
    while found is not None:
        case = found
        found = next((other for other in _smaller(case) if _differs(java, other, kind)), None)
    return case


def _differs(java: JavaStreams, case: Case, kind: tuple[str, str]) -> bool:
    try:
        return _kind(differing(java, case)) == kind
    except (KeyError, TypeError, ValueError, UnsupportedCase, StreamsError):
        # What is left is no program: a step lacks what it needs.
        return False


def _kind(found: list[Difference]) -> tuple[str, str]:
    """Topics and stores have other numbers in smaller programs."""
    return (found[0].kind, re.sub(r"\d+", "", found[0].place)) if found else ("", "")


OPTIONS = {
    "dsl": ("named", "materialized.caching", "materialized.logging", "materialized.store_type"),
    "input": ("headers",),
}
"""What a step or an input may go without."""


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with a part less: many inputs, one input, one step, one setting, one option."""
    inputs, steps = case["input"], case["dsl"]
    size = len(inputs) // 2
    while size:
        for first in range(0, len(inputs), size):
            yield {**case, "input": inputs[:first] + inputs[first + size :]}
        size //= 2
    for index in reversed(range(len(steps))):
        without = _without(steps, index)
        topics = {step.get("topic") for step in without}
        kept = [action for action in inputs if "topic" not in action or action["topic"] in topics]
        if kept:
            yield {**case, "dsl": without, "input": kept}
    for name in case["config"]:
        if not name.startswith("default."):
            yield {**case, "config": {key: value for key, value in case["config"].items() if key != name}}
    for place, options in OPTIONS.items():
        for index, each in enumerate(case[place]):
            for option in options:
                less = _without_option(each, option)
                if less != each:
                    yield {**case, place: [*case[place][:index], less, *case[place][index + 1 :]]}


def _without_option(whole: Step, option: str) -> Step:
    less = deepcopy(whole)
    *outer, name = option.split(".")
    inner: Any = less
    for part in outer:
        inner = inner.get(part, {})
    inner.pop(name, None)
    return less


def _without(steps: list[Any], index: int) -> list[Any]:
    """Without a step. Those that read its result read what it read, if it is of the same kind."""
    gone = steps[index]
    rest = steps[:index] + steps[index + 1 :]
    if "as" not in gone or "in" not in gone:
        names = {gone.get("as"), *(branch["as"] for branch in gone.get("branches", []))} - {None}
        return _without_readers(rest, names)
    renamed = {gone["as"]: gone["in"]}
    return [
        {**step, **{side: renamed.get(step[side], step[side]) for side in ("in", "other") if side in step}}
        for step in rest
    ]


def _without_readers(steps: list[Any], names: set[str]) -> list[Any]:
    kept = []
    for step in steps:
        if step.get("in") in names or step.get("other") in names:
            names |= {step.get("as"), *(branch["as"] for branch in step.get("branches", []))} - {None}
        else:
            kept.append(step)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--whole", action="store_true", help="do not look for smaller cases")
    parser.add_argument(
        "--ask", action="store_true", help="print Java's answers to the cases on stdin instead, one a line"
    )
    arguments = parser.parse_args()
    with JavaStreams() as java:
        if arguments.ask:
            for line in sys.stdin:
                print(json.dumps(java.answer(json.loads(line)), separators=(",", ":")), flush=True)
            return
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        differ = sum(_tell(java, seed, whole=arguments.whole) for seed in seeds)
    print(f"{arguments.seeds} seeds, {differ} differ")


def _tell(java: JavaStreams, seed: int, *, whole: bool) -> bool:
    """Whether the seed's outcomes differ; prints how."""
    case = case_of(seed)
    if not differing(java, case):
        return False
    if not whole:
        case = shrunken(case, java)
    print(f"seed {seed}:", *differing(java, case)[:6], sep="\n  ")
    print(json.dumps(case), flush=True)
    return True


if __name__ == "__main__":
    main()
