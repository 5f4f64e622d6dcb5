"""The proxy that storms go through: what passes, and what does not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.system.processes import wait_until
from tests.tcp_proxy import TcpProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            while piece := one.recv(65536):
                one.sendall(piece)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.fixture
def proxy(echo_port: int) -> Iterator[TcpProxy]:
    with TcpProxy() as made:
        made.target_port = echo_port
        yield made


def connected(proxy: TcpProxy) -> socket.socket:
    """A connection that is through to the other side."""
    one = socket.create_connection(("127.0.0.1", proxy.port), 60.0)
    assert answer(one, b"hello") == b"hello"
    return one


def answer(one: socket.socket, text: bytes) -> bytes:
    one.sendall(text)
    return one.recv(100)


def test_what_is_sent_arrives(proxy: TcpProxy) -> None:
    with connected(proxy) as one:
        sent = bytes(range(256)) * 4000
        writer = threading.Thread(target=one.sendall, args=(sent,))
        writer.start()
        found = b""
        while len(found) < len(sent):
            found += one.recv(65536)
        writer.join()
        assert found == sent


def test_half_of_the_connections_are_cut(proxy: TcpProxy) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(connected(proxy)) for _ in range(4)]
        proxy.cut(0.5)
        assert sorted(ends(one) for one in crowd) == [False, False, True, True]
        proxy.cut()
        assert all(ends(one) for one in crowd)
        stack.enter_context(connected(proxy))


def ends(one: socket.socket) -> bool:
    try:
        return answer(one, b"x") == b""
    except OSError:
        return True


def test_nothing_passes_while_it_holds_and_nothing_is_lost(proxy: TcpProxy) -> None:
    with connected(proxy) as one:
        proxy.hold()
        one.sendall(b"later")
        one.settimeout(0.2)
        with pytest.raises(TimeoutError):
            one.recv(100)
        one.settimeout(60.0)
        proxy.calm()
        assert one.recv(100) == b"later"


def test_a_slow_network_delivers_in_order(proxy: TcpProxy) -> None:
    with connected(proxy) as one:
        proxy.slow(0.01)
        for number in range(20):
            one.sendall(b"%04d" % number)
        found = b""
        while len(found) < 80:
            found += one.recv(100)
        assert found == b"".join(b"%04d" % number for number in range(20))


def test_without_anybody_behind_it_connections_end(proxy: TcpProxy) -> None:
    with connected(proxy) as one:
        proxy.target_port = 1
        with socket.create_connection(("127.0.0.1", proxy.port), 60.0) as other:
            assert ends(other)
        assert answer(one, b"still") == b"still"
    wait_until(lambda: not proxy._pairs, "nothing is left of a connection that was closed")
