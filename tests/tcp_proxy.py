"""A TCP proxy on loopback that clients go through, so that a test can make their network bad.

1. It listens from its start to its end, whether or not anybody is behind it: a connection that can't be passed on is closed.
2. ``cut`` aborts connections on both sides, as a reset does. ``hold`` lets nothing through and closes nothing. ``slow``
   holds each piece up for a while. ``calm`` ends both.
3. It runs on a thread of its own. Its methods may be called from any other thread, and are done when they return.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future

from tests.streams_server import StreamsServer

PIECE_BYTES = 1 << 16


class TcpProxy:
    """From ``port`` to ``target_port``, both on 127.0.0.1."""

    def __init__(self) -> None:
        self.target_port = 0
        self.accepted = 0
        self.passed_bytes = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._loop = asyncio.new_event_loop()
        self._delay_s: float | None = 0.0
        self._changed = asyncio.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    # ------------------------------------------------------------------------------------------------------ the weather

    def cut(self, share: float = 1.0) -> None:
        """Aborts this share of the connections that there are: every one, or evenly chosen ones of them."""

        def abort() -> None:
            count = len(self._pairs)
            for index, pair in enumerate(list(self._pairs)):
                if int((index + 1) * share) > int(index * share) or share >= 1.0 or count == 1:
                    for side in pair:
                        side.transport.abort()

        self._do(abort)

    def hold(self) -> None:
        """From now on nothing goes through, in either direction."""
        self._do(lambda: self._set_delay(None))

    def slow(self, delay_s: float) -> None:
        """From now on every piece, of up to 64 KB, goes through so much later."""
        self._do(lambda: self._set_delay(delay_s))

    def calm(self) -> None:
        """From now on everything goes through at once, what was held up too."""
        self._do(lambda: self._set_delay(0.0))

    def _set_delay(self, delay_s: float | None) -> None:
        self._delay_s = delay_s
        self._changed.set()
        self._changed = asyncio.Event()

    def _do(self, action: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def act() -> None:
            action()
            done.set_result(None)

        self._loop.call_soon_threadsafe(act)
        done.result()

    # ------------------------------------------------------------------------------------------------------ connections

    async def _run(self) -> None:
        server = StreamsServer(self._accept)
        await server.listen(sock=self._socket)
        await self._end.wait()
        await server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            return
        pair = (writer, back)
        self._pairs.append(pair)
        ways = [asyncio.ensure_future(self._pass_on(*way)) for way in ((reader, back), (there, writer))]
        try:
            # One side that is closed ends both.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.remove(pair)
            for way in ways:
                way.cancel()
            for side in pair:
                side.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await self._hold_up()
                writer.write(piece)
                self.passed_bytes += len(piece)
                await writer.drain()

    async def _hold_up(self) -> None:
        while self._delay_s != 0.0:
            try:
                await asyncio.wait_for(self._changed.wait(), self._delay_s)
            except TimeoutError:
                return
