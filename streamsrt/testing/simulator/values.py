"""What a simulation is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from streamsrt.errors import StreamsError


class Input(NamedTuple):
    """A record of a source topic: bytes, or what the source's serdes take. ``timestamp``: epoch milliseconds."""

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
"""By which protocol the instances join their group. ``both``: the seed says by which one they begin, and
``protocol_changes`` of :class:`Faults` change it."""
Check = Callable[[Outputs, Outputs], str | None]
"""``(outputs, those of an uninterrupted run) -> what is wrong with them``, None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong: how often on average in one run, or with which probability at one write to the network.

    ``crashes``: an instance ends as by ``kill -9``, and is started again. ``restarts``: it is closed and started again.
    ``lost_disks``: it crashes, and its state directory is gone. ``broker_crashes``: the broker ends as by ``kill -9``, and
    is started again. ``cut_offs``: nothing gets from or to an instance for a while. ``freezes``: an instance stands still,
    its heartbeats too; ``stalls``: its processing thread does. ``scalings``: an instance more, which leaves again.
    ``epoch_bumps``: the instances are restarted one by one with the next topology epoch. ``growths``: the source topics get
    a partition more (stateless topologies only: internal topics can't grow). ``broken``: a connection breaks at a write.
    ``slow``: something takes 20 to 300 ms. ``varied``: in every run each kind is left out with a probability of one half.

    In classic groups only, ``lost_leaders``: the member that leads is killed, cut off or frozen while the others wait for
    what it assigns. With both protocols only, ``protocol_changes``: the instances are restarted one by one with the other.
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
    broken=0,
    slow=0,
    varied=False,
)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What became of one run. ``digest`` is a hash of everything that happened, in order."""

    seed: int
    outputs: Outputs
    digest: str
    trace: tuple[str, ...]
    virtual_s: float
    steps: int
    counts: Mapping[str, int] = field(default_factory=dict)


class SimulationFailure(StreamsError):
    """A seed for which something is wrong. ``trace``: the last events; ``call``: what repeats it, with the same
    events."""

    def __init__(self, seed: int, what: str, call: str, trace: Sequence[str]) -> None:
        self.seed, self.what, self.call, self.trace = seed, what, call, tuple(trace)
        events = "\n".join(f"  {line}" for line in trace[-_SHOWN_EVENTS:])
        super().__init__(f"seed {seed}: {what}\nthe last events:\n{events}\nto repeat it: {call}")


_SHOWN_EVENTS = 60
