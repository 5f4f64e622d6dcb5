"""The public functions: one seed, many seeds, and the uninterrupted run that they are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streamsrt.config import StreamsConfig
from streamsrt.testing.simulator.invariants import compare as compare_outputs
from streamsrt.testing.simulator.simulation import CONFIG, Simulation
from streamsrt.testing.simulator.values import (
    NO_FAULTS,
    Check,
    Compare,
    Faults,
    Inputs,
    Outputs,
    Protocols,
    SimulationFailure,
    SimulationResult,
)
from topology.graph.topology import Topology

CHAOS_S = 10.0
SETTLE_S = 60.0


def simulate(
    topology: Topology,
    *,
    inputs: Inputs,
    seed: int = 0,
    instances: int = 3,
    faults: Faults | None = None,
    protocol: Protocols | None = None,
    config: Mapping[str, Any] | None = None,
    partitions: int = 2,
    broker_config: Mapping[str, str] | None = None,
    chaos_s: float = CHAOS_S,
    settle_s: float = SETTLE_S,
    expected: Outputs | None = None,
    compare: Compare | None = None,
    check: Check | None = None,
) -> SimulationResult:
    """Runs one seed and checks the invariants (:mod:`streamsrt.testing.simulator.invariants`).

    ``faults`` happen during ``chaos_s`` seconds of virtual time, and ``inputs`` are written during the first four fifths
    of it. Then there are no more faults, and the application has ``settle_s`` to process everything. ``expected``: the
    outputs of an uninterrupted run; None: such a run is made. ``compare``: how the outputs must match them; by default
    ``each`` with ``exactly_once_v2``, else ``none lost``. ``check``: your own comparison instead. ``config``: settings
    of the application, which override :data:`~streamsrt.testing.simulator.simulation.CONFIG`; with
    ``group.instance.id``, each instance is a static member whose id is that one and its own name. ``protocol``: the
    protocol with which the instances join their group, unless it is configured.

    Raises :class:`SimulationFailure`, which names the seed, what was wrong, the last events, and the call that repeats
    it.
    """
    settings = dict(config or {})
    arguments: dict[str, Any] = {
        "config": settings,
        "partitions": partitions,
        "broker_config": dict(broker_config or {}),
    }
    if expected is None:
        expected = uninterrupted(topology, inputs=inputs, **arguments)
    how = compare or ("each" if StreamsConfig.of({**CONFIG, **settings}).is_exactly_once else "none lost")
    simulation = Simulation(
        topology,
        inputs,
        seed=seed,
        instances=instances,
        faults=Faults() if faults is None else faults,
        protocol=protocol,
        chaos_s=chaos_s,
        settle_s=settle_s,
        **arguments,
    )
    try:
        wrong = simulation.run()
        if wrong is None:
            outputs = simulation.outputs()
            wrong = check(outputs, expected) if check is not None else compare_outputs(how, outputs, expected)
        if wrong is not None:
            raise SimulationFailure(
                seed,
                wrong,
                _call(
                    seed=seed,
                    instances=instances,
                    faults=faults,
                    protocol=protocol,
                    **arguments,
                    chaos_s=None if chaos_s == CHAOS_S else chaos_s,
                    settle_s=None if settle_s == SETTLE_S else settle_s,
                    compare=compare,
                    check=None if check is None else _Name("check"),
                ),
                tuple(simulation.trace.lines),
            )
        return simulation.result(outputs)
    finally:
        simulation.clear_away()


def simulate_seeds(topology: Topology, *, seeds: Iterable[int], **arguments: Any) -> Iterator[SimulationResult]:
    """:func:`simulate` for each seed; the uninterrupted run is made only once. Raises at the first seed that fails."""
    if arguments.get("expected") is None:
        known = ("inputs", "config", "partitions", "broker_config")
        arguments["expected"] = uninterrupted(
            topology, **{name: arguments[name] for name in known if arguments.get(name) is not None}
        )
    for seed in seeds:
        yield simulate(topology, seed=seed, **arguments)


def uninterrupted(
    topology: Topology,
    *,
    inputs: Inputs,
    config: Mapping[str, Any] | None = None,
    partitions: int = 2,
    broker_config: Mapping[str, str] | None = None,
) -> Outputs:
    """The outputs of one instance without faults. Raises SimulationFailure if that run fails."""
    simulation = Simulation(
        topology,
        inputs,
        seed=0,
        instances=1,
        faults=NO_FAULTS,
        config=dict(config or {}),
        partitions=partitions,
        broker_config=dict(broker_config or {}),
        chaos_s=CHAOS_S,
        settle_s=SETTLE_S,
    )
    try:
        wrong = simulation.run()
        if wrong is not None:
            raise SimulationFailure(
                0, f"without any fault: {wrong}", "uninterrupted(...)", tuple(simulation.trace.lines)
            )
        return simulation.outputs()
    finally:
        simulation.clear_away()


class _Name(str):
    """The name of something that a call can't show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _call(**given: object) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value not in (None, {}))
    return f"simulate(topology, inputs=inputs, {shown})"
