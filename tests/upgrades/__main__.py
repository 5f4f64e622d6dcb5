"""``python -m tests.upgrades --pairs 300``: many pairs of versions by the simulator. Exit code 1: one of them is wrong."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.upgrades.judging import WrongPairError, roll
from tests.upgrades.pairs import pair
from tests.upgrades.rolling import CLASSIC, SETTINGS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrades", description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: %(default)s)")
    parser.add_argument("--protocol", choices=["streams", "classic"], default="streams")
    parser.add_argument("--go-on", action="store_true", help="after a pair that is wrong, too")
    options = parser.parse_args()
    became: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    wrong = []
    for seed in range(options.first, options.first + options.pairs):
        found = pair(seed)
        kinds.update(found.changes)
        try:
            became[roll(found, settings=CLASSIC if options.protocol == "classic" else SETTINGS).partition(":")[0]] += 1
        except WrongPairError as error:
            wrong.append(seed)
            print(error, flush=True)
            if not options.go_on:
                break
        if (seed + 1) % 25 == 0:
            print(f"up to pair {seed}: {dict(became)}, wrong: {wrong}", flush=True)
    print(f"{sum(became.values())} pairs: {dict(became)}")
    print(f"kinds of change: {dict(sorted(kinds.items()))}")
    print(f"wrong: {wrong}" if wrong else "none is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
