"""Storms for as long as one likes: exactly once under kill -9 of instances and broker.

    python -m tests.system.soak_exactly_once --rounds 100 --broker bundled

A round is one blow; storms of ten blows follow one another, each with a seed of its own, words and windows by turns. The
first wrong result ends the soak with its seed; the logs of that storm stay.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fixtures_brokers import QUICK_GROUPS, BundledBroker
from tests.kafka_server import KafkaServer
from tests.system.cluster import connected
from tests.system.storm import flights_in_a_storm, word_counts_in_a_storm

BLOWS_PER_STORM = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--broker", choices=["bundled", "kafka"], default="bundled")
    parser.add_argument("--seed", type=int, default=1, help="of the first storm; the next ones count on")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    server: BundledBroker | KafkaServer
    if arguments.broker == "kafka":
        server = KafkaServer(folder / "broker", QUICK_GROUPS)
    else:
        server = BundledBroker(folder / "broker")
    server.start()
    done: Counter[str] = Counter()
    seed = arguments.seed
    try:
        while done.total() < arguments.rounds:
            blows = min(BLOWS_PER_STORM, arguments.rounds - done.total())
            storm = flights_in_a_storm if seed % 2 else word_counts_in_a_storm
            started = time.monotonic()
            scene = folder / f"storm-{seed}"
            try:
                with connected(server) as cluster:
                    found = storm(seed, blows, cluster, scene, f"soak-{seed}")
            except AssertionError as error:
                print(f"storm {seed} ({storm.__name__}, {blows} blows): WRONG; logs in {scene}\n{error}", flush=True)
                return 1
            shutil.rmtree(scene)
            done += found.blows
            print(
                f"storm {seed}: exact after {dict(found.blows)} in {time.monotonic() - started:.0f} s; "
                f"{done.total()} of {arguments.rounds} rounds",
                flush=True,
            )
            seed += 1
    finally:
        server.kill()
    print(f"all exact: {dict(done)}")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
