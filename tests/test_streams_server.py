from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tests.streams_server import StreamsServer, next_turn, run_and_close


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))


async def _open_and_close(turns: int) -> None:
    server = StreamsServer(_talk)
    port = await server.listen("127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    for _ in range(turns):
        await next_turn()
    await server.close()
    for client in clients:
        client.close()


@pytest.mark.parametrize("turns", range(6))
def test_nothing_is_left_open_however_far_accepting_a_connection_was(turns: int) -> None:
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        asyncio.run(_open_and_close(turns))
        gc.collect()
    assert [str(each.message) for each in left_open if each.category is ResourceWarning] == []


def test_what_a_library_leaves_open_is_closed() -> None:
    kept = []

    async def fails() -> None:
        server = StreamsServer(_talk)
        port = await server.listen("127.0.0.1", 0)
        kept.append((server, await asyncio.open_connection("127.0.0.1", port)))
        raise ConnectionError

    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        with pytest.raises(ConnectionError):
            run_and_close(fails())
        kept.clear()
        gc.collect()
    assert [str(each.message) for each in left_open if "_SelectorSocketTransport" in str(each.message)] == []
