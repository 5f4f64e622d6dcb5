"""The arguments of a simulation, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from streamsrt.errors import StreamsError


class Input(NamedTuple):
    """A record of a source topic: bytes, or values for the source's serdes. ``timestamp``: epoch milliseconds."""

    key: object
    value: object
    timestamp: int


class Output(NamedTuple):
    """A record of a sink topic that a reader of committed records gets, as bytes."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int


Inputs: TypeAlias = Mapping[str, Sequence[Input]]
Outputs: TypeAlias = Mapping[str, Sequence[Output]]
Compare = Literal["each", "last", "none lost"]
Protocols = Literal["streams", "classic", "both"]
"""The protocol with which the instances join their group. ``both``: the seed decides which one they start with, and
``protocol_changes`` of :class:`Faults` change it.
"""
Check = Callable[[Outputs, Outputs], str | None]
"""``(outputs, outputs of an uninterrupted run) -> what is wrong``; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Injected faults: the average number in one run; for ``broken`` and ``slow``, the probability at one network write.

    ``crashes``: an instance is killed as with ``kill -9`` and started again. ``restarts``: it is closed and started
    again. ``lost_disks``: it crashes and loses its state directory. ``broker_crashes``: the broker is killed as with
    ``kill -9`` and started again. ``cut_offs``: an instance loses the network for a while. ``freezes``: an instance
    freezes, including its heartbeats; ``stalls``: only its processing thread does. ``scalings``: an additional instance
    joins and leaves again. ``epoch_bumps``: the instances are restarted one by one with the next topology epoch.
    ``growths``: the source topics get another partition (stateless topologies only: internal topics can't grow).
    ``broken``: a connection breaks at a write. ``slow``: a write takes 20 to 300 ms. ``varied``: each run leaves out
    each kind of fault with a probability of one half.

    ``midway``: an instance is killed or cut off, or its processing thread stalls, while that waits for an answer of the
    cluster, as in a commit. ``given_up``: an instance freezes while its processing thread waits for such an answer, until
    the group has given it up. ``handovers``: a processing thread stalls while it commits what it is to give up.

    In classic groups only, ``lost_leaders``: the leader is killed, cut off or frozen while the others wait for its
    assignment. With both protocols only, ``protocol_changes``: the instances are restarted one by one with the other
    protocol.
    """

    crashes: float = 2.0
    restarts: float = 1.0
    lost_disks: float = 0.5
    broker_crashes: float = 1.0
    cut_offs: float = 1.0
    freezes: float = 1.0
    stalls: float = 1.0
    scalings: float = 0.5
    epoch_bumps: float = 0.5
    growths: float = 0.0
    lost_leaders: float = 1.0
    protocol_changes: float = 1.0
    midway: float = 2.0
    given_up: float = 1.5
    handovers: float = 1.0
    broken: float = 0.01
    slow: float = 0.03
    varied: bool = True


NO_FAULTS = Faults(
    crashes=0,
    restarts=0,
    lost_disks=0,
    broker_crashes=0,
    cut_offs=0,
    freezes=0,
    stalls=0,
    scalings=0,
    epoch_bumps=0,
    lost_leaders=0,
    protocol_changes=0,
    midway=0,
    given_up=0,
    handovers=0,
    broken=0,
    slow=0,
    varied=False,
)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of one run. ``digest`` is a hash of everything that happened, in order."""

    seed: int
    outputs: Outputs
    digest: str
    trace: tuple[str, ...]
    virtual_s: float
    steps: int
    counts: Mapping[str, int] = field(default_factory=dict)


class SimulationFailure(StreamsError):
    """A seed failed. ``trace``: the events; ``call``: the call that repeats the run with the same events."""

    def __init__(self, seed: int, what: str, call: str, trace: Sequence[str]) -> None:
        self.seed, self.what, self.call, self.trace = seed, what, call, tuple(trace)
        events = "\n".join(f"  {line}" for line in trace[-_SHOWN_EVENTS:])
        super().__init__(f"seed {seed}: {what}\nthe last events:\n{events}\nto repeat it: {call}")


_SHOWN_EVENTS = 60
