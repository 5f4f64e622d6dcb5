"""Random programs with random inputs do here what they do in Kafka Streams itself, but for what the docs list."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.fixtures_brokers import require_kafka
from tests.oracle.differential import differing, shrunken
from tests.oracle.java import JavaStreams
from tests.oracle.random_programs import case_of

SEEDS = 20
"""How many a case of the test has: Java answers them in one process."""

pytestmark = [pytest.mark.kafka]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaStreams]:
    require_kafka()
    with JavaStreams() as started:
        yield started


@pytest.mark.timeout(900)
@pytest.mark.share(30)
@pytest.mark.parametrize("first", range(0, 60 * SEEDS, SEEDS))
def test_random_programs(java: JavaStreams, first: int) -> None:
    for seed in range(first, first + SEEDS):
        found = differing(java, case_of(seed))
        if found:
            case = shrunken(case_of(seed), java)
            told = "\n".join(map(str, differing(java, case)))
            pytest.fail(f"python -m tests.oracle.differential --first {seed} --seeds 1:\n{told}\n{json.dumps(case)}")
