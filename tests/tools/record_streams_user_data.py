"""Records the user data of Kafka Streams for values of a fixed seed, and has Java read what we write for the same values.

python -m tests.tools.record_streams_user_data
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from streamsrt.wire.streams_user_data import (
    NEWEST_VERSION,
    NO_REBALANCE,
    OLDEST_VERSION,
    AssignmentInfo,
    SubscriptionInfo,
    encode_assignment_info,
    encode_subscription_info,
)
from tests.kafka_server import streams_classpath

FOLDER = Path(__file__).resolve().parent.parent / "golden" / "streams_user_data"
RECORDED = FOLDER / "java.jsonl"
CASES_PER_VERSION = 12
TOPICS = ("words", "app-by-word-repartition", "größe", "t")


def drawn() -> list[dict[str, Any]]:
    random = Random(7)
    versions = range(OLDEST_VERSION, NEWEST_VERSION + 1)
    makers = (("subscription", _subscription), ("assignment", _assignment))
    return [
        {"kind": kind, "data": make(random, version)}
        for kind, make in makers
        for version in versions
        for _ in range(CASES_PER_VERSION)
    ]


def _tasks(random: Random) -> list[tuple[int, int]]:
    return sorted({(random.randrange(4), random.randrange(30)) for _ in range(random.choice([0, 1, 3, 9]))})


def _subscription(random: Random, version: int) -> dict[str, Any]:
    sums = [(*task, random.choice([-2, -3, 0, random.randrange(2**40)])) for task in _tasks(random)]
    tags = [[key, random.choice(["", "a", "ä"])] for key in ("cluster", "zone")[: random.randrange(3)]]
    return {
        "version": version,
        "newest_version": random.randrange(version, NEWEST_VERSION + 1),
        "process_id": str(UUID(int=random.getrandbits(128))),
        "endpoint": random.choice(["", "host:80", "größe:65535"]),
        "offset_sums": sums,
        "unique": random.randrange(-128, 128) if version >= 8 else 0,
        "error": random.randrange(5) if version >= 9 else 0,
        "client_tags": tags if version >= 11 else [],
    }


def _assignment(random: Random, version: int) -> dict[str, Any]:
    # Java numbers several topics in an order of its own; the hosts of half of the cases have one only.
    topics = random.choice([TOPICS, TOPICS[:1]])
    return {
        "version": version,
        "common_version": random.randrange(version, NEWEST_VERSION + 1),
        "active": [task for task in _tasks(random) for _ in range(random.choice([1, 1, 2]))],
        "standby": [(*task, _places(random, TOPICS[:1])) for task in _tasks(random)],
        "active_by_host": _hosts(random, topics),
        "standby_by_host": _hosts(random, topics),
        "error": random.randrange(5),
        "next_rebalance_ms": random.choice([0, NO_REBALANCE, 1_700_000_000_000]),
    }


def _hosts(random: Random, topics: tuple[str, ...]) -> list[Any]:
    hosts = ("a", "größe")[: random.randrange(3)]
    return [(host, random.randrange(1, 65_536), _places(random, topics)) for host in hosts]


def _places(random: Random, topics: tuple[str, ...]) -> list[tuple[str, int]]:
    return sorted({(random.choice(topics), random.randrange(9)) for _ in range(random.randrange(1, 5))})


def value_of(case: dict[str, Any]) -> SubscriptionInfo | AssignmentInfo:
    data = dict(case["data"])
    if case["kind"] == "subscription":
        data["offset_sums"] = {(a, b): offset for a, b, offset in data["offset_sums"]}
        return SubscriptionInfo(**{**data, "client_tags": dict(data["client_tags"])})
    data["active"] = tuple((a, b) for a, b in data["active"])
    for name in ("standby", "active_by_host", "standby_by_host"):
        data[name] = {(a, b): frozenset((c, d) for c, d in places) for a, b, places in data[name]}
    return AssignmentInfo(**data)


def ours(case: dict[str, Any]) -> bytes:
    value = value_of(case)
    return encode_subscription_info(value) if isinstance(value, SubscriptionInfo) else encode_assignment_info(value)


def asked_of_java(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", streams_classpath()]
    command.append(str(FOLDER / "EncodeUserData.java"))
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]


def main() -> None:
    cases = drawn()
    written = asked_of_java(cases)
    RECORDED.write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in written), encoding="utf-8")
    read = asked_of_java({**case, "ours": ours(case).hex()} for case in cases)
    unlike = [case for case in read if not case["equal"]]
    print(
        f"{len(written)} cases recorded; Java reads {len(read) - len(unlike)} of {len(read)} of ours as they are meant"
    )
    for case in unlike:
        print(json.dumps(case, ensure_ascii=False))


if __name__ == "__main__":
    main()
