"""Connections whose answers are read slowly, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trustme

from coordinator.log import FileRecords
from coordinator.log.fsync import SharedFile
from coordinator.server.listener import STALLED_CHECK_S, Listener
from coordinator.server.tcp import LARGE_PIECE_BYTES, PIECE_BYTES, STALLED_AFTER_S, Answer, Connection
from tests.coordinator.server.test_tcp import Streams, connected, framed, listening, only, over_socket, read_frame
from tests.coordinator.turns import PATIENCE_S, turn, until

ANSWER = bytes(16 << 20)
LARGE = 1 << 20
LOOKS = int(STALLED_AFTER_S / STALLED_CHECK_S) + 2


def much(frame: memoryview | bytes, host: str) -> Answer:
    return [b"".join((len(ANSWER).to_bytes(4, "big"), ANSWER))]


def little_or_much(frame: memoryview | bytes, host: str) -> Answer:
    return much(frame, host) if bytes(frame[:4]) == b"much" else [framed(b"answered")]


@asynccontextmanager
async def unread(memory: int) -> AsyncIterator[tuple[Listener, Connection, Streams, int]]:
    """A listener with one connection that has not read its answer of 16 MiB. ``memory`` 0: just so much is allowed."""
    async with listening(little_or_much, memory=memory or 1 << 30) as (listener, port), connected(port) as streams:
        streams[1].write(framed(b"much and large") + framed(b"x" * LARGE))
        connection = await only(listener)
        await until(lambda: not connection._writable)
        if not memory:
            listener.memory.limit_bytes = connection.unsent_bytes
        yield listener, connection, streams, port


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The broker's and the client's."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def looked(listener: Listener, from_s: float, looks: int = LOOKS, every_s: float = STALLED_CHECK_S) -> float:
    """Has the listener look for connections that stand still, as it does each half second; the time behind that."""
    for i in range(looks):
        listener.cut_off_stalled(from_s + i * every_s)
    return from_s + looks * every_s


def test_who_reads_nothing_has_to_go_when_too_many_answers_wait() -> None:
    async def run() -> None:
        async with unread(0) as (listener, connection, _, _):
            assert listener.memory.is_half_full
            now_s = asyncio.get_running_loop().time()
            now_s = looked(listener, now_s, LOOKS - 2)
            assert connection._transport is not None
            assert not connection._transport.is_closing()
            looked(listener, now_s)
            await until(lambda: len(listener) == 0)
            assert listener.memory.answers == 0

    asyncio.run(run())


def test_who_reads_slowly_stays() -> None:
    async def run() -> None:
        async with unread(0) as (listener, connection, (reader, _), _):
            assert listener.memory.is_half_full
            now_s, left = asyncio.get_running_loop().time(), connection.unsent_bytes
            for _ in range(20):
                read = 0
                while connection.unsent_bytes == left:
                    read += len(await asyncio.wait_for(reader.read(1 << 16), PATIENCE_S))
                    await turn()
                left = connection.unsent_bytes
                now_s = looked(listener, now_s, LOOKS - 2)
                assert connection._transport is not None
                assert not connection._transport.is_closing()
                listener.memory.limit_bytes = left
                if left < 2 * LARGE:
                    break

    asyncio.run(run())


def test_who_reads_nothing_is_not_in_the_way_of_a_request_that_waits() -> None:
    async def run() -> None:
        async with unread(1 << 30) as (listener, connection, _, port), connected(port) as (reader, writer):
            assert listener.memory.take("somebody", 1 << 30, lambda: None)
            writer.write(framed(b"z" * LARGE))
            await until(lambda: listener.memory.has_waiting)
            looked(listener, asyncio.get_running_loop().time())
            assert connection._transport is not None
            assert not connection._transport.is_closing()
            listener.memory.give_back(1 << 30)
            assert await read_frame(reader) == b"answered"

    asyncio.run(run())


def test_who_reads_nothing_has_to_go_when_his_large_request_holds_what_another_waits_for() -> None:
    async def run() -> None:
        async with listening(little_or_much, memory=3 << 19) as (listener, port), connected(port) as (_, writer):
            # Read, but not answered: the answer before it is not taken.
            writer.write(framed(b"x" * LARGE)[:70_000])
            connection = await only(listener)
            await until(lambda: connection._granted == LARGE)
            connection.pause_writing()
            writer.write(framed(b"x" * LARGE)[70_000:])
            await until(lambda: connection._large_filled == LARGE)
            async with connected(port) as (reader, other):
                other.write(framed(b"y" * LARGE))
                await until(lambda: listener.memory.has_waiting)
                looked(listener, asyncio.get_running_loop().time())
                assert await read_frame(reader) == b"answered"
                assert connection not in listener._connections

    asyncio.run(run())


def test_a_time_in_which_the_broker_was_busy_is_held_against_nobody() -> None:
    async def run() -> None:
        async with unread(0) as (listener, connection, _, _):
            now_s = asyncio.get_running_loop().time()
            looked(listener, now_s, 10, STALLED_AFTER_S + 1)
            assert connection._transport is not None
            assert not connection._transport.is_closing()

    asyncio.run(run())


def test_a_large_answer_gets_to_the_transport_piece_by_piece() -> None:
    async def run() -> None:
        async with unread(1 << 30) as (listener, connection, (reader, _), _):
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() <= LARGE_PIECE_BYTES + PIECE_BYTES
            assert listener.memory.answers == connection.unsent_bytes > len(ANSWER) // 2
            assert await read_frame(reader) == ANSWER
            assert await read_frame(reader) == b"answered"
            await until(lambda: listener.memory.answers == 0)

    asyncio.run(run())


def test_pieces_are_smaller_the_more_clients_have_not_read_theirs() -> None:
    """Asyncio sends what the network takes later for all connections in one turn, and nobody is served meanwhile."""
    first, later = 20, 20

    async def run() -> None:
        async with listening(much, memory=1 << 30) as (listener, port), AsyncExitStack() as stack:
            for count in range(first + later):
                _, writer = await stack.enter_async_context(connected(port))
                writer.write(framed(b"request."))
                await until(lambda count=count: listener.memory.takers > count)  # type: ignore[misc]
            unsent = [
                each._transport.get_write_buffer_size() for each in listener._connections if each._transport is not None
            ]
            assert len(unsent) == first + later
            assert sorted(unsent)[later - 1] <= LARGE_PIECE_BYTES * 4 // first + PIECE_BYTES

    asyncio.run(run())


class TestRecordsInFiles:
    """Responses that refer to the records of a file."""

    CLIENTS = 6
    LIMIT_BYTES = 4 << 20

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "records"
        path.write_bytes(framed(ANSWER))
        return path

    @staticmethod
    def handler(path: Path) -> Callable[[memoryview | bytes, str], Answer]:
        return lambda frame, host: [b"", FileRecords(SharedFile(path, os.O_RDONLY), 0, 4 + len(ANSWER))]

    @asynccontextmanager
    async def unread(self, path: Path) -> AsyncIterator[tuple[Listener, list[Streams]]]:
        async with listening(self.handler(path)) as (listener, port), AsyncExitStack() as stack:
            listener.memory.limit_bytes = self.LIMIT_BYTES
            clients = [await stack.enter_async_context(connected(port)) for _ in range(self.CLIENTS)]
            for _, writer in clients:
                writer.write(framed(b"request."))
            await until(lambda: len([each for each in listener._connections if each._held]) == self.CLIENTS)
            await until(lambda: not any(each._writable for each in listener._connections))
            yield listener, clients

    def test_each_client_that_reads_nothing_holds_two_pieces(self, path: Path) -> None:
        async def run() -> None:
            async with self.unread(path) as (listener, clients):
                for connection in listener._connections:
                    assert connection.unsent_bytes > len(ANSWER) // 2
                # From half of the limit on, pieces are small.
                large = self.LIMIT_BYTES // 2 + LARGE_PIECE_BYTES
                assert 0 < listener.memory.answers <= large + self.CLIENTS * 2 * PIECE_BYTES < self.LIMIT_BYTES
                for reader, _ in clients:
                    assert await read_frame(reader) == ANSWER
                await until(lambda: listener.memory.answers == 0)

        asyncio.run(run())

    def test_with_tls_it_is_not_more(self, path: Path) -> None:
        server, client = tls_contexts()

        async def run() -> None:
            async with listening(self.handler(path), tls=server) as (listener, port):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                writer.write(framed(b"request."))
                connection = await only(listener)
                await until(lambda: bool(connection._held) and not connection._writable)
                assert 0 < listener.memory.answers <= LARGE_PIECE_BYTES + PIECE_BYTES
                assert await read_frame(reader) == ANSWER
                writer.close()

        asyncio.run(run())

    def test_one_that_can_not_be_read_ends_its_connection(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def run() -> None:
            async with self.unread(path) as (listener, clients):
                os.truncate(path, len(ANSWER) - 1)
                for reader, _ in clients:
                    with contextlib.suppress(ConnectionResetError):
                        assert len(await asyncio.wait_for(reader.read(), PATIENCE_S)) < len(ANSWER)
                await until(lambda: len(listener) == 0)

        asyncio.run(run())
        assert "the file ends at byte" in caplog.text


class TestRelief:
    """What happens when more waits to be read than may."""

    def test_the_response_of_a_single_client_may_be_larger_than_the_limit(self) -> None:
        async def run() -> None:
            async with listening(much, memory=LARGE) as (listener, port), connected(port) as (reader, writer):
                writer.write(framed(b"request."))
                connection = await only(listener)
                await until(lambda: not connection._writable)
                assert listener.memory.answers > LARGE
                listener.relieve()
                assert await read_frame(reader) == ANSWER

        asyncio.run(run())

    def test_the_address_that_holds_most_goes_first_even_if_it_has_read_later(self) -> None:
        async def run() -> None:
            def waiting() -> list[Connection]:
                return [each for each in listener._connections if not each._writable]

            async with listening(much, memory=1 << 30) as (listener, port), AsyncExitStack() as stack:
                for number, host in enumerate(["127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"], 1):
                    _, writer = await stack.enter_async_context(connected(port, host))
                    writer.write(framed(b"request."))
                    await until(lambda number=number: len(waiting()) == number)  # type: ignore[misc]
                assert [each.host for each in waiting()].count("127.0.0.2") == 1
                listener.memory.limit_bytes = listener.memory.answers - 1
                listener.relieve()
                await until(lambda: len(listener) < 4)
                assert [each.host for each in listener._connections].count("127.0.0.2") == 1
                assert listener.memory.excess_bytes <= 0

        asyncio.run(run())


@pytest.mark.parametrize("end", ["the client's", "the broker's", "a request that can't be read"])
def test_an_answer_is_sent_whole_before_the_connection_is_closed(end: str) -> None:
    async def scenario(listener: Listener, streams: Streams) -> None:
        reader, writer = streams
        writer.write(framed(b"request."))
        connection = await only(listener)
        await until(lambda: bool(connection._held))
        if end == "the client's":
            writer.write_eof()
        elif end == "the broker's":
            connection.drain()
        else:
            connection.close()
        assert await read_frame(reader) == ANSWER
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

    over_socket(scenario, much)


def test_who_closes_tls_with_requests_that_are_not_answered_keeps_nobody_waiting() -> None:
    server, client = tls_contexts()

    async def run() -> None:
        async with listening(much, tls=server) as (listener, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            writer.write(framed(b"request.") * 100)
            connection = await only(listener)
            await until(lambda: not connection._writable)
            # What the transport calls at the end of what the client sends.
            assert connection.eof_received() is False
            writer.transport.abort()
            await until(lambda: len(listener) == 0)

    asyncio.run(run())
