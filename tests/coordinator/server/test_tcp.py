"""Connections over real sockets, with handlers that the tests write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from coordinator.server.listener import Listener
from coordinator.server.tcp import (
    QUEUED_BYTES_MAX,
    QUEUED_FRAMES_MAX,
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


@asynccontextmanager
async def listening(handler: Handler, *, connections_max: int = 100) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(lambda _: handler, frame_bytes_max=FRAME_BYTES_MAX, connections_max=connections_max)
    _, port = await listener.start("127.0.0.1", 0)
    yield listener, port
    await listener.drain(0)
    await until(lambda: len(listener) == 0)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
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
        assert f"a frame of {announced} bytes is announced" in caplog.text

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
    def test_behind_a_waiting_request_reading_stops_at_a_number_of_frames(self) -> None:
        self.check_bounded(b"x" * 8, QUEUED_FRAMES_MAX * 40)

    def test_behind_a_waiting_request_reading_stops_at_a_number_of_bytes(self) -> None:
        self.check_bounded(b"x" * (2 << 20), 40)

    def check_bounded(self, frame: bytes, count: int) -> None:
        release = asyncio.Event()

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
            queued = sum(map(len, connection._queue))
            assert connection._queued_bytes == queued <= QUEUED_BYTES_MAX + len(frame) + 65_536
            assert len(connection._queue) <= QUEUED_FRAMES_MAX + 65_536 // 12
            release.set()
            for _ in range(count + 1):
                assert await read_frame(reader) == b"answered"
            await sending
            assert connection._reading
            assert connection._queued_bytes == 0

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
            listener = Listener(
                lambda _: lambda frame, host: late(bytes(frame)), frame_bytes_max=FRAME_BYTES_MAX, connections_max=10
            )
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
