"""A network of hosts, with the faults of networks.

1. A connection delivers bytes in order, each way with delays of its own; different connections overtake each other.
2. A connection may break at any write: either the written bytes are lost, or they arrive and the response is lost. Each
   side notices a little later.
3. A host that is cut off receives nothing, and nothing that it sends arrives. What is written meanwhile waits in the
   sender's buffers until the network is restored, and is lost if the sender gives up before.
4. When a host dies its connections are reset; what it had sent still arrives.
5. Each connection has its own random generator, so that what happens to one does not depend on others.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsrt.testing.simulator.hosts import HOST, Host
from streamsrt.testing.simulator.loop import VirtualLoop

_RETRY_S = 0.05
_MOMENT_S = 0.000_05


@dataclass(slots=True)
class Weather:
    """The present state of the network. Times are in seconds; the rest are probabilities per write."""

    delay_s: tuple[float, float] = (0.0002, 0.002)
    slow_delay_s: tuple[float, float] = (0.02, 0.3)
    slow: float = 0.0
    broken: float = 0.0


class SimulatedNet:
    """The simulated network (see the module)."""

    def __init__(self, loop: VirtualLoop, seed: int, note: Callable[[str, str], None]) -> None:
        self.weather = Weather()
        self._loop = loop
        self._seed = seed
        self._note = note
        self._listening: dict[tuple[str, int], tuple[Host, Callable[[], asyncio.BaseProtocol]]] = {}
        self._ends: dict[Host, dict[Wire, None]] = {}
        self._made: dict[str, int] = {}
        self._cut_off: set[str] = set()
        loop.net = self

    # ----------------------------------------------------------------------------------------------------- connections

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        """Accepts connections for the host of the caller."""
        owner = HOST.get()
        assert owner is not None
        self._listening[host, port] = owner, factory
        return _Server(lambda: self._listening.pop((host, port), None), (host, port))

    async def connect(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> asyncio.Transport:
        """Opens a connection. Raises ConnectionRefusedError if nobody listens."""
        owner = HOST.get()
        assert owner is not None
        number = self._made[owner.name] = self._made.get(owner.name, 0) + 1
        chance = random.Random(f"{self._seed}/{owner.name}/{number}")
        await asyncio.sleep(self.delay_s(chance))
        while self.is_cut_off(owner.name) or self.is_cut_off(host):
            await asyncio.sleep(_RETRY_S)
        known = self._listening.get((host, port))
        if known is None or known[0].is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        server, factory = known
        here = Wire(self, owner, protocol, (host, port), random.Random(chance.random()))
        there = server.context.run(
            lambda: Wire(self, server, factory(), (owner.name, number), random.Random(chance.random()))
        )
        here.other, there.other = there, here
        for wire in (here, there):
            self._ends.setdefault(wire.host, {})[wire] = None
        self._loop.call_soon(there.protocol.connection_made, there, context=server.context.copy())
        await asyncio.sleep(self.delay_s(chance))
        protocol.connection_made(here)
        return here

    def delay_s(self, chance: random.Random) -> float:
        weather = self.weather
        if weather.slow and chance.random() < weather.slow:
            return chance.uniform(*weather.slow_delay_s)
        return chance.uniform(*weather.delay_s)

    def forget(self, wire: Wire) -> None:
        """Drops this end of a closed connection."""
        self._ends.get(wire.host, {}).pop(wire, None)

    # ---------------------------------------------------------------------------------------------------------- faults

    def is_cut_off(self, name: str) -> bool:
        return name in self._cut_off

    def cut_off(self, name: str) -> None:
        """Cuts a host off: nothing reaches it from now on, and nothing from it reaches others."""
        self._cut_off.add(name)

    def heal(self, name: str) -> None:
        """Reconnects the host."""
        self._cut_off.discard(name)
        for wires in list(self._ends.values()):
            for wire in list(wires):
                wire.flush()

    def host_died(self, host: Host) -> None:
        """Resets the connections of a dead host."""
        for wire in list(self._ends.pop(host, ())):
            wire.reset_by_death()
        for address in [address for address, (owner, _) in self._listening.items() if owner is host]:
            del self._listening[address]

    def broke(self, wire: Wire, how: str) -> None:
        self._note(wire.host.name, f"connection to {wire.other.host.name} breaks, {how}")


class Wire(asyncio.Transport):
    """One end of a connection: what its host writes goes to the other end."""

    other: Wire

    def __init__(
        self,
        net: SimulatedNet,
        host: Host,
        protocol: asyncio.BaseProtocol,
        peer: tuple[str, int],
        chance: random.Random,
    ) -> None:
        super().__init__({"peername": peer})
        self.host = host
        self.protocol: Any = protocol
        self._net = net
        self._loop = net._loop
        self._chance = chance
        self._arrives_s = 0.0
        self._waiting: deque[bytes] = deque()
        self._arrived: deque[bytes] = deque()
        self._reading = True
        self._closing = False
        self._lost = False
        self._deaf = False
        """What was sent to this end and has not arrived does not arrive any more."""

    # ------------------------------------------------------------------------------------------------ for the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        weather = self._net.weather
        if weather.broken and self._chance.random() < weather.broken:
            arrives = self._chance.random() < 0.5
            self._net.broke(self, "what was written arrives" if arrives else "what was written is lost")
            if arrives:
                self._send(bytes(data))
            self.break_now()
            return
        self._send(bytes(data))

    def _send(self, data: bytes) -> None:
        if self._waiting or self._is_cut:
            self._waiting.append(data)
        else:
            self._schedule(self.other._arrive, data)

    @property
    def _is_cut(self) -> bool:
        return self._net.is_cut_off(self.host.name) or self._net.is_cut_off(self.other.host.name)

    def _schedule(self, arrive: Callable[..., None], *args: object) -> None:
        """Schedules deliveries in the order of the calls, never immediately."""
        self._arrives_s = max(self._loop.time() + self._net.delay_s(self._chance), self._arrives_s + _MOMENT_S)
        self._loop.call_at(self._arrives_s, arrive, *args, context=self.other.host.context.copy())

    def flush(self) -> None:
        """Restores the network: waiting data is delivered."""
        if not self._is_cut:
            while self._waiting:
                self._schedule(self.other._arrive, self._waiting.popleft())

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        while self._arrived and self._reading:
            self._deliver(self._arrived.popleft())

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: buffers are unlimited."""

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._waiting.clear()
        self._schedule(self.other._on_end, None)
        self._loop.call_soon(self._lose, None, context=self.host.context.copy())

    abort = close

    # -------------------------------------------------------------------------------------------------- what arrives

    def _arrive(self, data: bytes) -> None:
        if self._lost or self._deaf:
            return
        if self._arrived or not self._reading:
            self._arrived.append(data)
        else:
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        view = memoryview(data)
        while len(view) and not self._closing:
            buffer = self.protocol.get_buffer(len(view))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            self.protocol.buffer_updated(size)
            view = view[size:]

    def _on_end(self, error: Exception | None) -> None:
        self._closing = True
        self._waiting.clear()
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._net.forget(self)
            self.protocol.connection_lost(error)

    # ---------------------------------------------------------------------------------------------------------- faults

    def break_now(self) -> None:
        """Ends the connection for both sides; data on its way to the other side still arrives."""
        reset = ConnectionResetError(104, "Connection reset by peer")
        self._deaf = True
        self._closing = True
        self._waiting.clear()
        self._schedule(self.other._on_end, reset)
        self._loop.call_soon(self._lose, reset, context=self.host.context.copy())

    def reset_by_death(self) -> None:
        """Ends the connection of a dead host; the other side is notified."""
        self._closing = self._lost = True
        self._waiting.clear()
        if not self._is_cut:
            self._schedule(self.other._on_end, ConnectionResetError(104, "Connection reset by peer"))


class _Server:
    """The result of ``create_server``."""

    def __init__(self, close: Callable[[], object], address: tuple[str, int]) -> None:
        self.close = close
        self.sockets = [_Socket(address)]


class _Socket:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address
