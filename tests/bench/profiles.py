"""Where the time of programs went, by what py-spy saw: ``python -m tests.bench.profiles FOLDER [--lines 12]``.

Each file of the folder is one program (see :mod:`tests.bench.peer_programs`). A table names its threads, then the functions
with the largest share of the samples in which a thread worked: ``self`` is the function itself, with what it calls in C;
``all`` has what it calls in Python, too. Samples before the first and after the last record (imports, the group, closing)
count like all others: profile runs of many records.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path


def name_of(frame: str) -> str:
    """Function and module, without the line."""
    function, _, place = frame.partition(" (")
    file = place.rpartition(":")[0] or place.rstrip(")")
    return f"{function} ({'/'.join(Path(file).parts[-2:])})"


def shares(text: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Samples by thread, by the function that ran, and by all functions on the stack."""
    threads: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        names = [name_of(frame) for frame in frames]
        samples = int(count)
        threads[thread] += samples
        alone[names[-1] if names else thread] += samples
        within.update(dict.fromkeys(names, samples))
    return threads, alone, within


def table(file: Path, lines: int) -> str:
    threads, alone, within = shares(file.read_text(encoding="utf-8"))
    total = max(1, threads.total())
    rows = [f"{file.stem}: {total} samples", ""]
    rows += [f"{count / total:7.1%}  {name}" for name, count in threads.most_common(4)]
    rows += ["", f"{'self':>7}  {'all':>6}"]
    rows += [f"{count / total:7.1%} {within[name] / total:7.1%}  {name}" for name, count in alone.most_common(lines)]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiles")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=12)
    given = parser.parse_args()
    for file in sorted(given.folder.glob("*.raw")):
        print(table(file, given.lines), end="\n\n")


if __name__ == "__main__":
    main()
