"""Random programs, and one of each operation, through everything that can go wrong at once, exactly once.

1. Where each task reads a single partition, the order of its records is that of the partition. So the outputs are those of a
   run without faults, one by one: keys, values, times and order, whatever was killed, frozen or restored meanwhile.
2. Where several are read, their order depends on what comes first. Then it holds that everything is processed and committed,
   and that each store has what its changelog has, which :func:`simulate` checks by itself.

More seeds than a run has: ``python -m tests.streamsrt.testing.simulator.test_random_programs FIRST END``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streamsrt.testing.simulator import Input, Inputs, Outputs, SimulationFailure, simulate, uninterrupted
from tests.oracle.programs import Case, application_config, build
from tests.oracle.random_programs import KEYS, case_of
from tests.streamsrt.operators.test_every_operator import PROGRAMS, topology_of
from tests.streamsrt.testing.simulator.programs import EXACTLY_ONCE
from topology import Topology, TopologyError
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import calls_async

pytestmark = pytest.mark.long

SEEDS, _AT_ONCE, _RUNS = 400, 5, 2
COPIES = 3
"""How often the few records of a case are repeated, later each time."""


def is_in_order(topology: Topology) -> bool:
    """Whether each task reads one partition, where topics have one."""
    parts = topology.subtopologies
    return not topology.global_subtopologies and all(
        len(part.source_topics) + len(part.repartition_source_topics) == 1 for part in parts
    )


def the_same(outputs: Outputs, expected: Outputs) -> str | None:
    """Record by record."""
    for topic, wanted in expected.items():
        found = outputs[topic]
        for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
            if one != other:
                return f"{topic}: record {index} is {one}, instead of {other}"
        if len(found) != len(wanted):
            more = max(found, wanted, key=len)[min(len(found), len(wanted))]
            return f"{topic}: {len(found)} records instead of {len(wanted)}, the first of the others is {more}"
    return None


def anything(_outputs: Outputs, _expected: Outputs) -> None:
    return None


def run(topology: Topology, inputs: Inputs, config: Mapping[str, Any], seeds: Sequence[int]) -> bool:
    """Returns whether the outputs were compared."""
    in_order = is_in_order(topology)
    settings: dict[str, Any] = {"config": {**EXACTLY_ONCE, **config}, "partitions": 1 if in_order else 2}
    expected = uninterrupted(topology, inputs=inputs, **settings)
    for seed in seeds:
        simulate(
            topology,
            inputs=inputs,
            seed=seed,
            expected=expected,
            check=the_same if in_order else anything,
            broker_config={"group.streams.num.standby.replicas": str(seed % 2)},
            protocol="streams" if seed % 3 else "classic",
            **settings,
        )
    return in_order


# ------------------------------------------------------------------------------------------------------ random programs


def logged(case: Case) -> Case:
    """The case, with changelogs for all stores: a store without one is lost with its instance."""
    for step in case["dsl"]:
        step.get("materialized", {}).pop("logging", None)
    return case


def inputs_of(case: Case) -> Inputs:
    rows = [action for action in case["input"] if "topic" in action]
    span_ms = max((row["ts"] for row in rows), default=0) // 2
    inputs: dict[str, list[Input]] = {}
    for copy in range(COPIES):
        for row in rows:
            inputs.setdefault(row["topic"], []).append(Input(row["key"], row["value"], row["ts"] + copy * span_ms))
    return inputs


def run_seed(seed: int) -> bool | None:
    """Returns whether the outputs were compared; None: this is no program."""
    case = logged(case_of(seed, of_one_topic=seed % 4 != 0))
    try:
        topology = build(case).topology
    except TopologyError:
        return None
    config = {name: value for name, value in application_config(case).items() if name.startswith("default.")}
    return run(topology, inputs_of(case), config, range(seed * _RUNS, (seed + 1) * _RUNS))


@pytest.mark.share(20)
@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_random_programs(first: int) -> None:
    found = [run_seed(seed) for seed in range(first, first + _AT_ONCE)]
    assert True in found


# --------------------------------------------------------------------------------------------------- of each operation


def rows_of(topic: str) -> list[Input]:
    """Few keys and values, times that are late now and then, and deletions."""
    texts = ("x", "yx", "z", "xy", None, "y", "zz")
    late = (0, 0, 3, 0, 14, 1, 0, 27)
    shift = len(topic)
    return [Input(KEYS[n * 5 % 3], texts[(n + shift) % 7], 1_000 + n * 4 - late[(n + shift) % 8]) for n in range(40)]


def has_threads(program: str) -> bool:
    """Whether it awaits functions, on threads of its own, which can't be simulated."""
    nodes = [node for part in topology_of(program).subtopologies for node in part.nodes]
    return any(calls_async(node.operation) for node in nodes if isinstance(node, ProcessorNode))


@pytest.mark.share(8)
@pytest.mark.parametrize("program", [each for each in PROGRAMS if not has_threads(each)])
def test_each_operation(program: str) -> None:
    topology = topology_of(program)
    sources = {topic for part in topology.subtopologies for topic in part.source_topics}
    sources |= {topic for part in topology.global_subtopologies for topic in part.source_topics}
    run(topology, {topic: rows_of(topic) for topic in sorted(sources)}, {}, range(3))


if __name__ == "__main__":
    compared = 0
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            compared += run_seed(number) is True
        except SimulationFailure as failure:
            print(f"program {number}: {failure}", flush=True)
    print(f"{compared} compared record by record")
