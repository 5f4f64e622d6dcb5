"""Connections over real sockets, with handlers that the tests write."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Any

import pytest
import trustme

from coordinator.broker.queued_bytes import QueuedBytes
from coordinator.server.fair_queue import PATIENT_DISCOUNT, QUANTUM_S
from coordinator.server.listener import STALLED_CHECK_S, Limits, Listener
from coordinator.server.tcp import (
    OTHER_FRAME_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    STALLED_AFTER_S,
    Answer,
    Connection,
    Handler,
    ProtocolViolationError,
)
from tests.coordinator.turns import PATIENCE_S, turn, until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FRAME_BYTES_MAX = 4 << 20


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def echo(frame: memoryview | bytes, host: str) -> Answer:
    return [framed(bytes(frame))]


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), PATIENCE_S), "big")
    return await asyncio.wait_for(reader.readexactly(size), PATIENCE_S)


def listener_of(
    handler: Handler, *, memory: int | None = None, tls: ssl.SSLContext | None = None, **limits: Any
) -> Listener:
    bounds = {"frame_bytes_max": FRAME_BYTES_MAX, "connections_max": 100, "connections_per_ip_max": 100, **limits}
    return Listener(lambda _: handler, Limits(**bounds), QueuedBytes(memory), tls=tls)


@asynccontextmanager
async def listening(handler: Handler, **limits: Any) -> AsyncIterator[tuple[Listener, int]]:
    listener = listener_of(handler, **limits)
    _, port = await listener.start("127.0.0.1", 0)
    yield listener, port
    await listener.drain(0)
    await until(lambda: len(listener) == 0)


@asynccontextmanager
async def connected(port: int, from_host: str = "127.0.0.1") -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(from_host, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def only(listener: Listener) -> Connection:
    await until(lambda: len(listener) == 1)
    (connection,) = listener._connections
    return connection


def over_socket(scenario: Callable[[Listener, Streams], Awaitable[None]], handler: Handler = echo) -> None:
    """Runs the scenario with one connection to a listener."""

    async def run() -> None:
        async with listening(handler) as (listener, port), connected(port) as streams:
            await scenario(listener, streams)

    asyncio.run(run())


class TestFraming:
    def test_a_frame_that_comes_byte_by_byte(self) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            for i in range(2):
                for byte in framed(b"frame no %d" % i):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await turn()
                assert await read_frame(reader) == b"frame no %d" % i

        over_socket(scenario)

    def test_who_sends_nothing_behind_a_long_request_is_patient(self) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            connection, clock = await only(listener), count()
            listener.queue.now_s = lambda: next(clock) * 10 * QUANTUM_S
            for _ in range(3):
                used_s = connection.used_s
                streams[1].write(framed(b"long request"))
                await read_frame(streams[0])
                assert not connection.is_queued
                assert connection.used_s - used_s == pytest.approx(10 * QUANTUM_S / PATIENT_DISCOUNT)

        over_socket(scenario)

    def test_many_frames_at_once(self) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            frames = [b"frame no %05d" % i for i in range(10_000)]
            writer.write(b"".join(map(framed, frames)))
            assert [await read_frame(reader) for _ in frames] == frames

        over_socket(scenario)

    @pytest.mark.parametrize("size", [65_531, 65_532, 65_533, 65_536, 200_000, 1_310_720, 1_310_721, FRAME_BYTES_MAX])
    def test_frames_around_the_sizes_of_buffers(self, size: int) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            large = bytes(range(256)) * (size // 256 + 1)
            frames = [b"small before", large[:size], b"small after", large[1 : size + 1]]
            writer.write(b"".join(map(framed, frames)))
            for frame in frames:
                assert await read_frame(reader) == frame

        over_socket(scenario)

    def test_what_was_kept_of_a_large_frame_is_not_overwritten_by_the_next(self) -> None:
        kept: list[memoryview | bytes] = []

        def keep(frame: memoryview | bytes, host: str) -> Answer:
            kept.append(frame)
            return [framed(b"answered")]

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            for letter in (b"a", b"b"):
                writer.write(framed(letter * 300_000))
                await read_frame(reader)

        over_socket(scenario, keep)
        assert [bytes(each[:3]) for each in kept] == [b"aaa", b"bbb"]

    @pytest.mark.parametrize("announced", [0, 7, -1, FRAME_BYTES_MAX + 1, 0x47455420])
    def test_an_impossible_size_ends_the_connection(self, announced: int, caplog: pytest.LogCaptureFixture) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            writer.write(announced.to_bytes(4, "big", signed=True) + b"x" * 20)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            await until(lambda: len(listener) == 0)

        over_socket(scenario)
        assert f"it announces a frame of {announced} bytes" in caplog.text

    @pytest.mark.parametrize(("api_key", "is_read"), [(0, True), (3, False)])
    def test_only_a_produce_may_be_very_large(
        self, api_key: int, is_read: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        size = OTHER_FRAME_BYTES_MAX + 1

        async def run() -> None:
            async with listening(echo, frame_bytes_max=2 * size) as (_, port), connected(port) as (reader, writer):
                writer.write(size.to_bytes(4, "big") + api_key.to_bytes(2, "big"))
                if is_read:
                    writer.write(bytes(size - 2))
                    assert len(await read_frame(reader)) == size
                else:
                    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

        asyncio.run(run())
        assert ("requests other than Produce" in caplog.text) is not is_read

    def test_an_announced_frame_costs_no_more_than_a_block_until_it_comes(self) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            _, writer = streams
            writer.write(FRAME_BYTES_MAX.to_bytes(4, "big") + b"only this")
            connection = await only(listener)
            await until(lambda: connection._large is not None)
            assert connection._large is not None
            assert len(connection._large) < FRAME_BYTES_MAX / 2

        over_socket(scenario)


class TestOrder:
    def test_answers_come_in_the_order_of_the_requests(self) -> None:
        release = asyncio.Event()
        seen: list[bytes] = []

        async def late(frame: bytes) -> list[bytes]:
            await release.wait()
            return [framed(frame)]

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            seen.append(bytes(frame))
            return late(bytes(frame)) if frame == b"waits...." else [framed(bytes(frame))]

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            frames = [b"at once 1", b"waits....", b"at once 2", b"waits....", b"at once 3"]
            writer.write(b"".join(map(framed, frames)))
            assert await read_frame(reader) == frames[0]
            assert seen == frames[:2]
            release.set()
            assert [await read_frame(reader) for _ in frames[1:]] == frames[1:]

        over_socket(scenario, handler)

    def test_a_request_without_an_answer_holds_nothing_up(self) -> None:
        async def nothing() -> None:
            return None

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            if frame == b"nothing.":
                return None
            return nothing() if frame == b"nothing, later" else [framed(bytes(frame))]

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            writer.write(framed(b"nothing.") + framed(b"nothing, later") + framed(b"something"))
            assert await read_frame(reader) == b"something"

        over_socket(scenario, handler)


class TestPressure:
    @pytest.mark.parametrize(("size", "count"), [(8, 20_000), (2 << 20, 40)])
    def test_behind_a_waiting_request_reading_stops(self, size: int, count: int) -> None:
        release = asyncio.Event()
        frame = b"x" * size

        async def late() -> list[bytes]:
            await release.wait()
            return [framed(b"answered")]

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            return late() if bytes(frame[:5]) == b"first" else [framed(b"answered")]

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            writer.write(framed(b"first one"))
            sending = asyncio.ensure_future(self.send(writer, frame, count))
            connection = await only(listener)
            await until(lambda: not connection._reading)
            assert len(connection._large or b"") <= size
            assert connection._end <= RECEIVE_BUFFER_BYTES
            release.set()
            for _ in range(count + 1):
                assert await read_frame(reader) == b"answered"
            await sending
            assert connection._reading
            assert listener.memory.requests == 0

        over_socket(scenario, handler)

    async def send(self, writer: asyncio.StreamWriter, frame: bytes, count: int) -> None:
        for _ in range(count):
            writer.write(framed(frame))
            await writer.drain()

    def test_a_client_that_does_not_read_is_not_served_until_it_does(self) -> None:
        handled = 0

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            nonlocal handled
            handled += 1
            return [framed(b"y" * 1_000_000)]

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            count = 60
            writer.write(framed(b"request.") * count)
            connection = await only(listener)
            await until(lambda: not connection._writable)
            before = handled
            assert before < count
            transport = connection._transport
            assert transport is not None
            assert transport.get_write_buffer_size() <= 2_000_000
            for _ in range(count):
                assert len(await read_frame(reader)) == 1_000_000
            assert handled == count

        over_socket(scenario, handler)


class TestFairness:
    def test_a_quiet_client_is_answered_beside_floods(self, caplog: pytest.LogCaptureFixture) -> None:
        """Counted: how much of the flood is answered before the quiet client's request is."""
        answered = {"flood": 0, "quiet": 0}

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            name = bytes(frame[:5]).decode()
            answered[name] += 1
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass
            return [framed(bytes(frame))]

        async def run() -> None:
            async with (
                listening(handler) as (listener, port),
                connected(port) as (reader, writer),
                AsyncExitStack() as stack,
            ):
                for _ in range(20):
                    _, flooding = await stack.enter_async_context(connected(port))
                    flooding.write(framed(b"flood me") * 20_000)
                await until(lambda: answered["flood"] > 100)
                for _ in range(5):
                    before = answered["flood"]
                    writer.write(framed(b"quiet one"))
                    assert await read_frame(reader) == b"quiet one"
                    assert answered["flood"] - before < 1000
                assert len(listener) == 21

        asyncio.run(run())
        assert "empty buffer" not in caplog.text

    def test_what_was_sent_before_the_client_closed_is_worked_off(self) -> None:
        """As a producer with acks=0 does it: it flushes and closes, and waits for nothing."""
        handled = 0

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            nonlocal handled
            handled += 1
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass
            return None

        async def scenario(listener: Listener, streams: Streams) -> None:
            _, writer = streams
            writer.write(framed(b"request.") * 500)
            writer.close()
            await until(lambda: len(listener) == 0)

        over_socket(scenario, handler)
        assert handled == 500

    def test_a_client_that_is_gone_is_not_served(self, caplog: pytest.LogCaptureFixture) -> None:
        handled = 0

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            nonlocal handled
            handled += 1
            if handled == 3:
                assert transport is not None
                transport.abort()
            return [framed(bytes(frame))]

        transport: asyncio.Transport | None = None

        async def scenario(listener: Listener, streams: Streams) -> None:
            nonlocal transport
            _, writer = streams
            connection = await only(listener)
            transport = connection._transport
            writer.write(framed(b"request.") * 5000)
            await until(lambda: len(listener) == 0)

        over_socket(scenario, handler)
        assert handled == 3
        assert "socket.send" not in caplog.text

    def test_who_does_not_read_answers_is_not_read_from(self) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            _, writer = streams
            writer.write(framed(b"request.") * 100)
            connection = await only(listener)
            await until(lambda: not connection._writable)
            assert not connection._reading

        over_socket(scenario, lambda frame, host: [framed(b"y" * 1_000_000)])


class TestMemory:
    """Large frames and unread answers have a bound."""

    LARGE = 1 << 20

    def test_many_large_frames_are_read_in_small_pieces(self) -> None:
        async def scenario(listener: Listener, streams: Streams) -> None:
            streams[1].write(framed(bytes(self.LARGE))[: 1 << 17])
            connection = await only(listener)
            await until(lambda: connection._large is not None)
            alone = len(connection.get_buffer(-1))
            listener.memory.holders += 99
            assert len(connection.get_buffer(-1)) <= (4 << 20) / 100 < alone
            listener.memory.holders -= 99

        over_socket(scenario)

    def test_a_large_frame_waits_until_there_is_memory(self) -> None:
        release = asyncio.Event()

        async def late() -> list[bytes]:
            await release.wait()
            return [framed(b"answered")]

        async def run() -> None:
            async with (
                listening(lambda frame, host: late(), memory=3 << 19) as (listener, port),
                connected(port) as (first, first_writer),
                connected(port) as (second, second_writer),
            ):
                first_writer.write(framed(b"x" * self.LARGE))
                await until(lambda: any(each._served for each in listener._connections))
                second_writer.write(framed(b"y" * self.LARGE))
                await until(lambda: any(each._is_waiting_for_memory for each in listener._connections))
                waiting = next(each for each in listener._connections if each._is_waiting_for_memory)
                assert waiting._large is None
                assert not waiting._reading
                assert listener.memory.requests == self.LARGE
                release.set()
                assert await read_frame(first) == await read_frame(second) == b"answered"
                await until(lambda: listener.memory.requests == 0)

        asyncio.run(run())

    def test_a_frame_larger_than_the_bound_is_read_when_nobody_else_holds_memory(self) -> None:
        async def run() -> None:
            async with listening(echo, memory=1000) as (_, port), connected(port) as (reader, writer):
                writer.write(framed(b"x" * self.LARGE))
                assert len(await read_frame(reader)) == self.LARGE

        asyncio.run(run())

    def test_who_announces_a_frame_and_does_not_send_it_has_to_go_when_others_wait(self) -> None:
        async def run() -> None:
            async with (
                listening(echo, memory=3 << 19) as (listener, port),
                connected(port) as (idle, idle_writer),
                connected(port) as (reader, writer),
            ):
                idle_writer.write(framed(b"x" * self.LARGE)[:1000])
                await until(lambda: listener.memory.requests > 0)
                writer.write(framed(b"y" * self.LARGE))
                await until(lambda: any(each._is_waiting_for_memory for each in listener._connections))
                now_s = asyncio.get_running_loop().time()
                for i in range(int(STALLED_AFTER_S / STALLED_CHECK_S) + 1):
                    listener.cut_off_stalled(now_s + i * STALLED_CHECK_S)
                    assert len(listener) == 2
                listener.cut_off_stalled(now_s + STALLED_AFTER_S + 2 * STALLED_CHECK_S)
                assert await asyncio.wait_for(idle.read(), PATIENCE_S) == b""
                assert len(await read_frame(reader)) == self.LARGE

        asyncio.run(run())

    def test_a_client_that_leaves_gives_its_memory_back(self) -> None:
        async def run() -> None:
            async with listening(echo, memory=1 << 30) as (listener, port):
                async with connected(port) as (_, writer):
                    writer.write(framed(b"x" * self.LARGE)[:100_000])
                    await until(lambda: listener.memory.requests == self.LARGE)
                await until(lambda: len(listener) == 0)
                assert listener.memory.requests == 0

        asyncio.run(run())

    def test_who_reads_least_has_to_go_when_too_many_answers_wait(self, caplog: pytest.LogCaptureFixture) -> None:
        async def run() -> None:
            async with listening(lambda frame, host: [framed(b"y" * (16 << 20))], memory=16 << 20) as (listener, port):
                async with AsyncExitStack() as stack:
                    streams = [await stack.enter_async_context(connected(port)) for _ in range(5)]
                    for _, writer in streams:
                        writer.write(framed(b"request."))
                    await until(lambda: len(listener) < 5)
                    assert listener.memory.answers <= 16 << 20
                await until(lambda: listener.memory.answers == 0)

        asyncio.run(run())
        assert "too many responses wait to be read" in caplog.text


class TestFaults:
    @pytest.mark.parametrize("waits", [False, True])
    @pytest.mark.parametrize("error", [ProtocolViolationError("not ours"), ZeroDivisionError("a bug")])
    def test_a_handler_that_fails_ends_its_own_connection_only(
        self, waits: bool, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail_later() -> list[bytes]:
            await turn()
            raise error

        def handler(frame: memoryview | bytes, host: str) -> Answer:
            if frame != b"bad frame":
                return [framed(bytes(frame))]
            if waits:
                return fail_later()
            raise error

        async def run() -> None:
            async with (
                listening(handler) as (listener, port),
                connected(port) as (reader, writer),
                connected(port) as (other_reader, other_writer),
            ):
                writer.write(framed(b"good frame") + framed(b"bad frame") + framed(b"not looked at"))
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == framed(b"good frame")
                other_writer.write(framed(b"good frame"))
                assert await read_frame(other_reader) == b"good frame"
                await until(lambda: len(listener) == 1)

        asyncio.run(run())
        traced = [record for record in caplog.records if record.exc_info]
        assert len(traced) == (0 if isinstance(error, ProtocolViolationError) else 1)
        assert "closed the connection from 127.0.0.1" in caplog.text

    def test_a_client_that_goes_away_cancels_what_waits(self) -> None:
        cancelled = asyncio.Event()

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async def scenario(listener: Listener, streams: Streams) -> None:
            _, writer = streams
            writer.write(framed(b"a request"))
            connection = await only(listener)
            await until(lambda: connection._task is not None)
            writer.transport.abort()
            await asyncio.wait_for(cancelled.wait(), PATIENCE_S)
            await until(lambda: len(listener) == 0)

        over_socket(scenario, lambda frame, host: wait())

    def test_nonsense_while_a_request_waits_ends_both(self) -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            writer.write(framed(b"a request"))
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
            writer.write(b"GET / HTTP/1.1\r\n")
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            await asyncio.wait_for(cancelled.wait(), PATIENCE_S)

        over_socket(scenario, lambda frame, host: wait())


class TestListener:
    def test_no_more_connections_than_allowed(self, caplog: pytest.LogCaptureFixture) -> None:
        async def run() -> None:
            async with (
                listening(echo, connections_max=1) as (listener, port),
                connected(port) as (reader, writer),
            ):
                writer.write(framed(b"first one"))
                assert await read_frame(reader) == b"first one"
                async with connected(port) as (second, _):
                    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                        await read_frame(second)
                writer.write(framed(b"still here"))
                assert await read_frame(reader) == b"still here"
                assert len(listener) == 1

        asyncio.run(run())
        assert "max.connections" in caplog.text

    def test_no_more_connections_of_one_address_than_allowed(self, caplog: pytest.LogCaptureFixture) -> None:
        async def run() -> None:
            async with listening(echo, connections_per_ip_max=1) as (listener, port):
                async with connected(port) as (reader, writer):
                    writer.write(framed(b"first one"))
                    assert await read_frame(reader) == b"first one"
                    async with connected(port) as (second, _):
                        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                            await read_frame(second)
                await until(lambda: len(listener) == 0)
                async with connected(port) as (reader, writer):
                    writer.write(framed(b"the next"))
                    assert await read_frame(reader) == b"the next"

        asyncio.run(run())
        assert "max.connections.per.ip" in caplog.text

    def test_an_address_may_be_allowed_more(self) -> None:
        limits = Limits(FRAME_BYTES_MAX, 10, 1, {"127.0.0.1": 5})
        assert (limits.of_address("127.0.0.1"), limits.of_address("10.0.0.1")) == (5, 1)

    def test_with_tls_connections_are_counted_before_the_handshake(self, caplog: pytest.LogCaptureFixture) -> None:
        authority = trustme.CA()
        server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
        authority.issue_cert("127.0.0.1").configure_cert(server)
        authority.configure_trust(client)

        async def run() -> None:
            async with listening(echo, tls=server, connections_max=1) as (listener, port):
                async with connected(port):
                    await until(lambda: listener._admitted.total() == 1)
                    async with connected(port) as (reader, _):
                        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
                await until(lambda: listener._admitted.total() == 0)
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                writer.write(framed(b"secret..") + framed(b"z" * 300_000))
                assert await read_frame(reader) == b"secret.."
                assert len(await read_frame(reader)) == 300_000
                writer.close()
                await until(lambda: listener._admitted.total() == 0)

        asyncio.run(run())
        assert "max.connections" in caplog.text

    def test_idle_connections_are_closed_but_not_waiting_ones(self) -> None:
        release = asyncio.Event()

        async def late() -> list[bytes]:
            await release.wait()
            return [framed(b"answered")]

        async def run() -> None:
            async with (
                listening(lambda frame, host: late()) as (listener, port),
                connected(port) as (idle, _),
                connected(port) as (reader, writer),
            ):
                writer.write(framed(b"a request"))
                await until(lambda: any(not connection.is_idle() for connection in listener._connections))
                closing = asyncio.ensure_future(listener.close_idle(20))
                assert await asyncio.wait_for(idle.read(), PATIENCE_S) == b""
                assert len(listener) == 1
                release.set()
                assert await read_frame(reader) == b"answered"
                closing.cancel()

        asyncio.run(run())

    def test_draining_answers_what_arrived_and_closes(self) -> None:
        release = asyncio.Event()

        async def late(frame: bytes) -> list[bytes]:
            await release.wait()
            return [framed(frame)]

        async def run() -> None:
            listener = listener_of(lambda frame, host: late(bytes(frame)))
            _, port = await listener.start("127.0.0.1", 0)
            async with connected(port) as (idle, _), connected(port) as (reader, writer):
                writer.write(framed(b"request 1") + framed(b"request 2"))
                await until(lambda: any(not connection.is_idle() for connection in listener._connections))
                await until(lambda: len(listener) == 2)
                draining = asyncio.ensure_future(listener.drain(PATIENCE_S))
                assert await asyncio.wait_for(idle.read(), PATIENCE_S) == b""
                assert not draining.done()
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", port)
                release.set()
                answers = await asyncio.wait_for(reader.read(), PATIENCE_S)
                assert answers == framed(b"request 1") + framed(b"request 2")
                await asyncio.wait_for(draining, PATIENCE_S)

        asyncio.run(run())

    def test_draining_ends_in_time_whatever_waits(self) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        async def scenario(listener: Listener, streams: Streams) -> None:
            reader, writer = streams
            writer.write(framed(b"a request"))
            connection = await only(listener)
            await until(lambda: connection._task is not None)
            await asyncio.wait_for(listener.drain(0.01), PATIENCE_S)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

        over_socket(scenario, lambda frame, host: never())


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
