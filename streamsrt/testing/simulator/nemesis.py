"""Plans the faults of a seed, and injects them."""

from __future__ import annotations

import contextvars
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from streamsrt.testing.simulator.broker import HOST_NAME, SimulatedBroker
from streamsrt.testing.simulator.instance import Instance
from streamsrt.testing.simulator.loop import VirtualLoop
from streamsrt.testing.simulator.net import SimulatedNet, Weather
from streamsrt.testing.simulator.values import Faults, Protocols

KINDS = (
    "crashes",
    "restarts",
    "lost_disks",
    "broker_crashes",
    "cut_offs",
    "freezes",
    "stalls",
    "scalings",
    "epoch_bumps",
    "growths",
)
CLASSIC_KINDS = ("lost_leaders",)
LAST_KINDS = ("midway", "given_up", "handovers")
"""Drawn after all others, which come at the same times with them and without."""
KINDS_OF: Mapping[Protocols, tuple[str, ...]] = {
    "streams": (*KINDS, *LAST_KINDS),
    "classic": (*KINDS, *CLASSIC_KINDS, *LAST_KINDS),
    "both": (*KINDS, *CLASSIC_KINDS, "protocol_changes", *LAST_KINDS),
}
"""What can happen to instances that join by that protocol."""
_DRAWN_APART = frozenset({"given_up", "handovers"})
"""Whether a seed leaves one of them out is drawn after all others, too."""
_WATCH_S = 0.001
_LOOK_S = 0.05
_ASKS_MAX = 8
"""Those of two or three commits, or of a start."""
_ANSWERS_IN_S = 0.005
"""Most answers have come by then."""
_GIVEN_UP_IN_S = 12.0
"""By then the group has given up a member that it does not hear of, whatever the protocol."""


@dataclass(frozen=True, slots=True)
class Event:
    """A planned fault: ``kind`` of :data:`KINDS_OF`; ``length_s``: its duration. ``chance`` decides the rest."""

    at_s: float
    kind: str
    length_s: float
    chance: float


def plan(
    faults: Faults, chance: random.Random, chaos_s: float, kinds: tuple[str, ...] = KINDS
) -> tuple[Faults, list[Event]]:
    """Plans which kinds of faults this seed has, and when they happen, within ``chaos_s`` from the start."""
    if faults.varied:
        drawn = [kind for kind in (*KINDS, "broken", "slow", *kinds[len(KINDS) :]) if kind not in _DRAWN_APART]
        left_out = {kind: 0.0 for kind in drawn if chance.random() < 0.5}
        faults = replace(faults, **left_out)  # type: ignore[arg-type]
    events = []
    for kind in kinds:
        at_s, mean = 0.0, getattr(faults, kind)
        if faults.varied and kind in _DRAWN_APART and chance.random() < 0.5:
            continue
        while mean > 0:
            at_s += chance.expovariate(mean / chaos_s)
            if at_s >= chaos_s:
                break
            events.append(Event(at_s, kind, _length_s(kind, chance), chance.random()))
    return faults, sorted(events, key=lambda event: event.at_s)


def _length_s(kind: str, chance: random.Random) -> float:
    """Returns a short duration, which may go unnoticed, or a long one, after which the others have continued alone."""
    if kind in ("cut_offs", "freezes", "stalls"):
        return chance.choice((chance.uniform(0.05, 1.0), chance.uniform(1.0, 5.0), chance.uniform(5.0, 15.0)))
    if kind == "handovers":
        return chance.uniform(1.0, 6.0)
    return chance.choice((chance.uniform(0.01, 0.5), chance.uniform(0.5, 3.0), chance.uniform(3.0, 8.0)))


class Victims(Protocol):
    """The targets of faults."""

    loop: VirtualLoop
    net: SimulatedNet
    broker: SimulatedBroker
    instances: list[Instance]

    def note(self, host: str, text: str) -> None: ...
    def start(self, instance: Instance) -> None: ...
    def add_instance(self) -> Instance: ...
    def remove_instance(self, instance: Instance) -> None: ...
    def raise_epoch(self) -> bool: ...
    def change_protocol(self) -> bool: ...
    def leader_at_work(self) -> Instance | None: ...
    def grow_topics(self) -> None: ...
    def is_known(self, member_id: str) -> bool: ...


class Nemesis:
    """Executes a plan. :meth:`end` undoes lasting faults."""

    def __init__(self, victims: Victims, faults: Faults, events: list[Event]) -> None:
        self._victims = victims
        self._context = contextvars.copy_context()
        self._timers = []
        self._awaited: deque[Event] = deque()
        """Leaders that are to be lost as soon as there are any."""
        self._expected: list[tuple[Callable[[Instance], bool], Callable[[Instance], None]]] = []
        """What is to happen to the next instance that asks the cluster while this is true of it."""
        self._is_over = False
        victims.net.weather = Weather(slow=faults.slow, broken=faults.broken)
        for event in events:
            act: Callable[[Event], None] = getattr(self, f"_{event.kind}")
            self._timers.append(victims.loop.call_later(event.at_s, act, event))

    def end(self) -> None:
        """Ends all faults, and starts the hosts that are down."""
        victims = self._victims
        self._is_over = True
        for timer in self._timers:
            timer.cancel()
        self._awaited.clear()
        victims.net.weather = Weather()
        victims.broker.start()
        for instance in victims.instances:
            victims.net.heal(instance.name)
            self._thaw(instance)
            victims.start(instance)

    def _later(self, event: Event, act: Callable[..., None], *args: object) -> None:
        self._timers.append(self._victims.loop.call_later(event.length_s, act, *args))

    def _one(self, event: Event) -> Instance:
        instances = self._victims.instances
        return instances[int(event.chance * len(instances))]

    # --------------------------------------------------------------------------------------------------------- instances

    def _kill(self, instance: Instance) -> None:
        host = instance.kill()
        if host is not None:
            self._victims.net.host_died(host)

    def _crashes(self, event: Event) -> None:
        instance = self._one(event)
        self._victims.note(instance.name, "is killed")
        self._kill(instance)
        self._later(event, self._victims.start, instance)

    def _midway(self, event: Event) -> None:
        """Hits an instance while its thread waits for an answer, as in a commit: before the request is sent, or a little
        later. What comes at any time hardly ever comes at such a moment."""
        instance, chance, loop = self._one(event), random.Random(event.chance), self._victims.loop
        hit = partial(
            self._hit, instance, event, chance.choice((self._crashes, self._crashes, self._cut_offs, self._stalls))
        )
        when = (partial(loop.call_soon), partial(loop.call_later, chance.uniform(0.0, _ANSWERS_IN_S)))
        instance.once_it_asks(chance.randint(1, _ASKS_MAX), partial(chance.choice(when), hit, context=self._context))

    def asked(self, instance: Instance) -> None:
        """An instance's thread is about to wait for an answer."""
        found = next((each for each in self._expected if each[0](instance)), None)
        if found is not None and not self._is_over:
            self._expected.remove(found)
            found[1](instance)

    def _given_up(self, event: Event) -> None:
        """Has an instance go on in the middle of a commit when the group has just given it up."""
        wait_s = random.Random(event.chance).uniform(0.0, _ANSWERS_IN_S)

        def freeze(instance: Instance) -> None:
            self._victims.loop.call_later(wait_s, self._freeze_until_given_up, instance, context=self._context)

        self._expected.append((lambda instance: instance.is_committing, freeze))

    def _freeze_until_given_up(self, instance: Instance) -> None:
        if self._is_over or instance.host is None:
            return
        self._victims.note(instance.name, "freezes until the group has given it up")
        instance.host.is_frozen = True
        self._thaw_once_given_up(instance, instance.member_id, self._victims.loop.time() + _GIVEN_UP_IN_S)

    def _thaw_once_given_up(self, instance: Instance, member_id: str, until_s: float) -> None:
        loop = self._victims.loop
        if instance.member_id != member_id or loop.time() >= until_s or not self._victims.is_known(member_id):
            self._thaw(instance)
        else:
            self._timers.append(loop.call_later(_LOOK_S, self._thaw_once_given_up, instance, member_id, until_s))

    def _handovers(self, event: Event) -> None:
        """Stalls an instance that is to give up tasks, before it has closed them."""

        def stall(instance: Instance) -> None:
            self._victims.note(instance.name, f"stalls with tasks that it is to give up for {event.length_s:.3f} s")
            instance.stall(event.length_s)

        self._expected.append((lambda instance: instance.is_giving_up, stall))

    def _hit(self, instance: Instance, event: Event, way: Callable[[Event], None]) -> None:
        instances = self._victims.instances
        if instance in instances and not self._is_over:
            way(replace(event, chance=(instances.index(instance) + 0.5) / len(instances)))

    def _lost_disks(self, event: Event) -> None:
        instance = self._one(event)
        self._victims.note(instance.name, "is killed, and its disk is lost")
        self._kill(instance)
        instance.disk.lose()
        self._later(event, self._victims.start, instance)

    def _restarts(self, event: Event) -> None:
        instance = self._one(event)
        self._victims.note(instance.name, "is told to stop")
        instance.stop()
        self._later(event, self._victims.start, instance)

    def _cut_offs(self, event: Event) -> None:
        instance = self._one(event)
        self._victims.note(instance.name, f"is cut off for {event.length_s:.3f} s")
        self._victims.net.cut_off(instance.name)
        self._later(event, self._victims.net.heal, instance.name)

    def _freezes(self, event: Event) -> None:
        instance = self._one(event)
        if instance.host is not None:
            self._victims.note(instance.name, f"freezes for {event.length_s:.3f} s")
            instance.host.is_frozen = True
            self._later(event, self._thaw, instance)

    def _thaw(self, instance: Instance) -> None:
        if instance.host is not None and instance.host.is_frozen:
            self._victims.note(instance.name, "thaws")
            self._victims.loop.thaw(instance.host)

    def _stalls(self, event: Event) -> None:
        instance = self._one(event)
        self._victims.note(instance.name, f"its processing thread stalls for {event.length_s:.3f} s")
        instance.stall(event.length_s)

    def _scalings(self, event: Event) -> None:
        instance = self._victims.add_instance()
        self._later(event, self._victims.remove_instance, instance)

    def _epoch_bumps(self, event: Event) -> None:
        """Simulates a rolling upgrade: the instances are closed one by one, and restarted with the next epoch."""
        if self._victims.raise_epoch():
            self._roll(event)

    def _protocol_changes(self, event: Event) -> None:
        """Closes the instances one by one, and restarts them with the other protocol."""
        if self._victims.change_protocol():
            self._roll(event)

    def _roll(self, event: Event) -> None:
        for number, instance in enumerate(list(self._victims.instances)):
            at_s = number * event.length_s / 2
            self._timers.append(self._victims.loop.call_later(at_s, instance.stop))

    def _lost_leaders(self, event: Event) -> None:
        """Breaks the next leader once the others wait for it: it has received their subscriptions, or will soon."""
        self._awaited.append(event)
        if len(self._awaited) == 1:
            self._watch()

    def _watch(self) -> None:
        leader = self._victims.leader_at_work() if self._awaited else None
        if leader is not None:
            self._lose(leader, self._awaited.popleft())
        if self._awaited:
            self._victims.loop.call_later(_WATCH_S, self._watch)

    def _lose(self, leader: Instance, event: Event) -> None:
        self._victims.note(leader.name, "is lost while it leads")
        ways = (self._crashes, self._crashes, self._cut_offs, self._freezes)
        self._hit(leader, event, ways[int(event.chance * len(ways))])

    # ------------------------------------------------------------------------------------------------------------ broker

    def _broker_crashes(self, event: Event) -> None:
        self._victims.broker.kill()
        self._later(event, self._victims.broker.start)

    def _growths(self, event: Event) -> None:
        if self._victims.broker.life is not None:
            self._victims.note(HOST_NAME, "source topics get one more partition")
            self._victims.grow_topics()
