"""The table of behaviours in docs/faust.md, made of ``behaviours.csv``.

``python -m tests.streamsrt.faust.behaviours.table --write`` replaces the section of the page. Each row of the file names the
test that tries the behaviour.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROWS = HERE / "behaviours.csv"
PAGE = HERE.parents[3] / "docs" / "faust.md"
VERDICTS = ("runs", "differs", "refused")
_SECTION = re.compile(r"## Faust's own tests\n.*?(?=^## )", re.DOTALL | re.MULTILINE)
_INTRODUCTION = """## Faust's own tests

Faust's functional and unit tests specify how agents, streams, tables, windows, sets, models, codecs, topics, channels and
events behave. Each behaviour that is visible to an application is covered by a test of this project
(`tests/streamsrt/faust/behaviours/behaviours.csv` in the repository lists them). Tests of Faust's internals, such as its
consumer, recovery and RocksDB stores, have no counterpart.
"""


class Behaviour(NamedTuple):
    """One row. ``test``: file and name, as pytest has them. ``note``: why it differs, or the message's gist."""

    id: str
    area: str
    verdict: str
    test: str
    behaviour: str
    note: str


def behaviours() -> list[Behaviour]:
    """All of them, in the order of the file."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        return [Behaviour(**row) for row in csv.DictReader(file)]


def section() -> str:
    """The section of the page."""
    rows = behaviours()
    counts = Counter((row.area, row.verdict) for row in rows)
    lines = [_INTRODUCTION, "| area | tested | same | different | refused |", "| --- | --- | --- | --- | --- |"]
    for area in dict.fromkeys(row.area for row in rows):
        found = [counts[area, verdict] for verdict in VERDICTS]
        lines.append(f"| {area} | {sum(found)} | {' | '.join(map(str, found))} |")
    for verdict, title in (("differs", "Differences"), ("refused", "Refused")):
        lines += ["", f"{title}:", "", "| area | in Faust | here |", "| --- | --- | --- |"]
        lines += [f"| {row.area} | {row.behaviour} | {row.note} |" for row in rows if row.verdict == verdict]
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"replace the section of {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(_SECTION.sub(lambda _: section(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(section(), end="")
